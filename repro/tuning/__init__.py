"""Which schedules are faster on this machine: a search over what a target can choose, by measuring kernels in place.

measure      a program by several sets of schedules in turn, in a process of its own; bits are compared
search       the walk along the dimensions in which schedules differ; what is kept is faster beyond noise
tuning       from a model to a tuning file
"""

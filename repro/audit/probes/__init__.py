"""The order in which an executor adds, read off its results.

tree      an order as a tree, in one canonical form
reveal    the tree of a sum or dot that can only be called
orders    the orders that libraries are known to use, as trees
describe  a tree in words
evaluate  the bits that a tree gives, to confirm what was read
probing   all of it for one adder
own       repro's own sum and dot
running   the probes of executors, each in a process of its own
tables    probes in Markdown
"""

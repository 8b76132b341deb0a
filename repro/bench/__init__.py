"""How fast, beside others, in one run: workloads, the sides that run them, and what each kernel takes.

network      a small builder of ONNX models with seeded weights
workloads/   what is measured: models and single operations, each with the same computation in PyTorch
sides        what runs a workload: repro, PyTorch eager and compiled, ONNX Runtime
measuring    interleaved rounds, medians, intervals of ratios; memory in processes of their own
peaks        what this machine can do at most: an fma loop; memory read, copied, updated
kernels      the time of each kernel of a program, beside its work
report       the findings as a table, as JSON and as a roofline picture
"""

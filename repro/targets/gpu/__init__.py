"""NVIDIA GPUs. What stands so far: kernels as PTX, one work item for each thread."""

from repro.targets.gpu.ptx import emit_ptx

__all__ = ["emit_ptx"]

"""NVIDIA GPUs: kernels as PTX, with the launches that run them (docs/gpu.md)."""

from repro.targets.gpu.emit import codes, emit
from repro.targets.gpu.launch import GpuKernel, Launch

__all__ = ["GpuKernel", "Launch", "codes", "emit"]

"""Machines as data: what passes and emitters need to know of each, and nothing that runs."""

from repro.machines.cpu import AARCH64, CPUS, X86_64_V3, X86_64_V4
from repro.machines.gpu import GRAPHICS, SM_80, GpuMachine
from repro.machines.machine import Machine

__all__ = ["AARCH64", "CPUS", "GRAPHICS", "SM_80", "X86_64_V3", "X86_64_V4", "GpuMachine", "Machine"]

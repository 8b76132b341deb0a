"""Kernels and programs to ELF objects: pure functions, fit for worker processes and for a cache."""

from __future__ import annotations

from collections.abc import Sequence

from repro.ir.loops import Kernel, parse_kernel
from repro.ir.program import Program
from repro.ir.schedule import Schedule
from repro.machines import Machine
from repro.targets.llvm import kernel as kernels
from repro.targets.llvm.program import emit_program
from repro.targets.llvm.toolchain import object_code


def compile_kernel(kernel: Kernel | str, schedule: Schedule, machine: Machine) -> bytes:
    """The object of one kernel (or of its text form): `kernel.digest`, `schedule.text` and the machine decide it."""
    parsed = parse_kernel(kernel) if isinstance(kernel, str) else kernel
    return object_code(kernels.emit(parsed, schedule, machine), machine)


def compile_program(program: Program, schedules: Sequence[Schedule], machine: Machine) -> bytes:
    """The object of the program's steps; `schedules` stand beside `program.kernels`."""
    return object_code(emit_program(program, schedules, machine), machine)


def scratch(program: Program, schedules: Sequence[Schedule]) -> int:
    """Bytes of private memory that each thread needs: the most that any kernel does."""
    pairs = zip(program.kernels, schedules, strict=True)
    return max((kernels.scratch_bytes(*pair) for pair in pairs), default=0)

"""What a target that makes code offers; `repro.targets.cpu` is the first.

    compile_kernel(kernel, schedule, machine) -> bytes      one object per (kernel digest, schedule, machine)
    compile_program(program, schedules, machine) -> bytes   the object that calls them
    load(objects) -> Code                                   callable on this host

All but `load` are pure functions of their arguments and the toolchain's version, so they may run in other
processes and on other hosts. A kernel travels between processes as `kernel.text` (`parse_kernel` reads it).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from repro.ir.loops import Kernel
from repro.ir.program import Program
from repro.ir.schedule import Schedule
from repro.machines import Machine


class Code(Protocol):
    """Loaded code of one program."""

    def enter(self, context: int, thread: int, threads: int) -> int:
        """Run one thread's part; the context is laid out as `repro.targets.llvm.context` says."""
        ...


class Target(Protocol):
    """The functions of a code-making target's module."""

    def compile_kernel(self, kernel: Kernel | str, schedule: Schedule, machine: Machine) -> bytes: ...

    def compile_program(self, program: Program, schedules: Sequence[Schedule], machine: Machine) -> bytes: ...

    def load(self, objects: Sequence[bytes]) -> Code: ...

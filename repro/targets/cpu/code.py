"""From kernels and programs to objects, and from objects to a callable."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache

from repro.ir.loops import Kernel
from repro.ir.parse_kernel import parse_kernel
from repro.ir.program import Program
from repro.ir.schedule import Schedule
from repro.machines import Machine
from repro.targets.llvm import crew, pieces, toolchain
from repro.targets.llvm import kernel as kernels
from repro.targets.llvm import program as programs
from repro.targets.llvm.context import SYMBOL


def compile_kernel(kernel: Kernel | str, schedule: Schedule, machine: Machine) -> bytes:
    """The ELF object of a kernel, or of a kernel's text form."""
    parsed = parse_kernel(kernel) if isinstance(kernel, str) else kernel
    return toolchain.object_code(kernels.emit(parsed, schedule, machine), machine)


def compile_program(program: Program, schedules: Sequence[Schedule], machine: Machine, profile: bool = False) -> bytes:
    """The ELF object of a program; it calls the kernels' objects by symbol. `profile`: it takes its time."""
    return toolchain.object_code(programs.emit(program, schedules, machine, profile), machine)


def scratch_bytes(program: Program, schedules: Sequence[Schedule]) -> int:
    """Private bytes that each thread needs: what it has taken of its share, what is local to a block of rows, and what
    the kernel needs that it runs."""
    pairs = zip(program.kernels, schedules, strict=True)
    most = max((kernels.scratch_bytes(kernel, schedule) for kernel, schedule in pairs), default=0)
    return pieces.TAKEN_BYTES + program.local_bytes + most


class Code:
    """Objects loaded into this process."""

    def __init__(self, objects: Sequence[bytes]) -> None:
        self._loaded = toolchain.Loaded(objects, SYMBOL)
        prototype = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        self.address = self._loaded.address
        self.enter = prototype(self.address)
        """enter(context, thread, threads): releases the interpreter's lock while it runs."""


def load(objects: Sequence[bytes]) -> Code:
    """A program's object and those of its kernels, linked in this process. Only objects that we built may come here."""
    return Code(objects)


class CrewFunction:
    """The function of llvm/crew.py, loaded; it releases the interpreter's lock while it runs."""

    def __init__(self, machine: Machine) -> None:
        self._loaded = toolchain.Loaded([toolchain.object_code(crew.emit(machine), machine)], crew.SYMBOL)
        pointers, numbers = [ctypes.c_void_p] * 3, [ctypes.c_int64] * 2
        function = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64, *pointers, *numbers)(self._loaded.address)
        self.call: Callable[..., int] = function


@cache
def crew_function(machine: Machine) -> CrewFunction:
    """`repro_crew` in this process."""
    return CrewFunction(machine)

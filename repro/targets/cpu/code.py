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
from repro.targets.llvm import crew, toolchain
from repro.targets.llvm import kernel as kernels
from repro.targets.llvm import program as programs
from repro.targets.llvm.context import SCRATCH_SYMBOL, SYMBOL


def compile_kernel(kernel: Kernel | str, schedule: Schedule, machine: Machine) -> bytes:
    """The ELF object of a kernel, or of a kernel's text form."""
    parsed = parse_kernel(kernel) if isinstance(kernel, str) else kernel
    return toolchain.object_code(kernels.emit(parsed, schedule, machine), machine)


def compile_program(program: Program, schedules: Sequence[Schedule], machine: Machine, profile: bool = False) -> bytes:
    """The ELF object of a program; it calls the kernels' objects by symbol. `profile`: it takes its time."""
    return toolchain.object_code(programs.emit(program, schedules, machine, profile), machine)


class Code:
    """A program's object and those of its kernels, linked in this process; `scratch` is what it says that each thread
    needs, in bytes. Only objects that we built may come here."""

    def __init__(self, objects: Sequence[bytes]) -> None:
        self._loaded = toolchain.Loaded(objects, SYMBOL, SCRATCH_SYMBOL)
        prototype = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        self.address, scratch = self._loaded.addresses
        self.scratch = ctypes.c_int64.from_address(scratch).value
        self.enter = prototype(self.address)
        """enter(context, thread, threads): releases the interpreter's lock while it runs."""


class CrewFunction:
    """The function of llvm/crew.py, loaded; it releases the interpreter's lock while it runs."""

    def __init__(self, machine: Machine) -> None:
        self._loaded = toolchain.Loaded([toolchain.object_code(crew.emit(machine), machine)], crew.SYMBOL)
        pointers, numbers = [ctypes.c_void_p] * 3, [ctypes.c_int64] * 2
        function = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64, *pointers, *numbers)(self._loaded.addresses[0])
        self.call: Callable[..., int] = function


@cache
def crew_function(machine: Machine) -> CrewFunction:
    """`repro_crew` in this process."""
    return CrewFunction(machine)

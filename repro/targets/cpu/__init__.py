"""The CPU target: programs compiled to objects, one per kernel and one that calls them, and run on threads.

    schedules = [schedule(kernel, machine) for kernel in program.kernels]                   (passes.schedule)
    objects = [compile_kernel(kernel, s, machine) for kernel, s in zip(program.kernels, schedules)]
    objects.append(compile_program(program, schedules, machine))
    executable = CpuExecutable(program, Code(objects), threads)                             (repro.runtime)

Compiling is a pure function of its arguments and the toolchain, so any process on any host may do it; a kernel
travels as its text. Objects are position independent ELF and need the C library alone, so they also link statically.
"""

from repro.targets.cpu.code import Code, CrewFunction, compile_kernel, compile_program, crew_function
from repro.targets.cpu.host import best_machine, features, runs_here

__all__ = [
    "Code", "CrewFunction", "best_machine", "compile_kernel", "compile_program", "crew_function", "features",
    "runs_here",
]  # fmt: skip

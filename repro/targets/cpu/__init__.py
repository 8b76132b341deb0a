"""CPU code: objects for x86-64-v3, x86-64-v4 and AArch64, and loading them on a host that runs them.

    schedules = [schedule_kernel(kernel, machine) for kernel in program.kernels]        (passes.schedule)
    objects = [compile_kernel(kernel, s, machine) for kernel, s in zip(program.kernels, schedules)]
    objects.append(compile_program(program, schedules, machine))
    code = load(objects)
    session = Session(program, code, scratch(program, schedules), threads=2)          (repro.runtime.session)

Objects are ELF and position independent; each kernel is a symbol `k_<first 16 of its digest>`, the program is
`program` (see `repro.targets.llvm.context`). They need nothing but the C library, statically linked or not.
"""

from repro.targets.cpu.code import compile_kernel, compile_program, scratch
from repro.targets.cpu.host import best_of_host, runs_here
from repro.targets.cpu.loading import LoadedCode, load

__all__ = ["LoadedCode", "best_of_host", "compile_kernel", "compile_program", "load", "runs_here", "scratch"]

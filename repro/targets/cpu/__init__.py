"""The CPU target: programs compiled to objects, one per kernel and one that calls them, and run on threads.

compile_kernel(text, schedule, machine name) -> object     pure and picklable: any process may do it
compile_program(program, schedules, machine) -> object
Code(objects)                                              loaded on this host
"""

from repro.targets.cpu.code import Code, compile_kernel, compile_program, scratch_bytes
from repro.targets.cpu.host import best_machine, runs_here

__all__ = ["Code", "best_machine", "compile_kernel", "compile_program", "runs_here", "scratch_bytes"]

"""State that the device itself keeps from being written: so that a step whose indices are checked is one launch.

The host of a program reads the verdict on a run's indices before it commits. A device would wait for the host there. So
here every kernel of the commit reads the verdict, and stores only where nothing is refused.
"""

from __future__ import annotations

from dataclasses import replace

from passes.plan import plan
from passes.sequences import by_first_use, renamed
from repro.errors import InternalError
from repro.ir import index as ix
from repro.ir.expressions import apply, load
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.program import Call, Commit, CountedLoop, Program, Step
from repro.ir.types import BOOL


def guarded(program: Program) -> Program:
    """The program with no commit that waits for a verdict; itself where none does."""
    kernels, steps = list(program.kernels), list[Step]()
    for step in program.steps:
        if isinstance(step, Commit) and step.refused is not None:
            steps.append(Commit(None, tuple(_guarded(each, step.refused, kernels) for each in step.body)))
        else:
            steps.append(step)
    if len(kernels) == len(program.kernels):
        return program
    used, numbers = by_first_use(kernels, steps)
    final = tuple(renamed(step, {}, numbers) for step in steps)
    buffers, arena = plan(program.buffers, final)
    return replace(program, kernels=used, buffers=buffers, steps=final, arena_bytes=arena)


def _guarded(step: Step, refused: int, kernels: list[Kernel]) -> Step:
    match step:
        case Call():
            kernels.append(_with_verdict(kernels[step.kernel]))
            return replace(step, kernel=len(kernels) - 1, buffers=(*step.buffers, refused))
        case CountedLoop():
            return replace(step, body=tuple(_guarded(each, refused, kernels) for each in step.body))
        case _:
            raise InternalError(f"a commit that decides on its way: {type(step).__name__}")


def _with_verdict(kernel: Kernel) -> Kernel:
    """The kernel with one buffer more, a bool: it stores nothing if that is true."""
    kept = apply("not", load(BOOL, len(kernel.buffers), ix.number(0)))

    def only(store: Store) -> Store:
        return replace(store, when=kept if store.when is None else apply("and", store.when, kept))

    buffers = (*kernel.buffers, BufferParameter(BOOL, 1, False))
    return replace(kernel, buffers=buffers, stores=tuple(only(store) for store in kernel.stores))

"""What a program would take on a chip, without running it: nothing but loops that data end is unknown.

A `while` counts as one pass over its body, a branch as its longer side, a `when_any` as skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from repro.errors import InternalError
from repro.ir.program import Branch, Call, Commit, CountedLoop, Program, RowBlocks, Step, While, walk
from repro.targets.tpu_sim.chips import Chip
from repro.targets.tpu_sim.codegen.emit import emit
from repro.targets.tpu_sim.profile import Profile, profile
from repro.targets.tpu_sim.timing import time_routine


def estimate(program: Program, chip: Chip) -> Profile:
    """The profile of one run."""
    routines = [emit(kernel, chip) for kernel in program.kernels]
    timings = [time_routine(routine, chip) for routine in routines]
    cycles = [timing.cycles for timing in timings]
    skipped = [(0,) * len(timing.branches) for timing in timings]
    trace = [(kernel, skipped[kernel]) for kernel in _calls(program.steps, cycles)]
    return profile(chip, routines, timings, trace)


def exact(program: Program) -> bool:
    """Whether no data decide what runs."""
    return not any(isinstance(step, While | Branch) for step in walk(program.steps))


def _calls(steps: Sequence[Step], cycles: Sequence[int]) -> Iterator[int]:
    for step in steps:
        match step:
            case Call():
                yield step.kernel
            case CountedLoop():
                for _ in range(step.count):
                    yield from _calls(step.body, cycles)
            case RowBlocks():
                raise InternalError("this target did not ask for blocks of rows")
            case While() | Commit():
                yield from _calls(step.body, cycles)
            case Branch():
                sides = [list(_calls(side, cycles)) for side in (step.then, step.otherwise)]
                yield from max(sides, key=lambda side: sum(cycles[kernel] for kernel in side))

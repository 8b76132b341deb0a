"""Calls moved up to where their operands are: what they are the last to read can end there.

Moved is a call that writes an output, which is no temporary, or a buffer that lives through the whole sequence of the
call anyway, as what a loop carries does. So lives become shorter and none becomes longer. The next value of a weight
is computed when its gradient is there, and a sum over microbatches takes its new value before the next is begun.
"""

from __future__ import annotations

from dataclasses import replace

from passes.plan import Uses, plan
from passes.sequences import Path, Touched, bodies, sequences, touches, with_bodies
from repro.ir.program import OUTPUT, Call, Program, Step


class Times(Uses):
    """Lives, and when each step of each sequence begins; sequences in the order of `sequences`."""

    def __init__(self) -> None:
        super().__init__()
        self.begins: list[list[int]] = []

    def visit(self, steps: tuple[Step, ...]) -> None:
        begins: list[int] = []
        self.begins.append(begins)
        for step in steps:
            begins.append(self.time + 1)
            super().visit((step,))


def earlier(program: Program) -> Program:
    """The program with calls moved up, and its arena planned anew."""
    lives = Times()
    lives.visit(program.steps)
    lives.keep_results()
    places = zip(sequences(program.steps), lives.begins, strict=True)
    starts = {path: begins[0] for (path, _, _), begins in places if begins}

    def moved(steps: tuple[Step, ...], path: Path) -> tuple[Step, ...]:
        done: list[Step] = []
        known: list[Touched] = []
        for position, step in enumerate(steps):
            inner = [moved(body, (*path, (position, side))) for side, (body, _) in enumerate(bodies(step))]
            mine = touches(program, step)
            place = len(done)
            if isinstance(step, Call) and all(lasting(buffer, path) for buffer in mine.written):
                while place and not known[place - 1].before(mine):
                    place -= 1
            done.insert(place, with_bodies(step, inner))
            known.insert(place, mine)
        return tuple(done)

    def lasting(buffer: int, path: Path) -> bool:
        return program.buffers[buffer].role == OUTPUT or lives.first[buffer] < starts[path]

    steps = moved(program.steps, ())
    buffers, arena = plan(program.buffers, steps)
    return replace(program, buffers=buffers, steps=steps, arena_bytes=arena)

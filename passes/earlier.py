"""Calls moved up to where their operands are: what they are the last to read can end there, and is still near.

Moved is a call whose results take no more memory than what it is the last to read: a weight's gradient is computed when
the cotangent of its layer is there, not when those of all layers are. An output is no temporary, and a buffer that
lives through the whole sequence of the call anyway, as what a loop carries does, takes no more either: a sum over
microbatches takes its new value before the next is begun.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from passes.plan import Uses, plan
from passes.sequences import Path, Touched, bodies, sequences, touches, with_bodies
from repro.ir.program import TEMPORARY, Call, Program, RowBlocks, Step

Order = tuple[int, ...]
"""Where a step stands: at its own number, or behind the step that it was moved up to, whose order it begins with."""


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
            if isinstance(step, RowBlocks):
                self.begins.append([self.time] * len(step.body))


def earlier(program: Program) -> Program:
    """The program with calls moved up, and its arena planned anew; itself where that takes more memory. First those
    that take no more memory wherever they are, then those of which that depends on where other calls are."""
    return _moved(_moved(program, lambda fresh, _: not fresh), lambda fresh, ended: fresh <= ended)


def _moved(program: Program, may: Callable[[int, int], bool]) -> Program:
    """`may` is asked of each call with the bytes that begin and end with it."""
    lives = Times()
    lives.visit(program.steps)
    lives.keep_results()
    places = zip(sequences(program.steps), lives.begins, strict=True)
    begins = {path: begins for (path, _, _), begins in places}

    def moved(steps: tuple[Step, ...], path: Path) -> tuple[Step, ...]:
        done: list[Step] = []
        touching = [touches(program, step) for step in steps]
        for position, step in enumerate(steps):
            inner = [moved(body, (*path, (position, side))) for side, (body, _) in enumerate(bodies(step))]
            done.append(step if isinstance(step, RowBlocks) else with_bodies(step, inner))
        ended = [ending(touching[at], at, path) if isinstance(step, Call) else None for at, step in enumerate(steps)]
        return tuple(done[at] for at in _in_order(touching, ended))

    def ending(mine: Touched, at: int, path: Path) -> list[int] | None:
        """What ends with a call; None for a call that stays."""
        start, now = begins[path][0], begins[path][at]
        fresh = [b for b in mine.written if program.buffers[b].role == TEMPORARY and lives.first[b] >= start]
        ended = [b for b in mine.read if program.buffers[b].role == TEMPORARY and lives.last[b] == now]
        sizes = (sum(program.buffers[buffer].nbytes for buffer in each) for each in (fresh, ended))
        return ended if may(*sizes) else None

    steps = moved(program.steps, ())
    if steps == program.steps:
        return program
    buffers, arena = plan(program.buffers, steps)
    found = replace(program, buffers=buffers, steps=steps, arena_bytes=arena)
    return found if arena <= program.arena_bytes else program


def _in_order(touching: Sequence[Touched], ended: Sequence[list[int] | None]) -> list[int]:
    """The numbers of steps, those that may move right behind the last that they must follow, or that reads what ends
    with them: `ended` is that, None for a step that stays."""
    written: dict[int, Order] = {}
    used: dict[int, Order] = {}
    """Of each buffer the last step that writes it, and the last that reads or writes it."""
    orders: list[Order] = []
    for at, mine in enumerate(touching):
        firsts = [written[buffer] for buffer in mine.read if buffer in written]
        firsts += [used[buffer] for buffer in mine.written if buffer in used]
        ending = ended[at]
        firsts += [used[buffer] for buffer in ending or () if buffer in used]
        order = (at,) if ending is None else (*max(firsts, default=()), at)
        orders.append(order)
        for buffer in mine.written:
            written[buffer] = max(order, written.get(buffer, order))
        for buffer in mine.read | mine.written:
            used[buffer] = max(order, used.get(buffer, order))
    return sorted(range(len(orders)), key=orders.__getitem__)

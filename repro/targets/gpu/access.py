"""How a block of threads comes by an operand of a contraction: a fact of the plan, known before any code is written."""

from __future__ import annotations

from dataclasses import dataclass

from repro.ir import index as ix
from repro.ir.expressions import Load
from repro.ir.types import BOOL
from repro.targets.gpu.separation import Separation, run_of, separate
from repro.targets.gpu.tiles import Plan

SECTORS = (8, 16, 32, 64, 128)
"""Neighbours of four bytes that are whole sectors of a cache line."""
MOST_LINES = 16
"""Of a thread, whose presence is a mask."""
TURNED = 16
"""Terms of a step from which on those that are neighbours are copied one by one, so that lines lie side by side in
shared memory. A thread then reads four lines of a term at a time, into registers of which every other one is even;
four terms of a line would give each term one bank of registers (docs/gpu.md). A warp's copies lie in two lines then;
of fewer terms in more, and each takes the cache a cycle."""


@dataclass(frozen=True)
class Access:
    """`separation`: where its elements lie, if they are copied; None if they are evaluated. `by_term`: the elements
    that a thread brings are of one term, because terms are neighbours in memory, and lines are not. `wide`: elements of
    one copy. `taps`: columns of a row of pixels, where such rows are what is brought (repro.targets.gpu.strips)."""

    separation: Separation | None
    by_term: bool
    wide: int
    taps: int = 1

    @property
    def terms_beside(self) -> bool:
        """Whether terms lie side by side in shared memory too: copies of several terms leave no choice."""
        return self.by_term and self.wide > 1

    def along(self, plan: Plan, side: int) -> int:
        """Threads that bring the neighbours of a step. Where terms are shared out and their number divides no block, a
        power of two: those beyond the last term bring it again, to a place that nobody reads. Where lines follow a
        stride and an element is a copy, they are few, which still read whole sectors: a thread has many lines then, at
        constant distances from the first."""
        lines, depth, threads = plan.seen(side).tile.block[side], plan.tile.depth, plan.tile.threads
        if self.by_term:
            runs = depth // self.wide
            return runs if threads % runs == 0 or self.wide == 1 else 1 << (runs - 1).bit_length()
        runs = lines // self.wide
        if self.separation is None or self.separation.line_stride is None or (self.wide > 1 and threads % runs == 0):
            return runs
        sectors = SECTORS if self.separation.tabled or self.wide > 1 else SECTORS[1:]
        fitting = (few for few in sectors if runs % few == 0 and threads % few == 0 and few * depth % threads == 0)
        return next((few for few in fitting if runs // few <= MOST_LINES), runs)

    def even(self, plan: Plan, side: int) -> bool:
        """Whether every thread has the same share of a step."""
        lines, depth, threads = plan.seen(side).tile.block[side], plan.tile.depth, plan.tile.threads
        along = self.along(plan, side)
        runs = lines * (along if self.by_term and self.wide > 1 else depth // self.wide)
        return runs % threads == 0 and threads % along == 0 and (self.by_term or depth % (threads // along) == 0)

    def group(self, plan: Plan) -> int:
        """A thread's output lines that lie side by side."""
        return self.taps if self.terms_beside else plan.chunk


def access(plan: Plan, side: int) -> Access:
    """Of the rows' (side 0) or the columns' (side 1) operand."""
    taps, plan = plan.tile.taps if side == 1 else 1, plan.seen(side)
    term, terms, lines = plan.contraction.terms[side], plan.contraction.reduce.axes, plan.axes(side)
    along_lines, along_terms = plan.contraction.neighbours(side)
    by_term = along_terms > along_lines
    if not isinstance(term, Load) or term.dtype is BOOL or term.buffer in plan.carried:
        return Access(None, by_term, 1)
    present = plan.contraction.reduce.present if plan.contraction.absent_in == side else None
    if taps > 1:
        return Access(separate(term, None, lines, terms), True, plan.chunk, taps=taps)
    separation = separate(term, present, lines, terms)
    if by_term and plan.tile.depth >= TURNED and plan.tile.taps == 1:
        return Access(separation, by_term, 1)
    fitting = (wide for wide in (plan.chunk, 2) if _whole_runs(plan, side, term, separation, by_term, wide))
    return Access(separation, by_term, next(fitting, 1))


def _whole_runs(plan: Plan, side: int, load: Load, separation: Separation | None, by_term: bool, wide: int) -> bool:
    """Whether every run of so many elements along the fast axis lies together in the buffer, and aligned."""
    if separation is None or separation.meeting is not None or (by_term and plan.panels > 1 and plan.panel % wide):
        return False
    extent, rest = run_of(load.offset, plan.contraction.reduce.axes if by_term else plan.axes(side))
    fits = plan.tile.block[side] * plan.tile.depth >= wide * plan.tile.threads
    return extent > 1 and extent % wide == 0 and ix.divisible(rest, wide) and fits

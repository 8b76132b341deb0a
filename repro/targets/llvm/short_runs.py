"""Leaves of a sum in lanes (rule 10) whose terms lie in runs that have few of the order's lanes in common with these.

Lanes that go over the end of a run would be gathered, or put together of parts that end with it (`Along.vector`); too
short ones take longer than this: each run is read from its own beginning, and the lanes' sums are turned behind it, so
that where a run begins, lane 0 of the vector has the order's lane of its first term.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from repro.ir.expressions import Lanes, Reduce
from repro.ir.types import I64
from repro.targets.llvm import scalars
from repro.targets.llvm.scope import Scope
from repro.targets.llvm.terms import Terms
from repro.targets.llvm.text import Val, element, integer

FEWEST = 8
"""Terms of a run, or of a part of one, at least: one takes about as long as so many that are gathered."""


def pays(reduction: Reduce, order: Lanes) -> bool:
    """Whether vectors of the order's lanes would go over the ends of runs."""
    run = reduction.axes[-1].extent
    return len(reduction.axes) > 1 and run >= FEWEST and math.gcd(run, order.lanes) < FEWEST


class ShortRuns:
    """The leaves of one reduction."""

    def __init__(self, terms: Terms, order: Lanes) -> None:
        self.terms, self.body, self.f, self.width = terms, terms.body, terms.f, order.lanes
        *self.before, self.along = terms.reduce.axes

    def leaf(self, begin: Val, end: Val) -> Val:
        """The sums of the order's lanes over terms from `begin`, a multiple of the lanes, to `end`, turned somehow: in
        a fold by halves a lane meets the same ones wherever the first one stands."""
        f, extent, start = self.f, self.along.extent, self.terms.identity(self.width)
        stop = f.let(f"udiv i64 {end.text}, {extent}", I64)
        if begin.number == 0:
            first, state = integer(0), start
        else:
            number = f.let(f"udiv i64 {begin.text}, {extent}", I64)
            first, state = f.add(number, integer(1)), self._part(number, begin, end, start)
        state = f.loop(first, stop, 1, [state], self._whole)[0]
        if end.number is None or end.number % extent:

            def last(number: Val, state: list[Val]) -> Sequence[Val]:
                return [self._part(number, begin, end, state[0])]

            runs = f.let(f"udiv i64 {f.add(end, integer(extent - 1)).text}, {extent}", I64)
            state = f.loop(scalars.greatest(f, first, stop), runs, 1, [state], last)[0]
        return state

    def _whole(self, number: Val, state: list[Val]) -> Sequence[Val]:
        """The sums with all of a run, turned."""
        extent = self.along.extent
        found = self._run(number, integer(0), integer(extent), state[0])
        left = extent % self.width
        picks = ", ".join(f"i32 {(lane + left) % self.width}" for lane in range(self.width))
        text = f"shufflevector {found.typed}, {found.type} poison, <{self.width} x i32> <{picks}>"
        return [self.f.let(text, found.dtype, self.width)]

    def _part(self, number: Val, begin: Val, end: Val, state: Val) -> Val:
        """The sums with what the leaf has of a run, turned."""
        f, before = self.f, self.f.scaled(number, self.along.extent)
        low, high = (f.let(f"sub i64 {at.text}, {before.text}", I64) for at in (begin, end))
        low = scalars.greatest(f, low, integer(0))
        high = scalars.least(f, high, integer(self.along.extent))
        found = self._run(number, low, high, state)
        return self._turned_by(found, f.let(f"sub i64 {high.text}, {low.text}", I64))

    def _run(self, number: Val, low: Val, high: Val, state: Val) -> Val:
        f, body, width = self.f, self.body, self.width
        run = Scope(self.terms.scope, dict(zip(self.before, body.split(number, self.before), strict=True)))
        body.hoist(self.terms.roots, run)

        def more(at: Val, state: Sequence[Val], mask: Val | None) -> Sequence[Val]:
            lanes = f.add(f.splat(at, width), f.lanes(width))
            scope = Scope(run, {self.along: lanes}, width, ((self.along,), at), mask)
            return [self.terms.combine(state[0], self.terms.term(scope, width))]

        length = f.let(f"sub i64 {high.text}, {low.text}", I64)
        middle = f.add(low, f.let(f"and i64 {length.text}, {-width}", I64))
        state = f.loop(low, middle, width, [state], lambda at, state: more(at, state, None))[0]

        def rest(at: Val, state: list[Val]) -> Sequence[Val]:
            lanes = f.add(f.splat(at, width), f.lanes(width))
            return more(at, state, scalars.compare(f, "lt", lanes, f.splat(high, width)))

        return f.loop(middle, high, width, [state], rest)[0]

    def _turned_by(self, value: Val, count: Val) -> Val:
        """Lane i gets what lane i + count has, by way of memory, where they lie twice."""
        f, kind = self.f, element(value.dtype)
        twice = f.alloca(f"[{2 * self.width} x {kind}]")
        for at in (0, self.width):
            place = f.let(f"getelementptr inbounds {kind}, ptr {twice}, i64 {at}", I64)
            f.line(f"store {value.typed}, ptr {place.text}, align {value.dtype.bytes}")
        first = f.let(f"and i64 {count.text}, {self.width - 1}", I64)
        place = f.let(f"getelementptr inbounds {kind}, ptr {twice}, i64 {first.text}", I64)
        return f.let(f"load {value.type}, ptr {place.text}, align {value.dtype.bytes}", value.dtype, self.width)

"""Reductions along their own axis, where the order has lanes or is any: the terms' lanes are those of vectors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

from repro.ir import index as ix
from repro.ir.expressions import Axis, Exact, Lanes, Load, Reduce, topological
from repro.ir.types import BOOL, I64
from repro.targets.llvm import scalars, tables
from repro.targets.llvm.extremes import Extreme
from repro.targets.llvm.memory import FAR_BYTES
from repro.targets.llvm.row_sums import Needs
from repro.targets.llvm.scope import Scope
from repro.targets.llvm.short_runs import FEWEST
from repro.targets.llvm.terms import Terms
from repro.targets.llvm.text import Val, integer

RUN_BYTES = 4 << 10
"""Of runs that are long enough to be fetched ahead by hardware."""
AHEAD_BYTES, MOST_RUNS = 2 << 10, 4
"""Of shorter ones that are asked for ahead, and how many: runs a power of two apart share a set of each cache."""
SIDE_BY_SIDE = 4
"""Vectors that a reduction of any order combines apart: a combiner may take longer than a load."""


@dataclass(frozen=True)
class Run:
    """A reduction along its own axis, in any number of steps of a multiple of `lanes` terms."""

    reduce: Reduce
    lanes: int
    start: Sequence[Val]
    step: Callable[[Val, Sequence[Val], int], Sequence[Val]]
    """The state with so many more terms, from one on."""
    finish: Callable[[Val, Val, Sequence[Val]], Val]
    """The value, with the terms that are left: from one on up to another."""


class Along(Terms):
    kept_at: Val | None = None
    """Where terms are kept too."""

    def is_along(self) -> bool:
        """Whether the lanes of vectors are terms."""
        return self.width == 1 and 1 < self.body.lanes <= self.count

    def run(self) -> Run | None:
        """The reduction step by step, if it goes along its own axis in one run."""
        order = self.reduce.order
        if not self.is_along() or self.dtype is BOOL or self.reduce.combiner.startswith("arg"):
            return None
        if isinstance(order, Lanes) and self.count <= order.leaf:
            self.body.hoist(self.roots, self.scope)
            return self.run_of_lanes(order.lanes)
        if isinstance(order, Exact):
            self.body.hoist(self.roots, self.scope)
            return self.run_of_any_order()
        return None

    def alone(self, run: Run, begin: Val, end: Val) -> Val:
        """Terms of a run in a loop of their own."""
        if self.count < run.lanes:
            return run.finish(begin, end, run.start)
        whole = self.count % run.lanes == 0
        stop = end if whole else self.f.add(begin, self._whole(begin, end, run.lanes))

        def step(flat: Val, state: list[Val]) -> Sequence[Val]:
            return run.step(flat, state, run.lanes)

        return run.finish(stop, end, self.f.loop(begin, stop, run.lanes, run.start, step))

    def run_of_lanes(self, width: int) -> Run:
        """Each lane adds its terms one after another."""

        def step(flat: Val, state: Sequence[Val], lanes: int) -> Sequence[Val]:
            value = self.vector(flat, lanes)
            self.keep(flat, value)
            parts = (tables.lanes_of(self.f, value, first, width) for first in range(0, lanes, width))
            return [reduce(self.combine, parts, state[0])]

        def finish(begin: Val, end: Val, state: Sequence[Val]) -> Val:
            return self.fold(self._rest(width, begin, end, state[0]))

        return Run(self.reduce, width * self.vectors_at_once(width), [self.identity(width)], step, finish)

    def run_of_any_order(self) -> Run:
        if Extreme.pays(self.reduce.combiner, self.dtype, self.body.machine):
            return self._run_of_extremes()
        return self._run_side_by_side(self.body.lanes)

    def _run_side_by_side(self, width: int) -> Run:
        """Several vectors on the way at once, in half the registers."""
        machine = self.body.machine
        apart = machine.registers // 2 // max(1, width // machine.lanes(self.dtype.bits))
        count = max(1, min(SIDE_BY_SIDE, apart))

        def step(flat: Val, state: Sequence[Val], lanes: int) -> Sequence[Val]:
            found = list(state)
            for place, value in enumerate(self.side_by_side(flat, width, lanes // width)):
                found[place % count] = self.combine(found[place % count], value)
            return found

        def finish(begin: Val, end: Val, state: Sequence[Val]) -> Val:
            return self.fold(self._rest(width, begin, end, reduce(self.combine, state)))

        return Run(self.reduce, width * count, [self.identity(width)] * count, step, finish)

    def _run_of_extremes(self) -> Run:
        """The greatest or least float, a register's lanes apart; what is left over in the order's own lanes."""
        width = self.body.machine.lanes(self.dtype.bits)
        extreme = self.extreme(width)

        def step(flat: Val, state: Sequence[Val], lanes: int) -> Sequence[Val]:
            return extreme.step(list(state), self.side_by_side(flat, width, lanes // width))

        def finish(begin: Val, end: Val, state: Sequence[Val]) -> Val:
            found = extreme.value(list(state), self.fold(state[0], extreme.further))
            if begin.text == end.text:
                return found
            return self.combine(found, self.fold(self._rest(self.body.lanes, begin, end)))

        return Run(self.reduce, width * SIDE_BY_SIDE, extreme.start(self.identity(width)), step, finish)

    def extreme(self, width: int) -> Extreme:
        needs = self.body.needs.get(self.reduce, Needs())
        return Extreme(self.f, self.reduce.combiner, self.dtype, width, self.body.machine, needs)

    def vector(self, flat: Val, lanes: int) -> Val:
        """So many terms from a number on, a multiple of theirs; where they lie in shorter runs, a part from each."""
        part = lanes if len(self.reduce.axes) == 1 else math.gcd(self.reduce.axes[-1].extent, lanes)
        part = lanes if part < FEWEST else part
        places = [self.f.add(flat, integer(first)) for first in range(0, lanes, part)]
        return tables.joined(self.f, [self.term(self.lane_scope(place, part, None), part) for place in places])

    def side_by_side(self, flat: Val, width: int, count: int) -> list[Val]:
        """Vectors of terms that follow each other."""
        places = [self.f.add(flat, integer(width * number)) for number in range(count)]
        return [self.term(self.lane_scope(place, width, None), width) for place in places]

    def _rest(self, width: int, begin: Val, end: Val, start: Val | None = None) -> Val:
        """The terms that are left, a vector at a time, masked where vectors are not whole."""
        start = self.identity(width) if start is None else start
        if begin.text == end.text:
            return start

        def inside(flat: Val) -> Val:
            lanes = self.f.add(self.f.splat(flat, width), self.f.lanes(width))
            return scalars.compare(self.f, "lt", lanes, self.f.splat(end, width))

        def step(flat: Val, state: list[Val]) -> Sequence[Val]:
            mask = None if self.count % width == 0 else inside(flat)
            value = self.term(self.lane_scope(flat, width, mask), width)
            self.keep(flat, value)
            return [self.combine(state[0], value)]

        return self.f.loop(begin, end, width, [start], step)[0]

    def vectors_at_once(self, width: int) -> int:
        """Vectors of terms that are computed beside each other: of functions whose steps wait for each other, as many
        as go together (`Road`)."""
        roads = (self.body.roads.get(expr) for expr in topological(self.reduce.terms))
        return max([1, *(road.lanes * road.together // width for road in roads if road is not None)])

    def keep(self, flat: Val, value: Val) -> None:
        if self.kept_at is not None:
            self.body.hold(self.kept_at, flat, value)

    def _whole(self, begin: Val, end: Val, lanes: int) -> Val:
        """How many of the terms are in whole runs of a power of two."""
        length = self.f.let(f"sub i64 {end.text}, {begin.text}", I64)
        return self.f.let(f"and i64 {length.text}, {-lanes}", I64)

    def lane_scope(self, flat: Val, width: int, mask: Val | None) -> Scope:
        return self.body.lane_scope(self.scope, self.reduce.axes, flat, width, mask, aligned=True)

    def fold(self, value: Val, combine: Callable[[Val, Val], Val] | None = None) -> Val:
        """Lane j with lane j + half, down to one."""
        width = value.width
        while width > 1:
            width //= 2
            value = (combine or self.combine)(*(tables.lanes_of(self.f, value, first, width) for first in (0, width)))
        return value

    # what is asked for ahead ────────────────────────────────────────────────────────────────────────

    def runs_ahead(self) -> tuple[Axis, int] | None:
        """The axis along which later terms are asked for, and how far. Of runs that are long, or follow each other
        in memory, what lies some pages behind: hardware fetches less far. Of short runs that lie apart, later
        ones: hardware fetches ahead only within a run."""
        if self.body.ahead is None and self._far():
            return self.reduce.axes[-1], FAR_BYTES // self.dtype.bytes
        if len(self.reduce.axes) < 2:
            return None
        *_, apart, along = self.reduce.axes
        run = along.extent * self.dtype.bytes
        return (apart, min(MOST_RUNS, -(-AHEAD_BYTES // run))) if run < RUN_BYTES else None

    def _far(self) -> bool:
        """Whether terms come from beyond the second-level cache in long runs, or in such as follow each other."""
        *before, along = (*self.body.kernel.axes, *self.reduce.axes)
        apart = next((axis for axis in reversed(before) if axis.extent > 1), None)
        loads = [e for term in self.reduce.terms for e in topological([term]) if isinstance(e, Load)]
        large = [e for e in loads if self.body.is_far(e.buffer)]
        long = along.extent * self.dtype.bytes >= 2 * FAR_BYTES
        beside = all(ix.coefficient(e.offset, along) == 1 for e in large)
        follow = apart is not None and all(ix.coefficient(e.offset, apart) == along.extent for e in large)
        return bool(large) and beside and (long or follow)

"""Sums whose lanes stand in private memory, so that the short runs of many outputs are read in the order of memory.

Where a run of an output lies beside the next output's, and its next run far behind, one output after another reads a
run here and a run there. Here the outputs' runs are read as they lie, of several leaves in turn, and each output's
lanes are taken up again at its next run: they are loaded and stored once a run, and hardware fetches ahead across runs,
in several places at once. Each sum has the order that it has alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from repro.ir.expressions import Lanes, Load, Reduce
from repro.ir.types import I64
from repro.targets.llvm import scalars
from repro.targets.llvm.body import Body
from repro.targets.llvm.reductions import Reduction
from repro.targets.llvm.scope import Scope
from repro.targets.llvm.text import Val, element, integer, vector

OUTPUTS = 32
"""At a time."""


def pays(reduce: Reduce) -> bool:
    """Whether leaves are whole runs, and runs whole turns of the order's lanes; the leaves' sums are one leaf."""
    order, run, count = reduce.order, reduce.axes[-1].extent, math.prod(axis.extent for axis in reduce.axes)
    assert isinstance(order, Lanes)
    return run % order.lanes == 0 and order.leaf % run == 0 and count <= order.leaf * order.leaf


class KeptLanes:
    """The sums of some outputs, `at` being the scope of one and `stores` what is left once its sum is known."""

    def __init__(self, body: Body, reduce: Reduce, at: Callable[[Val], Scope], stores: Callable[[Scope], None]) -> None:
        assert isinstance(reduce.order, Lanes)
        self.body, self.f, self.reduce, self.at, self.stores = body, body.f, reduce, at, stores
        self.lanes, (*outer, self.along) = reduce.order.lanes, reduce.axes
        self.outer, self.runs = outer, math.prod(axis.extent for axis in outer)
        self.runs_of_leaf = reduce.order.leaf // self.along.extent
        self.kind, self.leaves = element(reduce.dtype), self._leaves_in_turn()
        counts = (OUTPUTS * self.lanes * self.leaves, OUTPUTS * self.lanes)
        self.of_leaf, self.of_leaves = (self.f.alloca(f"[{count} x {self.kind}]") for count in counts)

    def _leaves_in_turn(self) -> int:
        """As many as hardware fetches ahead in, where registers hold their lanes and terms come from memory."""
        machine, plain = self.body.machine, isinstance(self.reduce.terms[0], Load)
        vectors = self.lanes // machine.lanes(self.reduce.dtype.bits)
        whole = self.runs % (self.runs_of_leaf * machine.streams) == 0
        return machine.streams if plain and whole and vectors * machine.streams <= machine.registers else 1

    def emit(self, first: Val, last: Val) -> None:
        self.f.loop(first, last, OUTPUTS, (), lambda number, _: self._some(number, last))

    def _some(self, first: Val, last: Val) -> Sequence[Val]:
        f, leaf = self.f, self.runs_of_leaf
        count = scalars.least(f, f.let(f"sub i64 {last.text}, {first.text}", I64), integer(OUTPUTS))

        def each(visit: Callable[[Val, Reduction], None]) -> None:
            def one(place: Val, _: list[Val]) -> Sequence[Val]:
                visit(place, Reduction(self.body, self.reduce, self.at(f.add(first, place))))
                return ()

            f.loop(integer(0), count, 1, (), one)

        def some_leaves(start: Val, _: list[Val]) -> Sequence[Val]:
            number = f.let(f"udiv i64 {start.text}, {leaf}", I64)
            each(lambda place, sum_: self._clear(place, sum_))
            stop = scalars.least(f, f.add(start, integer(leaf)), integer(self.runs))
            f.loop(start, stop, 1, (), lambda run, _: (each(lambda place, sum_: self._run(place, run, sum_)), ())[1])
            each(lambda place, sum_: self._add_leaves(place, number, sum_))
            return ()

        each(lambda place, sum_: self._put(self.of_leaves, place, sum_.identity(self.lanes)))
        f.loop(integer(0), integer(self.runs), leaf * self.leaves, (), some_leaves)
        each(self._finish)
        return ()

    def _run(self, place: Val, run: Val, sum_: Reduction) -> None:
        """One more run of each leaf onto an output's lanes."""
        runs = [self.f.add(run, integer(leaf * self.runs_of_leaf)) for leaf in range(self.leaves)]
        places = [dict(zip(self.outer, self.body.split(each, self.outer), strict=True)) for each in runs]
        scopes = [Scope(sum_.scope, each) for each in places]

        def step(at: Val, state: list[Val]) -> Sequence[Val]:
            inside = [self.body.lane_scope(each, (self.along,), at, self.lanes, None, aligned=True) for each in scopes]
            return [
                sum_.combine(sum_of, sum_.term(each, self.lanes)) for sum_of, each in zip(state, inside, strict=True)
            ]

        before = [self._get(self.of_leaf, slot) for slot in self._slots(place)]
        after = self.f.loop(integer(0), integer(self.along.extent), self.lanes, before, step)
        for slot, value in zip(self._slots(place), after, strict=True):
            self._put(self.of_leaf, slot, value)

    def _clear(self, place: Val, sum_: Reduction) -> None:
        for slot in self._slots(place):
            self._put(self.of_leaf, slot, sum_.identity(self.lanes))

    def _slots(self, place: Val) -> list[Val]:
        first = self.f.scaled(place, self.leaves)
        return [self.f.add(first, integer(leaf)) for leaf in range(self.leaves)]

    def _add_leaves(self, place: Val, number: Val, sum_: Reduction) -> None:
        """The sums of the leaves from a number on, ascending, each onto its lane among the leaves."""
        for leaf, slot in enumerate(self._slots(place)):
            after = self.f.add(number, integer(leaf))
            lane = self.f.let(f"and i64 {after.text}, {self.lanes - 1}", I64)
            where = self.f.add(self.f.scaled(place, self.lanes), lane)
            address = f"ptr {self._address(self.of_leaves, where)}, align {self.reduce.dtype.bytes}"
            before = self.f.let(f"load {self.kind}, {address}", self.reduce.dtype)
            self.f.line(f"store {sum_.combine(before, sum_.fold(self._get(self.of_leaf, slot))).typed}, {address}")

    def _finish(self, place: Val, sum_: Reduction) -> None:
        held = self.of_leaves if self.runs > self.runs_of_leaf else self.of_leaf
        sum_.scope.known[self.reduce] = sum_.fold(self._get(held, place))
        self.stores(sum_.scope)

    def _get(self, held: str, place: Val) -> Val:
        text = f"load {vector(self.kind, self.lanes)}, {self._lanes(held, place)}"
        return self.f.let(text, self.reduce.dtype, self.lanes)

    def _put(self, held: str, place: Val, value: Val) -> None:
        self.f.line(f"store {value.typed}, {self._lanes(held, place)}")

    def _lanes(self, held: str, place: Val) -> str:
        address = self._address(held, self.f.scaled(place, self.lanes))
        return f"ptr {address}, align {self.reduce.dtype.bytes}"

    def _address(self, held: str, at: Val) -> str:
        return self.f.let(f"getelementptr inbounds {self.kind}, ptr {held}, {at.typed}", I64).text

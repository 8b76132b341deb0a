"""Ordered reductions as LLVM IR: each order of the loop IR, exactly (rules 5, 7, 10, 11).

Two ways to be fast with one order: across lanes that hold different outputs (each lane runs the whole
order for its own output), or along the reduction's own axis, where the order itself has lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from repro.ir.expressions import Chain, Exact, Lanes, Reduce, Sequential
from repro.ir.types import BOOL
from repro.targets.llvm import scalars, short_runs
from repro.targets.llvm.along import Along
from repro.targets.llvm.body import Body
from repro.targets.llvm.extremes import Extreme, in_pairs
from repro.targets.llvm.positions import Positions
from repro.targets.llvm.scope import Scope
from repro.targets.llvm.terms import Running
from repro.targets.llvm.text import Val, integer


def emit(body: Body, reduction: Reduce, scope: Scope) -> Val:
    """The reduction's value in a scope: a scalar, or one per lane of the scope where it depends on them."""
    return Reduction(body, reduction, scope).value()


class Reduction(Along):
    def value(self) -> Val:
        if self.count == 0:
            return self.empty()
        match self.reduce.order:
            case Chain() as order:
                return self.chain(order)
            case Lanes() as order:
                return self.lanes(order)
            case Sequential():
                return self.plain()
            case Exact():
                if self.reduce.combiner.startswith("arg"):
                    return Positions(self).value()
                run = self.run()
                return self.exact_across() if run is None else self.alone(run, integer(0), integer(self.count))

    def empty(self) -> Val:
        """No positions at all: an empty sum is +0.0 (rule 10), any other the identity."""
        if self.reduce.dtype is not self.dtype or self.reduce.combiner in ("add", "fma"):
            return scalars.constant(self.f, self.reduce.dtype, 0, self.width)
        return self.identity()

    def exact_across(self) -> Val:
        """In any order: a few in pairs, so that combiners of several steps do not wait for each other."""
        if self.width > 1 and Extreme.pays(self.reduce.combiner, self.dtype, self.body.machine):
            return self._extreme_across()
        return in_pairs(self.combine, self.written_out(self.term)) if self.few() else self.plain()

    def _extreme_across(self) -> Val:
        extreme = self.extreme(self.width)
        if self.few():
            return extreme.each(extreme.of(self.written_out(self.term)))

        def step(scope: Scope, state: list[Val]) -> Sequence[Val]:
            return extreme.step(state, [self.term(scope)])

        start = extreme.start(self.identity())
        return extreme.each(self.body.nest(self.reduce.axes, self.scope, self.roots, start, step))

    # one accumulator, ascending ─────────────────────────────────────────────────────────────────────

    def plain(self) -> Val:
        if self.few():
            return reduce(self.combine, self.written_out(self.term))

        def step(scope: Scope, state: list[Val]) -> Sequence[Val]:
            return [self.combine(state[0], self.term(scope))]

        return self.body.nest(self.reduce.axes, self.scope, self.roots, [self.identity()], step)[0]

    # chains (rule 7) ────────────────────────────────────────────────────────────────────────────────

    def chain(self, order: Chain) -> Val:
        self.body.hoist(self.roots, self.scope)
        zero = self.constant(0)
        if self.count <= order.panel:
            total = self.body.nest(self.reduce.axes, self.scope, self.roots, [zero], self.link)[0]
        else:
            total = self.blocks(order, zero)
        return scalars.apply(self.f, "add", self.dtype, [total, zero])

    def link(self, scope: Scope, state: list[Val]) -> Sequence[Val]:
        a, b = self.terms(scope)
        longer = scalars.fma(self.f, a, b, state[0])
        present = self.present(scope, self.width)
        return [longer if present is None else scalars.select(self.f, present, longer, state[0])]

    def panel(self, begin: Val, size: int, zero: Val) -> Val:
        end = self.least(self.f.add(begin, integer(size)), self.count)

        def step(flat: Val, state: list[Val]) -> Sequence[Val]:
            return self.link(self.at(flat), state)

        return self.f.loop(begin, end, 1, [zero], step)[0]

    def blocks(self, order: Chain, zero: Val) -> Val:
        """Panels summed within blocks, blocks summed; each sum starts from its first."""
        per_block = order.panel * order.panels_per_block

        def block(begin: Val, totals: list[Val]) -> Sequence[Val]:
            end = self.least(self.f.add(begin, integer(per_block)), self.count)

            def panel(start: Val, sums: list[Val]) -> Sequence[Val]:
                return [self._first_or_add(start, begin, sums[0], self.panel(start, order.panel, zero))]

            inner = self.f.loop(begin, end, order.panel, [zero], panel)[0]
            return [self._first_or_add(begin, integer(0), totals[0], inner)]

        return self.f.loop(integer(0), integer(self.count), per_block, [zero], block)[0]

    def _first_or_add(self, at: Val, first: Val, total: Val, value: Val) -> Val:
        is_first = self.f.let(f"icmp eq i64 {at.text}, {first.text}", BOOL)
        summed = scalars.apply(self.f, "add", self.dtype, [total, value])
        return self.f.let(f"select {is_first.typed}, {value.typed}, {summed.typed}", self.dtype, value.width)

    def least(self, value: Val, bound: int) -> Val:
        return scalars.least(self.f, value, integer(bound))

    # lanes (rule 10) ────────────────────────────────────────────────────────────────────────────────

    def lanes(self, order: Lanes) -> Val:
        self.body.hoist(self.roots, self.scope)
        if self.is_along():
            return self.levels(order, self.count, lambda begin, end: self.leaf_along(order, begin, end))
        if self.count <= order.lanes and self.few():
            return self.folded(order, self.written_out(self.term))
        return self.levels(order, self.count, lambda begin, end: self.leaf_across(order, begin, end))

    def levels(self, order: Lanes, count: int, leaf: Callable[[Val, Val], Val]) -> Val:
        """The sum of `count` terms from sums of leaves; sums of several leaves follow the same rule."""
        if count <= order.leaf:
            return leaf(integer(0), integer(count))
        leaves = -(-count // order.leaf)

        def sums(begin: Val, end: Val) -> Val:
            def of_leaf(number: Val) -> Val:
                start = self.f.scaled(number, order.leaf)
                stop = self.least(self.f.add(start, integer(order.leaf)), count)
                return leaf(start, stop)

            return self.in_memory(order, begin, end, of_leaf)

        return self.levels(order, leaves, sums)

    def leaf_across(self, order: Lanes, begin: Val, end: Val) -> Val:
        """Each lane has sums of its own."""
        return self.in_memory(order, begin, end, lambda flat: self.term(self.at(flat)))

    def in_memory(self, order: Lanes, begin: Val, end: Val, term: Callable[[Val], Val]) -> Val:
        """Running sums on the stack, one per lane of the order; `begin` is a multiple of the lanes."""
        running = Running(self, order)

        def step(flat: Val, _: list[Val]) -> Sequence[Val]:
            running.add(flat, term(flat))
            return ()

        self.f.loop(begin, end, 1, (), step)
        return self.folded(order, running.parts())

    def folded(self, order: Lanes, partial: Sequence[Val]) -> Val:
        """What the first lanes of the order hold, folded by halves: the others are absent, and would change nothing."""
        partial, half = list(partial), order.lanes // 2
        while half:
            pairs = zip(partial, partial[half:], strict=False)
            partial[: max(0, len(partial) - half)] = [self.combine(a, b) for a, b in pairs]
            partial, half = partial[:half], half // 2
        return partial[0]

    def leaf_along(self, order: Lanes, begin: Val, end: Val) -> Val:
        """The order's lanes are the lanes of a vector: 32 consecutive terms at a time."""
        before = self.body.ahead
        self.body.ahead = self.runs_ahead() or before
        if self.kept_at is None and short_runs.pays(self.reduce, order):
            found = self.fold(short_runs.ShortRuns(self, order).leaf(begin, end))
        else:
            found = self.alone(self.run_of_lanes(order.lanes), begin, end)
        self.body.ahead = before
        return found

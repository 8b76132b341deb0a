"""Sums of several outputs at a time, whose terms lie in short runs of memory, one output's run beside the next one's.

One output after another reads a run here and a run there, each on a page of its own; together they read the page. Each
sum has the order that it has alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from repro.ir import index as ix
from repro.ir.expressions import Axis, Expr, Lanes, Load, Reduce, topological
from repro.ir.loops import Kernel
from repro.ir.types import I64
from repro.numerics.contract import LANES
from repro.targets.llvm.along import RUN_BYTES
from repro.targets.llvm.body import Body
from repro.targets.llvm.grid import Grid
from repro.targets.llvm.reductions import Reduction
from repro.targets.llvm.rows import stages
from repro.targets.llvm.scope import Scope
from repro.targets.llvm.terms import Running
from repro.targets.llvm.text import Val, integer

MOST = 4
"""Outputs at a time (runs of 1 KiB that lie 128 KiB apart, on a Zen 5: 0.76 of the time of one with two, 0.66 with
four, 0.64 with eight)."""


def together(kernel: Kernel, grid: Grid, body: Body) -> int:
    """How many outputs are summed together; 1: one after another."""
    sums = [expr for expr in kernel.expressions if isinstance(expr, Reduce)]
    if grid.vector is not None or grid.inner or not grid.outer or kernel.serial or body.roads or body.lanes == 1:
        return 1
    if not sums or not all(_in_short_runs(each, kernel, grid, body) for each in sums):
        return 1
    vectors = max(LANES * each.dtype.bits // body.machine.vector_bits for each in sums)
    count = MOST
    while count > 1 and count * max(1, vectors) > body.machine.registers // 2:
        count //= 2
    return count


def _in_short_runs(reduce: Reduce, kernel: Kernel, grid: Grid, body: Body) -> bool:
    """Whether it is a sum for each output, in whole runs of the order's lanes, and reads what was described above."""
    order, count = reduce.order, math.prod(axis.extent for axis in reduce.axes)
    if not isinstance(order, Lanes) or order.lanes != LANES or order.leaf % LANES or len(reduce.axes) < 2:
        return False
    if reduce.present is not None or reduce.free != frozenset(grid.outer) or count == 0:
        return False
    along, run = reduce.axes[-1], reduce.axes[-1].extent
    loads = [e for e in topological(reduce.terms) if isinstance(e, Load) and e.free & frozenset(reduce.axes)]
    beside = all(
        e.when is None
        and ix.coefficient(e.offset, along) == 1
        and ix.coefficient(e.offset, grid.outer[-1]) == run
        and kernel.buffers[e.buffer].nbytes > body.machine.l2_bytes
        for e in loads
    )
    return bool(loads) and beside and run % LANES == 0 and run * reduce.dtype.bytes < RUN_BYTES


def emit(
    body: Body,
    roots: Sequence[Expr],
    outer: Sequence[Axis],
    items: tuple[Val, Val, int],
    at: Callable[[Val], Scope],
    stores: Callable[[Scope], None],
) -> Val:
    """Items from the first to before the last, so many at a time, `at` being the scope of one and `stores` what is left
    once its sums are known; where the rest begins, fewer than go together."""
    (first, last, count), f = items, body.f

    def group(number: Val, _: list[Val]) -> Sequence[Val]:
        scopes = [at(f.add(number, integer(place))) for place in range(count)]
        for reduce in (each for stage in stages(roots, frozenset(outer), scopes[0]) for each in stage):
            for scope, value in zip(scopes, Beside(body, reduce, scopes).values(), strict=True):
                scope.known[reduce] = value
        for scope in scopes:
            stores(scope)
        return ()

    span = f.let(f"sub i64 {last.text}, {first.text}", I64)
    whole = f.add(first, f.let(f"and i64 {span.text}, {-count}", I64))
    f.loop(first, whole, count, (), group)
    return whole


class Beside:
    """A sum of several outputs, each in a scope of its own."""

    def __init__(self, body: Body, reduce: Reduce, scopes: Sequence[Scope]) -> None:
        assert isinstance(reduce.order, Lanes)
        self.body, self.f, self.reduce, self.order = body, body.f, reduce, reduce.order
        self.each = [Reduction(body, reduce, scope) for scope in scopes]

    def values(self) -> list[Val]:
        for reduction in self.each:
            self.body.hoist(reduction.roots, reduction.scope)
        before, ahead = self.body.ahead, self.each[0].runs_ahead()
        self.body.ahead = before if ahead is None else (ahead[0], max(1, ahead[1] // len(self.each)))
        found = self.levels(self.each[0].count, self.leaf)
        self.body.ahead = before
        return found

    def levels(self, count: int, leaf: Callable[[Val, Val], list[Val]]) -> list[Val]:
        """As `Reduction.levels`."""
        order, f = self.order, self.f
        if count <= order.leaf:
            return leaf(integer(0), integer(count))

        def sums(begin: Val, end: Val) -> list[Val]:
            running = [Running(reduction, order) for reduction in self.each]

            def of_leaf(number: Val, _: list[Val]) -> Sequence[Val]:
                start = f.scaled(number, order.leaf)
                stop = self.each[0].least(f.add(start, integer(order.leaf)), count)
                for each, value in zip(running, leaf(start, stop), strict=True):
                    each.add(number, value)
                return ()

            f.loop(begin, end, 1, (), of_leaf)
            return [each.folded(order, sums.parts()) for each, sums in zip(self.each, running, strict=True)]

        return self.levels(-(-count // order.leaf), sums)

    def leaf(self, begin: Val, end: Val) -> list[Val]:
        """Of a whole number of runs of the order's lanes."""
        width = self.order.lanes

        def step(flat: Val, state: list[Val]) -> Sequence[Val]:
            terms = [each.term(each.lane_scope(flat, width, None), width) for each in self.each]
            return [each.combine(*pair) for each, *pair in zip(self.each, state, terms, strict=True)]

        start = [each.identity(width) for each in self.each]
        summed = self.f.loop(begin, end, width, start, step)
        return [each.fold(value) for each, value in zip(self.each, summed, strict=True)]

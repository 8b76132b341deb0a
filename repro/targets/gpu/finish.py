"""What is stored: the rest of a contraction's expression, evaluated on its totals."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from repro.ir.loops import Apply, Expr, Kernel, Reduce
from repro.ir.types import I64
from repro.targets.gpu.body import GpuBody
from repro.targets.gpu.operand import Operand
from repro.targets.gpu.tiles import Plan
from repro.targets.gpu.totals import Totals, gathered
from repro.targets.llvm import scalars
from repro.targets.llvm.body import Scope
from repro.targets.llvm.text import Val, element, integer

LIGHT = 16
"""Scalar operations after the reduction up to which code for every output of a thread is written out."""


def store_output(body: GpuBody, kernel: Kernel, reduce: Reduce, total: Val, scope: Scope) -> None:
    """total + 0.0 (rule 7), and the store's value on it."""
    zero = scalars.constant(body.f, reduce.dtype, 0, total.width)
    scope.known[reduce] = scalars.apply(body.f, "add", reduce.dtype, [total, zero])
    store_value(body, kernel, scope)


def store_value(body: GpuBody, kernel: Kernel, scope: Scope) -> None:
    """The store in a scope; a reduction that is not known there is run by the plain order."""
    store = kernel.stores[0]
    body.store(store.buffer, store.offset, body.value(store.value, scope), store.when, scope)


class Finish:
    """The end of one block: each thread's own outputs."""

    def __init__(
        self, body: GpuBody, kernel: Kernel, plan: Plan, sides: Sequence[Operand], scope: Scope, first: tuple[Val, Val]
    ) -> None:
        self.body, self.f, self.kernel, self.plan = body, body.f, kernel, plan
        self.sides, self.scope, self.first = sides, scope, first
        self.reduce = plan.contraction.reduce
        self.group = sides[1].group if sides[1].extent % sides[1].group == 0 else 1
        """A thread's columns that are stored together."""

    def store(self, totals: Totals) -> None:
        if is_long(self.kernel, self.reduce):
            self._in_loops(totals.in_memory())
            return
        values, columns = totals.all(), self.plan.tile.columns
        for row in range(self.plan.tile.rows):
            self._row(integer(row), lambda scope, r=row: self._columns(scope, values[r * columns : (r + 1) * columns]))

    def _columns(self, row: Scope, values: Sequence[Val]) -> None:
        for column in range(0, len(values), self.group):
            run = values[column : column + self.group]
            total = run[0] if self.group == 1 else gathered(self.f, run)
            self._output(row, integer(column), self.group, total)

    def _in_loops(self, area: str) -> None:
        """The same by loops, where the code of one output is long."""
        f, dtype, columns = self.f, self.reduce.dtype, self.plan.tile.columns

        def output(row: Val, column: Val, scope: Scope) -> Sequence[Val]:
            at = f.add(f.scaled(row, columns), column)
            place = f.let(f"getelementptr inbounds {element(dtype)}, ptr {area}, {at.typed}", I64).text
            total = f.let(f"load volatile {element(dtype)}, ptr {place}, align {dtype.bytes}", dtype)
            self._output(scope, column, 1, total)
            return ()

        self._every(output)

    def exact(self) -> None:
        """Where a blank met a value that is not finite: each output by the plain order."""

        def output(_: Val, column: Val, scope: Scope) -> Sequence[Val]:
            self._output(scope, column, 1, None)
            return ()

        self._every(output)

    def _every(self, output: Callable[[Val, Val, Scope], Sequence[Val]]) -> None:
        f, tile = self.f, self.plan.tile

        def row(number: Val, _: list[Val]) -> Sequence[Val]:
            def columns(scope: Scope) -> None:
                f.loop(integer(0), integer(tile.columns), 1, (), lambda at, _: output(number, at, scope))

            self._row(number, columns)
            return ()

        f.loop(integer(0), integer(tile.rows), 1, (), row)

    def _row(self, number: Val, columns: Callable[[Scope], None]) -> None:
        """What is done for a row of the thread's outputs, if there is such a row."""
        side, f = self.sides[0], self.f
        place = f.add(self.first[0], side.place(number))

        def inside() -> None:
            places = self.body.split(place, side.axes)
            columns(Scope(self.scope, dict(zip(side.axes, places, strict=True))))

        if side.extent % side.lines == 0:
            inside()
        else:
            f.when(scalars.compare(f, "lt", place, integer(side.extent)), inside)

    def _output(self, row: Scope, column: Val, width: int, total: Val | None) -> None:
        side, f = self.sides[1], self.f
        place = f.add(self.first[1], side.place(column))

        def inside() -> None:
            if width > 1:
                scope = self.body.lane_scope(row, side.axes, place, width, None, aligned=True)
            else:
                scope = Scope(row, dict(zip(side.axes, self.body.split(place, side.axes), strict=True)))
            if total is None:
                store_value(self.body, self.kernel, scope)
            else:
                store_output(self.body, self.kernel, self.reduce, total, scope)

        if side.extent % side.lines == 0:
            inside()
        else:
            f.when(scalars.compare(f, "lt", place, integer(side.extent)), inside)


def is_long(kernel: Kernel, reduce: Reduce) -> bool:
    """Whether more than a few scalar operations stand between a reduction and what is stored."""
    seen, stack = set[Expr](), [kernel.stores[0].value]
    while stack:
        expr = stack.pop()
        if expr not in seen and expr is not reduce:
            seen.add(expr)
            stack.extend(expr.children)
    return sum(isinstance(expr, Apply) for expr in seen) > LIGHT

"""What is stored: the rest of a contraction's expression, evaluated on its totals."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from repro.ir.expressions import Apply, Expr, Reduce
from repro.ir.loops import Kernel
from repro.ir.types import I64
from repro.targets.gpu.body import GpuBody
from repro.targets.gpu.outputs import Outputs
from repro.targets.gpu.tiles import Plan
from repro.targets.gpu.totals import Totals, gathered
from repro.targets.llvm import scalars
from repro.targets.llvm.scope import Scope
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

    def __init__(self, body: GpuBody, kernel: Kernel, plan: Plan, outputs: Outputs) -> None:
        self.body, self.f, self.kernel, self.plan, self.outputs = body, body.f, kernel, plan, outputs
        self.reduce = plan.contraction.reduce
        body.hoist([kernel.stores[0].value, kernel.stores[0].offset], outputs.scope)
        group = outputs.groups[1]
        self.group = group if group == plan.chunk and plan.contraction.extents[2] % group == 0 else 1
        """A thread's columns that are stored together."""

    def store(self, totals: Totals) -> None:
        if is_long(self.kernel, self.reduce):
            self._in_loops(totals.in_memory())
            return
        rows, columns = self.plan.tile.own
        if totals.sums is not None and self.group == 1:  # elements one by one take registers: a row's totals are enough
            f, first = self.f, integer(0)
            with f.rolled():
                f.loop(first, integer(rows), 1, (), lambda at, _: self._of_row(totals, at, f.scaled(at, columns)))
            return
        for row in range(rows):
            self._of_row(totals, integer(row), integer(row * columns))

    def _of_row(self, totals: Totals, row: Val, first: Val) -> Sequence[Val]:
        values = totals.some(first, self.plan.tile.columns)
        self._row(row, lambda scope: self._columns(scope, values))
        return ()

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
        place = self.outputs.line(0, number)

        def inside() -> None:
            axes = self.plan.axes(0)
            columns(Scope(self.outputs.scope, dict(zip(axes, self.body.split(place, axes), strict=True))))

        self._within(0, place, inside)

    def _within(self, side: int, place: Val, inside: Callable[[], None]) -> None:
        if self.plan.reaches(side):
            self.f.when(scalars.compare(self.f, "ge", place, self.outputs.own[side]), inside)
        elif self.plan.whole(side):
            inside()
        else:
            last = integer(self.plan.contraction.extents[1 + side])
            self.f.when(scalars.compare(self.f, "lt", place, last), inside)

    def _output(self, row: Scope, column: Val, width: int, total: Val | None) -> None:
        place, axes = self.outputs.line(1, column), self.plan.axes(1)

        def inside() -> None:
            if width > 1:
                scope = self.body.lane_scope(row, axes, place, width, None, aligned=True)
            else:
                scope = Scope(row, dict(zip(axes, self.body.split(place, axes), strict=True)))
            if total is None:
                store_value(self.body, self.kernel, scope)
            else:
                store_output(self.body, self.kernel, self.reduce, total, scope)

        self._within(1, place, inside)


def is_long(kernel: Kernel, reduce: Reduce) -> bool:
    """Whether more than a few scalar operations stand between a reduction and what is stored."""
    seen, stack = set[Expr](), [kernel.stores[0].value]
    while stack:
        expr = stack.pop()
        if expr not in seen and expr is not reduce:
            seen.add(expr)
            stack.extend(expr.children)
    return sum(isinstance(expr, Apply) for expr in seen) > LIGHT

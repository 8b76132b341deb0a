"""Reductions whose outputs lie side by side but fill no register: other lanes take lanes of the order (rule 10).

With outputs in C of the 1024 lanes, group g of lanes and accumulator a hold lane a * groups + g of the order; the
accumulators fold onto each other, then the groups by rotation. Where any order will do, this one does.
"""

from __future__ import annotations

from collections.abc import Sequence

from passes.rename import settled
from repro.ir import index as ix
from repro.ir.expressions import Exact, Expr, Lanes
from repro.targets.llvm.terms import identity_bits
from repro.targets.tpu_sim import isa
from repro.targets.tpu_sim.codegen import grid as grids
from repro.targets.tpu_sim.codegen.orders import guarded, terms_of
from repro.targets.tpu_sim.codegen.reductions import term_or_identity
from repro.targets.tpu_sim.codegen.rows import WIDTH, bind_blocks
from repro.targets.tpu_sim.codegen.stages import Stage
from repro.targets.tpu_sim.codegen.values import Values
from repro.targets.tpu_sim.codegen.writer import Val
from repro.targets.tpu_sim.operands import LANES


def groups(stage: Stage) -> int:
    """Groups of lanes for each output; 1 where this is no way to run the stage."""
    expr = stage.reduce
    if expr is None or stage.serial or len(expr.terms) != 1 or expr.combiner.startswith("arg"):
        return 1
    lanes = isinstance(expr.order, Lanes) and expr.order.lanes == WIDTH
    if terms_of(expr) < WIDTH or not (lanes or isinstance(expr.order, Exact)):
        return 1
    cut = _grid(stage, max((axis.number for axis in stage.axes), default=0) + 1).cuts[0]
    count = 1 if cut.axis in stage.axes else cut.count
    return count if count <= WIDTH else 1


def _grid(stage: Stage, fresh: int) -> grids.Grid:
    """With a first axis of one iteration: lanes that the others do not fill are its own."""
    return grids.make((ix.axis(fresh, 1), *stage.axes), LANES, fresh)


class Columns:
    """The code of one such stage."""

    def __init__(self, values: Values, stage: Stage) -> None:
        assert stage.reduce is not None
        self.values, self.stage, self.expr = values, stage, stage.reduce
        self.bound = grids.bind(_grid(stage, values.fresh(1)), values.fresh(2 * len(stage.axes) + 4))
        self.group, self.groups = self.bound.digits[0], groups(stage)
        self.children = settled(self.expr.children, self.bound.values)
        self.rows, self.rest = divmod(terms_of(self.expr), WIDTH)

    def emit(self) -> None:
        values, width = self.values, 1
        for cut, digit in zip(reversed(self.bound.grid.cuts), reversed(self.bound.digits), strict=True):
            values.digit(digit, width)
            width *= cut.count
        values.inside = self.bound.inside
        identity = identity_bits(self.expr.combiner, self.expr.dtype)
        with values.loop(self.bound.grid.blocks, self.bound.grid.apart([self.stage.stores[0].offset])) as index:
            bind_blocks(values, self.bound, index)
            totals = [values.writer.constant(self.expr.dtype, identity) for _ in range(WIDTH // self.groups)]
            row = values.axis(self.rows)
            with values.loops([row]):
                for number, total in enumerate(totals):
                    self._combine(total, self._terms(ix.scale(row, WIDTH), number), total)
            for number, total in enumerate(totals):
                if number * self.groups < self.rest:
                    self._combine(total, self._last(number), total)
            self._store(self._folded(totals))

    # terms ──────────────────────────────────────────────────────────────────────────────────────────

    def _terms(self, first: Expr, number: int) -> list[Expr]:
        """Those of the order's lanes that an accumulator holds."""
        flat = ix.add(first, ix.number(number * self.groups), self.group)
        places = ix.delinear(flat, [axis.extent for axis in self.expr.axes])
        return settled(self.children, dict(zip(self.expr.axes, places, strict=True)))

    def _last(self, number: int) -> list[Expr]:
        """The terms after the last whole row of the order's lanes; lanes beyond them have none."""
        there = ix.compare("lt", ix.add(self.group, ix.number(number * self.groups)), self.rest)
        terms = guarded(self._terms(ix.number(self.rows * WIDTH), number), there, frozenset((self.group,)))
        return [terms[0], ix.both(terms[1] if self.expr.has_present else None, there)]

    def _combine(self, one: Val, children: Sequence[Expr], into: Val) -> None:
        term = term_or_identity(self.values, self.expr, children)
        self.values.writer.alu(self.expr.combiner, self.expr.dtype, one, term, into=into)

    # results ────────────────────────────────────────────────────────────────────────────────────────

    def _folded(self, totals: list[Val]) -> Val:
        """Lane j of the order with j + 16, then j + 8 and so on."""
        writer, kind = self.values.writer, (self.expr.combiner, self.expr.dtype)
        while len(totals) > 1:
            half = len(totals) // 2
            totals = [writer.alu(*kind, a, b) for a, b in zip(totals[:half], totals[half:], strict=True)]
        (total,), distance = totals, self.groups // 2
        while distance:
            turned = writer.register(total.dtype)
            writer.put(isa.Rotate(turned.reg, total.dtype, total.reg, distance * LANES // self.groups))
            total = writer.alu(*kind, total, turned)
            distance //= 2
        return total

    def _store(self, total: Val) -> None:
        """From the first group."""
        store = self.stage.stores[0]
        (offset,) = settled([store.offset], self.bound.values)
        self.values.write(store.buffer, offset, total, ix.compare("lt", self.group, 1))

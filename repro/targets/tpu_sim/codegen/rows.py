"""Reductions along lanes: 32 outputs at a time, each with the order's 32 lanes side by side (rule 10).

Lane j of the order takes every 32nd term; lanes are folded by rotating them onto each other. Where any order will do,
this one does.
"""

from __future__ import annotations

from repro.ir import index as ix
from repro.ir.loops import Exact, Expr, Lanes, Reduce
from repro.targets.llvm.reductions import identity_bits
from repro.targets.tpu_sim import isa
from repro.targets.tpu_sim.codegen import grid as grids
from repro.targets.tpu_sim.codegen.orders import guarded, terms_of
from repro.targets.tpu_sim.codegen.reductions import term_or_identity
from repro.targets.tpu_sim.codegen.stages import Stage, loads, substitute
from repro.targets.tpu_sim.codegen.values import Values
from repro.targets.tpu_sim.codegen.writer import Val
from repro.targets.tpu_sim.operands import LANES, Index, Term

WIDTH = 32
"""The order's lanes."""
NEIGHBOURS = 64
"""Outputs side by side from which lanes take an output each."""


def runs_along(stage: Stage) -> bool:
    """Whether the stage is a reduction that is run this way."""
    expr = stage.reduce
    if expr is None or stage.serial or len(expr.terms) != 1 or expr.combiner.startswith("arg"):
        return False
    if _across(stage, expr):
        return False
    if isinstance(expr.order, Lanes):
        return expr.order.lanes == WIDTH and terms_of(expr) > WIDTH // 2
    return isinstance(expr.order, Exact) and terms_of(expr) >= WIDTH


def _across(stage: Stage, expr: Reduce) -> bool:
    """Whether neighbours in memory are terms of different outputs, enough of them to fill lanes with."""
    if not stage.axes or stage.axes[-1].extent < NEIGHBOURS:
        return False
    found = loads(expr.terms)
    return bool(found) and all(ix.coefficient(each.offset, stage.axes[-1]) == 1 for each in found)


class Rows:
    """The code of one such stage."""

    def __init__(self, values: Values, stage: Stage) -> None:
        assert stage.reduce is not None
        self.values, self.stage, self.expr = values, stage, stage.reduce
        self.grid = grids.make(stage.axes, LANES // WIDTH, values.fresh(1))
        self.bound = grids.bind(self.grid, values.fresh(2 * len(self.grid.cuts)))
        self.lane = values.axis(WIDTH)
        self.chunks, self.rest = divmod(terms_of(self.expr), WIDTH)
        self.chunk = values.axis(max(self.chunks, 1))
        self.children = substitute(self.expr.children, self.bound.values)
        self.step = 1
        """Lanes from one lane of the order to the next."""

    def emit(self) -> None:
        values, writer = self.values, self.values.writer
        values.inside = self.bound.inside
        self._lay()
        with values.loop(self.grid.blocks, self.grid.apart([self.stage.stores[0].offset])) as index:
            bind_blocks(values, self.bound, index)
            total = writer.constant(self.expr.dtype, identity_bits(self.expr.combiner, self.expr.dtype))
            if self.chunks:
                with values.loops([self.chunk]):
                    self._add(total, self._at(ix.add(ix.scale(self.chunk, WIDTH), self.lane)))
            if self.rest:
                self._add(total, self._last())
            half = WIDTH // 2
            while half:
                total = self._fold(total, half)
                half //= 2
            self._store(total)

    def _lay(self) -> None:
        """Outputs beside each other in lanes, or the terms of one output: whichever the loads find closer together."""
        cost = dict[int, int]()
        for step in (1, LANES // WIDTH):
            self._digits(step)
            cost[step] = 0
            for load in loads(self._at(ix.add(ix.scale(self.chunk, WIDTH), self.lane))):
                place = self.values.places.find(load.offset)
                cost[step] += LANES if place is None else place[1].runs
        self._digits(min(cost, key=lambda step: (cost[step], step)))

    def _digits(self, step: int) -> None:
        self.step, width = step, WIDTH if step == 1 else 1
        self.values.digit(self.lane, step)
        for cut, digit in zip(reversed(self.grid.cuts), reversed(self.bound.digits), strict=True):
            self.values.digit(digit, width)
            width *= cut.count
        for block in (*self.bound.blocks, self.chunk):  # places are asked for before the loops are there
            self.values.bind(block, Index())

    def _at(self, flat: Expr) -> list[Expr]:
        places = ix.delinear(flat, [axis.extent for axis in self.expr.axes])
        return substitute(self.children, dict(zip(self.expr.axes, places, strict=True)))

    def _last(self) -> list[Expr]:
        """The terms after the last whole row of lanes; the lanes beyond them have none."""
        there = ix.compare("lt", self.lane, self.rest)
        children = self._at(ix.add(ix.number(self.chunks * WIDTH), self.lane))
        terms = guarded(children, there, frozenset((self.lane,)))
        present = terms[1] if self.expr.has_present else None
        return [terms[0], ix.both(present, there)]

    def _add(self, total: Val, children: list[Expr]) -> None:
        term = term_or_identity(self.values, self.expr, children)
        self.values.writer.alu(self.expr.combiner, self.expr.dtype, total, term, into=total)

    def _fold(self, total: Val, half: int) -> Val:
        writer, turned = self.values.writer, self.values.writer.register(total.dtype)
        writer.put(isa.Rotate(turned.reg, total.dtype, total.reg, half * self.step))
        return writer.alu(self.expr.combiner, self.expr.dtype, total, turned)

    def _store(self, total: Val) -> None:
        """From the first lane of each output."""
        store = self.stage.stores[0]
        (offset,) = substitute([store.offset], self.bound.values)
        self.values.write(store.buffer, offset, total, ix.compare("lt", self.lane, 1))


def bind_blocks(values: Values, bound: grids.Bound, index: Index) -> None:
    """Each cut's block number as a digit of the counter of the loop over all blocks."""
    divisor = bound.grid.blocks
    for cut, block in zip(bound.grid.cuts, bound.blocks, strict=True):
        divisor //= cut.blocks
        values.bind(block, digit_of(index, divisor, cut.blocks))


def digit_of(index: Index, divisor: int, modulus: int) -> Index:
    if modulus == 1:
        return Index()
    (term,) = index.terms
    return Index(0, (Term(term.counter, 1, divisor, modulus),))

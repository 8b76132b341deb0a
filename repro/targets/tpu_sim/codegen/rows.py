"""Reductions along lanes: 32 outputs at a time, each with the order's 32 lanes side by side (rule 10).

Lane j of the order takes every 32nd term; lanes are folded by rotating them onto each other. Where any order will do,
this one does.

A load of 32 terms of each of 32 outputs costs as much as two of 64 terms of 16 outputs. So where memory runs along the
terms two of the latter are taken, and exchange halves of each run: then each register holds 32 terms of every output.
"""

from __future__ import annotations

from passes.rename import settled
from repro.ir import index as ix
from repro.ir.expressions import Axis, Exact, Expr, Lanes, Reduce
from repro.targets.llvm.terms import identity_bits
from repro.targets.tpu_sim import isa
from repro.targets.tpu_sim.codegen import grid as grids
from repro.targets.tpu_sim.codegen.orders import guarded, terms_of
from repro.targets.tpu_sim.codegen.reductions import term_or_identity
from repro.targets.tpu_sim.codegen.stages import Stage, loads
from repro.targets.tpu_sim.codegen.values import Values
from repro.targets.tpu_sim.codegen.writer import Val
from repro.targets.tpu_sim.operands import LANES, Index, Term

WIDTH = 32
"""The order's lanes."""
GROUPS = 2
"""Groups of 32 lanes that a run of a load holds, and registers that exchange them."""
LINES = LANES // WIDTH // GROUPS
EXCHANGE = 16
"""What an exchange costs, in runs that loads could have taken meanwhile: a turn of each register."""
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
        self.lane, self.group = values.axis(WIDTH), values.axis(GROUPS)
        self.slot, self.line = values.axis(GROUPS), values.axis(LINES)
        self.chunks, self.rest = divmod(terms_of(self.expr), WIDTH)
        self.exchanges = values.axis(max(self.chunks // GROUPS, 1))
        self.chunk = values.axis(max(self.chunks, 1))
        self.outputs = self.bound.values
        """The stage's axes, as blocks and digits of lanes."""
        self.inside = self.bound.inside
        self.done = 0
        """Chunks of terms that come by exchanges."""
        self.step = 1
        """Lanes from one lane of the order to the next."""

    def emit(self) -> None:
        values, writer = self.values, self.values.writer
        self._lay()
        values.inside = self.inside
        with values.loop(self.grid.blocks, self.grid.apart([self.stage.stores[0].offset])) as index:
            bind_blocks(values, self.bound, index)
            total = writer.constant(self.expr.dtype, identity_bits(self.expr.combiner, self.expr.dtype))
            if self.done:
                with values.loops([self.exchanges]):
                    self._exchange(total)
            if self.chunks > self.done:
                self.chunk = values.axis(self.chunks - self.done)
                with values.loops([self.chunk]):
                    self._add(total, self._chunk(ix.add(self.chunk, ix.number(self.done))))
            if self.rest:
                self._add(total, self._last())
            half = WIDTH // 2
            while half:
                total = self._fold(total, half)
                half //= 2
            self._store(total)

    # where outputs and terms lie ─────────────────────────────────────────────────────────────────────

    def _lay(self) -> None:
        """Outputs beside each other in lanes, or the terms of one output: whichever the loads find closer together. Or
        rows of terms that then exchange their groups, where that is faster yet."""
        for block in (
            *self.bound.blocks,
            self.chunk,
            self.exchanges,
        ):  # places are asked for before the loops are there
            self.values.bind(block, Index())
        cost = dict[int, int]()
        for step in (1, LANES // WIDTH):
            self._digits(step)
            cost[step] = GROUPS * self._runs(self._chunk(self.chunk))
        plain = self.outputs, self.inside
        if self.chunks >= GROUPS:
            self._rows()
            if max(GROUPS * self._runs(self._row(0)), EXCHANGE) < min(cost.values()):
                self.done = self.chunks // GROUPS * GROUPS
                return
        self.outputs, self.inside = plain
        self._digits(min(cost, key=lambda step: (cost[step], step)))

    def _runs(self, terms: list[Expr]) -> int:
        places = [self.values.places.find(load.offset) for load in loads(terms)]
        return sum(LANES if place is None else place[1].runs for place in places)

    def _digits(self, step: int) -> None:
        self.step, width = step, WIDTH if step == 1 else 1
        self.values.digit(self.lane, step)
        for cut, digit in zip(reversed(self.grid.cuts), reversed(self.bound.digits), strict=True):
            self.values.digit(digit, width)
            width *= cut.count

    def _rows(self) -> None:
        """An output's number is made of the register that its terms are loaded to and the run there; after the exchange
        the first is the group of lanes."""
        self.step, width, digits = 1, 1, dict[Axis, Expr]()
        for axis, step in ((self.lane, 1), (self.group, WIDTH), (self.slot, WIDTH), (self.line, GROUPS * WIDTH)):
            self.values.digit(axis, step)
        number = ix.add(ix.scale(self.slot, LINES), self.line)
        for cut, digit in zip(reversed(self.grid.cuts), reversed(self.bound.digits), strict=True):
            digits[digit] = ix.mod(ix.floordiv(number, width), cut.count)
            width *= cut.count
        places = settled(list(self.outputs.values()), digits)
        self.outputs = dict(zip(self.outputs, places, strict=True))
        (self.inside,) = settled([self.inside], digits)

    # terms ──────────────────────────────────────────────────────────────────────────────────────────

    def _at(self, flat: Expr) -> list[Expr]:
        places = ix.delinear(flat, [axis.extent for axis in self.expr.axes])
        return settled(self.expr.children, {**self.outputs, **dict(zip(self.expr.axes, places, strict=True))})

    def _chunk(self, number: Expr) -> list[Expr]:
        return self._at(ix.add(ix.scale(number, WIDTH), self.lane))

    def _row(self, slot: int) -> list[Expr]:
        """Terms of the outputs of one register, a row of lanes each."""
        place = ix.add(ix.scale(self.exchanges, GROUPS * WIDTH), ix.scale(self.group, WIDTH), self.lane)
        return settled(self._at(place), {self.slot: ix.number(slot)})

    def _last(self) -> list[Expr]:
        """The terms after the last whole row of lanes; the lanes beyond them have none."""
        there = ix.compare("lt", self.lane, self.rest)
        terms = guarded(self._chunk(ix.number(self.chunks)), there, frozenset((self.lane,)))
        present = terms[1] if self.expr.has_present else None
        return [terms[0], ix.both(present, there)]

    def _add(self, total: Val, children: list[Expr]) -> None:
        self._combine(total, term_or_identity(self.values, self.expr, children))

    def _combine(self, total: Val, term: Val) -> None:
        self.values.writer.alu(self.expr.combiner, self.expr.dtype, total, term, into=total)

    def _exchange(self, total: Val) -> None:
        """The first register's second group changes places with the second one's first; then both are added."""
        values, held = self.values, list[Val]()
        for slot in range(GROUPS):
            (values.inside,) = settled([self.inside], {self.slot: ix.number(slot)})
            held.append(term_or_identity(values, self.expr, self._row(slot)))
        values.inside = self.inside
        first, low, high = values.value(ix.compare("lt", self.group, 1)), *held
        self._combine(total, values.writer.select(first, low, self._turned(high, -WIDTH)))
        self._combine(total, values.writer.select(first, self._turned(low, WIDTH), high))

    # results ────────────────────────────────────────────────────────────────────────────────────────

    def _turned(self, value: Val, lanes: int) -> Val:
        turned = self.values.writer.register(value.dtype)
        self.values.writer.put(isa.Rotate(turned.reg, value.dtype, value.reg, lanes % LANES))
        return turned

    def _fold(self, total: Val, half: int) -> Val:
        turned = self._turned(total, half * self.step)
        return self.values.writer.alu(self.expr.combiner, self.expr.dtype, total, turned)

    def _store(self, total: Val) -> None:
        """From the first lane of each output."""
        store = self.stage.stores[0]
        (offset,) = settled([store.offset], self.outputs)
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

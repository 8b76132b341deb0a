"""Elementwise kernels that read along another axis than they write: squares of elements are turned in registers.

An item is a block of both axes, whose lines of memory stay in the first-level cache until all of their elements were
taken. In it, vectors of `side` elements are read as they lie, as many as a `run` has; turned, and stored as `side` runs
of a whole line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from passes.squares import NARROW_BYTES, Crossing
from repro.ir import index as ix
from repro.ir.expressions import Axis, Expr, Load
from repro.ir.types import I64
from repro.machines.machine import LINE_BYTES
from repro.targets.llvm import nans, scalars, tables
from repro.targets.llvm.body import Body
from repro.targets.llvm.memory import FAR_BYTES
from repro.targets.llvm.packing import turned
from repro.targets.llvm.scope import Scope
from repro.targets.llvm.text import Function, Val, integer

NEAR = 64
"""Elements of an item along either axis."""
NEXT_BYTES = 128
"""From a line of memory to that which is asked for with it, of what lies in a cache."""
MANY = 16
"""Squares across, from which on one more of them costs less than vectors that cross lines."""


class Squares:
    """The code of one item, a block of the axis that is written (`along`) and of the one that is read (`across`)."""

    def __init__(self, body: Body, along: Axis, crossing: Crossing, ahead: bool, far: bool) -> None:
        """`ahead`: whether lines are asked for beforehand; `far`: they come from memory."""
        self.body, self.f, self.along, self.across = body, body.f, along, crossing.axis
        self.ahead, self.far = ahead, far
        self.loads, self.run, self.side = crossing.loads, crossing.run, crossing.side_on(body.machine)
        self.part, few = crossing.part_on(body.machine)
        loads = (expr for expr in body.kernel.expressions if isinstance(expr, Load))
        tested = nans.together(body.machine, self.part * self.run) and not body.machine.masks
        self.together = few and tested and frozenset(loads) == frozenset(self.loads)

    def emit(self, block: Val, row: Val, scope: Scope, stores: Callable[[Scope], None]) -> None:
        """`stores` writes the results in the lanes of a scope. Squares at the ends reach back over their neighbours."""
        skipped = self._before_line(block, scope)

        def strip(at: Val, _: list[Val]) -> Sequence[Val]:
            begin = scalars.least(self.f, self._behind(at, skipped), integer(self.across.extent - self.side))

            def square(at: Val, _: list[Val]) -> Sequence[Val]:
                self._square(scalars.least(self.f, at, integer(self.along.extent - self.run)), begin, scope, stores)
                return ()

            self._loop(block, self.along, self.run, square)
            return ()

        self._loop(row, self.across, self.side, strip, skipped)

    def _loop(
        self,
        block: Val,
        axis: Axis,
        step: int,
        inside: Callable[[Val, list[Val]], Sequence[Val]],
        skipped: Val | None = None,
    ) -> None:
        """Through a block's steps; before the first block's, one more for what is skipped there."""
        f, begin = self.f, self.f.scaled(block, NEAR)
        end = scalars.least(f, f.add(begin, integer(NEAR)), integer(axis.extent))
        if skipped is not None:
            ahead = scalars.select(f, scalars.compare(f, "lt", integer(0), skipped), integer(-step), integer(0))
            begin = scalars.select(f, scalars.compare(f, "lt", integer(0), block), begin, ahead)
        f.loop(begin, end, step, (), inside)

    def _before_line(self, block: Val, scope: Scope) -> Val | None:
        """Elements across from the first on to one at a multiple of a square's width in memory, at run time; None where
        it is another in each row, or not worth a strip more.

        Where vectors cross lines each line is read for two of them, and rows that share a set of a cache push each
        other's lines out in between.
        """
        f, load, size = self.f, self.loads[0], self.loads[0].dtype.bytes
        apart = ix.coefficient(load.offset, self.along)
        narrow = self.side * size <= NARROW_BYTES  # as buffers are aligned: such a vector crosses no line
        if narrow or apart is None or apart * size % LINE_BYTES or self.across.extent < MANY * self.side:
            return None
        first = Scope(scope, {self.along: f.scaled(block, NEAR), self.across: integer(0)})
        pointer = self.body.pointer(load.buffer, self.body.value(load.offset, first))
        address = f.let(f"ptrtoint ptr {pointer.text} to i64", I64)
        beyond = f.let(f"lshr i64 {address.text}, {size.bit_length() - 1}", I64)
        before = f.let(f"sub i64 0, {beyond.text}", I64)
        return f.let(f"and i64 {before.text}, {self.side - 1}", I64)

    def _behind(self, at: Val, skipped: Val | None) -> Val:
        return at if skipped is None else scalars.greatest(self.f, self.f.add(at, skipped), integer(0))

    def _square(self, first: Val, begin: Val, scope: Scope, stores: Callable[[Scope], None]) -> None:
        for part in range(0, self.side, self.part):
            self._columns(first, self.f.add(begin, integer(part)), self.ahead and part == 0, scope, stores)

    def _columns(self, first: Val, begin: Val, ahead: bool, scope: Scope, stores: Callable[[Scope], None]) -> None:
        """Those of a square that are turned at a time."""
        f = self.f
        columns = f.add(f.splat(begin, self.part), f.lanes(self.part))
        read: list[Scope] = []
        for number in range(self.run):
            line = Scope(scope, {self.along: f.add(first, integer(number))})
            read.append(Scope(line, {self.across: columns}, self.part, ((self.across,), begin)))
        found = dict[Expr, list[Val]]()
        for load in self.loads:
            found[load] = self._turned([self._line(load, each, ahead) for each in read])
        lanes = f.add(f.splat(first, self.run), f.lanes(self.run))
        lines = [Scope(scope, {self.across: f.add(begin, integer(number))}) for number in range(self.part)]
        if self.together:
            found = self._stored(found, lines, lanes, scope)
        for number, line in enumerate(lines):
            known: dict[Expr, Val] = {expr: values[number] for expr, values in found.items()}
            stores(Scope(line, {self.along: lanes}, self.run, ((self.along,), first), None, known))

    def _stored(
        self, found: dict[Expr, list[Val]], lines: list[Scope], lanes: Val, scope: Scope
    ) -> dict[Expr, list[Val]]:
        """What is stored in each line, computed in one go: all registers are asked at once whether they have a NaN."""
        f, width = self.f, self.run * len(lines)
        across = [f.splat(self.body.value(self.across, line), self.run) for line in lines]
        bound = {self.along: tables.joined(f, [lanes] * len(lines)), self.across: tables.joined(f, across)}
        known = {expr: tables.joined(f, values) for expr, values in found.items()}
        inside = Scope(scope, bound, width, None, None, known)
        made = {store.value: f.splat(self.body.value(store.value, inside), width) for store in self.body.kernel.stores}
        starts = [number * self.run for number in range(len(lines))]
        return {expr: [tables.lanes_of(f, each, at, self.run) for at in starts] for expr, each in made.items()}

    def _line(self, load: Load, scope: Scope, ahead: bool) -> Val:
        start = self.body.run_start(load.offset, scope)
        if ahead and start is not None:
            self.body.fetch(load.buffer, self.f.add(start, integer(self._later(load))))
        return self.body.value(load, scope)

    def _later(self, load: Load) -> int:
        """Elements from a line to what is asked for with it: later in the line, or of a short one the next block's."""
        columns = (FAR_BYTES // self.run if self.far else NEXT_BYTES) // load.dtype.bytes
        if self.across.extent >= max(NEAR + 1, 2 * columns):
            return columns
        rows = NEAR if self.far else min(NEAR, self.along.extent)
        return rows * (ix.coefficient(load.offset, self.along) or 0)

    def _turned(self, rows: list[Val]) -> list[Val]:
        """`part` columns of `run` elements."""
        turn = turned if rows[0].dtype.bytes >= 4 else _woven
        parts = [turn(self.f, rows[at : at + self.side]) for at in range(0, self.run, self.side)]
        return [tables.joined(self.f, list(column)) for column in zip(*parts, strict=True)]


def _woven(f: Function, rows: list[Val]) -> list[Val]:
    """The columns of a square of vectors: each stage interleaves rows of the first half with those of the second."""
    width = len(rows)
    for _ in range(width.bit_length() - 1):
        pairs = zip(rows[: width // 2], rows[width // 2 :], strict=True)
        whole = [tables.interleaved(f, pair) for pair in pairs]
        rows = [tables.lanes_of(f, each, first, width) for each in whole for first in (0, width)]
    return rows

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
from repro.targets.llvm import scalars, tables
from repro.targets.llvm.body import Body
from repro.targets.llvm.memory import FAR_BYTES, LINE_BYTES
from repro.targets.llvm.packing import turned
from repro.targets.llvm.scope import Scope
from repro.targets.llvm.text import Function, Val, integer

NEAR = 64
"""Elements of an item along either axis."""
MANY = 16
"""Squares across, from which on one more of them costs less than vectors that cross lines."""


class Squares:
    """The code of one item, a block of the axis that is written (`along`) and of the one that is read (`across`)."""

    def __init__(self, body: Body, along: Axis, crossing: Crossing, ahead: bool) -> None:
        """`ahead`: whether lines come from memory, and are asked for beforehand."""
        self.body, self.f, self.along, self.across, self.ahead = body, body.f, along, crossing.axis, ahead
        self.loads, self.run, self.side = crossing.loads, crossing.run, crossing.side_on(body.machine)

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
        f = self.f
        columns = f.add(f.splat(begin, self.side), f.lanes(self.side))
        read: list[Scope] = []
        for number in range(self.run):
            line = Scope(scope, {self.along: f.add(first, integer(number))})
            read.append(Scope(line, {self.across: columns}, self.side, ((self.across,), begin)))
        found = {load: self._turned([self._line(load, each) for each in read]) for load in self.loads}
        lanes = f.add(f.splat(first, self.run), f.lanes(self.run))
        for number in range(self.side):
            line = Scope(scope, {self.across: f.add(begin, integer(number))})
            known: dict[Expr, Val] = {load: values[number] for load, values in found.items()}
            stores(Scope(line, {self.along: lanes}, self.run, ((self.along,), first), None, known))

    def _line(self, load: Load, scope: Scope) -> Val:
        start = self.body.run_start(load.offset, scope)
        if self.ahead and start is not None:
            self.body.fetch(load.buffer, self.f.add(start, integer(self._later(load))))
        return self.body.value(load, scope)

    def _later(self, load: Load) -> int:
        """Elements from a line to what is asked for with it: later in the line, or of a short one the next block's."""
        columns = FAR_BYTES // self.run // load.dtype.bytes
        if self.across.extent >= 2 * columns:
            return columns
        return NEAR * (ix.coefficient(load.offset, self.along) or 0)

    def _turned(self, rows: list[Val]) -> list[Val]:
        """`side` columns of `run` elements."""
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

"""Elementwise kernels that read along another axis than they write: squares of elements are turned in registers.

An item is a block of both axes, whose lines of memory stay in the first-level cache until all of their elements were
taken. In it, vectors of `side` elements are read as they lie, as many as a `run` has; turned, and stored as `side` runs
of a whole line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from passes.squares import Crossing
from repro.ir import index as ix
from repro.ir.expressions import Axis, Expr, Load
from repro.targets.llvm import scalars, tables
from repro.targets.llvm.body import Body
from repro.targets.llvm.memory import FAR_BYTES
from repro.targets.llvm.packing import turned
from repro.targets.llvm.scope import Scope
from repro.targets.llvm.text import Function, Val, integer

NEAR = 64
"""Elements of an item along either axis."""


class Squares:
    """The code of one item, a block of the axis that is written (`along`) and of the one that is read (`across`)."""

    def __init__(self, body: Body, along: Axis, crossing: Crossing, ahead: bool) -> None:
        """`ahead`: whether lines come from memory, and are asked for beforehand."""
        self.body, self.f, self.along, self.across, self.ahead = body, body.f, along, crossing.axis, ahead
        self.loads, self.run, self.side = crossing.loads, crossing.run, crossing.side_on(body.machine)

    def emit(self, block: Val, row: Val, scope: Scope, stores: Callable[[Scope], None]) -> None:
        """`stores` writes the results in the lanes of a scope. Squares at the ends reach back over their neighbours."""

        def strip(at: Val, _: list[Val]) -> Sequence[Val]:
            begin = scalars.least(self.f, at, integer(self.across.extent - self.side))

            def square(at: Val, _: list[Val]) -> Sequence[Val]:
                self._square(scalars.least(self.f, at, integer(self.along.extent - self.run)), begin, scope, stores)
                return ()

            self._loop(block, self.along, self.run, square)
            return ()

        self._loop(row, self.across, self.side, strip)

    def _loop(self, block: Val, axis: Axis, step: int, inside: Callable[[Val, list[Val]], Sequence[Val]]) -> None:
        begin = self.f.scaled(block, NEAR)
        end = scalars.least(self.f, self.f.add(begin, integer(NEAR)), integer(axis.extent))
        self.f.loop(begin, end, step, (), inside)

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

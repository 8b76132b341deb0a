"""Elementwise kernels that read along another axis than they write: squares of elements are turned in registers.

An item is a block of both axes, whose lines of memory stay in the first-level cache until all of their elements were
taken. In it, `RUN` vectors of `SIDE` elements are read as they lie, turned, and stored as `SIDE` runs of a whole line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from repro.ir import index as ix
from repro.ir.dependence import reads_its_output
from repro.ir.expressions import Apply, Axis, Expr, Load, Lookup, Rarely, Reduce
from repro.ir.loops import Kernel
from repro.ir.schedule import Schedule
from repro.targets.llvm import scalars
from repro.targets.llvm.body import Body
from repro.targets.llvm.packing import turned
from repro.targets.llvm.scope import Scope
from repro.targets.llvm.text import Function, Val, integer

RUN, SIDE = 16, 8
"""Elements of a square along the axis that is written and along the one that is read."""
NEAR = 64
"""Elements of an item along either axis."""
LIGHT = 32
"""Scalar operations up to which the code of a square, which has them `SIDE` times, stays small."""


def crossed(kernel: Kernel, schedule: Schedule) -> Axis | None:
    """The axis along which a kernel reads what it writes along the schedule's vectors; None: there is none."""
    if schedule.vector_axis is None or schedule.vector_width == 1 or schedule.tile is not None or schedule.sweep:
        return None
    written = kernel.axes[schedule.vector_axis]
    if kernel.serial or reads_its_output(kernel) or not _is_plain(kernel) or written.extent < RUN:
        return None
    if any(ix.coefficient(store.offset, written) != 1 for store in kernel.stores):
        return None
    others = (axis for axis in reversed(kernel.axes) if axis is not written and axis.extent >= SIDE)
    return next((axis for axis in others if _across(kernel, axis, written)), None)


def _is_plain(kernel: Kernel) -> bool:
    heavy = any(isinstance(expr, Reduce | Lookup | Rarely) for expr in kernel.expressions)
    return not heavy and sum(isinstance(expr, Apply) for expr in kernel.expressions) <= LIGHT


def _across(kernel: Kernel, read: Axis, written: Axis) -> list[Load]:
    """The loads whose neighbours along the one axis lie side by side, and along the other apart."""
    return [
        expr
        for expr in kernel.expressions
        if isinstance(expr, Load)
        and expr.when is None
        and expr.dtype.bits == 32
        and ix.coefficient(expr.offset, read) == 1
        and ix.coefficient(expr.offset, written) not in (None, 0, 1)
    ]


class Squares:
    """The code of one item, a block of the axis that is written (`along`) and of the one that is read (`across`)."""

    def __init__(self, body: Body, kernel: Kernel, along: Axis, across: Axis) -> None:
        self.body, self.f, self.along, self.across = body, body.f, along, across
        self.loads = _across(kernel, across, along)

    def emit(self, block: Val, row: Val, scope: Scope, stores: Callable[[Scope], None]) -> None:
        """`stores` writes the results in the lanes of a scope. Squares at the ends reach back over their neighbours."""

        def strip(at: Val, _: list[Val]) -> Sequence[Val]:
            first = scalars.least(self.f, at, integer(self.along.extent - RUN))

            def square(begin: Val, _: list[Val]) -> Sequence[Val]:
                self._square(first, scalars.least(self.f, begin, integer(self.across.extent - SIDE)), scope, stores)
                return ()

            self._loop(row, self.across, SIDE, square)
            return ()

        self._loop(block, self.along, RUN, strip)

    def _loop(self, block: Val, axis: Axis, step: int, inside: Callable[[Val, list[Val]], Sequence[Val]]) -> None:
        begin = self.f.scaled(block, NEAR)
        end = scalars.least(self.f, self.f.add(begin, integer(NEAR)), integer(axis.extent))
        self.f.loop(begin, end, step, (), inside)

    def _square(self, first: Val, begin: Val, scope: Scope, stores: Callable[[Scope], None]) -> None:
        f = self.f
        columns = f.add(f.splat(begin, SIDE), f.lanes(SIDE))
        read: list[Scope] = []
        for number in range(RUN):
            line = Scope(scope, {self.along: f.add(first, integer(number))})
            read.append(Scope(line, {self.across: columns}, SIDE, ((self.across,), begin)))
        found = {load: self._turned([self.body.value(load, each) for each in read]) for load in self.loads}
        lanes = f.add(f.splat(first, RUN), f.lanes(RUN))
        for number in range(SIDE):
            line = Scope(scope, {self.across: f.add(begin, integer(number))})
            known: dict[Expr, Val] = {load: values[number] for load, values in found.items()}
            stores(Scope(line, {self.along: lanes}, RUN, ((self.along,), first), None, known))

    def _turned(self, rows: list[Val]) -> list[Val]:
        """`SIDE` columns of `RUN` elements."""
        parts = [turned(self.f, rows[at : at + SIDE]) for at in range(0, RUN, SIDE)]
        return [_joined(self.f, *pair) for pair in zip(*parts, strict=True)]


def _joined(f: Function, a: Val, b: Val) -> Val:
    picks = ", ".join(f"i32 {lane}" for lane in range(a.width + b.width))
    text = f"shufflevector {a.typed}, {b.typed}, <{a.width + b.width} x i32> <{picks}>"
    return f.let(text, a.dtype, a.width + b.width)

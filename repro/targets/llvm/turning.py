"""Elementwise kernels that read along another axis than they write: squares of elements are turned in registers.

An item is a block of both axes, whose lines of memory stay in the first-level cache until all of their elements were
taken. In it, `RUN` vectors of `SIDE` elements, or of `RUN` where registers are as wide, are read as they lie, turned,
and stored as so many runs of a whole line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce

from repro.ir import index as ix
from repro.ir.dependence import reads_its_output
from repro.ir.expressions import Apply, Axis, Expr, Load, Lookup, Rarely, Reduce
from repro.ir.loops import Kernel
from repro.ir.schedule import Schedule
from repro.targets.llvm import scalars
from repro.targets.llvm.body import Body
from repro.targets.llvm.memory import FAR_BYTES
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

    def __init__(self, body: Body, kernel: Kernel, along: Axis, across: Axis, ahead: bool) -> None:
        """`ahead`: whether lines come from memory, and are asked for beforehand."""
        self.body, self.f, self.along, self.across, self.ahead = body, body.f, along, across, ahead
        self.loads = _across(kernel, across, along)
        self.side = RUN if min(body.machine.lanes(32), across.extent) >= RUN else SIDE

    def emit(self, block: Val, row: Val, scope: Scope, stores: Callable[[Scope], None]) -> None:
        """`stores` writes the results in the lanes of a scope. Squares at the ends reach back over their neighbours."""

        def strip(at: Val, _: list[Val]) -> Sequence[Val]:
            begin = scalars.least(self.f, at, integer(self.across.extent - self.side))

            def square(at: Val, _: list[Val]) -> Sequence[Val]:
                self._square(scalars.least(self.f, at, integer(self.along.extent - RUN)), begin, scope, stores)
                return ()

            self._loop(block, self.along, RUN, square)
            return ()

        self._loop(row, self.across, self.side, strip)

    def _loop(self, block: Val, axis: Axis, step: int, inside: Callable[[Val, list[Val]], Sequence[Val]]) -> None:
        begin = self.f.scaled(block, NEAR)
        end = scalars.least(self.f, self.f.add(begin, integer(NEAR)), integer(axis.extent))
        self.f.loop(begin, end, step, (), inside)

    def _square(self, first: Val, begin: Val, scope: Scope, stores: Callable[[Scope], None]) -> None:
        f, side = self.f, self.side
        columns = f.add(f.splat(begin, side), f.lanes(side))
        read: list[Scope] = []
        for number in range(RUN):
            line = Scope(scope, {self.along: f.add(first, integer(number))})
            read.append(Scope(line, {self.across: columns}, side, ((self.across,), begin)))
        found = {load: self._turned([self._line(load, each) for each in read]) for load in self.loads}
        lanes = f.add(f.splat(first, RUN), f.lanes(RUN))
        for number in range(side):
            line = Scope(scope, {self.across: f.add(begin, integer(number))})
            known: dict[Expr, Val] = {load: values[number] for load, values in found.items()}
            stores(Scope(line, {self.along: lanes}, RUN, ((self.along,), first), None, known))

    def _line(self, load: Load, scope: Scope) -> Val:
        start = self.body.run_start(load.offset, scope)
        if self.ahead and start is not None:
            self.body.fetch(load.buffer, self.f.add(start, integer(self._later(load))))
        return self.body.value(load, scope)

    def _later(self, load: Load) -> int:
        """Elements from a line to what is asked for with it: later in the line, or of a short one the next block's."""
        columns = FAR_BYTES // RUN // load.dtype.bytes
        if self.across.extent >= 2 * columns:
            return columns
        return NEAR * (ix.coefficient(load.offset, self.along) or 0)

    def _turned(self, rows: list[Val]) -> list[Val]:
        """As many columns as a square's side, of `RUN` elements."""
        parts = [turned(self.f, rows[at : at + self.side]) for at in range(0, RUN, self.side)]
        return [reduce(partial(_joined, self.f), column) for column in zip(*parts, strict=True)]


def _joined(f: Function, a: Val, b: Val) -> Val:
    picks = ", ".join(f"i32 {lane}" for lane in range(a.width + b.width))
    text = f"shufflevector {a.typed}, {b.typed}, <{a.width + b.width} x i32> <{picks}>"
    return f.let(text, a.dtype, a.width + b.width)

"""A kernel as one LLVM function that does a range of its work items.

    void k_<digest>(ptr b0, ..., i64 s0, ..., i64 begin, i64 end, ptr scratch)

A work item is one iteration of every parallel axis but the vector axis, and a block of that one; in a
contraction it is a tile of outputs. Items are independent, so threads take ranges of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from repro.ir.loops import Axis, Expr, Kernel
from repro.ir.schedule import Schedule
from repro.ir.types import I64
from repro.machines import Machine
from repro.targets.llvm import contraction, reductions, scalars
from repro.targets.llvm.body import Body, Scope
from repro.targets.llvm.text import Function, Val, integer


def symbol(kernel: Kernel) -> str:
    return f"k_{kernel.digest[:16]}"


def work_items(kernel: Kernel, schedule: Schedule) -> int:
    """How many independent items the kernel is cut into."""
    if schedule.tile is not None:
        return contraction.shape_of(kernel, schedule).items
    outer = math.prod(axis.extent for axis in _outer(kernel, schedule))
    vector = _vector_axis(kernel, schedule)
    return outer * (1 if vector is None else -(-vector.extent // schedule.block))


def scratch_bytes(kernel: Kernel, schedule: Schedule) -> int:
    """Bytes of private memory that a thread needs while it runs the kernel."""
    return 0 if schedule.tile is None else contraction.shape_of(kernel, schedule).scratch_bytes


def emit(kernel: Kernel, schedule: Schedule, machine: Machine) -> str:
    """The LLVM module (text) of a kernel under a schedule."""
    f = Function()
    if schedule.tile is not None:
        contraction.emit(f, kernel, schedule, machine)
    else:
        _emit_items(f, kernel, schedule, machine)
    f.line("ret void")
    return module(f, kernel, machine)


def module(f: Function, kernel: Kernel, machine: Machine) -> str:
    buffers = [f"ptr noalias align 16 %b{number}" for number in range(len(kernel.buffers))]
    numbers = [f"i64 %s{number}" for number in range(len(kernel.scalars))]
    parameters = ", ".join([*buffers, *numbers, "i64 %begin", "i64 %end", "ptr noalias %scratch"])
    head = [f'target triple = "{machine.triple}"', *f.declared]
    lines = [*head, f"define void @{symbol(kernel)}({parameters}) {machine.attributes} {{", "entry:"]
    return "\n".join([*lines, *f.entry, *f.lines, "}"]) + "\n"


def _vector_axis(kernel: Kernel, schedule: Schedule) -> Axis | None:
    return None if schedule.vector_axis is None else kernel.axes[schedule.vector_axis]


def _outer(kernel: Kernel, schedule: Schedule) -> list[Axis]:
    """Parallel axes that are not the vector axis, in nest order."""
    return [axis for axis in kernel.axes[kernel.serial :] if axis is not _vector_axis(kernel, schedule)]


def _emit_items(f: Function, kernel: Kernel, schedule: Schedule, machine: Machine) -> None:
    body = Body(f, kernel, reductions.emit, machine.reduction_lanes)
    roots = [expr for store in kernel.stores for expr in store.expressions]
    top = Scope(None, {})
    body.hoist(roots, top)
    items = _Items(body, kernel, schedule, roots)

    def item(number: Val, _: list[Val]) -> Sequence[Val]:
        items.item(number, top)
        return ()

    f.loop(Val("%begin", I64), Val("%end", I64), 1, (), item)


class _Items:
    """The code of one work item."""

    def __init__(self, body: Body, kernel: Kernel, schedule: Schedule, roots: list[Expr]) -> None:
        self.body, self.f, self.kernel, self.schedule, self.roots = body, body.f, kernel, schedule, roots
        self.vector = _vector_axis(kernel, schedule)

    def item(self, number: Val, top: Scope) -> None:
        f, blocks = self.f, 1
        block = integer(0)
        if self.vector is not None:
            blocks = -(-self.vector.extent // self.schedule.block)
            block = _rem(f, number, blocks)
        bound: dict[Axis, Val] = {}
        rest = _quotient(f, number, blocks)
        for axis in reversed(_outer(self.kernel, self.schedule)):
            bound[axis] = _rem(f, rest, axis.extent)
            rest = _quotient(f, rest, axis.extent)
        scope = Scope(top, bound)
        serial = self.kernel.axes[: self.kernel.serial]

        def inside(level: Scope, _: list[Val]) -> Sequence[Val]:
            self.along_vector(block, level)
            return ()

        self.body.nest(serial, scope, self.roots, (), inside)

    def along_vector(self, block: Val, scope: Scope) -> None:
        if self.vector is None:
            self.stores(scope)
            return
        f, axis, width = self.f, self.vector, self.schedule.vector_width
        begin = f.scaled(block, self.schedule.block) if block.text != "0" else block
        end = self._end(begin, axis.extent)
        middle = begin
        if width > 1 and min(axis.extent, self.schedule.block) >= width:
            span = f.let(f"sub i64 {end.text}, {begin.text}", I64)
            middle = f.add(begin, f.let(f"and i64 {span.text}, {-width}", I64))
            f.loop(begin, middle, width, (), lambda at, _: self.lanes(at, scope))
        if width > 1 and axis.extent % width == 0 and self.schedule.block % width == 0:
            return
        f.loop(middle, end, 1, (), lambda at, _: self.single(at, scope))

    def _end(self, begin: Val, extent: int) -> Val:
        if begin.text == "0":
            return integer(min(self.schedule.block, extent))
        end = self.f.add(begin, integer(self.schedule.block))
        if extent % self.schedule.block == 0:
            return end
        less = scalars.compare(self.f, "lt", end, integer(extent))
        return scalars.select(self.f, less, end, integer(extent))

    def lanes(self, at: Val, scope: Scope) -> Sequence[Val]:
        assert self.vector is not None
        width = self.schedule.vector_width
        numbers = self.f.add(self.f.splat(at, width), self.f.lanes(width))
        self.stores(Scope(scope, {self.vector: numbers}, width, (self.vector, at)))
        return ()

    def single(self, at: Val, scope: Scope) -> Sequence[Val]:
        assert self.vector is not None
        self.stores(Scope(scope, {self.vector: at}))
        return ()

    def stores(self, scope: Scope) -> None:
        for store in self.kernel.stores:
            value = self.body.value(store.value, scope)
            self.body.store(store.buffer, store.offset, value, store.when, scope)


def _rem(f: Function, number: Val, extent: int) -> Val:
    return integer(0) if extent == 1 else f.let(f"urem i64 {number.text}, {extent}", I64)


def _quotient(f: Function, number: Val, extent: int) -> Val:
    return number if extent == 1 else f.let(f"udiv i64 {number.text}, {extent}", I64)

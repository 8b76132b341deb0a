"""Kernels of independent outputs: a thread takes 16 bytes of neighbours, so that warps read and write whole lines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from repro.ir.expressions import Apply, Axis, Expr, Load, Reduce
from repro.ir.loops import Kernel
from repro.machines import Machine
from repro.targets.gpu.body import Entry, GpuBody, assemble, block_size, blocks_for, global_thread, run_width, special
from repro.targets.gpu.floor import commonly
from repro.targets.gpu.launch import GpuKernel, Launch
from repro.targets.llvm import scalars
from repro.targets.llvm.body import Scope
from repro.targets.llvm.kernel import symbol
from repro.targets.llvm.text import Function, Val, integer

LIGHT = 96
"""Scalar operations of an output up to which a thread takes several: beyond, code and registers are worth more."""


@dataclass(frozen=True)
class Plan:
    """The axis along which a thread takes `width` neighbours; the kernel's other axes, in their order."""

    axis: Axis
    others: tuple[Axis, ...]
    width: int

    @property
    def groups(self) -> int:
        return -(-self.axis.extent // self.width)

    @property
    def threads(self) -> int:
        return math.prod(axis.extent for axis in self.others) * self.groups

    @property
    def text(self) -> str:
        return f"elementwise width={self.width} along {self.axis.extent}"


def plan(kernel: Kernel) -> Plan | None:
    """None where neighbours are not stored side by side, or outputs are not independent and light."""
    if kernel.serial or any(axis.extent == 0 for axis in kernel.axes) or not _in_place(kernel):
        return None
    expressions = list(kernel.expressions)
    if any(isinstance(e, Reduce) for e in expressions) or sum(isinstance(e, Apply) for e in commonly(kernel)) > LIGHT:
        return None
    axis = max(kernel.axes, key=lambda axis: (run_width(kernel, axis), axis.extent), default=None)
    width = 1 if axis is None else run_width(kernel, axis)
    if axis is None or not axis.extent >= width > 1:
        return None
    return Plan(axis, tuple(other for other in kernel.axes if other is not axis), width)


def _in_place(kernel: Kernel) -> bool:
    """Whether all that is read of what the kernel writes is the very element that the iteration writes."""
    written = {(store.buffer, store.offset) for store in kernel.stores}
    read = [(e.buffer, e.offset) for e in kernel.expressions if isinstance(e, Load)]
    return all(place in written for place in read if kernel.buffers[place[0]].writable)


def emit(kernel: Kernel, chosen: Plan, machine: Machine) -> GpuKernel:
    """The code of a kernel, `width` outputs for each thread."""
    f = Function()
    block = block_size(chosen.threads)
    _Outputs(GpuBody(f, kernel, machine), kernel, chosen).emit(global_thread(f, block, chosen.threads))
    f.line("ret void")
    ptx = assemble(kernel, [Entry(symbol(kernel), f, block)], machine)
    launch = Launch(symbol(kernel), blocks_for(chosen.threads, block), block)
    return GpuKernel(ptx, (launch,), schedule=chosen.text)


def seated(f: Function, kernel: Kernel, chosen: Plan, machine: Machine, threads: int) -> None:
    """The kernel by one block of so many threads."""
    made = _Outputs(GpuBody(f, kernel, machine), kernel, chosen)

    def outputs(at: Val, _: list[Val]) -> Sequence[Val]:
        made.thread(at)
        return ()

    f.loop(special(f, "tid"), integer(chosen.threads), threads, (), outputs)


class _Outputs:
    def __init__(self, body: GpuBody, kernel: Kernel, chosen: Plan) -> None:
        self.body, self.f, self.kernel, self.plan = body, body.f, kernel, chosen

    def emit(self, number: Val) -> None:
        inside = scalars.compare(self.f, "lt", number, integer(self.plan.threads))
        self.f.when(inside, lambda: self.thread(number))

    def thread(self, number: Val) -> None:
        f, (axis, others, width) = self.f, (self.plan.axis, self.plan.others, self.plan.width)
        group, rest = (scalars.binary(f, how, number, integer(self.plan.groups)) for how in ("urem", "udiv"))
        bound = dict(zip(others, self.body.split(rest, others) if others else (), strict=True))
        scope, first = Scope(None, bound), f.scaled(group, width)

        def whole() -> Sequence[Val]:
            self._stores(self.body.lane_scope(scope, [axis], first, width, None, aligned=True))
            return ()

        def rest_of_row() -> Sequence[Val]:
            f.loop(first, integer(axis.extent), 1, (), lambda at, _: self._stores(Scope(scope, {axis: at})))
            return ()

        if axis.extent % width == 0:
            whole()
        else:
            f.either(scalars.compare(f, "le", first, integer(axis.extent - width)), whole, rest_of_row)

    def _stores(self, scope: Scope) -> Sequence[Val]:
        """A condition that is the same for all outputs is asked once for all that a thread stores, in whole runs."""
        stores = self.kernel.stores
        values = [self.body.value(store.value, scope) for store in stores]
        common = stores[0].when if len({store.when for store in stores}) == 1 else None
        if common is None or common.free:
            self._write(values, [store.when for store in stores], scope)
        else:
            kept = self.body.value(common, Scope(None, {}))
            self.f.when(kept, lambda: self._write(values, [None] * len(stores), scope))
        return ()

    def _write(self, values: Sequence[Val], conditions: Sequence[Expr | None], scope: Scope) -> None:
        for store, value, when in zip(self.kernel.stores, values, conditions, strict=True):
            self.body.store(store.buffer, store.offset, value, when, scope)

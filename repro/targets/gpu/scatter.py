"""Loops that add to places that they look up (scatter-add, gradients of embeddings), without atomics.

Contributions to one place are added in the loop's order (rule 12), so the loop stays serial; but places are apart from
each other. Each group of threads runs the whole loop and takes the iterations whose place is its own: place / stripe,
modulo the number of groups. What a group does not own costs it a look at the index.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from repro.ir import index as ix
from repro.ir.dependence import independent_axes
from repro.ir.expressions import Affine, Axis, Expr, IndexOp, Load, Reduce, load
from repro.ir.loops import Kernel, Store
from repro.ir.types import BOOL
from repro.machines import Machine
from repro.targets.gpu.body import Entry, GpuBody, assemble, block_size, blocks_for, global_thread
from repro.targets.gpu.launch import GpuKernel, Launch
from repro.targets.llvm import scalars
from repro.targets.llvm.kernel import symbol
from repro.targets.llvm.scope import Scope
from repro.targets.llvm.text import Function, Val, integer

MOST_GROUPS, MOST_THREADS = 256, 1 << 16


@dataclass(frozen=True)
class Plan:
    """Groups, and how many neighbouring places have one owner."""

    axes: tuple[Axis, ...]
    groups: int
    stripe: int

    @property
    def threads(self) -> int:
        """Of one group."""
        return math.prod(axis.extent for axis in self.axes)

    @property
    def text(self) -> str:
        return f"scatter groups={self.groups} stripe={self.stripe}"


def plan(kernel: Kernel) -> Plan | None:
    """None where an iteration touches more than one place of what is written, or its places are not looked up."""
    parallel = kernel.axes[kernel.serial :]
    if not kernel.serial or len(kernel.stores) != 1 or any(axis.extent == 0 for axis in kernel.axes):
        return None
    store = kernel.stores[0]
    if any(isinstance(e, Reduce) for e in kernel.expressions) or not frozenset(parallel) <= independent_axes(kernel):
        return None
    read = [e for e in kernel.expressions if isinstance(e, Load) and kernel.buffers[e.buffer].writable]
    if not all(_same_place(e, store) for e in read):
        return None
    stripe = _looked_up(store.offset)
    iterations = math.prod(axis.extent for axis in kernel.axes[: kernel.serial])
    threads = math.prod(axis.extent for axis in parallel)
    groups = 1
    while groups < min(MOST_GROUPS, iterations // 8) and 2 * groups * threads <= MOST_THREADS:
        groups *= 2
    return Plan(parallel, groups, stripe) if stripe and groups > 1 else None


def _same_place(read: Load, store: Store) -> bool:
    return read.buffer == store.buffer and read.when is store.when and _bare(read.offset) is _bare(store.offset)


def _bare(index: Expr) -> Expr:
    """An index with its look-ups as if they were not guarded: under one condition they are the same."""
    match index:
        case Load():
            return load(index.dtype, index.buffer, _bare(index.offset))
        case Affine():
            terms = zip(index.children, index.coefficients, strict=True)
            return ix.add(ix.number(index.constant), *(ix.scale(_bare(child), k) for child, k in terms))
        case IndexOp():
            return IndexOp(index.dtype, index.fields, tuple(_bare(child) for child in index.children))
        case _:
            return index


def _looked_up(offset: Expr) -> int:
    """The least stride of a look-up in an offset; 0 where it has none."""
    if isinstance(offset, Load):
        return 1
    if not isinstance(offset, Affine):
        return 0
    terms = zip(offset.children, offset.coefficients, strict=True)
    return min((abs(k) for child, k in terms if not isinstance(child, Axis)), default=0)


def emit(kernel: Kernel, chosen: Plan, machine: Machine) -> GpuKernel:
    """The code of a kernel, a thread for each value of the parallel axes in each group."""
    f = Function()
    threads = chosen.threads * chosen.groups
    block = block_size(threads, 128)
    body = GpuBody(f, kernel, machine)
    number = global_thread(f, block, threads)
    inside = scalars.compare(f, "lt", number, integer(threads))
    f.when(inside, lambda: _Thread(body, kernel, chosen).emit(number))
    f.line("ret void")
    ptx = assemble(kernel, [Entry(symbol(kernel), f, block)], machine)
    return GpuKernel(ptx, (Launch(symbol(kernel), blocks_for(threads, block), block),), schedule=chosen.text)


class _Thread:
    def __init__(self, body: GpuBody, kernel: Kernel, chosen: Plan) -> None:
        self.body, self.f, self.kernel, self.plan, self.store = body, body.f, kernel, chosen, kernel.stores[0]

    def emit(self, number: Val) -> None:
        f, axes = self.f, self.plan.axes
        own, group = (scalars.binary(f, how, number, integer(self.plan.threads)) for how in ("urem", "udiv"))
        scope = Scope(None, dict(zip(axes, self.body.split(own, axes) if axes else (), strict=True)))
        indices = [self.store.offset, *([] if self.store.when is None else [self.store.when])]

        def iteration(inner: Scope, _: list[Val]) -> Sequence[Val]:
            f.when(self._owned(inner, group), lambda: self._add(inner))
            return ()

        self.body.nest(self.kernel.axes[: self.kernel.serial], scope, indices, (), iteration)

    def _owned(self, scope: Scope, group: Val) -> Val:
        """Whether the iteration stores to a place of this group; a place that is not stored to may be anything."""
        f = self.f
        place = self.body.value(self.store.offset, scope)
        stripe = scalars.binary(f, "udiv", place, integer(self.plan.stripe))
        owner = scalars.binary(f, "and", stripe, integer(self.plan.groups - 1))
        mine = scalars.compare(f, "eq", owner, group)
        if self.store.when is None:
            return mine
        return scalars.binary(f, "and", mine, self.body.value(self.store.when, scope))

    def _add(self, scope: Scope) -> None:
        inner = Scope(scope, {})
        if self.store.when is not None:
            inner.known[self.store.when] = Val("true", BOOL)
        self.body.store(self.store.buffer, self.store.offset, self.body.value(self.store.value, inner), None, inner)

"""Where what is local to a block of rows lies in shared memory: as little of it as can be.

A kernel may write its rows over those that it reads, if each row is read and written by one warp, which has read all
that it needs of the row before it writes any: then the exponentials of a softmax take the place of the scores.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from passes.plan import plan_local
from repro.ir import index as ix
from repro.ir.expressions import Axis, Expr, Load, Reduce
from repro.ir.loops import Kernel
from repro.ir.program import LOCAL, Buffer, Call, RowBlocks
from repro.targets.gpu import elementwise, rows
from repro.targets.gpu.team import cooperative
from repro.targets.gpu.within import Road


def placed(
    buffers: tuple[Buffer, ...], step: RowBlocks, kernels: Sequence[Kernel], roads: Sequence[Road]
) -> tuple[dict[int, int], int]:
    """The offset of each local buffer of a step, and the bytes of them all; kernels and roads stand beside its body."""
    homes = _homes(buffers, step, kernels, roads)
    body = tuple(Call(call.kernel, tuple(homes.get(b, b) for b in call.buffers)) for call in step.body)
    planned, nbytes = plan_local(buffers, (RowBlocks(step.extents, body),))
    return {buffer: planned[home].position for buffer, home in homes.items()}, nbytes


def _homes(
    buffers: tuple[Buffer, ...], step: RowBlocks, kernels: Sequence[Kernel], roads: Sequence[Road]
) -> dict[int, int]:
    """The buffer in whose place each local buffer stands: often itself."""
    last = {buffer: at for at, call in enumerate(step.body) for buffer in call.buffers}
    homes: dict[int, int] = {}
    for at, (call, kernel, road) in enumerate(zip(step.body, kernels, roads, strict=True)):
        target = kernel.stores[0].buffer
        written = call.buffers[target]
        if buffers[written].role != LOCAL:
            continue
        homes[written] = written
        for position, source in enumerate(call.buffers):
            same = source in homes and source != written and buffers[source].nbytes == buffers[written].nbytes
            if same and last[source] == at and over(kernel, position, road):
                homes[written] = homes[source]
                break
    return homes


def over(kernel: Kernel, source: int, road: Road) -> bool:
    """Whether the kernel may write its results over a buffer that it reads."""
    store, loads = kernel.stores[0], [e for e in kernel.expressions if isinstance(e, Load) and e.buffer == source]
    if store.when is not None or kernel.buffers[source].dtype is not kernel.buffers[store.buffer].dtype:
        return False
    if isinstance(road, elementwise.Plan):
        return all(load.offset == store.offset for load in loads)
    if not isinstance(road, rows.Plan):
        return False
    reduces = [e for e in kernel.expressions if isinstance(e, Reduce)]
    if any(not cooperative(e) or not e.free <= frozenset(road.rows) for e in reduces):
        return False  # a thread would sum for itself, when others write already
    bound = frozenset(axis for reduce in reduces for axis in reduce.axes)
    first, size = _row(store.offset, road.inner), math.prod(axis.extent for axis in road.inner)
    if first is None or not ix.divisible(first, size):
        return False
    return all(
        _inside(load.offset, first, size) and (load.offset == store.offset or bool(load.free & bound)) for load in loads
    )


def _row(offset: Expr, inner: Sequence[Axis]) -> Expr | None:
    """Where a row begins, if it is stored as one run."""
    stride = 1
    for axis in reversed(inner):
        if axis.extent > 1 and ix.coefficient(offset, axis) != stride:
            return None
        offset = ix.add(offset, ix.scale(axis, -stride))
        stride *= axis.extent
    return offset


def _inside(offset: Expr, first: Expr, size: int) -> bool:
    """Whether an offset is always one of the row's."""
    low, high = ix.bounds(ix.add(offset, ix.scale(first, -1)))
    return low >= 0 and high < size

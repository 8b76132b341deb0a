"""Sums whose terms lie in rows: how many rows to read at a time, and how many columns of them.

A sum along an axis in front of the one that lies together in memory could run down its own few columns: each step is
then on another page, and rows a power of two apart share a cache set. A *sweep* (`repro.targets.llvm.sweeps`) reads
whole rows instead, for all columns of an item, and holds the order's lanes in private memory. The order of each sum is
the same.
"""

from __future__ import annotations

import math

from repro.ir.dependence import reads_its_output
from repro.ir.expressions import Apply, Axis, Lanes, Load, Reduce
from repro.ir.loops import Kernel
from repro.ir.schedule import Schedule
from repro.machines import Machine

ROWS = 8
"""Rows read side by side: as many as the ways of a cache, in which rows a power of two apart share a set."""
COLUMNS = 64
"""Of an item, about: what a thread has several of, side by side, it sweeps together. Shorter runs of a row leave what
fetches ahead behind."""
LIGHT = 24
"""Scalar operations up to which memory is what takes the time."""


def sums(kernel: Kernel, axis: Axis) -> list[Reduce]:
    """The kernel's reductions, if all are sums in lanes, one for each column along the axis; else none."""
    found = [expr for expr in kernel.expressions if isinstance(expr, Reduce)]
    bound = frozenset(axis for reduce in found for axis in reduce.axes)
    outputs = frozenset(kernel.axes)
    fitting = all(_fits(reduce) and outputs <= reduce.free and not reduce.free & bound for reduce in found)
    return found if fitting and axis in outputs else []


def _fits(reduce: Reduce) -> bool:
    order, count = reduce.order, math.prod(axis.extent for axis in reduce.axes)
    return isinstance(order, Lanes) and order.leaf % order.lanes == 0 and 1 <= count <= order.leaf**2


def can_sweep(kernel: Kernel, schedule: Schedule) -> bool:
    """Whether a schedule's rows can be read so: whole vectors of columns, and nothing that is read is written."""
    if schedule.vector_axis is None or schedule.vector_width < 2 or schedule.inner:
        return False
    axis, width = kernel.axes[schedule.vector_axis], schedule.vector_width
    even = axis.extent % width == 0 and schedule.block % width == 0 and axis.extent > 0
    return even and kernel.serial == 0 and not reads_its_output(kernel) and bool(sums(kernel, axis))


def sweep(kernel: Kernel, machine: Machine, position: int) -> Schedule | None:
    """The schedule of a kernel of little work whose sums are best swept along an axis."""
    axis = kernel.axes[position]
    reductions = sums(kernel, axis)
    light = sum(isinstance(expr, Apply) for expr in kernel.expressions) <= LIGHT
    width = 2 * machine.lanes(32)
    while width > machine.lanes(32) and axis.extent % width:
        width //= 2
    if not reductions or not light or width < 2:
        return None
    blocks = max(1, axis.extent // COLUMNS)
    made = Schedule(position, width, -(-axis.extent // (blocks * width)) * width, sweep=_rows(kernel, reductions))
    return made if can_sweep(kernel, made) else None


def _rows(kernel: Kernel, reductions: list[Reduce]) -> int:
    """Fewer where a row is read from several places."""
    bound = frozenset(axis for reduce in reductions for axis in reduce.axes)
    loads = [
        e for e in kernel.expressions if isinstance(e, Load) and e.free & bound and e.free & frozenset(kernel.axes)
    ]
    return max(1, ROWS // max(1, len(loads)))

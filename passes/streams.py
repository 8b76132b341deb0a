"""Kernels that write past the caches: what is larger than those need not be fetched before it is written."""

from __future__ import annotations

import math
from collections.abc import Sequence

from passes.squares import Crossing
from repro.ir import index as ix
from repro.ir.dependence import reads_its_output
from repro.ir.expressions import Apply, Axis, Load, Reduce
from repro.ir.loops import Kernel, Store
from repro.machines import Machine
from repro.machines.machine import LINE_BYTES, line_elements

STREAMED_BYTES = 32 << 20
"""Of a kernel's buffers together, from which on it writes past the caches, and asks for what it reads far ahead."""
BURST_BYTES = 256
"""Written in one go past the caches, at most a quarter of the registers. Into them it is a line: one that is written in
parts, with loads in between that cross lines, may leave in parts (Zen 4: half the speed; the arrays of most callers
begin 16 bytes behind a line)."""
LIGHT = 32
"""Scalar operations up to which registers hold a burst."""


def streamed(kernel: Kernel, machine: Machine) -> bool:
    """Whether the kernel's stores may go past the caches: each is made once, and nothing reads it."""
    once = kernel.serial == 0 and not reads_its_output(kernel)
    return bool(machine.fence) and once and kernel.nbytes >= STREAMED_BYTES


def crowded(kernel: Kernel, crossing: Crossing | None, machine: Machine) -> bool:
    """Whether the lines that a square writes share a set of the nearest cache that has room for fewer: each would be
    pushed out before it has arrived, so they go past the caches, even if they are read soon (f32, 1024 x 1024, Zen 5:
    0.24 to 0.12 ms, with a reader behind it 0.31 to 0.25). Squares of narrower registers take longer to turn."""
    if crossing is None or not machine.fence or not machine.is_far(kernel.nbytes):
        return False
    strides = ((ix.coefficient(each.offset, crossing.axis), kernel.buffers[each.buffer]) for each in kernel.stores)
    shared = all(n and n * held.dtype.bytes % machine.l1_set_bytes == 0 for n, held in strides)
    return shared and crossing.side_on(machine) > max(machine.l1_ways, crossing.side)


def ahead(kernel: Kernel, crossing: Crossing, rows: int, machine: Machine) -> bool:
    """Whether the lines that squares read come from beyond the second-level cache, and the nearest has room for one of
    each of so many rows, and the next, until all of their elements were taken; of whole lines they are at once.

    Each row is on a page of its own, more than hardware follows from line to line (64 rows in the third-level cache of
    a Zen 3: 0.37 ms without, 0.26 with)."""
    if not machine.is_far(kernel.nbytes):
        return False
    sizes = [each.dtype.bytes for each in crossing.loads]
    strides = (ix.coefficient(each.offset, crossing.written) or 0 for each in crossing.loads)
    shared = (math.gcd(n * size, machine.l1_set_bytes) for n, size in zip(strides, sizes, strict=True))
    room = (machine.l1_bytes // max(each, LINE_BYTES) for each in shared)
    return crossing.side_on(machine) * max(sizes) >= LINE_BYTES or min(room) >= 2 * rows


def far(kernel: Kernel, axes: Sequence[Axis], machine: Machine) -> frozenset[Load]:
    """Loads of what comes from memory, and lies there as the axes run: hardware fetches less far ahead than memory is
    away. Reductions ask for their own."""
    if not streamed(kernel, machine) or any(isinstance(expr, Reduce) for expr in kernel.expressions):
        return frozenset()
    in_order = ix.linear(axes, [each.extent for each in axes])
    return frozenset(expr for expr in _from_memory(kernel, machine) if expr.offset is in_order and expr.when is None)


def item_order(kernel: Kernel, machine: Machine, position: int) -> tuple[int, ...]:
    """The order of axes for a schedule's items beside a vector axis: that in which all that is read lies in memory, if
    there is one and stores go past the caches in whole lines. Those wait for nobody, wherever they go, while reads that
    go from page to page are not fetched ahead (heads of 64: 0.75 ms in this order, 1.28 in that of the stores, Zen 5).
    """
    axis, loads = kernel.axes[position], _from_memory(kernel, machine)
    if not streamed(kernel, machine) or any(isinstance(expr, Reduce) for expr in kernel.expressions):
        return ()
    lines = all(_in_lines(store, axis, kernel.buffers[store.buffer].dtype.bytes) for store in kernel.stores)
    beside = all(ix.coefficient(each.offset, axis) == 1 for each in loads)
    orders = {lying(each, kernel, position) for each in loads}
    return orders.pop() if lines and beside and len(orders) == 1 else ()


def lying(load: Load, kernel: Kernel, position: int) -> tuple[int, ...]:
    """The parallel axes beside one, in the order in which what is read lies in memory; empty where it is the kernel's,
    or none."""
    others = [n for n in range(kernel.serial, len(kernel.axes)) if n != position]
    strides = {n: ix.coefficient(load.offset, kernel.axes[n]) or 0 for n in others}
    found = tuple(sorted(others, key=lambda n: -strides[n]))
    return found if all(strides.values()) and found != tuple(others) else ()


def _from_memory(kernel: Kernel, machine: Machine) -> list[Load]:
    loads = [expr for expr in kernel.expressions if isinstance(expr, Load)]
    return [expr for expr in loads if machine.is_far(kernel.buffers[expr.buffer].nbytes)]


def _in_lines(store: Store, axis: Axis, size: int) -> bool:
    """Whether it writes runs of whole lines along the axis."""
    lines = line_elements(size)
    rows = ix.add(store.offset, ix.scale(axis, -1))
    return axis.extent % lines == 0 and ix.coefficient(store.offset, axis) == 1 and ix.divisible(rows, lines)


def burst(kernel: Kernel, axis: Axis, machine: Machine) -> int:
    """Elements along the axis that a kernel of little work writes in one go, where memory takes the time; else 0."""
    light = sum(isinstance(expr, Apply) for expr in kernel.expressions) <= LIGHT
    plain = not any(isinstance(expr, Reduce) and axis in expr.free for expr in kernel.expressions)
    if not light or not plain or not machine.is_far(kernel.nbytes):
        return 0
    largest = max(store.value.dtype.bytes for store in kernel.stores)
    most = min(BURST_BYTES, machine.registers // 4 * machine.vector_bits // 8)
    lanes = (most if streamed(kernel, machine) else LINE_BYTES) // largest
    return lanes if axis.extent % lanes == 0 else 0

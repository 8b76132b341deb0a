"""Kernels that write past the caches: what is larger than those need not be fetched before it is written."""

from __future__ import annotations

from repro.ir import index as ix
from repro.ir.dependence import reads_its_output
from repro.ir.expressions import Apply, Axis, Load, Reduce
from repro.ir.loops import Kernel
from repro.machines import Machine

STREAMED_BYTES = 32 << 20
"""Of a kernel's buffers together, from which on it writes past the caches, and asks for what it reads far ahead."""
BURST_BYTES, LINE_BYTES = 256, 64
"""Written in one go, past the caches and into them. A line that is written in parts, with loads in between that cross
lines, may leave in parts (Zen 4: half the speed; the arrays of most callers begin 16 bytes behind a line)."""
LIGHT = 32
"""Scalar operations up to which registers hold a burst."""


def streamed(kernel: Kernel, machine: Machine) -> bool:
    """Whether the kernel's stores may go past the caches: each is made once, and nothing reads it."""
    once = kernel.serial == 0 and not reads_its_output(kernel)
    return bool(machine.fence) and once and _bytes(kernel) >= STREAMED_BYTES


def far(kernel: Kernel, axis: Axis, machine: Machine) -> frozenset[Load]:
    """Loads along the axis of what comes from memory and goes on where the axis ends: hardware fetches less far ahead
    than memory is away. Reductions ask for their own."""
    if not streamed(kernel, machine) or any(isinstance(expr, Reduce) for expr in kernel.expressions):
        return frozenset()
    in_order = ix.linear(kernel.axes, [each.extent for each in kernel.axes])
    loads = [expr for expr in kernel.expressions if isinstance(expr, Load) and expr.when is None]
    large = [expr for expr in loads if kernel.buffers[expr.buffer].nbytes > machine.l2_bytes]
    return frozenset(expr for expr in large if expr.offset is in_order and kernel.axes[-1] is axis)


def burst(kernel: Kernel, axis: Axis, machine: Machine) -> int:
    """Elements along the axis that a kernel of little work writes in one go, where memory takes the time; else 0."""
    light = sum(isinstance(expr, Apply) for expr in kernel.expressions) <= LIGHT
    plain = not any(isinstance(expr, Reduce) and axis in expr.free for expr in kernel.expressions)
    if not light or not plain or _bytes(kernel) < machine.l2_bytes:
        return 0
    largest = max(store.value.dtype.bytes for store in kernel.stores)
    lanes = (BURST_BYTES if streamed(kernel, machine) else LINE_BYTES) // largest
    return lanes if axis.extent % lanes == 0 else 0


def _bytes(kernel: Kernel) -> int:
    return sum(buffer.elements * buffer.dtype.bytes for buffer in kernel.buffers)

"""Kernels that write past the caches: what is larger than those need not be fetched before it is written."""

from __future__ import annotations

from repro.ir.dependence import reads_its_output
from repro.ir.expressions import Apply, Axis, Reduce
from repro.ir.loops import Kernel
from repro.machines import Machine

STREAMED_BYTES = 32 << 20
"""Of a kernel's buffers together, from which on it writes past the caches."""
BURST_BYTES, LINE_BYTES = 256, 64
"""Written in one go, past the caches and into them. A line that is written in parts, with loads in between that cross
lines, may leave in parts (Zen 4: half the speed; the arrays of most callers begin 16 bytes behind a line)."""
LIGHT = 32
"""Scalar operations up to which registers hold a burst."""


def streamed(kernel: Kernel, machine: Machine) -> bool:
    """Whether the kernel's stores may go past the caches: each is made once, and nothing reads it."""
    once = kernel.serial == 0 and not reads_its_output(kernel)
    return bool(machine.fence) and once and _bytes(kernel) >= STREAMED_BYTES


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

"""Which iterations of a kernel may be cut apart: the reasoning about addresses that schedules rest on."""

from __future__ import annotations

from repro.ir import index as ix
from repro.ir.expressions import Affine, Axis, Expr, Load
from repro.ir.loops import Kernel


def reads_its_output(kernel: Kernel) -> bool:
    """Whether some load is from a buffer that the kernel writes."""
    return any(isinstance(e, Load) and kernel.buffers[e.buffer].writable for e in kernel.expressions)


def independent_axes(kernel: Kernel) -> frozenset[Axis]:
    """Parallel axes whose iterations may run apart for the whole of the serial loops.

    Without serial axes all are. With them, an axis is independent if its value can be read off every address
    that is written, or read from what is written: then no iteration of it ever touches another's elements.
    """
    parallel = kernel.axes[kernel.serial :]
    if kernel.serial == 0 or any(axis.extent == 0 for axis in kernel.axes):
        return frozenset(parallel)
    accesses = _accesses(kernel)
    return frozenset(axis for axis in parallel if _apart(accesses, axis))


def _accesses(kernel: Kernel) -> list[tuple[int, Expr]]:
    loads = [(e.buffer, e.offset) for e in kernel.expressions if isinstance(e, Load)]
    stores = [(store.buffer, store.offset) for store in kernel.stores]
    return [access for access in [*stores, *loads] if kernel.buffers[access[0]].writable]


def _apart(accesses: list[tuple[int, Expr]], axis: Axis) -> bool:
    strides: dict[int, int] = {}
    for buffer, offset in accesses:
        stride = ix.coefficient(offset, axis)
        if stride is None or stride <= 0 or strides.setdefault(buffer, stride) != stride:
            return False
        if not is_digit(offset, axis, stride):
            return False
    return True


def is_digit(offset: Expr, axis: Axis, stride: int) -> bool:
    """offset == high * (stride * extent) + axis * stride + low, with 0 <= low < stride."""
    if offset is axis:
        return True
    if not isinstance(offset, Affine):
        return False
    span = stride * axis.extent
    low = offset.constant % span
    for atom, factor in zip(offset.children, offset.coefficients, strict=True):
        if atom is axis or factor % span == 0:
            continue
        least, greatest = ix.bounds(atom)
        if factor < 0 or least < 0:
            return False
        low += greatest * factor
    return low < stride

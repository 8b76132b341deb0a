"""Calls written over the program's own numbers of buffers and depths of loops, in which kernels can be put together and
cut apart; and the kernels of such calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from passes.rename import renumber_buffers, renumber_scalars
from repro.errors import InternalError
from repro.ir import index as ix
from repro.ir.expressions import Affine, Axis, Const, Expr, Load, Scalar, topological
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.program import Buffer, Call


@dataclass(frozen=True)
class Called:
    """What a call does: a kernel without serial axes over the program's numbers of buffers and depths of loops."""

    axes: tuple[Axis, ...]
    stores: tuple[Store, ...]

    @property
    def roots(self) -> tuple[Expr, ...]:
        return tuple(expr for store in self.stores for expr in store.expressions)


def called(kernel: Kernel, call: Call) -> Called:
    """A call of a kernel whose stores have no conditions."""
    flat = [expr for store in kernel.stores for expr in (store.offset, store.value)]
    flat = renumber_scalars(flat, dict(enumerate(call.scalars)))
    flat = renumber_buffers(flat, dict(enumerate(call.buffers)))
    pairs = zip(kernel.stores, flat[::2], flat[1::2], strict=True)
    return Called(kernel.axes, tuple(Store(call.buffers[s.buffer], place, value) for s, place, value in pairs))


def call_of(made: Called, kernels: list[Kernel], buffers: Sequence[Buffer]) -> Call:
    """The call of its kernel, which is added to the kernels; in that, buffers are numbered by first use.

    InternalError: the kernel asks for an axis that it has not, or stores outside of a buffer."""
    loads = [expr.buffer for expr in topological(made.roots) if isinstance(expr, Load)]
    written = [store.buffer for store in made.stores]
    used = dict.fromkeys([*loads, *written])
    counters = {each.position: each for each in topological(made.roots) if isinstance(each, Scalar)}
    depths = {depth: position for position, depth in enumerate(sorted(counters))}
    names = {buffer: position for position, buffer in enumerate(used)}
    flat = renumber_buffers(renumber_scalars(made.roots, depths), names)
    pairs = zip(made.stores, flat[::2], flat[1::2], strict=True)
    stores = tuple(Store(names[store.buffer], place, value) for store, place, value in pairs)
    parameters = tuple(BufferParameter(buffers[b].dtype, buffers[b].elements, b in written) for b in used)
    extents = tuple(counters[depth].extent for depth in depths)
    kernels.append(checked(Kernel(parameters, extents, made.axes, 0, stores)))
    return Call(len(kernels) - 1, tuple(used), tuple(depths))


def checked(kernel: Kernel) -> Kernel:
    """The kernel, which has every axis that it asks for, and stores inside of its buffers as far as that can be said
    beforehand: code would write over what lies beside them.

    InternalError: it has not, or does not."""
    roots = (root for store in kernel.stores for root in store.expressions)
    missing = frozenset(axis for root in roots for axis in root.free if axis not in kernel.axes)
    if missing:
        raise InternalError(f"a kernel asks for axes that it has not: {', '.join(sorted(map(str, missing)))}")
    for store in kernel.stores:
        parts = list(topological([store.offset]))
        exact = all(isinstance(part, Axis | Scalar | Const | Affine) for part in parts)
        if (
            store.when is not None
            or not exact
            or any(isinstance(part, Axis | Scalar) and not part.extent for part in parts)
        ):
            continue
        (low, high), elements = ix.bounds(store.offset), kernel.buffers[store.buffer].elements
        if low < 0 or high >= elements:
            raise InternalError(f"a kernel stores elements {low} to {high} of {elements}")
    return kernel

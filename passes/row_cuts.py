"""One kernel cut into blocks of rows: its leading axes are divided so that a block is a run of its iterations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise

from passes.parts import is_assembled
from passes.rename import rewritten
from repro.ir import index as ix
from repro.ir.expressions import Axis, Expr, Load, Scalar, topological
from repro.ir.loops import Kernel, Store
from repro.ir.types import I64


def boundaries(kernel: Kernel, count: int) -> tuple[int, ...] | None:
    """How many blocks there would be if they ended with each of the leading axes, last `count` itself; None where it
    neither ends with an axis nor divides one."""
    product, found = 1, list[int]()
    for axis in kernel.axes:
        if product * axis.extent >= count:
            whole = count % product == 0 and axis.extent % (count // product) == 0
            return (*found, count) if whole else None
        product *= axis.extent
        found.append(product)
    return None


def extents_of(ends: Sequence[int]) -> tuple[int, ...] | None:
    """The digits of a block's index that make a digit, or several, of each axis: None where axes do not nest."""
    steps = (1, *sorted(set(ends) - {1}))
    if any(after % before for before, after in pairwise(steps)):
        return None
    return tuple(after // before for before, after in pairwise(steps))


def _cut_axes(kernel: Kernel, extents: Sequence[int]) -> tuple[dict[Expr, Expr], tuple[Axis, ...], tuple[Expr, ...]]:
    """What each leading axis becomes, the axes that are left, and the digits (scalars behind the kernel's own)."""
    first = len(kernel.scalars)
    digits = tuple(Scalar(I64, (first + place, extent), ()) for place, extent in enumerate(extents))
    made: dict[Expr, Expr] = {}
    place = 0
    for position, axis in enumerate(kernel.axes):
        taken, product = list[Expr](), 1
        while place < len(digits) and product < axis.extent:
            taken.append(digits[place])
            product *= extents[place]
            place += 1
        index = ix.linear(taken, [extents[digits.index(digit)] for digit in taken])
        inner = ix.axis(axis.number, axis.extent // product)
        made[axis] = ix.add(ix.scale(index, inner.extent), inner)
        if place == len(digits):
            left = (inner,) if inner.extent > 1 else ()
            return made, (*left, *kernel.axes[position + 1 :]), digits
    return made, (), digits


def cut(kernel: Kernel, extents: Sequence[int], local: frozenset[int]) -> Kernel:
    """The kernel for one block of rows, whose digits are its last scalars; the buffers in `local` (positions) hold the
    block's slice alone."""
    made, axes, digits = _cut_axes(kernel, extents)
    block, count = ix.linear(digits, extents), math.prod(extents)
    slices = {position: kernel.buffers[position].elements // count for position in local}

    def inside(buffer: int, offset: Expr) -> Expr:
        return ix.add(offset, ix.scale(block, -slices[buffer])) if buffer in slices else offset

    known: dict[Expr, Expr] = dict(made)
    roots = [expr for store in kernel.stores for expr in store.expressions]
    for expr in topological(roots):
        if isinstance(expr, Load) and expr.buffer in slices:
            offset, *when = rewritten(expr.children, known)
            known[expr] = Load(expr.dtype, expr.fields, (inside(expr.buffer, offset), *when))
    stores: list[Store] = []
    for store in kernel.stores:
        offset, value = rewritten((store.offset, store.value), known)
        stores.append(Store(store.buffer, inside(store.buffer, offset), value))
    buffers = tuple(
        replace(each, elements=slices[position]) if position in slices else each
        for position, each in enumerate(kernel.buffers)
    )
    return Kernel(buffers, (*kernel.scalars, *extents), axes, 0, tuple(stores))


@lru_cache(maxsize=2048)
def sliced(kernel: Kernel, count: int) -> frozenset[int]:
    """The buffers (positions) of which each block touches its own slice alone, the buffer's elements over `count`."""
    extents = extents_of(boundaries(kernel, count) or ())
    assert extents is not None
    made, _, digits = _cut_axes(kernel, extents)
    block = ix.linear(digits, extents)
    roots = [expr for store in kernel.stores for expr in store.expressions]
    accesses = [(expr.buffer, expr.offset, expr.when) for expr in topological(roots) if isinstance(expr, Load)]
    accesses += [(store.buffer, store.offset, store.when) for store in kernel.stores]
    offsets = rewritten([offset for _, offset, _ in accesses], made)
    apart = is_assembled(kernel)  # such a call stays whole: with its parts in their place it is not needed (parts.py)
    conditions = rewritten([ix.TRUE if apart or when is None else when for *_, when in accesses], made)
    found = {number for number, each in enumerate(kernel.buffers) if each.elements % count == 0}
    for (buffer, *_), offset, when in zip(accesses, offsets, conditions, strict=True):
        if buffer in found:
            size = kernel.buffers[buffer].elements // count
            low, high = ix.bounds_where(rest := ix.add(offset, ix.scale(block, -size)), when)
            if low < 0 or high >= size or any(part in digits for part in topological([rest])):
                found.remove(buffer)
    return frozenset(found)

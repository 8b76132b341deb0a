"""Long sums of few rows as two kernels: one sums leaves, all at a time; the other sums their sums (rule 10).

A leaf's sum depends on nothing but the leaf, and leaves are summed by the rule that sums values. So the kernel is cut
in its own language: the first kernel writes each leaf's sum to the workspace, the second is the kernel itself with the
reduction over that. Both are then run like any other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from repro.ir import index as ix
from repro.ir.expressions import Axis, Expr, Lanes, Reduce, load, reduce
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.substitution import Substitution
from repro.targets.gpu.body import WARP
from repro.targets.gpu.team import cooperative, terms_of

FEW_THREADS = 1 << 16
"""Of the 32 lanes of every row; with more, a device is busy as it is."""


@dataclass(frozen=True)
class Cut:
    """The two kernels, and the workspace between them, which is the last buffer of both."""

    sums: Kernel
    rest: Kernel
    workspace_bytes: int


def cut(kernel: Kernel, rows: tuple[Axis, ...]) -> Cut | None:
    """The kernel cut at its longest sum, if its rows are few and that is of several leaves; None otherwise."""
    every = [e for e in kernel.expressions if isinstance(e, Reduce) and e.free <= frozenset(rows)]
    long = [e for e in every if cooperative(e) and isinstance(e.order, Lanes) and terms_of(e) > e.order.leaf]
    count = math.prod(axis.extent for axis in rows)
    if len(long) != 1 or count * WARP > FEW_THREADS or _nested(long[0]):
        return None
    (longest,) = long
    return _cut(kernel, longest, rows)


def _nested(root: Reduce) -> bool:
    stack, seen = list(root.children), set[Expr]()
    while stack:
        expr = stack.pop()
        if isinstance(expr, Reduce):
            return True
        if expr not in seen:
            seen.add(expr)
            stack.extend(expr.children)
    return False


def _cut(kernel: Kernel, longest: Reduce, rows: tuple[Axis, ...]) -> Cut:
    order = longest.order
    assert isinstance(order, Lanes)
    terms, dtype = terms_of(longest), longest.dtype
    leaves = -(-terms // order.leaf)
    first = 1 + max((e.number for e in kernel.expressions if isinstance(e, Axis)), default=-1)
    first = max(first, 1 + max((axis.number for axis in kernel.axes), default=-1))
    leaf, inside = ix.axis(first, leaves), ix.axis(first + 1, order.leaf)
    flat = ix.add(ix.scale(leaf, order.leaf), inside)
    exists = None if terms % order.leaf == 0 else ix.compare("lt", flat, terms)
    places = ix.delinear(flat, [axis.extent for axis in longest.axes])
    change = Substitution(dict(zip(longest.axes, places, strict=True)), exists)
    present = ix.both(exists, None if longest.present is None else change.of(longest.present))
    sums = reduce(
        longest.combiner, order, [inside], [change.of(longest.terms[0])], None if present is ix.both() else present
    )
    buffers, extents = len(kernel.buffers), [axis.extent for axis in (*rows, leaf)]
    size = math.prod(extents)
    place = ix.linear((*rows, leaf), extents)
    first_kernel = Kernel(
        (*kernel.buffers, BufferParameter(dtype, size, True)),
        kernel.scalars,
        (*rows, leaf),
        0,
        (Store(buffers, place, sums),),
    )
    total = reduce(longest.combiner, order, [leaf], [load(dtype, buffers, place)])
    again = Substitution({longest: total}, None)
    stores = tuple(
        Store(s.buffer, again.of(s.offset), again.of(s.value), None if s.when is None else again.of(s.when))
        for s in kernel.stores
    )
    rest = Kernel((*kernel.buffers, BufferParameter(dtype, size, False)), kernel.scalars, kernel.axes, 0, stores)
    return Cut(first_kernel, rest, size * dtype.bytes)

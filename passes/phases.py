"""Elementwise kernels whose vectors take turns: pictures put together from those of every other pixel.

Where an index takes the remainder and the quotient of the vector axis (`x mod s` says from which picture, `x // s` from
where in it), neighbours read from far apart. Lanes of one remainder read a run, and what they choose by it is known
when the code is written: so each remainder's elements are computed as a vector of their own, and these are put together
in registers where they are stored, or meet elements that lie beside each other: these are read as they lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from passes.rename import rewritten
from repro.ir import index as ix
from repro.ir.dependence import reads_its_output
from repro.ir.expressions import Axis, Expr, IndexOp, Load, Reduce, topological
from repro.ir.loops import Kernel
from repro.ir.types import BOOL

MOST = 4
"""Remainders, at most."""


@dataclass(frozen=True)
class Phases:
    """Parts of what a kernel stores by remainder of the axis: `values[r]` are those at `count * quotient + r`."""

    count: int
    quotient: Axis
    parts: tuple[Expr, ...]
    values: tuple[tuple[Expr, ...], ...]


def phases(kernel: Kernel, axis: Axis) -> Phases | None:
    """The kernel's values by remainders along an axis, where that leaves no quotient or remainder of it."""
    if any(isinstance(expr, Reduce) for expr in kernel.expressions) or kernel.serial or reads_its_output(kernel):
        return None
    if any(ix.coefficient(store.offset, axis) != 1 or store.when is not None for store in kernel.stores):
        return None
    found = {expr.divisor for expr in kernel.expressions if isinstance(expr, IndexOp) and axis in expr.free}
    if len(found) != 1 or not 1 < (count := found.pop()) <= min(MOST, axis.extent):
        return None
    fresh = 1 + max(each.number for each in (*kernel.axes, *kernel.expressions) if isinstance(each, Axis))
    quotient = ix.axis(fresh, -(-axis.extent // count))
    places = [ix.add(ix.scale(quotient, count), ix.number(r)) for r in range(count)]
    parts = _parts([store.value for store in kernel.stores], axis)
    values = tuple(tuple(rewritten(parts, {axis: place})) for place in places)
    left = [e for each in values for e in topological(each) if isinstance(e, IndexOp) and quotient in e.free]
    return None if left else Phases(count, quotient, parts, values)


def _parts(roots: Sequence[Expr], axis: Axis) -> tuple[Expr, ...]:
    """The largest parts of the roots that take remainders and read nothing that lies beside each other; the roots where
    these would be conditions, or decide what is read beside."""
    apart, beside = set[Expr](), set[Expr]()
    for expr in topological(roots):
        if (isinstance(expr, IndexOp) and axis in expr.free) or any(child in apart for child in expr.children):
            apart.add(expr)
        reads = isinstance(expr, Load) and ix.coefficient(expr.offset, axis) == 1
        if reads or any(child in beside for child in expr.children):
            beside.add(expr)
    found, stack = dict[Expr, None](), list(reversed(roots))
    while stack:
        expr = stack.pop()
        if expr not in apart or expr in found:
            continue
        if expr not in beside:
            found[expr] = None
        elif isinstance(expr, Load):
            return tuple(dict.fromkeys(roots))
        else:
            stack.extend(reversed(expr.children))
    whole = bool(found) and all(part.dtype is not BOOL for part in found)
    return tuple(found) if whole else tuple(dict.fromkeys(roots))

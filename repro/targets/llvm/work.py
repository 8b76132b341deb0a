"""How much a kernel does, in scalar operations: an integer count over the expression tree."""

from __future__ import annotations

import math

from repro.ir.loops import Expr, Kernel, Reduce

_BETWEEN_STOPS = 1 << 28
"""Operations after which a thread looks at the stop flag: a fraction of a second on any machine."""


def operations(kernel: Kernel) -> int:
    """Scalar operations of the whole kernel, each expression once per iteration of the axes it depends on."""
    counts = _bound_axes(kernel)
    return sum(math.prod(axis.extent for axis in expr.free) * counts.get(expr, 1) for expr in kernel.expressions)


def _bound_axes(kernel: Kernel) -> dict[Expr, int]:
    """Extra iterations of a reduction itself: its combiner runs once per term."""
    return {
        expr: math.prod(axis.extent for axis in expr.axes)
        for expr in kernel.expressions
        if isinstance(expr, Reduce)
    }


def items_between_stops(kernel: Kernel, items: int) -> int:
    """Work items that a thread may run before it looks at the stop flag."""
    return max(1, items * _BETWEEN_STOPS // max(1, operations(kernel)))


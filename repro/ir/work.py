"""How much a kernel does, in scalar operations: an integer count, the same on every host."""

from __future__ import annotations

import math

from repro.ir.loops import Expr, Kernel, Reduce


def iterations(expr: Expr) -> int:
    """How often an expression is computed: once per value of the axes that it depends on."""
    return math.prod(axis.extent for axis in expr.free)


def operations(kernel: Kernel) -> int:
    """Scalar operations of the whole kernel; a reduction counts once per term."""
    total = 0
    for expr in kernel.expressions:
        terms = math.prod(axis.extent for axis in expr.axes) if isinstance(expr, Reduce) else 1
        total += iterations(expr) * terms
    return total

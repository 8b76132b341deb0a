"""How much a kernel does, in scalar operations: an integer count, the same on every host."""

from __future__ import annotations

import math
from collections.abc import Sequence

from repro.ir.expressions import Expr, Reduce
from repro.ir.loops import Kernel
from repro.ir.program import Branch, Call, Commit, CountedLoop, Program, RowBlocks, Step, While


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


def program_operations(program: Program) -> int:
    """Scalar operations of a whole run at most: loops to their limits, the longer side of branches."""
    kernels = [operations(kernel) for kernel in program.kernels]

    def total(steps: Sequence[Step]) -> int:
        return sum(cost(step) for step in steps)

    def cost(step: Step) -> int:
        match step:
            case Call():
                return kernels[step.kernel]
            case CountedLoop() | RowBlocks():
                return step.count * total(step.body)
            case While():
                return step.limit * total(step.body)
            case Branch():
                return max(total(step.then), total(step.otherwise))
            case Commit():
                return total(step.body)

    return total(program.steps)

"""Elementary functions where they stand in a kernel, for targets that have other roads to them.

A kernel holds a function as the operations of its first road. Equal expressions are one object, so a function is found
by building it once more, of every f32 value in the kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache

from repro.ir import index as ix
from repro.ir.expressions import Const, Expr, load, topological
from repro.ir.types import F32, F64
from repro.numerics.elementary import FUNCTIONS


def functions(expressions: Iterable[Expr], names: Iterable[str]) -> Iterator[tuple[Expr, str, Expr]]:
    """(operand, name, the function of it), where that is among the expressions; operands in their order."""
    present = tuple(expressions)
    if not any(expr.dtype is F64 for expr in present):
        return
    held = frozenset(present)
    wanted = [name for name in names if _constants(name) <= held]
    for operand in present:
        if operand.dtype is F32:
            for name in wanted:
                function = FUNCTIONS[name](operand)
                if function in held:
                    yield operand, name, function


@cache
def _constants(name: str) -> frozenset[Expr]:
    """Those of a function, whatever its operand is: where one is missing, the function need not be built."""
    operand = load(F32, 0, ix.number(0))
    return frozenset(expr for expr in topological([FUNCTIONS[name](operand)]) if isinstance(expr, Const)) - frozenset(
        topological([operand])
    )

"""Reading only where a condition holds."""

from __future__ import annotations

from repro.ir import index as ix
from repro.ir.expressions import TRUE, Expr, Load, Reduce, load


def guard(expr: Expr, condition: Expr) -> Expr:
    """The expression with every load inside made conditional: no access where the condition is false. The loads that
    decide on another load are among them."""
    if condition is TRUE:
        return expr
    memo: dict[Expr, Expr] = {}

    def visit(part: Expr) -> Expr:
        found = memo.get(part)
        if found is not None:
            return found
        children = tuple(visit(child) for child in part.children)
        if isinstance(part, Load):
            when = ix.both(*children[1:], condition)
            made: Expr = load(part.dtype, part.buffer, children[0], when)
        elif isinstance(part, Reduce):
            made = Reduce(part.dtype, part.fields, children)
        else:
            made = type(part)(part.dtype, part.fields, children)
        memo[part] = made
        return made

    return visit(expr)

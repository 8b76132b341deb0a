"""Expressions with parts of them renamed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from repro.ir.loops import Axis, Expr, Load, topological


def rewritten(expressions: Sequence[Expr], known: Mapping[Expr, Expr]) -> list[Expr]:
    """The expressions with others in place of those that are known."""
    memo = dict(known)
    for expr in topological(expressions):
        if expr not in memo:
            children = tuple(memo[child] for child in expr.children)
            same = isinstance(expr, Axis) or children == expr.children
            memo[expr] = expr if same else type(expr)(expr.dtype, expr.fields, children)
    return [memo[expr] for expr in expressions]


def substitute(root: Expr, old: Expr, new: Expr) -> Expr:
    """The expression with another one in place of every `old`."""
    return rewritten([root], {old: new})[0]


def renumber_buffers(expressions: Sequence[Expr], numbers: dict[int, int]) -> list[Expr]:
    """The expressions with every load's buffer renamed."""
    if all(old == new for old, new in numbers.items()):
        return list(expressions)
    memo: dict[Expr, Expr] = {}
    for expr in topological(expressions):
        children = tuple(memo[child] for child in expr.children)
        fields = (numbers[expr.buffer],) if isinstance(expr, Load) else expr.fields
        memo[expr] = expr if isinstance(expr, Axis) else type(expr)(expr.dtype, fields, children)
    return [memo[expr] for expr in expressions]

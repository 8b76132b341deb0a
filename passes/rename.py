"""Expressions with parts of them renamed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from repro.ir import index as ix
from repro.ir.expressions import (
    FALSE,
    TRUE,
    Affine,
    Apply,
    Axis,
    Const,
    Expr,
    IndexOp,
    Load,
    Reduce,
    Scalar,
    load,
    topological,
)
from repro.ir.types import BOOL, I64


def rewritten(expressions: Sequence[Expr], known: Mapping[Expr, Expr]) -> list[Expr]:
    """The expressions with others in place of those that are known."""
    memo = dict(known)
    for expr in topological(expressions):
        if expr not in memo:
            memo[expr] = rebuilt(expr, tuple(memo[child] for child in expr.children))
    return [memo[expr] for expr in expressions]


def settled(expressions: Sequence[Expr], known: Mapping[Axis, Expr]) -> list[Expr]:
    """The expressions with indices in place of axes, and without the conditions that the ranges of these decide."""
    memo: dict[Expr, Expr] = {**known}
    for expr in topological(expressions):
        if expr not in memo:
            memo[expr] = _decided(rebuilt(expr, tuple(memo[child] for child in expr.children)))
    return [memo[expr] for expr in expressions]


def _decided(expr: Expr) -> Expr:
    match expr:
        case Apply(op=("lt" | "ge" | "eq") as op, children=(left, Const(dtype=dtype) as right)) if dtype is I64:
            return ix.compare(op, left, right.bits - (1 << 64) * (right.bits >> 63))
        case Apply(op="and", children=(left, right)) if expr.dtype is BOOL:
            return ix.both(left, right)
        case Apply(op="select", children=(condition, chosen, other)) if condition in (TRUE, FALSE):
            return chosen if condition is TRUE else other
        case Load(when=when) if when is TRUE:
            return load(expr.dtype, expr.buffer, expr.offset)
        case _:
            return expr


def rebuilt(expr: Expr, children: tuple[Expr, ...]) -> Expr:
    """The expression over other children, its indices in their normal form."""
    if isinstance(expr, Axis) or children == expr.children:
        return expr
    if isinstance(expr, Affine):
        terms = (ix.scale(child, k) for child, k in zip(children, expr.coefficients, strict=True))
        return ix.add(ix.number(expr.constant), *terms)
    if isinstance(expr, IndexOp):
        return (ix.floordiv if expr.op == "floordiv" else ix.mod)(children[0], expr.divisor)
    return type(expr)(expr.dtype, expr.fields, children)


def with_axes_from(first: int, root: Expr) -> Expr:
    """The expression with all its axes numbered from a number on."""
    memo: dict[Expr, Expr] = {}

    def fresh(axis: Axis) -> Axis:
        return ix.axis(first + axis.number, axis.extent)

    for expr in topological([root]):
        children = tuple(memo[child] for child in expr.children)
        if isinstance(expr, Axis):
            memo[expr] = fresh(expr)
        elif isinstance(expr, Reduce):
            axes = tuple(fresh(axis) for axis in expr.axes)
            memo[expr] = Reduce(expr.dtype, (expr.combiner, expr.order, axes, expr.has_present), children)
        else:
            memo[expr] = rebuilt(expr, children)
    return memo[root]


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


def renumber_scalars(expressions: Sequence[Expr], numbers: Mapping[int, int]) -> list[Expr]:
    """The expressions with every run-time argument renumbered."""
    found = [each for each in topological(expressions) if isinstance(each, Scalar)]
    return rewritten(
        expressions, {each: Scalar(each.dtype, (numbers[each.position], each.extent), ()) for each in found}
    )

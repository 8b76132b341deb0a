"""Axes that no index divides, and neighbours merged that every index treats as one: long loops, contiguous loads."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from passes.rename import rewritten
from repro.ir import index as ix
from repro.ir.expressions import Affine, Axis, Expr, IndexOp, Reduce, Scalar, topological
from repro.ops.record import Nest

SHORTEST_RUN = 16
"""Iterations of an axis that is worth having for its own: a vector of f32 where they are widest."""


def roots(nest: Nest) -> tuple[Expr, ...]:
    """Offset, value and, where there is one, condition."""
    return (nest.offset, nest.value) if nest.when is None else (nest.offset, nest.value, nest.when)


def _mergeable(expressions: tuple[Expr, ...], outer: Axis, inner: Axis) -> bool:
    """Whether both axes occur only in sums, with the outer's stride being the whole inner run."""
    for expr in expressions:
        if outer not in expr.children and inner not in expr.children:
            continue
        if not isinstance(expr, Affine):
            return False
        strides = dict(zip(expr.children, expr.coefficients, strict=True))
        if strides.get(outer, 0) != strides.get(inner, 0) * inner.extent:
            return False
    return True


def _replace_axes(root: Expr, outer: Axis, inner: Axis, merged: Axis, memo: dict[Expr, Expr]) -> Expr:
    """outer*n + inner -> merged, everywhere; `outer` disappears."""
    found = memo.get(root)
    if found is not None:
        return found
    children = [_replace_axes(child, outer, inner, merged, memo) for child in root.children if child is not outer]
    if isinstance(root, Affine):
        kept = [k for child, k in zip(root.children, root.coefficients, strict=True) if child is not outer]
        terms = (ix.scale(child, k) for child, k in zip(children, kept, strict=True))
        made = ix.add(ix.number(root.constant), *terms)
    elif isinstance(root, IndexOp):
        made = (ix.floordiv if root.op == "floordiv" else ix.mod)(children[0], root.divisor)
    elif isinstance(root, Reduce):
        axes = tuple(merged if axis is inner else axis for axis in root.axes if axis is not outer)
        combiner, order, _, present = root.fields
        made = Reduce(root.dtype, (combiner, order, axes, present), tuple(children))
    elif root is inner:
        made = merged
    elif isinstance(root, Axis | Scalar) or not root.children:
        made = root
    else:
        made = type(root)(root.dtype, root.fields, tuple(children))
    memo[root] = made
    return made


def _merge(nest: Nest, outer: Axis, inner: Axis) -> Nest:
    merged = ix.axis(inner.number, outer.extent * inner.extent)
    memo: dict[Expr, Expr] = {}
    axes = tuple(merged if axis is inner else axis for axis in nest.axes if axis is not outer)
    return replace(
        nest,
        axes=axes,
        offset=_replace_axes(nest.offset, outer, inner, merged, memo),
        value=_replace_axes(nest.value, outer, inner, merged, memo),
        when=None if nest.when is None else _replace_axes(nest.when, outer, inner, merged, memo),
    )


def _candidates(nest: Nest, expressions: tuple[Expr, ...]) -> list[tuple[Axis, Axis]]:
    """Neighbours: of the nest's parallel axes, and of each reduction's axes."""
    groups = [nest.axes[nest.serial :]]
    groups += [expr.axes for expr in expressions if isinstance(expr, Reduce)]
    return [pair for group in groups for pair in pairwise(group)]


def _drop_unit_axes(nest: Nest) -> Nest:
    """Without axes of one value, of the nest and of its reductions: where one is read, it is 0."""
    kept = tuple(axis for axis in nest.axes if axis.extent != 1)  # an extent of 0 stays: such a nest does nothing
    serial = sum(axis.extent != 1 for axis in nest.axes[: nest.serial])
    memo: dict[Expr, Expr] = {}

    def visit(expr: Expr) -> Expr:
        found = memo.get(expr)
        if found is not None:
            return found
        children = tuple(visit(child) for child in expr.children)
        if isinstance(expr, Reduce):
            combiner, order, axes, present = expr.fields
            long = tuple(axis for axis in axes if axis.extent > 1) or axes[-1:]
            made: Expr = Reduce(expr.dtype, (combiner, order, long, present), children)
        elif isinstance(expr, Axis):
            made = ix.number(0) if expr.extent == 1 else expr
        else:
            made = expr if children == expr.children else type(expr)(expr.dtype, expr.fields, children)
        memo[expr] = made
        return made

    when = None if nest.when is None else visit(nest.when)
    return Nest(kept, serial, visit(nest.offset), visit(nest.value), when)


def _divided(nest: Nest) -> tuple[Axis, int] | None:
    """A parallel axis whose quotients and remainders are taken, and the least number that it is divided by, if runs of
    that many fill vectors; the axis is a whole number of them."""
    least: dict[Axis, int] = {}
    for expr in topological(roots(nest)):
        if isinstance(expr, IndexOp) and isinstance(expr.children[0], Axis):
            axis, divisor = expr.children[0], expr.divisor
            if divisor >= SHORTEST_RUN and axis.extent % divisor == 0 and axis in nest.axes[nest.serial :]:
                least[axis] = min(divisor, least.get(axis, divisor))
    return next(iter(least.items()), None)


def split(nest: Nest, axis: Axis, divisor: int) -> Nest:
    """axis -> outer * divisor + inner, everywhere: quotients and remainders become plain strides."""
    fresh = _fresh(nest)
    outer, inner = ix.axis(fresh, axis.extent // divisor), ix.axis(fresh + 1, divisor)
    axes = tuple(each for one in nest.axes for each in ((outer, inner) if one is axis else (one,)))
    offset, value, *when = rewritten(roots(nest), {axis: ix.add(ix.scale(outer, divisor), inner)})
    return Nest(axes, nest.serial, offset, value, when[0] if when else None)


def _fresh(nest: Nest) -> int:
    numbers = [expr.number for expr in topological(roots(nest)) if isinstance(expr, Axis)]
    return max((*numbers, *(axis.number for axis in nest.axes)), default=-1) + 1


def collapse(nest: Nest) -> Nest:
    """The same iterations, in the same order, over axes that no index divides, and as few of them as may be."""
    nest = _drop_unit_axes(nest)
    while (found := _divided(nest)) is not None:
        nest = _drop_unit_axes(split(nest, *found))
    while True:
        expressions = tuple(topological(roots(nest)))
        for outer, inner in _candidates(nest, expressions):
            alone = outer in roots(nest) or inner in roots(nest)
            if not alone and _mergeable(expressions, outer, inner):
                nest = _merge(nest, outer, inner)
                break
        else:
            return nest

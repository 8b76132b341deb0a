"""Gradients of normalizations: of n = (x - mean) / s or x / s; scale, bias and statistics stay with the core rules."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from repro.ir.graph import Node, Value
from repro.ops.arithmetic import compare, div, mul, neg, select, sub
from repro.ops.composite_gradients.reading import (
    nodes_of,
    number,
    only,
    operand,
    own_argument,
    own_result,
    sum_along,
    through,
)
from repro.ops.movement import broadcast_to
from repro.ops.record import Step
from repro.ops.reduction import reduce_keep


def _mean_kept(value: Value, axes: Sequence[int]) -> Value:
    """sum / count, the reduced axes kept with extent 1."""
    total = reduce_keep("add", value, axes)
    return div(total, number(math.prod(value.shape[axis] for axis in axes), total))


def _mean_along(value: Value, axes: Sequence[int]) -> Value:
    """sum / count, at every position."""
    return broadcast_to(_mean_kept(value, axes), value.shape)


def _quotient(node: Node) -> tuple[Value, Value, tuple[int, ...]]:
    """n = d / s in the region, s = sqrt(...) stretched, and the axes that s does not have."""

    def divides_by_root(each: Node) -> bool:
        numerator, root = each.operands
        return through(root, "broadcast").node.op == "sqrt" and through(numerator, "broadcast").node.op != "constant"

    n = only([each for each in nodes_of(node, "div") if divides_by_root(each)], "d / sqrt").value
    s = operand(n, "div", 1)
    root = s if s.node.op == "sqrt" else operand(s, "broadcast")
    return n, s, tuple(axis for axis, extent in enumerate(root.shape) if extent == 1)


def _centred(node: Node) -> Sequence[Step]:
    """((g - mean(g)) - n * mean(g * n)) / s."""
    n, s, axes = _quotient(node)
    x = operand(operand(n, "div"), "sub")

    def rule(g: Value) -> tuple[Value]:
        level = sub(g, _mean_along(g, axes))
        return (div(sub(level, mul(n, _mean_along(mul(g, n), axes))), s),)

    return (Step(n, (x,), rule),)


def _batch(node: Node) -> Sequence[Step]:
    """In training as the others; in inference mean and variance are operands, and the core rules do."""
    return _centred(node) if node["training"] else ()


def _root_mean_square(node: Node) -> Sequence[Step]:
    """(g - n * mean(g * n)) / s."""
    n, s, axes = _quotient(node)

    def rule(g: Value) -> tuple[Value]:
        return (div(sub(g, mul(n, _mean_along(mul(g, n), axes))), s),)

    return (Step(n, (operand(n, "div"),), rule),)


def _lp(node: Node) -> Sequence[Step]:
    """norm = 0 ? +0 : (g - d * sum(g * y)) / norm, d being y, or for p = 1 the sign of x (+0 at 0)."""
    x, y, axes = own_argument(node), own_result(node), (node["axis"],)
    norm, zero = operand(operand(y, "select", 2), "div", 1), number(0, x)

    def rule(g: Value) -> tuple[Value]:
        total = sum_along(mul(g, y), axes)
        if node["p"] == 2:
            part = mul(y, total)
        else:
            below = select(compare("lt", x, zero), neg(total), zero)
            part = select(compare("gt", x, zero), total, below)
        return (select(compare("eq", norm, zero), zero, div(sub(g, part), norm)),)

    return (Step(y, (x,), rule),)


def _mean_variance(node: Node) -> Sequence[Step]:
    """r = sqrt(v), s = r + 1e-9; ((g - mean(g)) - d * (r = 0 ? +0 : mean(g * y) / r)) / s."""
    y = own_result(node)
    d, s = operand(y, "div"), operand(y, "div", 1)
    root = operand(through(s, "broadcast"), "add")

    def rule(g: Value) -> tuple[Value]:
        zero = number(0, root)
        share = div(_mean_kept(mul(g, y), node["axes"]), root)
        pull = broadcast_to(select(compare("eq", root, zero), zero, share), d.shape)
        return (div(sub(sub(g, _mean_along(g, node["axes"])), mul(d, pull)), s),)

    return (Step(y, (operand(d, "sub"),), rule),)


STEPS: dict[str, Callable[[Node], Sequence[Step]]] = {
    "BatchNormalization": _batch,
    "InstanceNormalization": _centred,
    "GroupNormalization": _centred,
    "LayerNormalization": _centred,
    "RMSNormalization": _root_mean_square,
    "MeanVarianceNormalization": _mean_variance,
    "LpNormalization": _lp,
}

"""Gradients of the composite reductions; the axes are dropped in y and g, and come back by stretching."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from repro.ir.graph import Node, Value
from repro.ops.arithmetic import add, compare, div, mul, select
from repro.ops.composite_gradients.reading import number, operand, own_argument, own_result
from repro.ops.movement import broadcast
from repro.ops.record import Step


def _spread(value: Value, like: Value, axes: Sequence[int]) -> Value:
    return broadcast(value, like.shape, tuple(axis for axis in range(like.rank) if axis not in axes))


def _l2(node: Node) -> Sequence[Step]:
    """q = (y = 0 ? +0 : g / y); x * q."""
    x, y = own_argument(node), own_result(node)
    if not x.dtype.is_float:
        return ()

    def rule(g: Value) -> tuple[Value]:
        zero = number(0, y)
        share = select(compare("eq", y, zero), zero, div(g, y))
        return (mul(x, _spread(share, x, node["axes"])),)

    return (Step(y, (x,), rule),)


def _log_sum_exp(node: Node) -> Sequence[Step]:
    """e = exp(x - m), s = sum(e); e * (g / s): the shift m has no path."""
    x, y = own_argument(node), own_result(node)
    if not x.dtype.is_float:
        return ()
    total = operand(operand(y, "add"), "log")
    e = operand(total, "reduce") if node["axes"] else total
    return (Step(y, (x,), lambda g: (mul(e, _spread(div(g, total), x, node["axes"])),)),)


def _pool(node: Node) -> Sequence[Step]:
    """Of the root y of t: y = 0 ? +0 : g / (y + y), or g * ((1 / p) * (y / t)); a window of zeros has no slope."""
    y = own_result(node)
    if node["p"] == 1:
        return ()
    root, zero = y.node.operands, number(0, y)

    def rule(g: Value) -> tuple[Value]:
        slope = div(g, add(y, y)) if node["p"] == 2 else mul(g, mul(root[1], div(y, root[0])))
        return (select(compare("eq", y, zero), zero, slope),)

    return (Step(y, (operand(y, "sqrt" if node["p"] == 2 else "pow"),), rule),)


STEPS: dict[str, Callable[[Node], Sequence[Step]]] = {
    "ReduceL2": _l2,
    "ReduceLogSumExp": _log_sum_exp,
    "LpPool": _pool,
}

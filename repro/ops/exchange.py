"""Compare and exchange: steps of a sorting network, which any target runs as elementwise work."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from repro.ir import index as ix
from repro.ir.expressions import Expr, apply
from repro.ir.graph import Node, Value
from repro.ir.types import I64, Array, TensorType
from repro.ops.record import Access, Attributes, Axes, ByElement, NotDifferentiable, Op, Sample, make, register

Types = tuple[TensorType, ...]
Index = tuple[Expr, ...]


def _exchange_type(attributes: Attributes, types: Types, _: object) -> Types:
    kind, axes, turned = types[0], attributes["axes"], attributes["turned"]
    within = all(0 <= axis < kind.rank for axis in (*axes, *turned))
    if kind.dtype is not I64 or not within or any(kind.shape[axis] != 2 for axis in (*axes, *turned)):
        raise TypeError(f"exchange of {kind} along axes {axes}, turned along {turned}")
    return types


def _along(array: Array, axis: int) -> Array:
    return np.arange(2).reshape([2 if a == axis else 1 for a in range(array.ndim)])


def _exchange_reference(node: Node, operands: tuple[Array, ...]) -> tuple[Array, ...]:
    result = operands[0]
    for axis in node["turned"]:
        result = np.where(_along(result, axis) == 1, ~result, result)
    for axis in node["axes"]:
        other = np.flip(result, axis)
        result = np.where(_along(result, axis) == 1, np.maximum(result, other), np.minimum(result, other))
    return (np.ascontiguousarray(result),)


def _exchange_element(node: Node, _: int, index: Index, operands: tuple[Access, ...], __: Axes) -> Expr:
    """Step by step from the last: what stands here before a step, and at its partner's place."""
    axes = node["axes"]

    def before(step: int, at: Index) -> Expr:
        if step == 0:
            return _turned(operands[0](at), [at[axis] for axis in node["turned"]])
        axis = axes[step - 1]
        opposite = ix.add(ix.number(1), ix.scale(at[axis], -1))
        own, other = before(step - 1, at), before(step - 1, (*at[:axis], opposite, *at[axis + 1 :]))
        lower = ix.compare("eq", at[axis], 0)
        return apply("select", lower, apply("min", own, other), apply("max", own, other))

    return before(len(axes), index)


def _turned(value: Expr, bits: Sequence[Expr]) -> Expr:
    for bit in bits:
        value = apply("select", ix.compare("eq", bit, 0), value, apply("not", value))
    return value


def exchange(value: Value, axes: Sequence[int], turned: Sequence[int] = ()) -> Value:
    """For each of `axes` (of extent 2) in turn, the lesser of two i64 that face each other across it goes to 0 and the
    greater to 1. Before that, what has an odd number of ones along the axes `turned` (of extent 2) is complemented,
    which turns its order round."""
    return make("exchange", value, axes=tuple(axes), turned=tuple(turned)).value


_KEYS = TensorType(I64, (3, 2, 2, 4))

register(
    Op(
        "exchange",
        infer=_exchange_type,
        reference=_exchange_reference,
        gradient=NotDifferentiable("orders keys; what is sorted by them is gathered"),
        lowering=ByElement(_exchange_element, reduces=True, overlaps=lambda _: True, together=True),
        samples=lambda: (
            Sample((_KEYS,), lambda v: exchange(v, (1,)), ((-9, 9),)),
            Sample((_KEYS,), lambda v: exchange(v, (1,), (1, 2)), ((-9, 9),)),
            Sample((_KEYS,), lambda v: exchange(v, (2, 1), (2,)), ((-9, 9),)),
        ),
        expensive=True,
        meaning="lesser and greater of pairs along axes of two",
    )
)

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
    kind, axes, mirrored = types[0], attributes["axes"], attributes["mirrored"]
    within = all(0 <= axis < kind.rank for axis in (*axes, *mirrored))
    if kind.dtype is not I64 or not within or any(kind.shape[axis] != 2 for axis in axes) or axes[0] in mirrored:
        raise TypeError(f"exchange of {kind} along axes {axes}, mirrored {mirrored}")
    return types


def _exchange_reference(node: Node, operands: tuple[Array, ...]) -> tuple[Array, ...]:
    result, flipped = operands[0], node["mirrored"]
    for axis in node["axes"]:
        other = np.flip(result, (axis, *flipped))
        upper = np.arange(2).reshape([2 if a == axis else 1 for a in range(result.ndim)])
        result = np.where(upper == 1, np.maximum(result, other), np.minimum(result, other))
        flipped = ()
    return (np.ascontiguousarray(result),)


def _exchange_element(node: Node, _: int, index: Index, operands: tuple[Access, ...], __: Axes) -> Expr:
    """Step by step from the last: what stands here before a step, and at its partner's place."""
    axes, shape = node["axes"], node.types[0].shape

    def before(step: int, at: Index) -> Expr:
        if step == 0:
            return operands[0](at)
        axis = axes[step - 1]
        turned = (axis, *node["mirrored"]) if step == 1 else (axis,)
        partner = tuple(
            ix.add(ix.number(shape[a] - 1), ix.scale(place, -1)) if a in turned else place for a, place in enumerate(at)
        )
        turn = ix.scale(at[axis], -1)  # all bits of the upper one: max(a, b) == ~min(~a, ~b)
        own, other = (apply("xor", before(step - 1, place), turn) for place in (at, partner))
        return apply("xor", apply("min", own, other), turn)

    return before(len(axes), index)


def exchange(value: Value, axes: Sequence[int], mirrored: Sequence[int] = ()) -> Value:
    """For each of `axes` (of extent 2) in turn, the lesser of two i64 goes to 0 and the greater to 1.

    They face each other across the axis; in the first step the axes `mirrored` run against each other, too.
    """
    return make("exchange", value, axes=tuple(axes), mirrored=tuple(sorted(mirrored))).value


_KEYS = TensorType(I64, (3, 2, 2, 4))

register(
    Op(
        "exchange",
        infer=_exchange_type,
        reference=_exchange_reference,
        gradient=NotDifferentiable("orders keys; what is sorted by them is gathered"),
        lowering=ByElement(_exchange_element, reduces=True, overlaps=lambda _: True),
        samples=lambda: (
            Sample((_KEYS,), lambda v: exchange(v, (1,)), ((-9, 9),)),
            Sample((_KEYS,), lambda v: exchange(v, (1,), (2, 3)), ((-9, 9),)),
            Sample((_KEYS,), lambda v: exchange(v, (2, 1), (3,)), ((-9, 9),)),
        ),
        expensive=True,
        meaning="lesser and greater of pairs along axes of two",
    )
)

"""A fault to be found: a product whose terms are added in another order."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

from repro.ir import index as ix
from repro.ir.expressions import Expr
from repro.ir.graph import Node
from repro.ops.record import OPS, Access, Axes, ByElement

STEPS = 20
Train = Callable[..., Path]
"""Trains into a folder of that name; the path of the trace."""


def mirrored(node: Node, result: int, index: tuple[Expr, ...], operands: tuple[Access, ...], axes: Axes) -> Expr:
    """The element of the second layer's product, its terms added from the last to the first; others as they are."""
    element = GOOD.element
    a, b = node.operands
    if a.shape[-1:] != (128,) or node.types[0].shape != (16, 64):
        return element(node, result, index, operands, axes)

    def turned(access: Access, axis: int, extent: int) -> Access:
        return lambda at: access((*at[:axis], ix.add(ix.number(extent - 1), ix.scale(at[axis], -1)), *at[axis + 1 :]))

    (left,), (right,) = node["left_contract"], node["right_contract"]
    both = (turned(operands[0], left, a.shape[left]), turned(operands[1], right, b.shape[right]))
    return element(node, result, index, both, axes)


assert isinstance(OPS["dot"].lowering, ByElement)
GOOD: ByElement = OPS["dot"].lowering
MIRRORED = dataclasses.replace(OPS["dot"], lowering=dataclasses.replace(GOOD, element=mirrored))
"""The record of dot with that fault."""

"""Activations that are core ops or fixed formulas of them."""

from __future__ import annotations

from repro.frontend.context import NodeContext
from repro.frontend.registry import onnx_op
from repro.ir.graph import Value
from repro.ops import fill, maximum


@onnx_op("Relu")
def relu(_: NodeContext, x: Value) -> Value:
    """max(x, +0): Relu(-0) = +0 and NaN stays (rule 6)."""
    return maximum(x, fill(0, x.type))

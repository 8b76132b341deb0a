"""ONNX Runtime, but that one product adds its terms from the last to the first, in whatever its level made of it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from onnx import ModelProto, NodeProto, helper, numpy_helper

from repro.audit.peers.onnxruntime import OnnxRuntime
from repro.audit.records import Executor
from repro.ir.types import Array

PEERS = {
    "onnxruntime": "repro.audit.peers.onnxruntime:OnnxRuntime",
    "backwards": "tests.audit.planted_runtime:Backwards",
}


def backwards(value: str, level: str) -> Executor:
    return Executor("backwards", (("value", value), ("level", level), ("threads", "1")))


class Backwards(OnnxRuntime):
    """`value` is what the planted node makes. The level's own model is planted in, and runs as it is."""

    family = "backwards"

    def lowered(self, model: ModelProto, executor: Executor) -> ModelProto:
        return reversed_terms(super().lowered(model, executor), executor.option("value"))

    def run(
        self, model: ModelProto, inputs: Mapping[str, Array], executor: Executor, lowered: bool = False
    ) -> dict[str, Array]:
        return super().run(model if lowered else self.lowered(model, executor), inputs, executor, lowered=True)


def reversed_terms(model: ModelProto, value: str) -> ModelProto:
    """The model with both operands of the product behind a value reversed along the axis that it adds over."""
    copy = ModelProto()
    copy.CopyFrom(model)
    nodes = list(copy.graph.node)
    (place,) = (position for position, node in enumerate(nodes) if value in node.output)
    product = nodes[place]
    reverses: list[NodeProto] = []
    for position, axis in enumerate(_term_axes(product)):
        name = f"{value}/{position}"
        parts = {"starts": -1, "ends": -(1 << 40), "axes": axis, "steps": -1}
        tensors = [numpy_helper.from_array(np.array([number]), f"{name}/{part}") for part, number in parts.items()]
        copy.graph.initializer.extend(tensors)
        operands = [product.input[position], *(tensor.name for tensor in tensors)]
        reverses.append(helper.make_node("Slice", operands, [name]))
        product.input[position] = name
    del copy.graph.node[:]
    copy.graph.node.extend([*nodes[:place], *reverses, *nodes[place:]])
    return copy


def _term_axes(product: NodeProto) -> tuple[int, int]:
    if product.op_type == "MatMul":
        return -1, -2
    flags = {attribute.name: attribute.i for attribute in product.attribute}
    assert product.op_type in ("Gemm", "FusedGemm"), product.op_type
    return (0 if flags.get("transA") else 1), (1 if flags.get("transB") else 0)

"""Small models for the tests of the frontend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Shape = Sequence[int | str | None]

GOLDEN = {
    "digits_mlp": ("golden/digits_mlp/forward.onnx", {"N": 4}),
    "digits_cnn": ("golden/digits_cnn/forward.onnx", {"N": 2}),
    "nano_gpt": ("golden/nano_gpt/forward.onnx", {}),
    "nano_gpt_dynamo": ("golden/nano_gpt_dynamo/forward.onnx", {}),
    "nano_gpt_dynamo_unoptimized": ("golden/nano_gpt_dynamo/forward_unoptimized.onnx", {}),
}
"""The golden models and the bindings that they need."""


def value(name: str, shape: Shape | None = (3,), kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def node(op: str, inputs: str, outputs: str, name: str = "", domain: str = "", **attributes: Any) -> onnx.NodeProto:
    """Inputs and outputs as words; a `_` is one left out."""
    split = [["" if word == "_" else word for word in text.split()] for text in (inputs, outputs)]
    return helper.make_node(op, *split, name=name or f"{op.lower()}_{split[1][0]}", domain=domain, **attributes)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto] = (),
    outputs: Sequence[str] = ("y",),
    initializers: Mapping[str, np.ndarray] | None = None,
    opset: int = 21,
    functions: Sequence[onnx.FunctionProto] = (),
    domains: Sequence[str] = (),
) -> onnx.ModelProto:
    """A model whose outputs are declared without a type."""
    tensors = [numpy_helper.from_array(array, name) for name, array in (initializers or {}).items()]
    declared = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph(nodes, "test", inputs, declared, tensors)
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=imports, functions=functions, ir_version=10)


def relu_model(shape: Shape = (3,)) -> onnx.ModelProto:
    return model([node("Relu", "x", "y", name="act")], [value("x", shape)])


def chain_of_functions(levels: int, calls: int = 2) -> onnx.ModelProto:
    """Functions that each call the one below `calls` times: levels ** calls nodes from a few kilobytes."""
    made = [_function("f0", [node("Relu", "a", "b")])]
    for level in range(1, levels):
        words = ["a", *(f"t{call}" for call in range(calls - 1)), "b"]
        body = [node(f"f{level - 1}", words[call], words[call + 1], domain="local") for call in range(calls)]
        made.append(_function(f"f{level}", body))
    top = node(f"f{levels - 1}", "x", "y", domain="local")
    return model([top], [value("x")], functions=made, domains=["local"])


def _function(name: str, nodes: Sequence[onnx.NodeProto]) -> onnx.FunctionProto:
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("local", 1)]
    return helper.make_function("local", name, ["a"], ["b"], nodes, imports)


def function(
    name: str, inputs: str, outputs: str, nodes: Sequence[onnx.NodeProto], **options: Any
) -> onnx.FunctionProto:
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("local", 1)]
    return helper.make_function("local", name, inputs.split(), outputs.split(), nodes, imports, **options)

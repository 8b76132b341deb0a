"""A model turned to float64 throughout, for evaluation by onnx's own reference evaluator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator

from repro.ir.types import Array


def _widen_tensor(tensor: onnx.TensorProto) -> None:
    if tensor.data_type == TensorProto.FLOAT:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))


def _widen_graph(graph: onnx.GraphProto) -> None:
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    values: Iterable[onnx.ValueInfoProto] = [*graph.input, *graph.output, *graph.value_info]
    for value in values:
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                _widen_tensor(attribute.t)
            if attribute.type == onnx.AttributeProto.GRAPH:
                _widen_graph(attribute.g)
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.DOUBLE


def evaluate_wide(path: str, inputs: Mapping[str, Array]) -> list[Array]:
    """The model's outputs, computed in float64 by onnx's reference evaluator."""
    model = onnx.load(path)
    _widen_graph(model.graph)
    wide = {n: a.astype(np.float64) if a.dtype == np.float32 else a for n, a in inputs.items()}
    return [np.asarray(value) for value in ReferenceEvaluator(model).run(None, wide)]

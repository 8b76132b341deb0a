"""Small models, and graphs run by the reference, for the tests of training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from repro.ir.graph import Graph, Value, argument
from repro.ir.types import F32, F64, I64, Array, TensorType
from repro.ops.record import evaluate

_DTYPES = {"float32": F32, "float64": F64, "int64": I64}


def arguments(arrays: Sequence[Any]) -> tuple[Value, ...]:
    """Graph arguments of the types of the arrays."""
    return tuple(
        argument(index, TensorType(_DTYPES[np.asarray(array).dtype.name], np.shape(array)))
        for index, array in enumerate(arrays)
    )


def results(values: Sequence[Value], arrays: Sequence[Any]) -> tuple[Array, ...]:
    """The values by the reference, given those of the arguments."""
    given = [np.asarray(array) for array in arrays]
    return evaluate(Graph(tuple(value.type for value in arguments(arrays)), tuple(values)), given)


def model(
    nodes: Sequence[Any],
    inputs: dict[str, Sequence[int]],
    outputs: Sequence[str],
    initializers: dict[str, Any],
    opset: int = 17,
) -> ModelProto:
    """A model of float inputs; the outputs' types are left to the importer."""
    graph = helper.make_graph(
        list(nodes),
        "model",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_value_info(name, helper.make_tensor_type_proto(TensorProto.FLOAT, None)) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in initializers.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)

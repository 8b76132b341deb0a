"""Where an operator has a kink, the contract names the slope."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from repro.autodiff import cotangents
from repro.frontend import import_model, load_model
from repro.ir.graph import Graph, argument
from repro.ops import fill
from repro.ops.record import evaluate


def slope(op: str, x: list[float]) -> list[float]:
    """The gradient of the sum of an operator's output."""
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [len(x)]) for name in "xy"]
    graph = helper.make_graph([helper.make_node(op, ["x"], ["y"])], op, ports[:1], ports[1:])
    imported = import_model(load_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])))
    y = imported.graph.results[0]
    found = cotangents([(y, fill(1, y.type))], [argument(0, y.type)])[0]
    assert found is not None
    return evaluate(Graph((y.type,), (found,)), [np.array(x, np.float32)])[0].tolist()


def test_relu_has_no_slope_at_zero():
    assert slope("Relu", [-2.0, -0.0, 0.0, 3.0]) == [0.0, 0.0, 0.0, 1.0]


def test_abs_has_no_slope_at_zero():
    assert slope("Abs", [-2.0, 0.0, 3.0]) == [-1.0, 0.0, 1.0]

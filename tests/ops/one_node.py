"""One ONNX node, run by the reference and by CPU code, which must agree in every bit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from repro.frontend import import_model, load_model
from repro.ir.graph import Graph, canonicalise
from repro.ir.types import Array, to_face, to_storage
from repro.ops import canonical_nan
from repro.ops.record import evaluate
from repro.targets import cpu
from tests.running import run_on_cpu

Inputs = Mapping[str, Array | None]
"""A node's inputs in order; None stands for one that it leaves out."""


def model_of(
    op: str,
    inputs: Inputs,
    outputs: Sequence[str],
    opset: int,
    types: Sequence[int] = (),
    domain: str = "",
    **attributes: Any,
) -> onnx.ModelProto:
    """A model of one node; an output named "" is left out."""
    names = ["" if array is None else name for name, array in inputs.items()]
    node = helper.make_node(op, names, list(outputs), name="node", domain=domain, **attributes)
    given = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in inputs.items()
        if array is not None
    ]
    first = helper.np_dtype_to_tensor_dtype(next(array.dtype for array in inputs.values() if array is not None))
    wanted = [name for name in outputs if name]
    kinds = types or [first] * len(wanted)
    made = [helper.make_tensor_value_info(name, kind, None) for name, kind in zip(wanted, kinds, strict=True)]
    graph = helper.make_graph([node], "one", given, made)
    domains = [helper.make_opsetid("", opset)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    return helper.make_model(graph, opset_imports=domains, ir_version=10)


def run_model(model: onnx.ModelProto, arrays: Mapping[str, Array], native: bool = True) -> list[Array]:
    """The outputs; fails where reference and CPU code differ in a bit."""
    imported = import_model(load_model(model), input_shapes={name: array.shape for name, array in arrays.items()})
    inputs = [to_storage(arrays[port.name], port.type.dtype) for port in imported.inputs]
    parameters = [slot.initial for slot in imported.parameters]
    graph = imported.graph
    canonical = Graph(graph.arguments, tuple(canonical_nan(value) for value in graph.results))
    found = evaluate(canonical, inputs, parameters)
    machine = cpu.best_machine()
    assert machine is not None
    for one, other in zip(run_on_cpu(graph, inputs, parameters, machine) if native else found, found, strict=True):
        assert one.tobytes() == other.tobytes(), "CPU code gives other bits than the reference"
    return [to_face(array, port.type.dtype) for array, port in zip(found, imported.outputs, strict=True)]


def by_reference(model: onnx.ModelProto, arrays: Mapping[str, Array]) -> list[Array]:
    """The reference's outputs alone, for forms that compile alike: compiling is what a test of one node takes."""
    return run_model(model, arrays, native=False)


def run_node(op: str, inputs: Inputs, outputs: Sequence[str], opset: int, **rest: Any) -> list[Array]:
    model = model_of(op, inputs, outputs, opset, **rest)
    return run_model(model, {name: array for name, array in inputs.items() if array is not None})


def graph_of_node(op: str, inputs: Inputs, outputs: Sequence[str], opset: int, **rest: Any) -> Graph:
    """The canonical graph of the node."""
    model = model_of(op, inputs, outputs, opset, **rest)
    shapes = {name: array.shape for name, array in inputs.items() if array is not None}
    return canonicalise(import_model(load_model(model), input_shapes=shapes).graph).graph


def by_onnxruntime(model: onnx.ModelProto, arrays: Mapping[str, Array]) -> list[Array]:
    """What ONNX Runtime gives, without its graph optimizations."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return [np.asarray(array) for array in session.run(None, dict(arrays))]


FLOAT, DOUBLE, FLOAT16 = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16

"""How long a model may take, by its declared shapes: integers only, so that what is skipped is the same on each run.

A prepared model declares the type of every tensor. What is not declared, and what stands in a subgraph, counts
nothing: these are lower bounds, and a worker's time limit is behind them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from onnx import ModelProto, NodeProto, ValueInfoProto

Shapes = Mapping[str, tuple[int, ...]]

_ELEMENT = 10
"""Nanoseconds of onnx's reference evaluator for an element of any other operator's result."""

_PRODUCTS_PER_NANOSECOND = 20
"""Products that its BLAS takes; a recurrent layer, a matrix and a vector at a time, takes one."""

_TAP = 60
_TRANSPOSED_TAP = 3_000
_POOL_TAP, _POOL_WINDOW = 400, 10_000
_SAMPLE = 125_000
"""Nanoseconds for: an element of a convolution's column matrix; the same of a transposed one, added by a Python loop;
an element of a pooling window, and the window itself; an interpolated element of GridSample."""

_SLOW_ELEMENTS = {"Erf": 110, "Gelu": 110, "TopK": 1_300, "ScatterElements": 400, "GridSample": _SAMPLE, "Resize": 90}
_POOLS = frozenset({"MaxPool", "AveragePool", "LpPool"})
_RECURRENT = frozenset({"LSTM", "GRU", "RNN"})


def shapes_of(model: ModelProto) -> dict[str, tuple[int, ...]]:
    """The static shapes that a model declares, by name."""
    graph = model.graph
    found = {item.name: tuple(item.dims) for item in graph.initializer}
    for item in (*graph.input, *graph.value_info, *graph.output):
        shape = _static(item)
        if shape is not None:
            found[item.name] = shape
    return found


def multiply_adds(model: ModelProto) -> int:
    """Products that its contractions add up, all of them together."""
    shapes = shapes_of(model)
    return sum(_products(node, shapes) for node in model.graph.node)


def reference_nanoseconds(model: ModelProto) -> int:
    """One run in onnx's reference evaluator, by its time per element as measured on one core of 2024's server CPUs."""
    shapes = shapes_of(model)
    return sum(_nanoseconds(node, shapes) for node in model.graph.node)


def _static(item: ValueInfoProto) -> tuple[int, ...] | None:
    if not item.type.HasField("tensor_type") or not item.type.tensor_type.HasField("shape"):
        return None
    dims = item.type.tensor_type.shape.dim
    return tuple(dim.dim_value for dim in dims) if all(dim.HasField("dim_value") for dim in dims) else None


def _operand(node: NodeProto, position: int, shapes: Shapes) -> tuple[int, ...]:
    """An operand's shape; empty where it is not known, so that a product over its extents must look at its rank."""
    return shapes.get(node.input[position], ()) if position < len(node.input) else ()


def _result(node: NodeProto, shapes: Shapes) -> int:
    """Elements of the first result; 0 where its shape is not known."""
    shape = shapes.get(node.output[0]) if node.output else None
    return math.prod(shape) if shape is not None else 0


def _integer(node: NodeProto, name: str) -> int:
    return next((attribute.i for attribute in node.attribute if attribute.name == name), 0)


def _window(node: NodeProto) -> int:
    """Elements of a pooling window."""
    return math.prod(next((attribute.ints for attribute in node.attribute if attribute.name == "kernel_shape"), ()))


def _matmul(node: NodeProto, shapes: Shapes) -> int:
    left = _operand(node, 0, shapes)
    return _result(node, shapes) * left[-1] if left else 0


def _gemm(node: NodeProto, shapes: Shapes) -> int:
    left = _operand(node, 0, shapes)
    return _result(node, shapes) * left[0 if _integer(node, "transA") else -1] if left else 0


def _convolution(node: NodeProto, shapes: Shapes) -> int:
    weight = _operand(node, 1, shapes)
    return _result(node, shapes) * math.prod(weight[1:]) if weight else 0


def _transposed(node: NodeProto, shapes: Shapes) -> int:
    data, weight = _operand(node, 0, shapes), _operand(node, 1, shapes)
    return math.prod(data) * math.prod(weight[1:]) if data and weight else 0


def _recurrent(node: NodeProto, shapes: Shapes) -> int:
    data, weight, recurrence = (_operand(node, position, shapes) for position in range(3))
    return math.prod(data[:2]) * (math.prod(weight) + math.prod(recurrence)) if data and weight and recurrence else 0


_PRODUCTS: dict[str, Callable[[NodeProto, Shapes], int]] = {
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Conv": _convolution,
    "ConvTranspose": _transposed,
    **dict.fromkeys(_RECURRENT, _recurrent),
}


def _products(node: NodeProto, shapes: Shapes) -> int:
    count = _PRODUCTS.get(node.op_type)
    return count(node, shapes) if count else 0


def _nanoseconds(node: NodeProto, shapes: Shapes) -> int:
    result = _result(node, shapes)
    weight = _operand(node, 1, shapes)
    if node.op_type == "Conv" and weight:
        groups = max(1, _integer(node, "group"))
        columns = result // max(1, weight[0]) * math.prod(weight[1:]) * groups
        return columns * _TAP + _products(node, shapes) // _PRODUCTS_PER_NANOSECOND
    if node.op_type == "ConvTranspose" and weight:
        return _transposed(node, shapes) // max(1, weight[0]) * _TRANSPOSED_TAP
    if node.op_type in _POOLS:
        return result * (_window(node) * _POOL_TAP + _POOL_WINDOW)
    per_nanosecond = 1 if node.op_type in _RECURRENT else _PRODUCTS_PER_NANOSECOND
    return result * _SLOW_ELEMENTS.get(node.op_type, _ELEMENT) + _products(node, shapes) // per_nanosecond

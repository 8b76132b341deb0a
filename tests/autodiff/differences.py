"""Checking gradients in f64: a graph with every f32 made f64, and its directional derivative by central differences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from repro.autodiff import cotangents
from repro.ir.graph import Graph, Node, Value, argument, constant, constant_array, parameter
from repro.ir.types import F32, F64, Array, TensorType
from repro.ops import make
from repro.ops.record import evaluate

STEP = 1e-6


def _wide_type(kind: TensorType) -> TensorType:
    return TensorType(F64, kind.shape) if kind.dtype is F32 else kind


def _wide_node(node: Node, operands: tuple[Value, ...]) -> tuple[Value, ...]:
    kind = node.types[0]
    if node.op == "argument":
        return (argument(node["index"], _wide_type(kind)),)
    if node.op == "parameter":
        return (parameter(node["identity"], _wide_type(kind)),)
    if node.op == "constant":
        wide = constant_array(node).astype(np.float64) if kind.dtype is F32 else constant_array(node)
        return (constant(wide, _wide_type(kind).dtype),)
    attributes = {**node.attributes}
    if attributes.get("to") == "f32":
        attributes["to"] = "f64"
    return make(node.op, *operands, regions=tuple(widened(region) for region in node.regions), **attributes).results


def widened(graph: Graph) -> Graph:
    """The graph with f64 in place of f32, constants by value."""
    mapped: dict[Value, Value] = {}
    for node in graph.nodes:
        operands = tuple(mapped[value] for value in node.operands)
        mapped.update(zip(node.results, _wide_node(node, operands), strict=True))
    return Graph(tuple(map(_wide_type, graph.arguments)), tuple(mapped[value] for value in graph.results))


def leaves(graph: Graph) -> list[Value]:
    """The arguments as values, in order."""
    return [argument(index, kind) for index, kind in enumerate(graph.arguments)]


def float_leaves(graph: Graph) -> list[int]:
    return [index for index, kind in enumerate(graph.arguments) if kind.dtype.is_float]


def gradient_graph(graph: Graph, wrt: Sequence[int]) -> tuple[Graph, list[int]]:
    """From the arguments and a cotangent for each float result to the cotangents of those of `wrt` that have one."""
    results = [value for value in graph.results if value.dtype.is_float]
    first = len(graph.arguments)
    seeds = [argument(first + number, value.type) for number, value in enumerate(results)]
    inputs = leaves(graph)
    found = cotangents(list(zip(results, seeds, strict=True)), [inputs[index] for index in wrt])
    kinds = (*graph.arguments, *(seed.type for seed in seeds))
    reached = [index for index, value in zip(wrt, found, strict=True) if value is not None]
    return Graph(kinds, tuple(value for value in found if value is not None)), reached


def disagreement(graph: Graph, operands: Sequence[Array], generator: np.random.Generator, wrt: Sequence[int]) -> float:
    """|difference quotient - <gradient, direction>| of an f64 graph, over the sum of |gradient * direction|.

    Both are of the results' product with random cotangents (0 where a result is infinite: the maximum over nothing),
    along a random direction of the arguments `wrt`.
    """
    made, reached = gradient_graph(graph, wrt)
    at = [array for value, array in zip(graph.results, evaluate(graph, operands), strict=True) if value.dtype.is_float]
    seeds = [np.where(np.isfinite(array), generator.standard_normal(array.shape), 0.0) for array in at]
    slopes = dict(zip(reached, evaluate(made, [*operands, *seeds]), strict=True))
    along = {index: generator.standard_normal(graph.arguments[index].shape) for index in wrt}

    def moved(step: float) -> float:
        there = [
            np.asarray(array + step * along[index]) if index in along else array for index, array in enumerate(operands)
        ]
        values = evaluate(graph, there)
        floats = [array for value, array in zip(graph.results, values, strict=True) if value.dtype.is_float]
        return float(sum((seed * np.nan_to_num(array)).sum() for seed, array in zip(seeds, floats, strict=True)))

    quotient = (moved(STEP) - moved(-STEP)) / (2 * STEP)
    terms = [slopes[index] * along[index] for index in reached]
    analytic, size = float(sum(term.sum() for term in terms)), float(sum(np.abs(term).sum() for term in terms))
    if size == 0.0:
        return abs(quotient)
    return abs(quotient - analytic) / size

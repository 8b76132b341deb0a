"""Indices out of range are defined (rule 6) and reported: a hidden output says which op met one first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from repro.ir.graph import Graph, Locations, Node, Value
from repro.ir.types import I32, I64, TensorType
from repro.ops import (
    broadcast,
    compare,
    concatenate,
    convert_to,
    elementwise,
    fill,
    gather,
    integers,
    is_constant,
    reduce_axes,
    reshape,
)

COLUMNS = 3
"""Of a row of the report: whether an index was out of range, its position, its value."""


@dataclass(frozen=True)
class Checked:
    """A graph whose last result is the report i64[len(sources), COLUMNS], and the source of each row."""

    graph: Graph
    sources: tuple[str, ...]


def check_indices(graph: Graph, locations: Locations | None = None) -> Checked:
    """Add the report for every gather and scatter by computed indices; none, no further result."""
    nodes = [node for node in graph.nodes if _is_checked(node)]
    if not nodes:
        return Checked(graph, ())
    rows = [_row(node) for node in nodes]
    report = concatenate(rows, 0)
    known = locations or {}
    return Checked(Graph(graph.arguments, (*graph.results, report)), tuple(known.get(node, node.op) for node in nodes))


def _is_checked(node: Node) -> bool:
    if node.op not in ("gather", "scatter"):
        return False
    indices = node.operands[1]
    return not is_constant(indices) and bool(indices.type.elements) and _can_leave(indices)


def _can_leave(indices: Value) -> bool:
    """Whether the indices depend on anything that is not known when the model is built."""
    return any(node.op in ("argument", "parameter", "loop", "while", "branch") for node in Graph((), (indices,)).nodes)


def _row(node: Node) -> Value:
    shape, axes = node.operands[0].shape, node["axes"]
    indices = node.operands[1]
    extents = broadcast(integers([shape[axis] for axis in axes]), indices.shape, (indices.rank - 1,))
    zero = fill(0, TensorType(I64, indices.shape))
    bad = elementwise("or", compare("lt", indices, zero), compare("ge", indices, extents))
    flat = reshape(bad, (indices.type.elements,))
    marks = convert_to(flat, I32)
    found = convert_to(reduce_axes("or", flat, (0,)), I64)
    position = reduce_axes("argmax", marks, (0,))
    value = gather(reshape(indices, (indices.type.elements,)), reshape(position, (1, 1)), (0,))
    parts: Sequence[Value] = (reshape(found, (1,)), reshape(position, (1,)), value)
    return reshape(concatenate(parts, 0), (1, COLUMNS))

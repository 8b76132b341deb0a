"""Running statistics: tensors that a forward pass in training updates by itself, without a gradient."""

from __future__ import annotations

from collections.abc import Mapping

from repro.errors import ReproError
from repro.ir.graph import Graph, Locations, Node, Value
from repro.ops import convert_to

_RESULTS = {3: 1, 4: 2}
"""Of a BatchNormalization in training: operand -> the result that is its next value (mean, variance)."""


def normalizations(graph: Graph, training: bool) -> tuple[Node, ...]:
    """The BatchNormalizations of a graph itself (none inside loops and branches), in the graph's order."""
    return tuple(
        node
        for node in graph.nodes
        if node.op == "composite" and node["name"] == "BatchNormalization" and bool(node["training"]) == training
    )


def next_statistics(graph: Graph, names: Mapping[Value, str], locations: Locations) -> dict[Value, Value]:
    """Running statistic -> its next value, in the graph's order; `names` are those of the tensors that can be state.

    A node that does not name its running statistics as outputs updates none. Raises ReproError where two nodes
    update one tensor: ONNX does not say in which order.
    """
    found: dict[Value, Value] = {}
    for node in normalizations(graph, training=True):
        if len(node.types) <= max(_RESULTS.values()):
            continue
        for operand, result in _RESULTS.items():
            statistic = _source(node.operands[operand])
            if statistic not in names:
                continue
            if statistic in found:
                raise ReproError(
                    "two nodes update one running statistic",
                    node=locations.get(node),
                    found=names[statistic],
                    expected="a tensor of its own for each BatchNormalization",
                )
            found[statistic] = convert_to(node.results[result], statistic.dtype)
    return found


def statistics(graph: Graph) -> set[Value]:
    """Means and variances that normalizations are given: no weights, whatever mode the nodes are in."""
    nodes = (*normalizations(graph, training=True), *normalizations(graph, training=False))
    return {_source(node.operands[operand]) for node in nodes for operand in _RESULTS}


def _source(value: Value) -> Value:
    """What a value is converted from."""
    while value.node.op == "convert":
        value = value.node.operands[0]
    return value

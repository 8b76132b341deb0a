"""Running statistics: tensors that a forward pass in training updates by itself, without a gradient."""

from __future__ import annotations

from collections.abc import Mapping

from repro.errors import ReproError
from repro.ir.graph import Graph, Locations, Node, Value
from repro.ops import convert_to

_RESULTS = {3: 1, 4: 2}
"""Of a BatchNormalization in training: operand -> the result that is its next value (mean, variance)."""


def normalizations(graph: Graph, training: bool, inside: bool = False) -> tuple[Node, ...]:
    """The BatchNormalizations of a graph itself, or those `inside` its loops and branches, in the graph's order."""
    if inside:
        regions = [region for node in graph.nodes for region in _bodies(node)]
        return tuple(
            node for region in regions for deep in (False, True) for node in normalizations(region, training, deep)
        )
    return tuple(
        node
        for node in graph.nodes
        if node.op == "composite" and node["name"] == "BatchNormalization" and bool(node["training"]) == training
    )


def _bodies(node: Node) -> tuple[Graph, ...]:
    return () if node.op == "composite" else node.regions


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
    found = {_source(node.operands[operand]) for node in nodes for operand in _RESULTS}
    for node in graph.nodes:
        for region in _bodies(node):
            ahead = len(region.arguments) - len(node.operands)  # a counter, or a condition less
            inner = (value.node["index"] - ahead for value in statistics(region) if value.node.op == "argument")
            found.update(_source(node.operands[place]) for place in inner if place >= 0)
    return found


def _source(value: Value) -> Value:
    """What a value is converted from."""
    while value.node.op == "convert":
        value = value.node.operands[0]
    return value

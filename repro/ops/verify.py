"""The graph verifier: every node against its record. What it finds is an error of ours, with the node's place."""

from __future__ import annotations

from repro.errors import InternalError
from repro.ir.graph import Graph, Node
from repro.ir.text import print_graph
from repro.ops.record import record

_LEAVES = ("argument", "parameter", "constant")


def verify(graph: Graph, where: str = "graph") -> None:
    """Raises InternalError, with the node marked in the printed graph, where a node breaks its op's type rule."""
    for number, node in enumerate(graph.nodes):
        problem = _problem(graph, node)
        if problem:
            raise InternalError(f"{where}: %{number} {node.op}: {problem}\n{_marked(graph, number)}")
        for region in node.regions:
            verify(region, f"{where} > {node.op}")


def _problem(graph: Graph, node: Node) -> str:
    if node.op == "argument":
        index = node["index"]
        fits = index < len(graph.arguments) and graph.arguments[index] == node.types[0]
        return "" if fits else f"no argument {index} of type {node.types[0]}"
    if node.op == "constant":
        expected = node.types[0].nbytes
        return "" if len(node["data"]) == expected else f"{len(node['data'])} bytes, expected {expected}"
    if node.op in _LEAVES:
        return ""
    try:
        inferred = record(node).infer(node.attributes, tuple(value.type for value in node.operands), node.regions)
    except (TypeError, KeyError, InternalError) as error:
        return str(error)
    if inferred == node.types:
        return ""
    return f"types are {list(map(str, node.types))}, the rule gives {list(map(str, inferred))}"


def _marked(graph: Graph, number: int) -> str:
    lines = print_graph(graph).splitlines()
    return "\n".join(f"> {line}" if line.strip().startswith(f"%{number} ") else line for line in lines)

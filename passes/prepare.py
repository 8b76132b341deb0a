"""Graph passes between the canonical graph and lowering."""

from __future__ import annotations

from collections.abc import Sequence

from repro.ir.graph import Graph, Locations, Node, Value, rewrite
from repro.ops import canonical_nan
from repro.ops.record import ByElement, ByExpansion, record


def expand(graph: Graph, locations: Locations | None = None, expanded: Sequence[Node] = ()) -> Graph:
    """Composites and ops that are written in other core ops, or cheaper so, become those, all the way down.

    Nothing is to be done to nodes that are `expanded`, and to what only they lead to.
    """

    def rule(node: Node, operands: tuple[Value, ...]) -> tuple[Value, ...] | None:
        lowering, results = record(node).lowering, None
        if isinstance(lowering, ByExpansion):
            results = lowering.expand(node)
        elif isinstance(lowering, ByElement) and lowering.cheaper is not None:
            results = lowering.cheaper(node)
        if results is None:
            return None
        return expand(Graph((), results), None, [value.node for value in operands]).results

    return rewrite(graph, rule, locations, kept=expanded)


def canonical_outputs(graph: Graph, locations: Locations | None = None) -> Graph:
    """Every float output carries the canonical NaN (rule 4)."""
    results = tuple(canonical_nan(value) for value in graph.results)
    if locations is not None:
        for new, old in zip(results, graph.results, strict=True):
            if old.node in locations:
                locations.setdefault(new.node, locations[old.node])
    return Graph(graph.arguments, results)

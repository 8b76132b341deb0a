"""Graph passes between the canonical graph and lowering."""

from __future__ import annotations

from collections.abc import Sequence

from repro.ir.graph import Graph, Locations, Node, Value, rewrite
from repro.ops import canonical_nan
from repro.ops.record import ByExpansion, record


def expand(graph: Graph, locations: Locations | None = None, expanded: Sequence[Node] = ()) -> Graph:
    """Composites and ops that are written in other core ops become those, all the way down.

    Nothing is to be done to nodes that are `expanded`, and to what only they lead to.
    """

    def rule(node: Node, operands: tuple[Value, ...]) -> tuple[Value, ...] | None:
        lowering = record(node).lowering
        if not isinstance(lowering, ByExpansion):
            return None
        results = lowering.expand(node)
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

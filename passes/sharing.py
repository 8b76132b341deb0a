"""One loop for several that run the same region: a gradient runs a loop again to keep more of its values."""

from __future__ import annotations

from repro.ir.graph import Graph, Locations, Node, Value, rebuild

Family = tuple[tuple[Value, ...], int, int, int]
"""What loops that run the same iterations have in common, besides the region: operands and sizes."""


def _family(node: Node) -> Family:
    return node.operands, node["count"], node["carried"], node["scanned"]


def _begins_with(fuller: Node, node: Node) -> bool:
    """Whether the results of a node are the first of a fuller one's."""
    own = node.regions[0].results
    return node is not fuller and fuller.regions[0].results[: len(own)] == own


def share_loops(graph: Graph, locations: Locations | None = None) -> Graph:
    """A loop whose results another one gives too, and more, becomes that one; in regions too."""
    fuller = _fuller(graph)
    mapped: dict[Value, Value] = {}
    for node in graph.nodes:
        chosen = fuller.get(node, node)
        regions = tuple(share_loops(region, locations) for region in chosen.regions)
        changed = any(new.digest != old.digest for new, old in zip(regions, chosen.regions, strict=True))
        made = rebuild(chosen, tuple(mapped[value] for value in chosen.operands), regions if changed else None)
        mapped.update(zip(node.results, made.results, strict=False))
        if locations is not None and node in locations:
            locations.setdefault(made, locations[node])
    return Graph(graph.arguments, tuple(mapped[value] for value in graph.results))


def _fuller(graph: Graph) -> dict[Node, Node]:
    """The loops that another one stands for."""
    families: dict[Family, list[Node]] = {}
    for node in graph.nodes:
        if node.op == "loop":
            families.setdefault(_family(node), []).append(node)
    found: dict[Node, Node] = {}
    for loops in families.values():
        for node in loops:
            candidates = [other for other in loops if _begins_with(other, node)]
            if candidates:
                found[node] = max(candidates, key=lambda other: len(other.types))
    return found

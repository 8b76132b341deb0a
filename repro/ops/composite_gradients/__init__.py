"""Gradients of composites: that of the region, with formulas for the stretches where the region's own would be worse.

By default a composite's region is differentiated op by op. That is right almost everywhere; but it follows paths that
cancel (the maximum that a softmax subtracts, a sum of deviations), it meets 0 * inf where a branch that was not chosen
overflows (Elu), and it costs more. `STEPS` names, by composite, the stretches that have a formula instead; everything
else of the region (masks, weights, scale and bias, further results) stays with the core rules.

The rules are found by name, like the composites' bits by their regions; they read the values that they need off the
region, so that nothing is computed twice: after expansion both are the same nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from repro.ir.graph import Graph, Node, Value, argument, substitute
from repro.ops.composite_gradients import activations, losses, normalizations, reductions
from repro.ops.movement import fill
from repro.ops.record import Differentiate, Step

STEPS: dict[str, Callable[[Node], Sequence[Step]]] = {
    **activations.STEPS,
    **losses.STEPS,
    **normalizations.STEPS,
    **reductions.STEPS,
}


def steps_of(node: Node) -> Sequence[Step]:
    """The stretches of a composite's region that have a formula, in values of the region."""
    find = STEPS.get(node["name"])
    return () if find is None else find(node)


def steps_by_readers(graph: Graph) -> Sequence[Step]:
    """The stretches of a graph whose formula depends on what reads their result."""
    return [step for node in graph.nodes if node.op == "select" for step in losses.selected_softmaxes(node)]


def composite_gradient(
    node: Node, cotangents: tuple[Value, ...], differentiate: Differentiate
) -> tuple[Value | None, ...]:
    """The region's gradient on its own arguments, then put in place of the node's operands.

    On its own arguments, because two operands may be one value, or one computed from the other. Results that nobody
    uses (their cotangent is zeros) add nothing, not even +0.
    """
    region = node.regions[0]
    used = [slot for slot, cotangent in enumerate(cotangents) if cotangent != fill(0, cotangent.type)]
    kinds = (*region.arguments, *(region.types[slot] for slot in used))
    arguments = [argument(index, kind) for index, kind in enumerate(kinds)]
    own, seeds = arguments[: len(region.arguments)], arguments[len(region.arguments) :]
    pairs = [(region.results[slot], seed) for slot, seed in zip(used, seeds, strict=True)]
    found = differentiate(pairs, own, steps_of(node))
    graph = Graph(kinds, tuple(value for value in found if value is not None))
    made = iter(substitute(graph, (*node.operands, *(cotangents[slot] for slot in used))))
    return tuple(None if value is None else next(made) for value in found)


__all__ = ["STEPS", "composite_gradient", "steps_by_readers", "steps_of"]

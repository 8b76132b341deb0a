"""Copies of a forward graph for training: other leaves, and random numbers of the step and the part of its batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from repro.ir.graph import Graph, Locations, Node, Value, argument, rewrite
from repro.ir.types import I64, TensorType
from repro.ops import add, mul, scalar

_COUNTER = TensorType(I64, ())
_WHILE_ITERATIONS = 1 << 32
"""How many numbers the iterations of a loop of unknown count are given (as on the way in)."""


@dataclass(frozen=True)
class Moment:
    """When a copy runs: the number of the step, and of the part of its batch where there are several (both i64[]).

    The parts are equal runs of rows: microbatches, or shards, or the shards of each microbatch one after another.
    """

    step: Value
    part: Value | None = None

    @property
    def values(self) -> tuple[Value, ...]:
        return (self.step,) if self.part is None else (self.step, self.part)


def copy_of(
    graph: Graph,
    arguments: Sequence[Value],
    parameters: Sequence[Value],
    moment: Moment,
    locations: Locations | None = None,
) -> tuple[Value, ...]:
    """The results of a graph on other arguments and parameters, its random nodes drawing for that moment.

    Rule 16: the run number is the step, the part of the batch a leading axis of the number of an element.
    """

    def rule(node: Node, operands: tuple[Value, ...]) -> tuple[Value, ...] | None:
        if node.op == "argument":
            return (arguments[node["index"]],)
        if node.op == "parameter":
            return (parameters[node["identity"]],)
        return _at_moment(node, operands, moment, 1)

    return rewrite(graph, rule, locations, regions=False).results


def _at_moment(node: Node, operands: tuple[Value, ...], moment: Moment, iterations: int) -> tuple[Value, ...] | None:
    """A node that draws, or whose regions do, at a moment; None for any other node.

    `iterations`: of all loops around it together.
    """
    if node.op == "random_bits":
        first = operands[1]
        if moment.part is not None:
            numbers = _wrapped(math.prod(node["shape"]) * iterations)
            first = add(mul(moment.part, scalar(numbers, I64)), first)
        return Node(node.op, (moment.step, first), node.attributes, node.types).results
    if not any(_draws(region) for region in node.regions):
        return None
    own: int = node["count"] if node.op == "loop" else _WHILE_ITERATIONS if node.op == "while" else 1
    regions = tuple(_region_at_moment(region, len(moment.values), iterations * own) for region in node.regions)
    return Node(node.op, (*operands, *moment.values), node.attributes, node.types, regions).results


def _region_at_moment(region: Graph, counters: int, iterations: int) -> Graph:
    """The region with the moment as further arguments behind its own, where each op with regions takes captures."""
    first = len(region.arguments)
    moment = Moment(*(argument(first + index, _COUNTER) for index in range(counters)))
    inner = rewrite(region, lambda node, operands: _at_moment(node, operands, moment, iterations), regions=False)
    return Graph((*region.arguments, *(_COUNTER,) * counters), inner.results)


def _draws(region: Graph) -> bool:
    return any(node.op == "random_bits" or any(map(_draws, node.regions)) for node in region.nodes)


def _wrapped(number: int) -> int:
    """Modulo 2^64, signed."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)

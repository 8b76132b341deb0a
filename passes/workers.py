"""A step with virtual shards, cut into what each of several workers does by itself and what they do together.

A sharded step (rule 17) holds counted loops over its V shards whose results are added by the contract's tree. With n
workers, a power of two that divides V, worker w runs the loops for the shards w * V/n .. (w + 1) * V/n - 1 and adds
what they give by the lower levels of the tree; the upper levels are a sum over workers. So a step is a chain of stages,
one for each loop, with a sum over workers after each; and an end, which every worker computes for itself from the
totals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from repro.errors import ReproError
from repro.ir.graph import Graph, Node, Value, argument, substitute
from repro.ir.types import I64, Array, TensorType
from repro.ops import add, reshape
from repro.ops.loop_gradient import replaced
from repro.ops.record import evaluate, make
from repro.train_step.shards import tree_sum

MOVES = frozenset({"argument", "reshape", "transpose", "slice"})
"""What may stand between the inputs and the rows of a shard: nothing is computed in handing them out."""


@dataclass(frozen=True, eq=False)
class Stage:
    """One loop over a worker's shards.

    Arguments of the graph: the step's inputs, the totals of earlier stages, the rows of the worker's shards, the number
    of its first shard (i64). Results: its partial sums.
    """

    graph: Graph
    rows: Graph
    """From the step's inputs to the rows of all shards."""
    shards: int
    """Of one worker."""

    def shard_rows(self, inputs: Sequence[Array], worker: int) -> list[Array]:
        """The rows that a worker is handed: its shards' part along the first axis."""
        first = worker * self.shards
        whole = evaluate(self.rows, tuple(inputs))
        return [np.ascontiguousarray(each[first : first + self.shards]) for each in whole]


@dataclass(frozen=True, eq=False)
class Division:
    """The stages, and the end: arguments are the step's inputs and all totals, results those of the step."""

    stages: tuple[Stage, ...]
    end: Graph


def check_shares(shards: int, workers: int) -> None:
    """Raises ReproError where so many workers cannot share so many virtual shards out."""
    if shards < 2:
        raise ReproError("the step has no virtual shards to share out", found=str(shards), next="build with --shards V")
    if workers < 1 or workers & (workers - 1) or shards % workers:
        expected = f"a power of two that divides {shards}, the number of virtual shards"
        raise ReproError("the workers cannot share the shards out", found=str(workers), expected=expected)


def divide(graph: Graph, shards: int, workers: int) -> Division:
    """A step of `shards` virtual shards for so many workers. Raises ReproError where it cannot be cut so."""
    check_shares(shards, workers)
    nodes = frozenset(graph.nodes)
    totals, stages = list[Value](), list[Stage]()
    for loop in graph.nodes:
        if loop.op == "loop" and loop["count"] == shards and loop["carried"] == 0:
            found = _totals(loop, graph.users, nodes)
            stages.append(_stage(graph, loop, found, totals, shards // workers))
            totals += found.values()
    known = _as_arguments(totals, len(graph.arguments))
    return Division(tuple(stages), Graph(_arguments(graph, totals), replaced(graph.results, known)))


def _totals(loop: Node, users: Mapping[Value, Sequence[Node]], nodes: frozenset[Node]) -> dict[int, Value]:
    """By position among the loop's results, the totals of those that are in use: equal nodes are one object."""
    found = dict[int, Value]()
    for position, result in enumerate(loop.results):
        if result not in users:
            continue
        total = tree_sum(result)
        pairs = reshape(result, (loop["count"] // 2, 2, *result.shape[1:])).node
        if total.node not in nodes or any(user is not pairs for user in users[result]):
            raise ReproError("a loop over shards gives something that is not added by their tree", found=str(loop))
        found[position] = total
    return found


def _arguments(graph: Graph, totals: Sequence[Value]) -> tuple[TensorType, ...]:
    return (*graph.arguments, *(total.type for total in totals))


def _as_arguments(totals: Sequence[Value], first: int) -> dict[Value, Value]:
    return {total: argument(first + number, total.type) for number, total in enumerate(totals)}


def _stage(graph: Graph, loop: Node, found: Mapping[int, Value], totals: Sequence[Value], shards: int) -> Stage:
    scanned, fixed = loop.operands[: loop["scanned"]], loop.operands[loop["scanned"] :]
    rows = Graph(graph.arguments, scanned)
    for node in rows.nodes:
        if node.op not in MOVES:
            raise ReproError("the rows of a shard are computed, not only handed out", op=node.op)
    arguments = list(_arguments(graph, totals))
    kinds = [TensorType(value.dtype, (shards, *value.shape[1:])) for value in scanned]
    own = [argument(len(arguments) + number, kind) for number, kind in enumerate(kinds)]
    first = argument(len(arguments) + len(own), TensorType(I64, ()))
    known = replaced(fixed, _as_arguments(totals, len(graph.arguments)))
    region = _shifted(loop.regions[0])
    made = make("loop", *own, *known, first, regions=(region,), count=shards, carried=0, scanned=len(own))
    partial = tuple(tree_sum(made.results[position]) for position in found)
    return Stage(Graph((*arguments, *kinds, first.type), partial), rows, shards)


def _shifted(region: Graph) -> Graph:
    """The body with the number of the worker's first shard as one more argument: shards count through all workers."""
    kinds = (*region.arguments, TensorType(I64, ()))
    seen = [argument(number, kind) for number, kind in enumerate(kinds)]
    return Graph(kinds, substitute(region, (add(seen[0], seen[-1]), *seen[1:-1])))

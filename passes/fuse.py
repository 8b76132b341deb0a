"""Which values are written to memory, and which are computed where they are read.

A reduction is computed once per element: it is stored, or it carries a chain of elementwise ops and
bijective moves behind it (an epilogue). Everything else is inlined into its users, unless that would
repeat work that is not worth repeating.
"""

from __future__ import annotations

from dataclasses import dataclass

from repro.ir.graph import Graph, Node, Value
from repro.ops.record import ByElement, ByNests, Op, Structural, record

LARGEST_EXPRESSION = 600
"""Inlined scalar operations (roughly) above which a value is stored instead."""
FUNCTION_WEIGHT = 40
"""What an expensive op counts for in the size of an expression."""


@dataclass(frozen=True)
class Fusion:
    """`stored`: values with a buffer. `epilogues`: stored value -> chain from its reduction to itself."""

    stored: frozenset[Value]
    epilogues: dict[Value, tuple[Value, ...]]


def _by_element(node: Node) -> ByElement | None:
    lowering = record(node).lowering
    return lowering if isinstance(lowering, ByElement) else None


def _users(graph: Graph) -> dict[Value, list[Node]]:
    users: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        for value in dict.fromkeys(node.operands):
            users.setdefault(value, []).append(node)
    return users


def _continues(user: Node, value: Value) -> bool:
    """Whether an epilogue can go on through this user: same element, or an element moved one to one."""
    lowering = _by_element(user)
    if lowering is None or lowering.reduces or len(user.types) != 1:
        return False
    if lowering.moves:
        return lowering.forward is not None
    return all(operand.shape == value.shape for operand in user.operands) and user.types[0].shape == value.shape


def _chain(start: Value, users: dict[Value, list[Node]], results: frozenset[Value], taken: set[Value]) -> list[Value]:
    chain = [start]
    while True:
        value = chain[-1]
        behind = users.get(value, [])
        if value in results or len(behind) != 1 or not _continues(behind[0], value):
            return chain
        follower = behind[0].value
        if follower in taken:
            return chain
        chain.append(follower)


def _repeats(user: Node, op: Op) -> bool:
    """Whether a user may evaluate an operand's element more than once, or in vain."""
    lowering = op.lowering
    if not isinstance(lowering, ByElement):
        return True
    if lowering.moves:
        return lowering.forward is None
    if not lowering.reduces:
        return user.op == "gather"
    return user.op != "reduce"


def fuse(graph: Graph) -> Fusion:
    """Decide by the records' fields and the shape of the graph alone."""
    users, results = _users(graph), frozenset(graph.results)
    stored: set[Value] = set()
    epilogues: dict[Value, tuple[Value, ...]] = {}
    taken: set[Value] = set()
    for node in graph.nodes:
        lowering = _by_element(node)
        if lowering is not None and lowering.reduces:
            chain = _chain(node.value, users, results, taken)
            taken.update(chain)
            stored.add(chain[-1])
            if len(chain) > 1:
                epilogues[chain[-1]] = tuple(chain)
    inside = {value for chain in epilogues.values() for value in chain[:-1]}
    weight: dict[Node, int] = {}
    computed: dict[Node, int] = {}
    repeated: set[Node] = set()
    for node in reversed(graph.nodes):
        if any(
            _repeats(user, record(user)) or (user in repeated and user.results[0] not in stored)
            for value in node.results
            for user in users.get(value, [])
        ):
            repeated.add(node)
    for node in graph.nodes:
        found = _stored(node, users, results, inside, stored, weight, node in repeated)
        work = 0 if _is_view(node) or not node.operands else 1
        computed[node] = work + sum(0 if value in stored else computed[value.node] for value in node.operands)
        if not found and computed[node] and _shared_view(node, users):
            found = set(node.results)
        if found:
            weight[node] = computed[node] = 0
        stored.update(found)
    return Fusion(frozenset(stored), epilogues)


def _is_view(node: Node) -> bool:
    """Whether elements of one operand are only renamed; a pad or a concatenation chooses among several."""
    lowering = _by_element(node)
    return lowering is not None and lowering.moves and len(node.operands) == 1


def _shared_view(node: Node, users: dict[Value, list[Node]]) -> bool:
    """Whether a value under a new shape is read by several: what is computed behind it would be computed for each.
    (One that grows would take memory for what is the same: its operand is stored instead.)"""
    small = node.operands and node.types[0].elements <= sum(value.type.elements for value in node.operands)
    return bool(small) and _moves(node) and len(users.get(node.results[0], [])) > 1


def _moves(node: Node) -> bool:
    lowering = _by_element(node)
    return lowering is not None and lowering.moves


def _readers(value: Value, users: dict[Value, list[Node]]) -> int:
    """How many nodes read a value, those behind a view that grows counted each."""
    total = 0
    for user in users.get(value, []):
        grows = _is_view(user) and user.types[0].elements > value.type.elements
        total += _readers(user.results[0], users) if grows else 1
    return total


def _stored(
    node: Node,
    users: dict[Value, list[Node]],
    results: frozenset[Value],
    inside: set[Value],
    stored: set[Value],
    weight: dict[Node, int],
    repeated: bool,
) -> set[Value]:
    """The results of a node that get a buffer; records the weight of what is inlined."""
    op = record(node)
    if isinstance(op.lowering, Structural | ByNests):
        weight[node] = 0
        return set(node.results)
    own = FUNCTION_WEIGHT if op.expensive else 1
    weight[node] = own + sum(0 if value in stored else weight[value.node] for value in node.operands)
    value = node.results[0]
    if value in inside:
        return set()
    several = not _moves(node) and bool(node.operands) and _readers(value, users) > 1
    heavy = repeated and weight[node] >= FUNCTION_WEIGHT
    if value in results or value in stored or several or heavy or weight[node] > LARGEST_EXPRESSION:
        return {value}
    return set()

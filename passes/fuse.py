"""Which values are written to memory, and which are computed where they are read.

A reduction is computed once per element: it is stored, or it carries a chain of elementwise ops and
bijective moves behind it (an epilogue). Where it only serves the elements of the row that it reduces, it is computed
in their kernel, once per row, from a row that is still near: what such a row is read as is stored where its elements
would lie apart. Everything else is inlined into its users, unless that would repeat work that is not worth repeating.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from passes.made_again import made_again
from passes.nodes import (
    Users,
    by_element,
    continues,
    goes_on,
    is_together,
    is_view,
    lies_apart,
    moves,
    picked,
    picks,
    reduces,
    spreads,
)
from passes.widening import is_widened, narrow, widens
from repro.ir.graph import Graph, Node, Value
from repro.ops.record import ByElement, ByNests, Op, Structural, record

LARGEST_EXPRESSION = 600
"""Inlined scalar operations (roughly) above which a value is stored instead."""
FUNCTION_WEIGHT = 40
"""What an expensive op counts for in the size of an expression."""
WINDOW_WEIGHT = 3
"""Inlined operations from which on a value is stored that overlapping windows would compute for each of them."""
DIVISIONS = 2
"""Readers that may each divide again rather than read what one division stored."""
LARGEST_REGION = 24
"""Elementwise ops among which what reads a value is followed to where it meets again."""
FEW_TERMS = 4
"""Of sums that are terms of others."""
SHORTEST_ROW, LONGEST_ROW = 64, 8192
"""Elements of a row whose reductions are computed with its elements: worth two loops, no more than a near cache."""


@dataclass(frozen=True)
class Fusion:
    """`stored`: values with a buffer. `epilogues`: stored value -> chain from its reduction to itself."""

    stored: frozenset[Value]
    epilogues: dict[Value, tuple[Value, ...]]


@dataclass(frozen=True)
class _Chain:
    """What is computed one after another behind a reduction, and what lies between these: nothing else reads it."""

    links: list[Value]
    between: list[Value]


def _chain(start: Value, users: Users, results: frozenset[Value], taken: set[Value]) -> _Chain:
    links, between = [start], list[Value]()
    while not is_together(start.node) and (region := _region(links[-1], users, results, taken)):
        links.append(region[-1])
        between += region[:-1]
    return _Chain(narrow(links, results), between)


def _region(value: Value, users: Users, results: frozenset[Value], taken: set[Value]) -> list[Value]:
    """What is computed from a value at the same element, up to where all of it has met again; empty where that is not
    near. A single reader may move elements one to one."""
    waiting = [] if value in results else list(users.get(value, ()))
    if any(map(users.stands_apart, waiting)):
        return []
    if len(waiting) == 1 and continues(waiting[0], value):
        return [] if waiting[0].value in taken else [waiting[0].value]
    region: list[Value] = []
    while waiting and len(region) < LARGEST_REGION:
        node = min(waiting, key=users.position)
        waiting.remove(node)
        if moves(node) or not continues(node, value) or node.value in taken:
            return []
        region.append(node.value)
        if not waiting:
            return region
        if node.value in results:
            return []
        waiting += [user for user in users.get(node.value, ()) if user not in waiting]
    return []


def _along_rows(node: Node) -> bool:
    """Whether it reduces the last axes of its operand, in lanes, to one element for each row that stays in a cache."""
    if node.op != "reduce" or node["order"] not in ("lanes", "exact") or node["combiner"].startswith("arg"):
        return False
    shape, axes = node.operands[0].shape, node["axes"]
    behind = tuple(range(len(shape) - len(axes), len(shape)))
    return axes == behind and SHORTEST_ROW <= math.prod(shape[axis] for axis in axes) <= LONGEST_ROW


def _few(node: Node) -> int:
    """The terms of each of its elements, if it adds up few; else 0."""
    if node.op != "reduce" or node["order"] != "lanes":
        return 0
    count = math.prod(node.operands[0].shape[axis] for axis in node["axes"])
    return count if count <= FEW_TERMS else 0


def _is_term(node: Node, end: Value, users: Users, results: frozenset[Value]) -> bool:
    """Whether a reduction of few terms, with what is computed behind it, is itself a term of few: it is computed where
    that one reads it."""
    behind = users.get(end, ())
    return end not in results and len(behind) == 1 and _few(node) > 0 and _few(behind[0]) > 0


def _served(
    node: Node,
    chain: list[Value],
    users: Users,
    results: frozenset[Value],
    taken: set[Value],
) -> tuple[Value, Value] | None:
    """The reduction's element under the shape of its rows again, and the value to store that alone reads it."""
    end = chain[-1]
    if not _along_rows(node) or end in results or len(users.get(end, ())) != 1:
        return None
    (wide,) = users[end]
    if not spreads(wide, node) or wide.types[0].shape != node.operands[0].shape or wide.value in results:
        return None
    readers = users.get(wide.value, ())
    if len(readers) != 1 or not continues(readers[0], wide.value) or moves(readers[0]):
        return None
    links = [readers[0].value]
    while links[-1] not in taken and links[-1] not in results:
        behind = users.get(links[-1], ())
        if len(behind) != 1 or not continues(behind[0], links[-1]) or moves(behind[0]) or behind[0].value in taken:
            break
        links.append(behind[0].value)
    value = narrow(links, results)[-1]
    if value in taken or any(picked(user, value, users) for user in users.get(value, ())):
        return None
    return wide.value, value


def _read_again(term: Value, users: Users) -> list[Value]:
    """What a row is read as by its reduction and by others: the nearest values of several readers behind a term."""
    if len(users.get(term, ())) > 1:
        return [term]
    node = term.node
    same = [operand for operand in dict.fromkeys(node.operands) if not moves(node) and continues(node, operand)]
    return [value for operand in same for value in _read_again(operand, users)]


def _repeats(user: Node, op: Op, value: Value) -> bool:
    """Whether a user may evaluate an operand's element more than once, or in vain."""
    lowering = op.lowering
    if not isinstance(lowering, ByElement):
        return True
    if lowering.moves:
        return lowering.forward is None
    if not lowering.reduces:
        return user.op == "gather" and not picks(user, value)
    return user.op != "reduce"


def fuse(graph: Graph) -> Fusion:
    """Decide by the records' fields and the shape of the graph alone."""
    users, results = Users(graph), frozenset(graph.results)
    stored: set[Value] = set()
    epilogues: dict[Value, tuple[Value, ...]] = {}
    taken: set[Value] = set()
    inside: set[Value] = set()
    once: set[Node] = set()
    rows: set[Value] = set()
    for node in sorted(filter(reduces, graph.nodes), key=_along_rows):  # those along rows last: they take what is left
        chain = _chain(node.value, users, results, taken)
        links = chain.links
        if _is_term(node, links[-1], users, results):
            continue
        served = _served(node, links, users, results, taken)
        if served is None:
            taken.update((*links, *chain.between))
            stored.add(links[-1])
            inside.update((*links[:-1], *chain.between))
            if len(links) > 1:
                epilogues[links[-1]] = tuple(links)
        else:
            stored.add(served[-1])
            inside.update((*links, *chain.between, served[0]))
            once.add(node)
            rows.update(_read_again(node.operands[0], users))
    weight: dict[Node, int] = {}
    computed: dict[Node, int] = {}
    repeated: set[Node] = set()
    overlapping: set[Node] = set()
    chosen: set[Node] = set()
    for node in reversed(graph.nodes):
        if any(
            _repeats(user, record(user), value)
            or (user in repeated and user not in once and user.results[0] not in stored)
            for value in node.results
            for user in users.get(value, ())
        ):
            repeated.add(node)
        behind = [user for value in node.results for user in users.get(value, ())]
        if any(_overlaps(user) or (user in overlapping and moves(user)) for user in behind):
            overlapping.add(node)
        if len(node.operands) > 1 and moves(node) and any(map(_anew, behind)):
            chosen.add(node)
    for node in graph.nodes:
        limit = 0 if node in chosen else _limit(node, repeated, overlapping)
        found = _stored(node, users, results, inside, stored, weight, limit)
        found |= {value for value in rows.intersection(node.results) - inside if lies_apart(value, stored)}
        work = 0 if is_view(node) or not node.operands else 1
        computed[node] = work + sum(0 if value in stored else computed[value.node] for value in node.operands)
        free = not found and inside.isdisjoint(node.results)
        if free and ((computed[node] and _shared_view(node, users)) or users.stands_apart(node)):
            found = set(node.results)
        if found:
            weight[node] = computed[node] = 0
        stored.update(found)
    return Fusion(frozenset(stored), epilogues)


def _overlaps(user: Node) -> bool:
    lowering = by_element(user)
    return lowering is not None and lowering.overlaps is not None and lowering.overlaps(user)


def _anew(user: Node) -> bool:
    """Whether it computes its operand for each window anew: what chooses among several would be asked each time."""
    lowering = by_element(user)
    return lowering is not None and lowering.repeats is not None and lowering.repeats(user)


def _limit(node: Node, repeated: set[Node], overlapping: set[Node]) -> int:
    """The weight from which on a node is stored."""
    if node in overlapping and not moves(node):
        return WINDOW_WEIGHT
    return FUNCTION_WEIGHT if node in repeated else LARGEST_EXPRESSION + 1


def _shared_view(node: Node, users: Users) -> bool:
    """Whether a value under a new shape is read by several: what is computed behind it would be computed for each.
    (One that grows would take memory for what is the same: its operand is stored instead.)"""
    small = node.operands and node.types[0].elements <= sum(value.type.elements for value in node.operands)
    return bool(small) and moves(node) and len(users.get(node.results[0], ())) > 1


def _readers(value: Value, users: Users) -> int:
    """How many nodes read a value, those behind a view that grows counted each; picks compute their few elements."""
    total = 0
    for user in users.get(value, ()):
        if picked(user, value, users):
            continue
        grows = is_view(user) and user.types[0].elements > value.type.elements
        total += _readers(user.results[0], users) if grows else 1
    return total


def _stored(
    node: Node,
    users: Users,
    results: frozenset[Value],
    inside: set[Value],
    stored: set[Value],
    weight: dict[Node, int],
    limit: int,
) -> set[Value]:
    """The results of a node that get a buffer; records the weight of what is inlined, which stays below the limit.

    Where a single reader goes on with the same element, it is better stored behind that: one value is read instead.
    """
    op = record(node)
    if isinstance(op.lowering, Structural | ByNests):
        weight[node] = 0
        return set(node.results)
    own = FUNCTION_WEIGHT if op.expensive else 1
    operands = sum(0 if value in stored else weight[value.node] for value in node.operands)
    weight[node] = own + max(1, _few(node)) * operands
    value = node.results[0]
    if value in inside:
        return set()
    readers = 0 if moves(node) or not node.operands else _readers(value, users)
    again = readers <= (DIVISIONS if op.expensive else readers) and made_again(node, users, stored)
    several = readers > 1 and not again
    if not several and (readers > 1 or (goes_on(value, users) and not widens(value, users))):
        limit = LARGEST_EXPRESSION + 1
    if value not in results and value not in stored and is_widened(value, stored):
        return set()
    if value in results or value in stored or several or weight[node] >= limit:
        return {value}
    return set()

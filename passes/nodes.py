"""What the nodes of a graph do with elements: whether they go on at the same one, move, pick, spread or reduce them."""

from __future__ import annotations

from collections.abc import Container
from functools import cached_property

from passes.side_by_side import side_by_side
from repro.ir import index as ix
from repro.ir.expressions import Expr
from repro.ir.graph import Graph, Node, Value
from repro.ops.record import Axes, ByElement, record


def by_element(node: Node) -> ByElement | None:
    lowering = record(node).lowering
    return lowering if isinstance(lowering, ByElement) else None


def continues(user: Node, value: Value) -> bool:
    """Whether an epilogue can go on through this user: same element, or an element moved one to one."""
    lowering = by_element(user)
    if lowering is None or lowering.reduces or len(user.types) != 1:
        return False
    if lowering.moves:
        return lowering.forward is not None
    return all(operand.shape == value.shape for operand in user.operands) and user.types[0].shape == value.shape


def reduces(node: Node) -> bool:
    """Whether its elements hold ordered reductions, or read several elements of an operand."""
    lowering = by_element(node)
    return lowering is not None and lowering.reduces


def moves(node: Node) -> bool:
    """Whether it only renames indices."""
    lowering = by_element(node)
    return lowering is not None and lowering.moves


def is_together(node: Node) -> bool:
    """Whether one iteration computes several of its elements."""
    lowering = by_element(node)
    return lowering is not None and lowering.together


def is_view(node: Node) -> bool:
    """Whether elements of one operand are only renamed; a pad or a concatenation chooses among several."""
    lowering = by_element(node)
    return lowering is not None and lowering.moves and len(node.operands) == 1


def under_other_shapes(value: Value) -> Value:
    """The value whose elements a chain of views names: itself, or what lies under them."""
    while is_view(value.node):
        value = value.node.operands[0]
    return value


def reorders(node: Node) -> bool:
    """Whether elements of its operand lie in another order in it."""
    if not is_view(node) or not node.types[0].elements:
        return False
    value, (operand,) = node.results[0], node.operands
    if value.type.elements != operand.type.elements:
        return False
    axes = Axes(0)
    index = tuple(axes.fresh(extent) for extent in value.shape)
    return ix.linear(_in_operand(node, index, axes), operand.shape) is not ix.linear(index, value.shape)


def lies_apart(value: Value, stored: Container[Value]) -> bool:
    """Whether neighbours in a row of a value are computed from elements that lie apart in what is stored."""
    axes = Axes(0)
    index = tuple(axes.fresh(extent) for extent in value.shape)
    return bool(index) and not all(side_by_side(each, index[-1]) for each in _read_at(value, index, stored, axes))


def _read_at(value: Value, index: tuple[Expr, ...], stored: Container[Value], axes: Axes) -> list[Expr]:
    """Where an element is read in what is stored, through views and operations on the same element."""
    node = value.node
    if value in stored or not node.operands:
        return [ix.linear(index, value.shape)]
    if is_view(node):
        return _read_at(node.operands[0], _in_operand(node, index, axes), stored, axes)
    same = [operand for operand in dict.fromkeys(node.operands) if not moves(node) and continues(node, operand)]
    return [offset for operand in same for offset in _read_at(operand, index, stored, axes)]


def _in_operand(view: Node, index: tuple[Expr, ...], axes: Axes) -> tuple[Expr, ...]:
    """The index that a view's element has in its operand."""
    lowering, (operand,) = by_element(view), view.operands
    assert lowering is not None
    found: list[tuple[Expr, ...]] = []

    def at(index: tuple[Expr, ...]) -> Expr:
        found.append(index)
        return ix.linear(index, operand.shape)

    lowering.element(view, 0, index, (at,), axes)
    return found[0]


def spreads(wide: Node, node: Node) -> bool:
    """Whether all elements of a row get that of one row: none of its axes lies along the axes that were reduced."""
    kept = node.operands[0].rank - len(node["axes"])
    if wide.op != "broadcast":
        return False
    return all(axis < kept for axis, extent in zip(wide["axes"], wide.operands[0].shape, strict=True) if extent > 1)


def picks(user: Node, value: Value) -> bool:
    """Whether it takes a few elements of a table, so that the others need not be computed."""
    return user.op == "gather" and value == user.operands[0] and user.types[0].elements <= value.type.elements // 4


def picked(user: Node, value: Value, users: Users) -> bool:
    """Whether all that a user makes of a value is picked from: the few elements are computed there."""
    return _picked(user, value, users.picked_behind)


def _picked(user: Node, value: Value, behind: Container[Node]) -> bool:
    return picks(user, value) or ((is_view(user) or continues(user, value)) and user in behind)


class Users(dict[Value, tuple[Node, ...]]):
    """The nodes that read each value, and their places in the graph's order."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph.users)
        self.order = {node: place for place, node in enumerate(graph.nodes)}

    @cached_property
    def picked_behind(self) -> frozenset[Node]:
        """Nodes of whose result all that its users make is picked from. Found from the last node to the first: what is
        behind a node is known when it is asked."""
        found = set[Node]()
        for node in reversed(self.order):
            value = node.results[0]
            behind = self.get(value, ())
            if behind and all(_picked(user, value, found) for user in behind):
                found.add(node)
        return frozenset(found)

    def position(self, node: Node) -> int:
        return self.order[node]

    def stands_apart(self, node: Node) -> bool:
        """Whether it reorders elements for what computes several of them in an iteration, vectors as they lie."""
        return reorders(node) and meets_together(node.results[0], self)


def meets_together(value: Value, users: Users) -> bool:
    """Whether it is read, as it lies, by what computes several elements of an iteration."""
    behind = users.get(value, ())
    return any(
        is_together(user) or (is_view(user) and not reorders(user) and meets_together(user.results[0], users))
        for user in behind
    )


def goes_on(value: Value, users: Users) -> bool:
    """Whether the only thing that becomes of a value is another at the same element."""
    behind = users.get(value, ())
    return len(behind) == 1 and not moves(behind[0]) and continues(behind[0], value)

"""Reading values off a composite's region. Each function expects the form that the region is built in."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from repro.errors import InternalError
from repro.ir.graph import Node, Value, argument
from repro.ops.movement import broadcast_to, fill
from repro.ops.reduction import reduce_keep


def own_argument(node: Node, index: int = 0) -> Value:
    """Argument `index` of a composite's region."""
    return argument(index, node.regions[0].arguments[index])


def own_result(node: Node, index: int = 0) -> Value:
    return node.regions[0].results[index]


def operand(value: Value, op: str, slot: int = 0) -> Value:
    """Operand `slot` of the node that a value comes from, which has to be an `op`."""
    if value.node.op != op:
        raise InternalError(f"a composite's region holds {value.node.op} where its gradient expects {op}")
    return value.node.operands[slot]


def through(value: Value, *ops: str) -> Value:
    """The value behind nodes of these ops."""
    while value.node.op in ops:
        value = value.node.operands[0]
    return value


def nodes_of(node: Node, op: str) -> Iterator[Node]:
    """The region's nodes of an op."""
    return (inner for inner in node.regions[0].nodes if inner.op == op)


def only(found: Sequence[Node], what: str) -> Node:
    if len(found) != 1:
        raise InternalError(f"a composite's region holds {len(found)} times {what} where its gradient expects one")
    return found[0]


def number(value: float, like: Value) -> Value:
    return fill(value, like.type)


def attribute(node: Node, name: str, like: Value) -> Value:
    """A float attribute of a composite (the hex of its f32 bits) in the type and shape of a value."""
    return number(float(struct.unpack(">f", bytes.fromhex(node[name]))[0]), like)


def sum_along(value: Value, axes: Sequence[int]) -> Value:
    """The sum over axes, at every one of the positions that it was taken over."""
    return broadcast_to(reduce_keep("add", value, axes), value.shape)

"""Values of several readers that need no memory: each makes an element again from one that lies there anyhow.

To write a value takes as long as to read it twice, and it stays in memory until its last reader. Where few cheap
instructions make it of one stored value, numbers, and values so small that they stay in a near cache (a mean for each
channel, a scale), the readers read that one value instead: of a batch norm neither the deviations nor what is scaled
and shifted is stored, and the sums of its gradient read the cotangent as it lies.
"""

from __future__ import annotations

from passes.nodes import Users, continues, is_view, moves, picked, reorders, under_other_shapes
from repro.ir.graph import Node, Value
from repro.ir.scalars import SCALARS

CHEAP = frozenset({"add", "sub", "mul", "neg", "abs", "max", "min"})
"""Ops of one short instruction, whatever the type."""
MOST_INSTRUCTIONS = 3
"""Of these: fewer than another vector takes from beyond the caches."""
NEAR = 64
"""Of so many times the elements: a value of which little is read again and again."""


def made_again(node: Node, users: Users, stored: set[Value]) -> bool:
    """Whether readers make its elements again, by few cheap instructions or any one with numbers alone: it would take
    as much memory until the last of them as what they read instead, and as much to read."""
    if node.op not in SCALARS:
        return False
    value = node.results[0]
    if all(map(is_number, node.operands)):
        return value.type.elements > 1
    base = _made_of(value, stored, MOST_INSTRUCTIONS) or _by_one(node, stored)
    if base is None or value.type.elements * value.dtype.bytes < base.type.elements * base.dtype.bytes:
        return False
    readers = [user for user in users.get(value, ()) if not picked(user, value, users)]
    return all(user.op == "reduce" or (continues(user, value) and not moves(user)) for user in readers)


def _by_one(node: Node, stored: set[Value]) -> Value | None:
    """The stored value of which one instruction with numbers makes a node's."""
    wide = [operand for operand in dict.fromkeys(node.operands) if not is_number(operand)]
    one = len(wide) == 1 and in_other_shape(wide[0]) in stored and continues(node, wide[0])
    return wide[0] if one else None


def _made_of(value: Value, stored: set[Value], most: int) -> Value | None:
    """The stored value of which at most so many cheap instructions make a value, with numbers and what is near."""
    if in_other_shape(value) in stored:
        return value
    if most == 0 or value.node.op not in CHEAP:
        return None
    wide = [operand for operand in dict.fromkeys(value.node.operands) if not _is_near(operand, value, stored)]
    return _made_of(wide[0], stored, most - 1) if len(wide) == 1 and continues(value.node, wide[0]) else None


def _is_near(operand: Value, value: Value, stored: set[Value]) -> bool:
    """Whether it is a number, or a small stored value, spread over the shape of another."""
    operand = under_other_shapes(operand)
    return operand.type.elements == 1 or (operand in stored and operand.type.elements * NEAR <= value.type.elements)


def in_other_shape(value: Value) -> Value:
    """The value of which it is the elements as they lie, under a new shape."""
    while is_view(value.node) and value.type.elements == value.node.operands[0].type.elements:
        if reorders(value.node):
            return value
        value = value.node.operands[0]
    return value


def is_number(value: Value) -> bool:
    """Whether all elements are one number, or are made of numbers alone by few instructions."""
    return _is_number(value, MOST_INSTRUCTIONS)


def _is_number(value: Value, most: int) -> bool:
    node = value.node
    if value.type.elements == 1:
        return True
    if is_view(node):
        return _is_number(node.operands[0], most)
    return most > 0 and node.op in SCALARS and all(_is_number(operand, most - 1) for operand in node.operands)

"""Integers that are only widened where they are read: they lie in memory as they are, and each reader widens them.

Quantized values, for one, are bytes, and what computes with them reads them in i32, less their zero point.
"""

from __future__ import annotations

from collections.abc import Sequence

from passes.made_again import in_other_shape
from passes.nodes import Users, goes_on, under_other_shapes
from repro.ir.graph import Value

WIDENING = frozenset({"convert", "sub"})
"""Ops that make of an integer a wider one less a number."""
MOST_WIDENING = 2
FEW_NUMBERS = 16
"""Of so many times the elements: numbers that are read again and again."""


def narrow(links: list[Value], results: frozenset[Value]) -> list[Value]:
    """A chain up to what is only widened at its end, unless that is a result: what follows is made again where it is
    read."""
    if links[-1] in results:
        return links
    for end in range(max(1, len(links) - MOST_WIDENING), len(links)):
        if _only_widened(links[end - 1 :]):
            return links[:end]
    return links


def widens(value: Value, users: Users) -> bool:
    """Whether what would be stored in its place is an integer of a wider type, made of it by few cheap instructions:
    what reads that can as well make it again (quantized values less their zero point)."""
    links = [value]
    while len(links) <= MOST_WIDENING and goes_on(links[-1], users):
        links.append(users[links[-1]][0].results[0])
    return not goes_on(links[-1], users) and _only_widened(links)


def _only_widened(links: Sequence[Value]) -> bool:
    """Whether each of several values only makes a wider integer of the one before."""
    wider = 1 < links[0].dtype.bits < links[-1].dtype.bits
    return wider and not any(each.dtype.is_float for each in links) and all(e.node.op in WIDENING for e in links[1:])


def is_widened(value: Value, stored: set[Value]) -> bool:
    """Whether a value is made so of one that lies in memory."""
    found, most = value, MOST_WIDENING
    while most and found.node.op in WIDENING and not found.dtype.is_float:
        operands = found.node.operands
        wide = [each for each in operands if len(operands) == 1 or not _is_small(each, found)]
        if len(wide) != 1:
            return False
        found, most = wide[0], most - 1
        if in_other_shape(found) in stored or not in_other_shape(found).node.operands:
            return not found.dtype.is_float and 1 < found.dtype.bits < value.dtype.bits
    return False


def _is_small(operand: Value, value: Value) -> bool:
    """Whether it is a number, or few of them under the shape of another: zero points."""
    operand = under_other_shapes(operand)
    return operand.type.elements == 1 or operand.type.elements * FEW_NUMBERS <= value.type.elements

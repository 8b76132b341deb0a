"""What a cause is sought for: a node's inputs, golden's result and another one; and the candidates that may give it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import NodeProto, helper

from repro.ir.types import Array


class NotCoveredError(Exception):
    """The node has a form that no candidate covers; the text says which."""


@dataclass(frozen=True)
class Candidate:
    """A known order or rounding: its name, and its result for the units that were asked for."""

    name: str
    compute: Callable[[], Array]


@dataclass(frozen=True, eq=False)
class Problem:
    """A node with the arrays that it reads, by name. `after` are the nodes that an executor fused into it, in order;
    the last one's result is `golden` there and `theirs` here."""

    node: NodeProto
    arrays: Mapping[str, Array]
    golden: Array
    theirs: Array
    after: tuple[NodeProto, ...] = ()

    def input(self, position: int) -> Array | None:
        """None where it is absent."""
        names = self.node.input
        return self.arrays[names[position]] if position < len(names) and names[position] else None

    def required(self, position: int) -> Array:
        found = self.input(position)
        if found is None:
            raise NotCoveredError(f"input {position} is absent")
        return found

    def attribute(self, name: str, default: Any) -> Any:
        return attribute(self.node, name, default)


def attribute(node: NodeProto, name: str, default: Any) -> Any:
    for each in node.attribute:
        if each.name == name:
            return helper.get_attribute_value(each)
    return default


@dataclass(frozen=True, eq=False)
class Units:
    """A result cut into parts that are computed alone: elements, or rows. [units] or [units, row].

    `candidates` are asked for some units by number; simplest first. `terms` is how many elements one unit reads.
    """

    golden: Array
    theirs: Array
    candidates: Callable[[Array], Iterable[Candidate]]
    terms: int
    remarks: Callable[[Array], Sequence[tuple[str, str]]] = field(default=lambda units: ())
    """What can be said, as name and evidence, where no candidate fits."""
    by_place: bool = False
    """Whether units in different places may be computed in different orders, as tiles of a matrix are."""


def ulps(left: Array, right: Array) -> Array:
    """Floats of f32 from one to the other; 0 where both are NaN."""
    places = [_place(array) for array in (left, right)]
    return np.where(np.isnan(left) & np.isnan(right), 0, np.abs(places[0] - places[1]))


def _place(array: Array) -> Array:
    """Consecutive floats as consecutive integers, both zeros as 0."""
    bits = np.ascontiguousarray(array, np.float32).view(np.int32).astype(np.int64)
    return np.where(bits < 0, -(bits & 0x7FFFFFFF), bits)

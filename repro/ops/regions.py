"""What ops with regions share: a region from a Python function, and the check of its types."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from repro.ir.graph import Graph, Value, argument
from repro.ir.types import TensorType

Types = tuple[TensorType, ...]


def region(types: Sequence[TensorType], body: Callable[..., Value | Sequence[Value]]) -> Graph:
    """The graph of a Python function over the region's arguments."""
    results = body(*(argument(index, kind) for index, kind in enumerate(types)))
    return Graph(tuple(types), (results,) if isinstance(results, Value) else tuple(results))


def expect_types(name: str, what: str, found: Types, expected: Types) -> None:
    """Raises TypeError where a region does not fit its node."""
    if found != expected:
        raise TypeError(f"{name}: {what} are {list(map(str, found))}, expected {list(map(str, expected))}")

"""Golden inputs: drawn from a seed by the contract's own generator, so that they are the same everywhere.

Floats are uniform in [-1, 1), multiples of 2^-23. Integers are 0..15, or stay inside the range of what they
index. Booleans are fair.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from repro.ir.graph import Graph, Value
from repro.ir.types import BOOL, F64, Array, TensorType, to_face
from repro.numerics.numpy_convert import convert
from repro.numerics.random_bits import philox_words

RUN = 0xFFFF_FFFF
"""The run number of golden inputs: no training step gets that far, so no mask of a model shares their words."""
INTEGERS_BELOW = 16

_INDEX_OPERAND = {"gather": 1, "scatter": 1}
"""Which operand of a core op holds points in operand 0, along the attribute `axes`."""


def index_limits(graph: Graph) -> dict[int, int]:
    """For each argument that reaches an index: the least extent that it indexes."""
    limits: dict[int, int] = {}
    for node in graph.nodes:
        if node.op in _INDEX_OPERAND:
            extent = min((node.operands[0].shape[axis] for axis in node["axes"]), default=1)
            _limit(node.operands[_INDEX_OPERAND[node.op]], extent, limits)
        for region in node.regions:
            # A loop's region has its counter before the operands; a branch's operands start with its condition.
            shift = len(region.arguments) - len(node.operands)
            for argument, extent in index_limits(region).items():
                if argument - shift >= 0:
                    _limit(node.operands[argument - shift], extent, limits)
    return limits


def _limit(index: Value, extent: int, limits: dict[int, int]) -> None:
    """Note the extent on every argument that the index is computed from."""
    seen: set[Value] = set()
    stack = [index]
    while stack:
        value = stack.pop()
        if value in seen:
            continue
        seen.add(value)
        if value.node.op == "argument":
            number = value.node["index"]
            limits[number] = max(1, min(extent, limits.get(number, extent)))
        stack.extend(operand for operand in value.node.operands if operand.dtype.is_integer)


def draw(types: Sequence[TensorType], limits: dict[int, int], seed: int) -> tuple[Array, ...]:
    """One array (of the type that users see) for each input."""
    return tuple(_draw(kind, limits.get(position), seed, position) for position, kind in enumerate(types))


def _draw(kind: TensorType, limit: int | None, seed: int, position: int) -> Array:
    words = philox_words(seed, position, RUN, kind.elements, 0).astype(np.int64)
    if kind.dtype is BOOL:
        return to_face((words & 1).astype(np.bool_).reshape(kind.shape), BOOL)
    if kind.dtype.is_float:
        # Exact in f64, so the only rounding is the contract's own conversion (rule 3).
        values = (words >> 8).astype(np.float64) * 2.0**-23 - 1.0
        return to_face(convert(values, F64, kind.dtype).reshape(kind.shape), kind.dtype)
    bound = min(INTEGERS_BELOW if limit is None else limit, int(np.iinfo(kind.dtype.storage).max))
    return to_face((words % bound).astype(kind.dtype.storage).reshape(kind.shape), kind.dtype)

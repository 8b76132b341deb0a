"""f16 and bf16 (contract, rule 3): an ONNX op computes in f32 and rounds once per output."""

from __future__ import annotations

from collections.abc import Sequence

from repro.frontend.scope import Item
from repro.ir.graph import Value
from repro.ir.types import BF16, F16, F32, DType
from repro.ops import convert_to

NARROW = (F16, BF16)


def widen(inputs: Sequence[Item]) -> list[Item]:
    """Narrow tensors as f32; all else as it is."""
    return [convert_to(item, F32) if isinstance(item, Value) and item.dtype in NARROW else item for item in inputs]


def round_results(
    inputs: Sequence[Item], results: Sequence[Item], like: Sequence[int]
) -> tuple[Item, ...]:
    """Each f32 result rounded to the narrow type of the input that it is like."""
    floats = [item.dtype for item in inputs if isinstance(item, Value) and item.dtype.is_float]
    if not any(dtype in NARROW for dtype in floats):
        return tuple(results)
    return tuple(
        convert_to(result, _target(inputs, floats[0], like, position))
        if isinstance(result, Value) and result.dtype is F32
        else result
        for position, result in enumerate(results)
    )


def _target(inputs: Sequence[Item], first: DType, like: Sequence[int], position: int) -> DType:
    if not like:
        return first
    source = like[min(position, len(like) - 1)]
    model = inputs[source] if 0 <= source < len(inputs) else None
    return model.dtype if isinstance(model, Value) else F32

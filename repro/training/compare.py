"""How two tensors differ, in values, in bits and in units in the last place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from repro.artifact import tensors
from repro.artifact.tensors import type_of
from repro.ir.types import Array, to_storage
from repro.training.digests import bits_of


@dataclass(frozen=True)
class TensorDifference:
    """Two tensors of one type whose bits are not the same; values, bits and ULPs are of the first such element."""

    name: str
    type: str
    differing: int
    elements: int
    index: tuple[int, ...]
    left: str
    right: str
    left_bits: str
    right_bits: str
    ulps: int | None
    """Floats that lie between the two values, and one more; None for other types."""
    largest_ulps: int | None
    left_digest: str
    right_digest: str


def difference(name: str, left: Array, right: Array) -> TensorDifference | None:
    """None where the bits are the same. Both arrays have one type."""
    kind = type_of(left)
    stored = [np.atleast_1d(to_storage(array, kind.dtype)) for array in (left, right)]
    raw = [array.view(f"u{kind.dtype.bytes}").reshape(-1) for array in stored]
    places = np.flatnonzero(raw[0] != raw[1])
    if not len(places):
        return None
    first = int(places[0])
    values = [array.reshape(-1)[first] for array in (left, right)]
    distances: list[int] = []
    if kind.dtype.is_float:
        lines = [_on_the_line(array[places], kind.dtype.bits) for array in raw]
        distances = [abs(a - b) for a, b in zip(*lines, strict=True)]
    return TensorDifference(
        name=name,
        type=str(kind),
        differing=len(places),
        elements=kind.elements,
        index=tuple(int(i) for i in np.unravel_index(first, kind.shape)) if kind.shape else (),
        left=str(values[0]),
        right=str(values[1]),
        left_bits=bits_of(np.asarray(values[0])),
        right_bits=bits_of(np.asarray(values[1])),
        ulps=distances[0] if distances else None,
        largest_ulps=max(distances) if distances else None,
        left_digest=tensors.digest(left),
        right_digest=tensors.digest(right),
    )


def _on_the_line(bits: Array, width: int) -> list[int]:
    """Floats by their bits as consecutive integers, negative ones below zero; both zeros are 0."""
    sign = 1 << width - 1
    return [value if value < sign else sign - value for value in bits.tolist()]


def differences(left: Mapping[str, Array], right: Mapping[str, Array]) -> tuple[TensorDifference, ...]:
    """Every tensor that both have and that differs, in the order of the left."""
    found = (difference(name, array, right[name]) for name, array in left.items() if name in right)
    return tuple(each for each in found if each is not None)

"""How far two tensors of one type are apart: units in the last place, absolute, relative, and what else changed.

The distance of two finite floats in units in the last place is the number of floats of their type that lie between
them, and one more: their bits, read as sign and magnitude, are consecutive integers. The two zeros are one float there
and are counted by themselves (`zero_signs`). A NaN has no distance to anything, an infinity none to anything else:
those elements stand in the bucket "not comparable". Integers and booleans have no such distance at all, so that no
bound on it lets a changed index pass: what differs there is not comparable either.

The relative error is |left - right| / max(|left|, |right|), over elements where both are finite: it needs no side to be
the true one, and is at most 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from repro.artifact.tensors import type_of
from repro.audit.records import Drift
from repro.errors import InternalError
from repro.ir.types import Array, DType
from repro.ir.types import Kind as DKind

LARGEST_POWER = 20
EDGES = (0, *(1 << power for power in range(LARGEST_POWER + 1)))
"""The greatest distance of each bucket but the last two."""


def _label(lower: int, upper: int) -> str:
    return str(upper) if upper - lower == 1 else f"{lower + 1}-{upper}"


BUCKETS: tuple[str, ...] = (
    "0",
    *(_label(lower, upper) for lower, upper in pairwise(EDGES)),
    f"over {EDGES[-1]}",
    "not comparable",
)
"""The labels of a histogram's buckets, in units in the last place."""

BLOCK = 1 << 18
"""Elements looked at in one go: what is computed on the way stays in the cache."""


def drift(left: Array, right: Array, argmax: bool = False) -> Drift | None:
    """How two arrays of one type and shape differ; None where the bits are the same, NaNs being one value.

    `argmax` asks for the rows (all axes but the last) whose greatest element is another one. Raises InternalError for
    arrays of two types: whoever compares them has something else to say.
    """
    kind = type_of(left)
    if type_of(right) != kind:
        raise InternalError(f"drift of {kind} and {type_of(right)}")
    parts = [_part(kind.dtype, *block) for block in _blocks(kind.dtype, left, right)]
    different = sum(part.different for part in parts)
    if not different:
        return None
    distances = np.sort(np.concatenate([part.distances for part in parts]))
    return Drift(
        elements=kind.elements,
        different=different,
        max_ulp=int(distances[-1]) if len(distances) else None,
        median_ulp=_median(kind.elements, different, distances) if kind.dtype.is_float else None,
        histogram=_histogram(kind.elements, different, distances),
        max_absolute=max(part.max_absolute for part in parts),
        max_relative=max(part.max_relative for part in parts),
        sign_changes=sum(part.sign_changes for part in parts),
        zero_signs=sum(part.zero_signs for part in parts),
        nan_changes=sum(part.nan_changes for part in parts),
        infinity_changes=sum(part.infinity_changes for part in parts),
        argmax_flips=argmax_flips(left, right) if argmax else None,
    )


def no_drift(elements: int, is_float: bool = True, argmax: bool = False) -> Drift:
    """What is said of equal tensors where a row for each value is wanted."""
    ulp = 0 if is_float else None
    histogram = (elements, *(0 for _ in BUCKETS[1:]))
    return Drift(elements, 0, ulp, ulp, histogram, 0.0, 0.0, 0, 0, 0, 0, 0 if argmax else None)


def argmax_flips(left: Array, right: Array) -> int:
    """Rows (all axes but the last) whose first greatest element is another one. A NaN counts as the greatest."""
    if not left.ndim or not left.size:
        return 0
    rows = [array.reshape(-1, array.shape[-1]) for array in (left, right)]
    flips = 0
    step = max(1, BLOCK // left.shape[-1])
    for start in range(0, len(rows[0]), step):
        greatest = [np.argmax(_comparable(array[start : start + step]), axis=1) for array in rows]
        flips += int(np.count_nonzero(greatest[0] != greatest[1]))
    return flips


def _comparable(array: Array) -> Array:
    """The narrow types widened, exactly: NumPy's argmax does not know all of them, and is slow on the others."""
    return array.astype(np.float32) if array.dtype.itemsize < 4 else array


# ── block by block ──────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, eq=False)
class _Part:
    """What a block adds. `distances` are those of the differing comparable elements, unsigned, unsorted."""

    different: int
    distances: Array
    max_absolute: float
    max_relative: float
    sign_changes: int = 0
    zero_signs: int = 0
    nan_changes: int = 0
    infinity_changes: int = 0


def _blocks(dtype: DType, left: Array, right: Array) -> Iterator[tuple[Array, Array]]:
    """The elements whose bits differ, a block at a time; one empty block at least."""
    flat = [np.ascontiguousarray(array, dtype.face).reshape(-1) for array in (left, right)]
    raw = [array.view(f"u{dtype.bytes}") for array in flat]
    for start in range(0, max(1, len(flat[0])), BLOCK):
        block = slice(start, start + BLOCK)
        places = np.flatnonzero(raw[0][block] != raw[1][block])
        yield flat[0][block][places], flat[1][block][places]


def _part(dtype: DType, left: Array, right: Array) -> _Part:
    return _float_part(dtype, left, right) if dtype.is_float else _integer_part(dtype, left, right)


def _float_part(dtype: DType, left: Array, right: Array) -> _Part:
    one_nan, other_nan = np.isnan(left), np.isnan(right)
    finite = np.isfinite(left) & np.isfinite(right)
    numbers = ~(one_nan | other_nan)
    signs = np.signbit(left) != np.signbit(right)
    wide = [array.astype(np.float64) for array in (left, right)]
    zeros = (wide[0] == 0) & (wide[1] == 0)
    absolute, relative = _errors(wide[0][finite], wide[1][finite])
    return _Part(
        different=len(left) - int(np.count_nonzero(one_nan & other_nan)),
        distances=_distances(dtype, left[finite], right[finite]),
        max_absolute=absolute,
        max_relative=relative,
        sign_changes=int(np.count_nonzero(signs & numbers & (wide[0] != 0) & (wide[1] != 0))),
        zero_signs=int(np.count_nonzero(zeros)),
        nan_changes=int(np.count_nonzero(one_nan != other_nan)),
        infinity_changes=int(np.count_nonzero(numbers & ~finite)),
    )


def _distances(dtype: DType, left: Array, right: Array) -> Array:
    """Of finite floats. Two magnitudes of one width add up within that width, finite ones being below half of it."""
    raw = [array.view(f"u{dtype.bytes}") for array in (left, right)]
    top = raw[0].dtype.type(1 << dtype.bits - 1)
    one, other = (array & ~top for array in raw)
    apart = np.maximum(one, other) - np.minimum(one, other)
    return np.where((raw[0] ^ raw[1]) & top, one + other, apart)


def _errors(left: Array, right: Array) -> tuple[float, float]:
    """The greatest absolute and relative error of finite numbers in f64; of none, zero."""
    if not len(left):
        return 0.0, 0.0
    with np.errstate(all="ignore"):
        errors = np.abs(left - right)
        scale = np.maximum(np.abs(left), np.abs(right))
        relative = np.where(np.isinf(errors), np.abs(left / scale - right / scale), errors / scale)
    return float(errors.max()), float(np.where(scale == 0, 0.0, relative).max())


def _integer_part(dtype: DType, left: Array, right: Array) -> _Part:
    """Differences are exact in the unsigned type of the width, and rounded once."""
    distances = np.zeros(0, np.uint64)
    if not len(left):
        return _Part(0, distances, 0.0, 0.0)
    unsigned = f"u{dtype.bytes}"
    greater, lesser = np.maximum(left, right), np.minimum(left, right)
    errors = (greater.view(unsigned) - lesser.view(unsigned)).astype(np.float64)
    one, other = (array.astype(np.float64) for array in (left, right))
    relative = errors / np.maximum(np.abs(one), np.abs(other))
    signs = np.count_nonzero((one < 0) != (other < 0)) if dtype.kind is DKind.SIGNED else 0
    return _Part(len(left), distances, float(errors.max()), float(relative.max()), sign_changes=int(signs))


# ── over all of them ────────────────────────────────────────────────────────────────────────────────


def _histogram(elements: int, different: int, distances: Array) -> tuple[int, ...]:
    """Counts by bucket, of sorted distances."""
    most = np.iinfo(distances.dtype).max
    edges = np.array([min(edge, most) for edge in EDGES], distances.dtype)
    up_to = np.searchsorted(distances, edges, side="right").tolist()
    counts = [upper - lower for lower, upper in pairwise([0, *up_to, len(distances)])]
    counts[0] += elements - different
    return (*counts, different - len(distances))


def _median(elements: int, different: int, distances: Array) -> int | None:
    """The lower median over all elements: the equal ones first, what is not comparable last. None if it is of those."""
    place = (elements - 1) // 2 - (elements - different)
    if place < 0:
        return 0
    return int(distances[place]) if place < len(distances) else None

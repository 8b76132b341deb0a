"""Two tensors compared, against a plain count over Python's integers and fractions."""

from __future__ import annotations

import math
import statistics
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repro.artifact.tensors import BY_FACE
from repro.audit.drift import BUCKETS, EDGES, drift, no_drift
from repro.errors import InternalError
from repro.ir.types import Array, to_storage

FLOATS = (np.float16, ml_dtypes.bfloat16, np.float32, np.float64, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)
NOT_COMPARABLE = math.inf


def distance(left: Any, right: Any) -> float:
    """In units in the last place, of two NumPy scalars, by the definition."""
    if np.isnan(left) and np.isnan(right):
        return 0
    if not (np.isfinite(left) and np.isfinite(right)):
        return 0 if left == right else NOT_COMPARABLE
    places: list[int] = []
    for value in (left, right):
        dtype = BY_FACE[value.dtype]
        bits = int(to_storage(np.asarray(value), dtype).view(f"u{dtype.bytes}"))
        sign = 1 << dtype.bits - 1
        places.append(bits if bits < sign else sign - bits)
    return abs(places[0] - places[1])


def same(left: Any, right: Any) -> bool:
    return left.tobytes() == right.tobytes() or bool(np.isnan(left) and np.isnan(right))


def bucket(apart: float) -> int:
    if apart == NOT_COMPARABLE:
        return len(BUCKETS) - 1
    return next((i for i, edge in enumerate(EDGES) if apart <= edge), len(EDGES))


def bits(kind: Any) -> st.SearchStrategy[int]:
    """Bits of any element, those of a few special ones and of neighbours more often."""
    width = 8 * np.dtype(kind).itemsize
    special = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan], np.float32).astype(kind)
    chosen = special.view(f"u{width // 8}").tolist()
    return st.one_of(
        st.integers(0, (1 << width) - 1), st.sampled_from([*chosen, 1, (1 << width - 1) + 1, chosen[2] + 1])
    )


@st.composite
def float_pairs(draw: st.DrawFn) -> tuple[Array, Array]:
    kind = draw(st.sampled_from(FLOATS))
    unsigned = f"u{np.dtype(kind).itemsize}"
    left = draw(st.lists(bits(kind), min_size=1, max_size=12))
    right = [draw(st.one_of(st.just(value), bits(kind))) for value in left]
    return np.array(left, unsigned).view(kind), np.array(right, unsigned).view(kind)


@settings(max_examples=150, deadline=None)
@given(float_pairs())
def test_floats_are_compared_as_the_definition_says(pair: tuple[Array, Array]):
    left, right = pair
    found = drift(left, right, argmax=True)
    rows = list(zip(left, right, strict=True))
    different = [row for row in rows if not same(*row)]
    if not different:
        assert found is None
        return
    assert found is not None
    apart = sorted(distance(*row) for row in rows)
    finite = [d for row in different if (d := distance(*row)) != NOT_COMPARABLE]
    middle = statistics.median_low(apart)
    assert (found.elements, found.different) == (len(rows), len(different))
    assert found.max_ulp == (max(finite) if finite else None)
    assert found.median_ulp == (None if middle == NOT_COMPARABLE else middle)
    assert found.histogram == tuple([bucket(d) for d in apart].count(i) for i in range(len(BUCKETS)))
    numbers = [(float(a), float(b)) for a, b in different if not (np.isnan(a) or np.isnan(b))]
    signs = [math.copysign(1, a) != math.copysign(1, b) for a, b in numbers]
    assert found.sign_changes == sum(s and a != 0 and b != 0 for s, (a, b) in zip(signs, numbers, strict=True))
    assert found.zero_signs == sum(a == b == 0 for a, b in numbers)
    assert found.nan_changes == len(different) - len(numbers)
    assert found.infinity_changes == sum(math.isinf(a) or math.isinf(b) for a, b in numbers)
    finite_numbers = [(a, b) for a, b in numbers if math.isfinite(a) and math.isfinite(b)]
    assert found.max_absolute == max((abs(a - b) for a, b in finite_numbers), default=0.0)
    assert 0 <= found.max_relative <= 2
    assert found.argmax_flips == int(np.argmax(left.astype(np.float64)) != np.argmax(right.astype(np.float64)))


def test_neighbours_across_a_power_of_two_and_across_zero():
    one = np.float32(1)
    pairs = [
        (one, np.nextafter(one, np.float32(2)), 1),
        (one, np.nextafter(one, np.float32(0)), 1),
        (np.float32(-1e-45), np.float32(1e-45), 2),
        (np.float32(0), np.float32(-1e-45), 1),
    ]
    for left, right, apart in pairs:
        found = drift(np.array([left]), np.array([right]))
        assert found is not None
        assert found.max_ulp == apart


def test_errors_are_those_of_the_farthest_elements():
    left = np.array([1.0, 4.0, -8.0, 0.0], np.float64)
    right = np.array([1.5, 3.0, 8.0, -0.0], np.float64)
    found = drift(left, right)
    assert found is not None
    assert (found.max_absolute, found.max_relative) == (16.0, 2.0)
    assert (found.sign_changes, found.zero_signs) == (1, 1)
    huge = drift(np.array([1.5e308]), np.array([-1.5e308]))
    assert huge is not None
    assert (huge.max_absolute, huge.max_relative) == (math.inf, 2.0)


def test_integers_have_errors_but_no_ulp():
    left = np.array([2**63 - 1, 5, -3], np.int64)
    right = np.array([-(2**63), 5, 3], np.int64)
    found = drift(left, right)
    assert found is not None
    assert (found.different, found.max_ulp, found.median_ulp, found.sign_changes) == (2, None, None, 2)
    assert found.max_absolute == float(2**64 - 1)
    assert (found.histogram[0], found.histogram[-1], sum(found.histogram)) == (1, 2, 3)
    flags = drift(np.array([True, False]), np.array([True, True]))
    assert flags is not None
    assert (flags.different, flags.max_absolute, flags.max_ulp) == (1, 1.0, None)


def test_flips_are_counted_by_row():
    left = np.array([[1, 2, 3], [3, 2, 1], [1, 1, 0]], np.float32)
    right = np.array([[1, 2, 2.5], [3, 4, 1], [1, 1, 0]], np.float32)
    assert (found := drift(left, right, argmax=True)) is not None
    assert found.argmax_flips == 1
    assert (scalar := drift(np.array(1.0), np.array(2.0), argmax=True)) is not None
    assert scalar.argmax_flips == 0


@pytest.mark.parametrize("shape", [(0,), (3, 0), (2, 2)])
def test_equal_arrays_do_not_drift(shape: tuple[int, ...]):
    array = np.ones(shape, np.float32)
    assert drift(array, array.copy(), argmax=True) is None


def test_the_payload_of_a_nan_is_no_drift():
    nans = np.array([0x7FC00000, 0xFFC00001], np.uint32).view(np.float32)
    assert drift(nans, nans[::-1]) is None


def test_large_arrays_are_taken_in_blocks():
    left = np.arange(1, 700_001, dtype=np.float32)
    right = np.nextafter(left, np.float32(np.inf))
    right[::7] = left[::7]
    found = drift(left, right, argmax=True)
    assert found is not None
    assert (found.different, found.max_ulp, found.median_ulp) == (600_000, 1, 1)
    assert found.histogram[:3] == (100_000, 600_000, 0)


def test_other_layouts_are_read_row_by_row():
    left = np.arange(12, dtype=np.float32).reshape(3, 4)
    right = left.copy()
    right[2, 1] = 7
    assert drift(left.T, right.T) == drift(np.ascontiguousarray(left.T), np.ascontiguousarray(right.T))
    assert drift(left.astype(">f4"), left) is None


def test_two_types_are_not_compared():
    with pytest.raises(InternalError):
        drift(np.ones(2, np.float32), np.ones(2, np.float64))
    with pytest.raises(InternalError):
        drift(np.ones(2, np.float32), np.ones(3, np.float32))


def test_equal_tensors_have_a_row_of_their_own():
    row = no_drift(10, argmax=True)
    assert (row.elements, row.different, row.max_ulp, row.argmax_flips, sum(row.histogram)) == (10, 0, 0, 0, 10)
    assert no_drift(3, is_float=False).max_ulp is None

"""Quotients by one divisor: all pairs near a middle are found and are right, and faults are seen."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from proofs import divisors as proof
from repro.numerics.elementary import divisors
from repro.numerics.elementary.value import Value, fma


def test_every_pair_that_the_bound_leaves_has_the_quotient() -> None:
    found = proof.check()
    assert found.tried > 20_000_000
    assert found.wrong == []


@pytest.mark.parametrize("divisor", [proof.FIRST, proof.FIRST + 1, 0xB504F4, 0xC0FFEE, 0xFFFFF8, proof.LAST - 1])
def test_the_pairs_are_those_near_a_middle(divisor: int) -> None:
    """Of one divisor and all dividends, by the definition."""
    dividends = np.arange(proof.FIRST, proof.LAST, dtype=np.int64)
    wanted = set[int]()
    for bits, nearest in proof.NEAREST.items():
        scaled = dividends << bits
        below = scaled // divisor | 1
        for middle in (below - 2, below, below + 2):
            distance = np.abs(scaled - middle * divisor)
            here = (dividends < divisor) if bits == 25 else (dividends >= divisor)
            inside = (middle > 1 << 24) & (middle < 1 << 25)
            wanted |= set(dividends[here & inside & (distance <= nearest) & (distance > 0)].tolist())
    found = [int(x) for pairs, of in proof.candidates(divisor, 1) for x in pairs[of == divisor]]
    assert sorted(found) == sorted(wanted)


def no_remainder(x: Value, d: Value) -> Value:
    return x * (1.0 / d)


def remainder_that_is_rounded_twice(x: Value, d: Value) -> Value:
    reciprocal = 1.0 / d
    q = x * reciprocal
    return fma(x - q * d, reciprocal, q)


def reciprocal_that_is_off(x: Value, d: Value) -> Value:
    """By a few ulps of what is near to 1/d, and by more of smaller numbers."""
    reciprocal = 1.0 / d + 2.0**-23
    q = x * reciprocal
    return fma(-fma(q, d, -x), reciprocal, q)


@pytest.mark.parametrize("fault", [no_remainder, remainder_that_is_rounded_twice, reciprocal_that_is_off])
def test_a_fault_is_found(monkeypatch: pytest.MonkeyPatch, fault: Callable[[Value, Value], Value]) -> None:
    monkeypatch.setattr(divisors, "near", fault)
    assert proof.check(0xC00000, 1 << 12).wrong

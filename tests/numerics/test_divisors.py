"""Quotients of many numbers by one: the division's bits for every pair, and no division where it is not needed."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from repro.ir import index as ix
from repro.ir.expressions import Expr, Lanes, apply, load, reduce
from repro.ir.types import F32, Array
from repro.numerics import interpret
from repro.numerics.elementary import divisors
from repro.numerics.elementary.value import Value

WORDS = st.integers(0, (1 << 32) - 1)
SPECIAL = [0.0, -0.0, 1.0, -1.0, 2.0**-149, 2.0**-126, 2.0**-100, 2.0**100, 2.0**127, np.inf, -np.inf, np.nan]


def quotient(x: Expr, d: Expr) -> Expr:
    return divisors.quotient(Value(x), Value(d), Value(x) / Value(d)).expr


def undecided(x: Expr, d: Expr) -> Expr:
    return quotient(x, d).children[0]


def check(x: Array, d: Array) -> None:
    with np.errstate(all="ignore"):
        wanted, found = x / d, interpret.evaluate(quotient, [x, d], [F32, F32])
    same = (found.view(np.uint32) == wanted.view(np.uint32)) | (np.isnan(found) & np.isnan(wanted))
    assert same.all(), (x[~same][:4], d[~same][:4])


@given(st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=64))
def test_any_pair_has_its_quotient(pairs: list[tuple[int, int]]) -> None:
    x, d = np.array(pairs, np.uint32).view(np.float32).T
    check(np.ascontiguousarray(x), np.ascontiguousarray(d))


def test_special_pairs_have_their_quotients() -> None:
    values = np.array(SPECIAL, np.float32)
    x, d = (each.ravel().copy() for each in np.meshgrid(values, values))
    check(x, d)


def test_small_quotients_are_rounded_once() -> None:
    """About the least normal number and the least subnormal one, where products would be rounded on the way."""
    generator = np.random.default_rng(3)
    d = generator.uniform(1, 1000, 1 << 16).astype(np.float32)
    for least in (2.0**-149, 2.0**-126, 2.0**-101, 2.0**-99):
        x = (generator.uniform(0, 4096, d.size) * least).astype(np.float32)
        check(x, d)
        check(-x, d)


def test_what_a_softmax_divides_is_decided() -> None:
    """Exponentials from e^-55 on, and those that are 0, by a sum of some: no lane takes the division."""
    x = np.exp(np.random.default_rng(4).uniform(-55, 0, 1 << 14)).astype(np.float32)
    x[::7] = 0.0
    d = np.random.default_rng(5).uniform(1, 1e6, x.size).astype(np.float32)
    assert not interpret.evaluate(undecided, [x, d], [F32, F32]).any()
    assert interpret.evaluate(undecided, [x, np.full_like(d, np.nan)], [F32, F32]).all()
    assert interpret.evaluate(undecided, [x, np.full_like(d, np.inf)], [F32, F32]).all()


def test_sums_of_a_row_are_found() -> None:
    """Those that are the same along the inner axis; no other divisors, and no quotient the other way."""
    i, j, q = ix.axis(0, 4), ix.axis(1, 8), ix.axis(2, 8)
    each, row = load(F32, 0, ix.linear((i, j), (4, 8))), load(F32, 1, i)
    total = reduce("add", Lanes(32, 4096), [q], [load(F32, 0, ix.linear((i, q), (4, 8)))])
    by_sum = apply("div", each, total)
    others = [apply("div", *pair) for pair in ((each, row), (each, each), (total, each), (row, total))]
    assert list(divisors.by_sums([by_sum, *others], j)) == [by_sum]
    assert list(divisors.by_sums([by_sum, *others], i)) == []

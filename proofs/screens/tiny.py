"""Odd functions that begin with x: the sign, and a series for tiny arguments."""

from __future__ import annotations

from collections.abc import Sequence

from proofs.double_double import Pair, add_smaller, exact_product, exactly, select, series
from repro.numerics.elementary.value import Value

TINY = 2.0**-10


def odd_function(x: Value, magnitude: Pair, leading: Sequence[Sequence[float]], trailing: Sequence[float]) -> Pair:
    """`magnitude`, its value at |x|, with the sign of x; x + c3 x^3 + c5 x^5 + ... where |x| is tiny.

    With that series the low part of a tiny argument's result is c3 x^3, not the error of an identity. The terms
    fall by 2^-20; the pairs in `leading` are c3 and c5, so those summed in f64 are below 2^-60 of x.
    """
    z = Pair(*exact_product(x, x))
    tiny = add_smaller(exactly(x), (z * series(z, leading, trailing)) * x)
    return select(abs(x) < TINY, tiny, select(x < 0.0, -magnitude, magnitude))

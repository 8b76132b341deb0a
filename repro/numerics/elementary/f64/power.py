"""pow, f64 to f64, as a branch-free sequence: the logarithm as a pair, times y as a pair, then exp."""

from __future__ import annotations

import math

from repro.numerics.elementary.f64 import logarithm_constants as k
from repro.numerics.elementary.f64.exponential import exp_of_reduced, reduce, scale
from repro.numerics.elementary.f64.logarithm import NATURAL, split
from repro.numerics.elementary.pairs import Pair, fast_two_sum, square, two_product
from repro.numerics.elementary.value import (
    Value,
    floor,
    is_negative,
    polynomial,
    rational,
    select,
    trunc,
    with_sign_of,
)

_THIRD = rational(1, 3)
_THIRD_REST = _THIRD * 2.0**-54
"""1/3 = 0.010101...b, so that the next bits repeat the first ones."""


def _cube_third(f: Value, half_square: Pair) -> Pair:
    """f^3 / 3 as a pair, from f^2 / 2."""
    cube, low = two_product(half_square[0], 2.0 * f)
    low = low + half_square[1] * (2.0 * f)
    third, e = two_product(cube, _THIRD)
    return third, e + (cube * _THIRD_REST + low * _THIRD)


def log_pair(x: Value) -> Pair:
    """log x to about 2^-68 of its value, for a positive finite x."""
    parts = split(x)
    known, known_low = parts.known(NATURAL)
    f, f_low = parts.ratio()
    h, h_low = square(f)
    h, h_low = 0.5 * h, 0.5 * h_low
    c, c_low = _cube_third(f, (h, h_low))
    above = 4.0 * (h * h) * polynomial(f, k.LOG1P_FOURTH)
    moved = f_low - f_low * (f * (1.0 - f * (1.0 - f)))  # f_low / (1 + f)
    s, e1 = fast_two_sum(known, f)
    s, e2 = fast_two_sum(s, -h)
    s, e3 = fast_two_sum(s, c)
    return fast_two_sum(s, e1 + (e2 + (e3 + (known_low + ((c_low - h_low) + (moved + above))))))


def _power_of_positive(x: Value, y: Value) -> Value:
    """x^y for finite positive x and finite y."""
    # beyond 2^70 the result is 0, 1 or infinity already: log x is 0 or at least 2^-54
    y = select(abs(y) > 2.0**70, with_sign_of(y.same(2.0**70), y), y)
    high, low = log_pair(x)
    t, t_rest = two_product(y, high)
    t_rest = t_rest + y * low
    inside = abs(t) < 760.0
    t = select(inside, t, select(t > 0.0, t.same(760.0), -760.0))
    n, (r, r_low) = reduce(t)
    s, above = exp_of_reduced((r, r_low + select(inside, t_rest, 0.0)))
    return scale(s + above, n)


def pow(x: Value, y: Value) -> Value:  # noqa: A001
    """x^y with the special cases of IEEE 754 (and C99)."""
    size = abs(x)
    whole = trunc(y).equals(y)
    half = y * 0.5
    odd = whole & floor(half).differs(half)
    at_end = size.equals(0.0) | size.equals(math.inf) | abs(y).equals(math.inf)
    grows = ~((size > 1.0) ^ (y > 0.0))
    ended = select(size.equals(1.0), 1.0, select(grows, y.same(math.inf), 0.0))
    magnitude = select(at_end, ended, _power_of_positive(size, y))
    signed = select(is_negative(x) & odd, -magnitude, magnitude)
    undefined = x.differs(x) | y.differs(y) | ((x < 0.0) & (x > -math.inf) & ~whole)
    result = select(undefined, math.nan, signed)
    return select(x.equals(1.0) | y.equals(0.0), 1.0, result)

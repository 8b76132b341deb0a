"""pow, cbrt and rsqrt, f64 to f64, as branch-free sequences."""

from __future__ import annotations

import math

from repro.numerics.elementary import constants as k
from repro.numerics.elementary.exponential import exp_parts, scale
from repro.numerics.elementary.logarithm import split
from repro.numerics.elementary.value import (
    Value,
    f64,
    fast_two_sum,
    floor,
    is_negative,
    nearest_integer,
    polynomial,
    power_of_two,
    rational,
    select,
    sqrt,
    trunc,
    two_product,
    two_sum,
    with_sign_of,
)

_SERIES = tuple(rational(1, 2 * n + 1) for n in range(2, 14))
_THIRD = rational(1, 3)
_THIRD_REST = _THIRD * 2.0**-54
"""1/3 = 0.010101...b, so that the next bits repeat the first ones."""


def _log_pair(x: Value) -> tuple[Value, Value]:
    """log x as an unevaluated sum, to about 2^-65 of its value, for a positive finite x."""
    e, m = split(x)
    f = m - 1.0
    below = 2.0 + f
    below_rest = f - (below - 2.0)
    s = f / below
    product, product_rest = two_product(s, below)
    s_rest = (((f - product) - product_rest) - s * below_rest) / below
    z, z_rest = two_product(s, s)
    z_rest = z_rest + 2.0 * s * s_rest
    # w = z (1/3 + z (1/5 + z/7 + ...)), then log m = 2 s + 2 s w
    inner, inner_rest = fast_two_sum(f64(_THIRD), z * polynomial(z, _SERIES))
    inner_rest = inner_rest + _THIRD_REST
    w, w_rest = two_product(z, inner)
    w_rest = w_rest + (z * inner_rest + z_rest * inner)
    sw, sw_rest = two_product(s, w)
    sw_rest = sw_rest + (s * w_rest + s_rest * w)
    half, half_rest = fast_two_sum(s, sw)
    half_rest = half_rest + (s_rest + sw_rest)
    whole, whole_rest = two_sum(e * k.LN2_SHORT, 2.0 * half)
    low, low_rest = two_product(e, f64(k.LN2_REST_HIGH))
    tail = (whole_rest + 2.0 * half_rest) + (low_rest + e * k.LN2_REST_LOW)
    high, high_rest = two_sum(whole, low)
    return fast_two_sum(high, high_rest + tail)


def _power_of_positive(x: Value, y: Value) -> Value:
    """x^y for finite positive x and finite y."""
    # beyond 2^70 the result is 0, 1 or infinity already: log x is 0 or at least 2^-54
    y = select(abs(y) > 2.0**70, with_sign_of(f64(2.0**70), y), y)
    high, low = _log_pair(x)
    t, t_rest = two_product(y, high)
    t_rest = t_rest + y * low
    inside = abs(t) < 760.0
    t = select(inside, t, select(t > 0.0, f64(760.0), -760.0))
    m, n = exp_parts(t, select(inside, t_rest, 0.0))
    return scale(m, n)


def pow(x: Value, y: Value) -> Value:  # noqa: A001
    """x^y with the special cases of IEEE 754 (and C99)."""
    size = abs(x)
    whole = trunc(y).equals(y)
    half = y * 0.5
    odd = whole & floor(half).differs(half)
    at_end = size.equals(0.0) | size.equals(math.inf) | abs(y).equals(math.inf)
    grows = ~((size > 1.0) ^ (y > 0.0))
    ended = select(size.equals(1.0), 1.0, select(grows, f64(math.inf), 0.0))
    magnitude = select(at_end, ended, _power_of_positive(size, y))
    signed = select(is_negative(x) & odd, -magnitude, magnitude)
    undefined = x.differs(x) | y.differs(y) | ((x < 0.0) & (x > -math.inf) & ~whole)
    result = select(undefined, math.nan, signed)
    return select(x.equals(1.0) | y.equals(0.0), 1.0, result)


def cbrt(x: Value) -> Value:
    size = abs(x)
    e, m = split(size)
    thirds, n = nearest_integer((e - 1.0) * _THIRD)
    rest, _ = nearest_integer(e - 3.0 * thirds)
    m = m * select(rest.equals(2.0), 4.0, select(rest.equals(1.0), f64(2.0), 1.0))
    y = polynomial(m, k.CBRT_START)
    for _ in range(2):  # Halley: the error is cubed each time
        cube = y * y * y
        y = y - y * (cube - m) / (2.0 * cube + m)
    ended = size.equals(0.0) | ~(size < math.inf)
    return select(ended, x, with_sign_of(y * power_of_two(n), x))


def rsqrt(x: Value) -> Value:
    return 1.0 / sqrt(x)

"""erf and erfc, f64 to f64, as branch-free sequences.

erf by a polynomial up to 57/128; beyond, erfc x = e^(-x^2) v S(v) with v = (15/16)/(1 + 2x) and S smooth between
1.2 and 1.4, by a polynomial around the middle of each of eight pieces.
"""

from __future__ import annotations

from repro.numerics.elementary.f64 import error_function_constants as k
from repro.numerics.elementary.f64.exponential import exp_pair, scale
from repro.numerics.elementary.pairs import Pair, fast_two_sum, multiply, square, two_product, two_sum
from repro.numerics.elementary.value import (
    Value,
    clamp,
    fma,
    is_negative,
    lookup,
    nearest_integer,
    polynomial,
    power_of_two,
    select,
    with_sign_of,
)

_NEAR = 57 / 128
"""So that erfc is above 1/2 up to here, and v below."""
_NUMERATOR = 15 / 16
_ONE = 7.0
"""erf is 1 from here on."""
_FAR = 28.0
"""erfc vanishes, e^(-x^2) does not yet overflow the scaling."""


def _erf_rest(x: Value) -> Pair:
    """erf x - x = (2/sqrt(pi) - 1) x + x^3 P(x^2), for |x| <= 57/128."""
    z = x * x
    first, e = two_product(x, k.ERF_SLOPE)
    return first, fma(x, fma(z, polynomial(z, k.ERF), k.ERF_SLOPE_LOW), e)


def _erf_near_zero(size: Value) -> Value:
    rest, rest_low = _erf_rest(size)
    high, e = fast_two_sum(size, rest)
    return high + (e + rest_low)


def _erfc_near_zero(x: Value) -> Value:
    rest, rest_low = _erf_rest(x)
    high, e = fast_two_sum(x.same(1.0), -x)
    return high + (e - (rest + rest_low))


def _smooth(v: Value, v_low: Value) -> Pair:
    """S(v)"""
    whole, piece = nearest_integer(v * 16.0 - 0.5)
    d = (v - (whole + 0.5) * 0.0625) + v_low
    slope = lookup(piece, k.COMPLEMENT_SLOPES[-1])
    for entries in reversed(k.COMPLEMENT_SLOPES[:-1]):
        slope = slope * d + lookup(piece, entries)
    return fast_two_sum(lookup(piece, k.COMPLEMENT), lookup(piece, k.COMPLEMENT_LOW) + slope * d)


def _complement(size: Value, last: float) -> tuple[Value, Pair]:
    """(n, c): erfc = c 2^n for size in [57/128, last]."""
    x = clamp(size, _NEAR, last)
    z, z_low = square(x)
    n, power = exp_pair(-z, -z_low)
    bottom, e = two_sum(2.0 * x, x.same(1.0))
    v = _NUMERATOR / bottom
    v_low = v * ((fma(-v, bottom, _NUMERATOR) - v * e) * (1.0 / _NUMERATOR))
    return n, multiply(multiply(power, (v, v_low)), _smooth(v, v_low))


def erf(x: Value) -> Value:
    size = abs(x)
    n, (high, low) = _complement(size, _ONE)
    factor = power_of_two(n)
    far, e = fast_two_sum(x.same(1.0), -high * factor)
    return with_sign_of(select(size < _NEAR, _erf_near_zero(size), far + (e - low * factor)), x)


def erfc(x: Value) -> Value:
    size = abs(x)
    n, (high, low) = _complement(size, _FAR)
    far = scale(high + low, n)
    return select(size < _NEAR, _erfc_near_zero(x), select(is_negative(x), 2.0 - far, far))

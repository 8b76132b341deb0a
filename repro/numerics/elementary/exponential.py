"""exp, exp2, expm1 and the hyperbolic functions, f64 to f64, as branch-free sequences."""

from __future__ import annotations

import math

from repro.ir.types import I64, U64
from repro.numerics.elementary import constants as k
from repro.numerics.elementary.value import (
    Value,
    nearest_integer,
    polynomial,
    power_of_two,
    rational,
    select,
    with_sign_of,
)

_REST = tuple(rational(1, math.factorial(n)) for n in range(2, 14))
"""Taylor coefficients of (e^r - 1 - r) / r^2; the next term is below 2^-57 for |r| <= ln(2)/2."""


def clamp(x: Value, low: float, high: float) -> Value:
    """x kept inside [low, high]; a NaN passes."""
    capped = select(x > high, high, x)
    return select(capped < low, low, capped)


def scale(mantissa: Value, n: Value) -> Value:
    """mantissa * 2^n for |n| up to 2000, rounded once when it becomes subnormal."""
    half = ((n + 4096).as_bits(U64) >> 1).as_bits(I64) - 2048
    return (mantissa * power_of_two(half)) * power_of_two(n - half)


def _reduced(x: Value) -> tuple[Value, Value, Value]:
    """(n, r, rest): x = n ln 2 + r + rest, |r| <= ln(2)/2; n is i64."""
    whole, n = nearest_integer(x * k.LOG2_E)
    high = x - whole * k.LN2_SHORT
    low = whole * k.LN2_REST_HIGH
    r = high - low
    return n, r, (high - r) - low


def exp_parts(x: Value, rest: Value | None = None) -> tuple[Value, Value]:
    """(m, n): e^(x + rest) = m 2^n with m in [0.7, 1.5]; |x| below 2^40, `rest` tiny beside 1."""
    n, r, error = _reduced(x)
    above = r * r * polynomial(r, _REST)
    if rest is not None:
        error = error + (rest + rest * (r + above))  # e^(r + rest) is close to e^r + e^r rest
    return 1.0 + (r + (error + above)), n


def exp(x: Value) -> Value:
    m, n = exp_parts(clamp(x, -760.0, 720.0))
    return scale(m, n)


def exp2(x: Value) -> Value:
    whole, n = nearest_integer(clamp(x, -1100.0, 1030.0))
    r = (clamp(x, -1100.0, 1030.0) - whole) * k.LN2
    return scale(1.0 + (r + r * r * polynomial(r, _REST)), n)


def expm1(x: Value) -> Value:
    n, r, error = _reduced(clamp(x, -50.0, 709.9))
    q = r + (error + r * r * polynomial(r, _REST))  # e^r - 1
    half = power_of_two(n - 1)  # so that n = 1024 does not overflow early
    scaled = 2.0 * (half * q + (half - 0.5))
    small = select(n.equals(0), q, scaled)
    return select(x.equals(0.0), x, small)


def _half_exp(x: Value) -> Value:
    """e^x / 2, finite wherever it fits."""
    m, n = exp_parts(clamp(x, -760.0, 720.0))
    return scale(m, n - 1)


def sinh(x: Value) -> Value:
    size = abs(x)
    t = expm1(clamp(size, 0.0, 40.0))
    small = (t + t / (t + 1.0)) * 0.5
    return with_sign_of(select(size < 22.0, small, _half_exp(size)), x)


def cosh(x: Value) -> Value:
    half = _half_exp(abs(x))
    return half + 0.25 / half


def tanh(x: Value) -> Value:
    t = expm1(clamp(abs(x), 0.0, 22.0) * 2.0)
    return with_sign_of(t / (t + 2.0), x)

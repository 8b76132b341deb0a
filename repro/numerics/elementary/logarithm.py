"""log, log2, log10, log1p and the inverse hyperbolic functions, f64 to f64, as branch-free sequences."""

from __future__ import annotations

import math

from repro.ir.types import F64, I64, U64
from repro.numerics.elementary import constants as k
from repro.numerics.elementary.value import (
    Value,
    polynomial,
    rational,
    select,
    small_integer_to_f64,
    sqrt,
    with_sign_of,
)

_SERIES = tuple(rational(2, 2 * n + 1) for n in range(1, 12))
"""log(1+f) = 2s + s (2/3 z + 2/5 z^2 + ...), s = f/(2+f), z = s^2 <= 0.0295."""

_SQRT_HALF_BITS = 0x3FE6A09E667F3BCD
_SMALLEST_NORMAL = 2.0**-1022


def split(x: Value) -> tuple[Value, Value]:
    """(e, m): x = 2^e m for a positive finite x, e an integer in f64, m in [sqrt(1/2), sqrt(2))."""
    subnormal = x < _SMALLEST_NORMAL
    bits = select(subnormal, x * 2.0**54, x).as_bits(I64)
    exponent = ((bits - _SQRT_HALF_BITS + (2048 << 52)).as_bits(U64) >> 52).as_bits(I64) - 2048
    mantissa = (bits - (exponent << 52)).as_bits(F64)
    return small_integer_to_f64(select(subnormal, exponent - 54, exponent)), mantissa


def log_of_mantissa(m: Value) -> tuple[Value, Value]:
    """(f, c): log m = f - c with f = m - 1 exact, for m in [sqrt(1/2), sqrt(2))."""
    f = m - 1.0
    s = f / (2.0 + f)
    z = s * s
    half_square = 0.5 * f * f
    return f, half_square - s * (half_square + z * polynomial(z, _SERIES))


def with_ends(x: Value, result: Value) -> Value:
    """A logarithm's values at 0, below 0, infinity and NaN."""
    ended = select(x.equals(math.inf), math.inf, select(x.equals(0.0), -math.inf, result))
    return select(x >= 0.0, ended, math.nan)


def log(x: Value) -> Value:
    e, m = split(x)
    f, c = log_of_mantissa(m)
    return with_ends(x, e * k.LN2_SHORT - ((c - e * k.LN2_REST_HIGH) - f))


def log2(x: Value) -> Value:
    e, m = split(x)
    f, c = log_of_mantissa(m)
    return with_ends(x, e + (f - c) * k.LOG2_E)


def log10(x: Value) -> Value:
    e, m = split(x)
    f, c = log_of_mantissa(m)
    return with_ends(x, e * k.LOG10_2_SHORT + (e * k.LOG10_2_REST + (f - c) * k.LOG10_E))


def log1p(x: Value) -> Value:
    u = 1.0 + x
    e, m = split(u)
    f, c = log_of_mantissa(m)
    lost = select(x < 1.0, x - (u - 1.0), 1.0 - (u - x))  # what rounding 1 + x left out
    c = c - (e * k.LN2_REST_HIGH + lost / u)
    result = with_ends(u, e * k.LN2_SHORT - (c - f))
    return select(abs(x) < 2.0**-54, x, result)


def asinh(x: Value) -> Value:
    size = abs(x)
    root = sqrt(size * size + 1.0)
    small = log1p(size + size * size / (1.0 + root))
    return with_sign_of(select(size < 2.0**28, small, log(size) + k.LN2), x)


def acosh(x: Value) -> Value:
    t = x - 1.0
    small = log1p(t + sqrt(2.0 * t + t * t))
    return select(x >= 1.0, select(x < 2.0**28, small, log(x) + k.LN2), math.nan)


def atanh(x: Value) -> Value:
    size = abs(x)
    result = 0.5 * log1p(2.0 * size / (1.0 - size))
    return select(size < 2.0**-28, x, with_sign_of(result, x))

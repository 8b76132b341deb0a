"""cbrt and rsqrt, f64 to f64, as branch-free sequences: a value near the root, then what it leaves, once."""

from __future__ import annotations

import math

from repro.ir.types import F64, I64
from repro.numerics.elementary.f64 import roots_constants as k
from repro.numerics.elementary.pairs import square
from repro.numerics.elementary.value import (
    Value,
    fma,
    lookup,
    nearest_integer,
    polynomial,
    power_of_two,
    rational,
    select,
    small_integer_to_f64,
    sqrt,
    with_sign_of,
)

_SMALLEST_NORMAL = 2.0**-1022
_MANTISSA = (1 << 52) - 1


def _octaves(size: Value) -> tuple[Value, Value]:
    """(e, m): size = 2^e m, e in i64, m in [1, 2), for a positive finite f64."""
    subnormal = size < _SMALLEST_NORMAL
    bits = select(subnormal, size * 2.0**54, size).as_bits(I64)
    exponent = (bits >> 52) - select(subnormal, bits.same(1023 + 54), 1023)
    return exponent, ((bits & _MANTISSA) | (1023 << 52)).as_bits(F64)


def cbrt(x: Value) -> Value:
    """2^n cbrt(m), m in [1, 8): w = m^(-1/3) by a polynomial and a step of third order, y = m w^2, a last step."""
    size = abs(x)
    e, m = _octaves(size)
    _, n = nearest_integer((small_integer_to_f64(e) - 1.0) * rational(1, 3))
    rest = e - (n + n + n)
    w = polynomial(m, k.INVERSE_CBRT) * lookup(rest, k.INVERSE_CBRT_OCTAVES)
    m = m * power_of_two(rest)
    off = 1.0 - m * (w * w * w)
    w = w + w * (off * (rational(1, 3) + off * (rational(2, 9) + off * rational(14, 81))))
    w_square = w * w
    y = m * w_square
    y_square, low = square(y)
    left = fma(-y_square, y, m) - low * y
    root = y + left * (w_square * rational(1, 3))
    ended = size.equals(0.0) | ~(size < math.inf)
    return select(ended, x, with_sign_of(root * power_of_two(n), x))


def rsqrt(x: Value) -> Value:
    """1 / sqrt(x), both steps with what they leave; a tiny x is scaled, so that the remainders do not underflow."""
    tiny = x < 2.0**-500
    scaled = select(tiny, x * 2.0**600, x)
    s = sqrt(scaled)
    y = 1.0 / s
    left = fma(-y, s, 1.0) - 0.5 * ((fma(-s, s, scaled) * y) * y)
    result = select(x.equals(0.0) | x.equals(math.inf), y, y + y * left)
    return select(tiny, result * 2.0**300, result)

"""log, log2, log10 and log1p, f32 to f32, in f64 arithmetic.

A docstring gives the greatest relative error before the last rounding, measured at 2^23 arguments, and the number
of operations on f64s, conversions and integers of that width with them.

Each writes its argument as 2^e m with m in [sqrt(1/2), sqrt(2)) and takes log m = log((1 + s)/(1 - s)) with
s = (m - 1)/(m + 1), |s| < 0.1716: an odd series, s times a polynomial in s^2 (degree 7).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from repro.ir.types import F32, F64, I64, U32, U64
from repro.numerics.elementary.f32 import logarithm_constants as k
from repro.numerics.elementary.value import Value, fma, horner, patched, rarely, select

_SQRT_HALF_BITS = 0x3FE6A09E00000000
_BIAS = 1023 << 52
_MANTISSA = (1 << 52) - 1
_LEADING_ONE = 0x4330000000000000
"""The bits of 2^52: an integer below it is or-ed into the low ones."""


def small_integer(n: Value) -> Value:
    """2^52 + n as f64, of a u64 n below 2^52."""
    return (n | _LEADING_ONE).as_bits(F64)


def split(x: Value) -> tuple[Value, Value]:
    """(e, m): x = 2^e m with e whole and m in [sqrt(1/2), sqrt(2)), of a positive normal f64; both are f64."""
    bits = x.as_bits(I64) + (_BIAS - _SQRT_HALF_BITS)
    e = small_integer(bits.as_bits(U64) >> 52) - (2.0**52 + 1023)
    return e, ((bits & _MANTISSA) + _SQRT_HALF_BITS).as_bits(F64)


def series(s: Value, coefficients: Sequence[float]) -> Value:
    """p(s^2)."""
    return horner(s * s, coefficients)


def with_sign_of(size: Value, x: Value) -> Value:
    """An f32 whose sign bit is clear, or that of x already, with the sign of x."""
    return (size.as_bits(U32) | (x.as_bits(U32) & 0x80000000)).as_bits(F32)


def _quotient(m: Value) -> Value:
    return (m - 1.0) / (m + 1.0)


def _with_ends(x: Value, result: Value) -> Value:
    """A logarithm's values at 0, below 0, infinity and NaN: bits 0, and those from infinity's on."""
    ends = select(x.equals(0.0), -math.inf, select(x >= 0.0, x, math.nan))
    return rarely((x.as_bits(U32) - 1) >= 0x7F7FFFFF, ends, result)


def log(x: Value) -> Value:
    """e ln 2 + log m. 2^-51.4; 24 operations and a division."""
    e, m = split(x.to(F64))
    s = _quotient(m)
    result = fma(s, series(s, k.LOG), e * k.LN2).to(F32)
    return _with_ends(x, patched(x, result, k.LOG_PATCHES))


def log2(x: Value) -> Value:
    """e + log2 m. 2^-51.7; 23 operations and a division."""
    e, m = split(x.to(F64))
    s = _quotient(m)
    return _with_ends(x, fma(s, series(s, k.LOG2), e).to(F32))


def log10(x: Value) -> Value:
    """e log10(2) + log10 m. 2^-51.6; 24 operations and a division."""
    e, m = split(x.to(F64))
    s = _quotient(m)
    result = fma(e, k.LOG10_2, s * series(s, k.LOG10)).to(F32)
    return _with_ends(x, patched(x, result, k.LOG10_PATCHES))


def log1p(x: Value) -> Value:
    """log of 1 + x, which is exact unless x is tiny or huge; where e = 0, m - 1 is x itself.

    2^-51.4; 27 operations and a division.
    """
    wide = x.to(F64)
    e, m = split(1.0 + wide)
    s = select(e.equals(0.0), wide, m - 1.0) / (m + 1.0)
    result = patched(x, fma(s, series(s, k.LOG), e * k.LN2).to(F32), k.LOG1P_PATCHES)
    ends = select(x.equals(-1.0), -math.inf, select(x < -1.0, math.nan, x))
    return rarely(~((x > -1.0) & (x < math.inf)), ends, with_sign_of(result, x))  # so that -0 stays

"""asinh, acosh and atanh, f32 to f32, in f64 arithmetic.

Each is a logarithm log v, taken as those of logarithm.py: v = 2^e m, s = (m - 1)/(m + 1). Where e = 0, s is instead
computed from the argument without forming v - 1, whose relative error grows without bound near 0. Errors before the
last rounding and operations are given as there.
"""

from __future__ import annotations

import math

from repro.ir.types import F32, F64, I64, U64
from repro.numerics.elementary.f32 import logarithm_constants as k
from repro.numerics.elementary.f32.logarithm import series, small_integer, split, with_sign_of
from repro.numerics.elementary.value import Value, fma, patched, rarely, select, sqrt

_EXPONENT = 0xFFF0000000000000


def _log_of_sum(a: Value, b: Value, numerator: Value, denominator: Value) -> Value:
    """log(a + b), where a + b in [sqrt(1/2), sqrt(2)) has the quotient s given."""
    e, m = split(a + b)
    near = e.equals(0.0)
    s = select(near, numerator, m - 1.0) / select(near, denominator, m + 1.0)
    return fma(s, series(s, k.LOG), e * k.LN2)


def asinh(x: Value) -> Value:
    """log(|x| + q), q = sqrt(x^2 + 1); near 0 s = tanh(asinh(x)/2) = sinh/(1 + cosh) = |x|/(1 + q).

    2^-50.6; 30 operations, a division and a square root.
    """
    size = abs(x)
    wide = size.to(F64)
    q = sqrt(fma(wide, wide, 1.0))
    result = patched(size, _log_of_sum(wide, q, wide, 1.0 + q).to(F32), k.ASINH_PATCHES)
    return with_sign_of(select(size < math.inf, result, size), x)


def acosh(x: Value) -> Value:
    """log(x + q), q = sqrt(x^2 - 1); near 1 s = tanh(acosh(x)/2) = sinh/(1 + cosh) = q/(1 + x).

    2^-50.6; 30 operations, a division and a square root.
    """
    wide = x.to(F64)
    q = sqrt(fma(wide, wide, -1.0))
    result = patched(x, _log_of_sum(wide, q, q, 1.0 + wide).to(F32), k.ACOSH_PATCHES)
    return rarely(~((x >= 1.0) & (x < math.inf)), select(x >= 1.0, x, math.nan), result)


def atanh(x: Value) -> Value:
    """1/2 log(a/b), a = 1 + |x|, b = 1 - |x|: with b' = 2^e b near a, s = (a - b')/(a + b').

    Where e = 0, a - b is 2 |x|. e is the nearest integer to the difference of the bit patterns of a and b, read as
    fixed-point logarithms. 2^-51.3; 32 operations and a division.
    """
    size = abs(x)
    wide = size.to(F64)
    a, b = 1.0 + wide, 1.0 - wide
    ratio = (a.as_bits(I64) - b.as_bits(I64) + (1 << 51)).as_bits(U64)
    e = small_integer(ratio >> 52) - 2.0**52
    b = (b.as_bits(U64) + (ratio & _EXPONENT)).as_bits(F64)
    s = select(e.equals(0.0), wide + wide, a - b) / (a + b)
    result = fma(s, series(s, k.ATANH), e * (k.LN2 / 2)).to(F32)
    ends = select(size.equals(1.0), size.same(math.inf), math.nan)
    return with_sign_of(rarely(~(size < 1.0), ends, result), x)

"""cbrt and rsqrt, f32 to f32: a root r near a^(-1/n), first in f32, corrected once in f64.

With h = 1 - a r^n, a^(-1/n) is r (1 - h)^(-1/n), a short series in h. The first r comes from the argument's bits,
which are a logarithm of sorts (Lomont 2003, Kahan and Moler before); it is within 3.5 %, so that f32 takes it to
about 2^-20, and h, computed in f64 without cancellation's loss, to 2^-53.
"""

from __future__ import annotations

import math

from repro.ir.types import F32, F64, I32, U32
from repro.numerics.elementary.f32 import roots_constants as k
from repro.numerics.elementary.f32.logarithm import with_sign_of
from repro.numerics.elementary.value import Value, fma, horner, rarely, select, sqrt

_SHIFTER = float(3 << 22)
"""1.5 * 2^23: added to an f32 below 2^22, it leaves the nearest integer in the low bits."""


def _is_unusual(x: Value) -> Value:
    """Whether an f32 is other than positive, normal and finite."""
    return (x.as_bits(U32) - 0x00800000) >= 0x7F000000


def rsqrt(x: Value) -> Value:
    """1/sqrt(x) with n = 2. 2^-52.9 before the last rounding; 14 operations in f32, 9 in f64."""
    r = (k.RSQRT_START - (x.as_bits(I32) >> 1)).as_bits(F32)
    h = fma(-(x * r), r, 1.0)
    r = fma(r * h, horner(h, k.RSQRT), r).to(F64)
    h = fma(-(x.to(F64) * r), r, 1.0)
    result = fma(r * h, fma(h, 3 / 8, 1 / 2), r)
    return rarely(_is_unusual(x), (1.0 / sqrt(x.to(F64))).to(F32), result.to(F32))


def _cube_root(a: Value) -> Value:
    """a r^2 (1 - h)^(-2/3) with n = 3, of a positive normal f32 or 0."""
    place = fma(a.as_bits(I32).to(F32), -1 / (3 << 12), k.CBRT_START + _SHIFTER)
    r = (place.as_bits(I32) << 12).as_bits(F32)  # 12 bits: its square is exact
    h = fma(-(a * (r * r)), r, 1.0)
    r = fma(r * h, horner(h, k.CBRT), r).to(F64)
    u = a.to(F64) * (r * r)
    h = fma(-u, r, 1.0)
    return fma(u * h, fma(h, 5 / 9, 2 / 3), u).to(F32)


def cbrt(x: Value) -> Value:
    """The cube root of |x| with the sign of x; a subnormal argument is scaled by 2^24.

    2^-52.5 before the last rounding; 24 operations in f32, 10 in f64.
    """
    size = abs(x)
    small = _cube_root(size * 2.0**24) * 2.0**-8
    seldom = select(size < math.inf, small, size)
    return with_sign_of(rarely(_is_unusual(size), seldom, _cube_root(size)), x)

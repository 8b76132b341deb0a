"""asin, acos and atan, f32 to f32, in f64 arithmetic."""

from __future__ import annotations

from repro.ir.types import F32, F64, I64, U32, U64
from repro.numerics.elementary.f32 import inverse_trigonometric_constants as k
from repro.numerics.elementary.f32.wide import with_sign
from repro.numerics.elementary.value import Value, clamp, fma, horner, lookup, select, sqrt

_SIGN = 1 << 63
_FAR = 2.0**100
"""Its arctangent rounds to that of infinity."""


def _arc(x: Value) -> tuple[Value, Value]:
    """(near, p): whether |x| <= 1/2; p = asin |x| there, else asin sqrt((1 - |x|)/2), which is NaN beyond 1."""
    size = abs(x).to(F64)
    near = size <= 0.5
    z = select(near, size * size, fma(size, -0.5, 0.5))
    return near, sqrt(z) * horner(z, k.ASIN)


def asin(x: Value) -> Value:
    """x P(x^2) up to 1/2, beyond it pi/2 - 2 asin sqrt((1 - x)/2): degree 23; 2^-49.7 before rounding, 2^-51 up to 1/2.

    20 64-bit operations, one of them a square root.
    """
    near, p = _arc(x)
    result = fma(p, select(near, 1.0, p.same(-2.0)), select(near, 0.0, p.same(k.HALF_PI)))
    return with_sign(result.to(F32), x.as_bits(U32))


def acos(x: Value) -> Value:
    """pi/2 - asin x up to 1/2; beyond it 2 asin sqrt((1 - |x|)/2), from pi where x is negative.

    As asin; 2^-50.6 before rounding; 23 64-bit operations.
    """
    near, p = _arc(x)
    negative = x.to(F64).as_bits(U64) & _SIGN
    factor = (select(near, -1.0, p.same(2.0)).as_bits(U64) ^ negative).as_bits(F64)
    start = select(near, k.HALF_PI_RAISED, select(x < 0.0, k.PI, p.same(0.0)))
    return fma(p, factor, start).to(F32)


def atan(x: Value) -> Value:
    """atan c + atan((|x| - c)/(1 + c |x|)), c chosen by the exponent of |x|, from 2^-4 (there 0) to 2^3 (there 2^60).

    Degree 13; 2^-50.8 before rounding; 13 64-bit operations, one of them a division.
    """
    size = abs(x)
    octave = (clamp(size, 0.0625, 15.0).as_bits(U32) >> 23).to(I64)
    wide = select(size > _FAR, _FAR, size).to(F64)
    centre = lookup(octave, k.CENTRES)
    u = (wide - centre) / fma(centre, wide, 1.0)
    return with_sign(fma(u, horner(u * u, k.ATAN), lookup(octave, k.ANGLES)).to(F32), x.as_bits(U32))

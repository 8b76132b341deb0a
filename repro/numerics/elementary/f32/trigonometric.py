"""sin and cos, f32 to f32, in f64 arithmetic: one sine polynomial over half a period serves both."""

from __future__ import annotations

import math
from itertools import pairwise

from repro.ir.types import F32, F64, I64, U32, U64
from repro.numerics.elementary.f32 import trigonometric_constants as k
from repro.numerics.elementary.value import Value, fma, horner, integer_lookup, patched, rarely, select

_SHIFTER = float(3 << 51)
_SIGN = 1 << 63
HUGE = 2.0**23
"""From here on arguments are integers, and are reduced as such."""

_SIN_NEAR = float.fromhex("0x1.33333p+13")
_SIN_PATCHES = {0x46199998: 0xBEB1FA5D, 0xC6199998: 0x3EB1FA5D, 0x55CAFB2A: 0xBF7E7A17, 0xD5CAFB2A: 0x3F7E7A17}
_COS_PATCHES = {0x5922AA80: 0x3F08AEBF, 0xD922AA80: 0x3F08AEBF, 0x7908CD73: 0x3F798BB5, 0xF908CD73: 0x3F798BB5}
"""By bits, the arguments whose f64 value lies on the wrong side of a rounding boundary, and the right results, as
the proof printed them. All are taken on the seldom side, where they cost nothing; one of sin's is not huge."""


def _sine(r: Value, parity: Value) -> Value:
    """(-1)^parity sin r, f64, |r| <= pi/2; the parity is an integer's lowest bit."""
    sine = r * horner(r * r, k.SIN)
    return (sine.as_bits(U64) ^ (parity.as_bits(U64) << 63)).as_bits(F64)


def _remainder(x: Value, n: Value) -> Value:
    """x - n pi, for an f64 n of few bits."""
    return fma(n, -k.PI_LOW, fma(n, -k.PI, x))


def half_turns(x: Value, quarter: int) -> tuple[Value, Value]:
    """(n, f): |x|/pi + quarter/2 = n + f modulo 2, |f| <= 1/2, for an f32 x that is huge; n is u64.

    x = M 2^e with whole M and e (Payne and Hanek 1983): the bits of 1/pi from weight 2^-e on are all that counts;
    M times 128 of them leaves f to 2^-103.
    """
    bits = x.as_bits(U32)
    exponent = ((bits >> 23) & 255).to(U64) - 150
    significand = ((bits & 0x7FFFFF) | 0x800000).to(U64)
    word, skip = exponent >> 5, exponent & 31
    chunks = [integer_lookup(word + ahead, k.ONE_OVER_PI_WORDS) for ahead in (0, 2, 4)]
    high, low = ((a << skip) | (b >> (64 - skip)) for a, b in pairwise(chunks))
    carried = ((low & 0xFFFFFFFF) * significand >> 32) + (low >> 32) * significand
    turns = significand * high + (carried >> 32) + (quarter << 62)
    below = significand * low
    fraction = ((turns << 1) | (below >> 63)).as_bits(I64).to(F64) * 2.0**-64
    tail = ((below << 1) >> 11).as_bits(I64).to(F64) * 2.0**-117
    return (turns + (1 << 62)) >> 63, fraction + tail


def _huge(x: Value, quarter: int) -> Value:
    """sin(|x| + quarter pi/2) of a huge f32, as f64; NaN for infinity."""
    n, f = half_turns(x, quarter)
    return select(abs(x).equals(math.inf), x.to(F64) - x.to(F64), _sine(f * k.PI, n))


def sin(x: Value) -> Value:
    """(-1)^n sin r, x = n pi + r; below 2^23 n pi is taken off in two fused steps.

    r P(r^2), degree 15; 2^-51.1 before rounding; 16 64-bit operations where no argument is huge.
    """
    wide = x.to(F64)
    shifted = fma(wide, k.ONE_OVER_PI, _SHIFTER)
    near = _sine(_remainder(wide, shifted - _SHIFTER), shifted.as_bits(U64))
    size = _huge(x, 0)
    far = (size.as_bits(U64) ^ (wide.as_bits(U64) & _SIGN)).as_bits(F64)
    seldom = (abs(x) >= HUGE) | abs(x).equals(_SIN_NEAR)
    return rarely(seldom, patched(x, far.to(F32), _SIN_PATCHES), near.to(F32))


def cos(x: Value) -> Value:
    """(-1)^(n+1) sin r, x = (n + 1/2) pi + r; otherwise as sin, with two more operations."""
    wide = x.to(F64)
    shifted = fma(wide, k.ONE_OVER_PI, -0.5) + (_SHIFTER + 1.0)
    n = (shifted - (_SHIFTER + 1.0)) + 0.5
    near = _sine(_remainder(wide, n), shifted.as_bits(U64))
    return rarely(abs(x) >= HUGE, patched(x, _huge(x, 1).to(F32), _COS_PATCHES), near.to(F32))

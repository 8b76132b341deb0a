"""atan2, f32 to f32: correctly rounded, in f64 arithmetic; undecided cases again in pairs of f64s.

With q = min(|x|, |y|) / max(|x|, |y|) the angle is atan q, pi/2 - atan q, pi/2 + atan q or pi - atan q, by octant.

Common road, 46 operations in f64: q + q^3 P(q^2), P of degree 19; relative error below 2^-51 (measured 2^-52.1), tested
with 2^-50; about one operand pair in 2^25.4 is undecided. Wide road, 190 operations: within 2^-101 (measured 2^-104.6),
from exact numerators and denominators. The angle is never a midpoint: the arctangent of a quotient that is not 0 is
transcendental. But the quotient itself may be one where it is subnormal: there the low part carries -q^3/3, however
small. About 2^56 operand pairs differ in their angle by more than a power of 2: if they lie at random, one within
2^-101 of a midpoint exists with a chance of about 2^-20.
"""

from __future__ import annotations

import math

from repro.ir.types import F32, F64, U32
from repro.numerics.elementary.f32 import arctangent2_constants as k
from repro.numerics.elementary.f32.wide import horner_pair, rounded, undecided, with_sign
from repro.numerics.elementary.pairs import Pair, fast_two_sum, multiply, two_product
from repro.numerics.elementary.value import Value, clamp, f64, fma, horner, lookup, nearest_integer, rarely, select

BOUND = 2.0**-50
"""What the common road's result is tested with; its own error is below 2^-51."""

_INFINITE = 2.0**512
"""Stands for infinity, so that the quotient of two is 1; that of an f32 and it gives an angle as 0 does."""


def _octant_angle(angle: Pair, swapped: Value, negative: Value) -> Pair:
    """(high, low) of the angle in [0, pi], from that of the quotient."""
    turned = swapped ^ negative
    base = select(swapped, k.PI / 2, select(negative, k.PI, f64(0.0)))
    base_low = select(swapped, k.PI_LOW / 2, select(negative, k.PI_LOW, f64(0.0)))
    high, low = (select(turned, -part, part) for part in angle)
    total, lost = fast_two_sum(base, high)
    return total, lost + (base_low + low)


def _common(q: Value) -> Value:
    """atan q, f64, 0 <= q <= 1.

    The division and the sum round by 2^-53 each, the second term, a fifth of the first at most, by 2^-51.
    """
    z = q * q
    return fma(q, z * horner(z, k.ATAN_REST), q)


def _wide(least: Value, greatest: Value, q: Value) -> Pair:
    """atan(least / greatest), within 2^-102: atan c + atan w, w = (least - c greatest)/(greatest + c least).

    c has 4 bits and is 0 for q < 1/8, so that both terms of that quotient are exact.
    """
    eighth = nearest_integer(clamp(q, 0.0, 0.999) * 8.0 - 0.5)[1]
    centre = lookup(eighth, k.CENTRES)
    numerator, denominator = fma(-centre, greatest, least), fma(centre, least, greatest)
    w = numerator / denominator
    w_low = fma(-w, denominator, numerator) / denominator
    square, square_low = two_product(w, w)
    u = fast_two_sum(square, square_low + 2.0 * w * w_low)
    rest = multiply((w, w_low), fast_two_sum(*multiply(u, horner_pair(u, k.ATAN_SERIES, k.ATAN_SERIES_LOW))))
    high, low = fast_two_sum(w, rest[0])
    low = low + (w_low + rest[1])
    total, lost = fast_two_sum(lookup(eighth, k.ATAN_CENTRES), high)
    return fast_two_sum(total, lost + (low + lookup(eighth, k.ATAN_CENTRES_LOW)))


def _finite_size(x: Value) -> Value:
    """|x| as f64, infinity as a great number."""
    size = abs(x).to(F64)
    return select(size.equals(math.inf), _INFINITE, size)


def atan2(y: Value, x: Value) -> Value:
    """Correctly rounded angle of the point (x, y); C99 Annex F.9.1.4's values at zeros and infinities."""
    height, width = _finite_size(y), _finite_size(x)
    swapped, negative = height > width, x.as_bits(U32) >= 0x80000000
    greatest, least = select(swapped, height, width), select(swapped, width, height)
    greatest = select(greatest.equals(0.0), 1.0, greatest)
    q = least / greatest
    v, v_low = _octant_angle((_common(q), f64(0.0)), swapped, negative)
    v = v + v_low
    wide = rounded(_octant_angle(_wide(least, greatest, q), swapped, negative))
    return with_sign(rarely(undecided(v, BOUND), wide, v.to(F32)), y.as_bits(U32))

"""asin, acos, atan and atan2, f64 to f64, as branch-free sequences."""

from __future__ import annotations

import math

from repro.ir.expressions import const
from repro.ir.types import I64
from repro.numerics.elementary.f64 import trigonometric_constants as k
from repro.numerics.elementary.pairs import Pair, divide, fast_two_sum, two_product
from repro.numerics.elementary.value import (
    Value,
    clamp,
    fma,
    is_negative,
    lookup,
    polynomial,
    select,
    sqrt,
    with_sign_of,
)

_QUARTERS = tuple(min(place, 4) / 4 for place in range(8))


def _asin_rest(x: Value, z: Value) -> Value:
    """asin x - x for |x| <= 1/2, z = x^2."""
    return x * (z * polynomial(z, k.ASIN))


def _half_angle(size: Value) -> tuple[Value, Value]:
    """acos(size) / 2 = asin(s), s^2 = (1 - size)/2: s rounded and what is to be added, for size in [1/2, 1]."""
    z = (1.0 - size) * 0.5
    s = sqrt(z)
    lost = select(z.equals(0.0), 0.0, fma(-s, s, z) / (s + s))
    return s, lost + _asin_rest(s, z)


def asin(x: Value) -> Value:
    """The series up to 1/2; then pi/2 - 2 asin(sqrt((1 - |x|)/2))."""
    size = abs(x)
    near = size + _asin_rest(size, size * size)
    s, rest = _half_angle(size)
    far, e = fast_two_sum(s.same(k.HALF_PI), s * -2.0)
    far = far + (e + (k.HALF_PI_LOW - 2.0 * rest))
    return with_sign_of(select(size <= 0.5, near, far), x)


def acos(x: Value) -> Value:
    """pi/2 - asin x up to 1/2; then 2 asin(sqrt((1 - |x|)/2)), or pi less it."""
    size = abs(x)
    near, e = fast_two_sum(x.same(k.HALF_PI), -x)
    near = near + (e + (k.HALF_PI_LOW - _asin_rest(x, x * x)))
    s, rest = _half_angle(size)
    far, e = fast_two_sum(s.same(2.0 * k.HALF_PI), s * -2.0)
    far = select(is_negative(x), far + (e + (2.0 * k.HALF_PI_LOW - 2.0 * rest)), 2.0 * (s + rest))
    return select(size <= 0.5, near, far)


def _nearest_quarter(small: Value, large: Value) -> Value:
    """The integer nearest to 4 small / large, in i64, without dividing."""
    eighths = 8.0 * small
    one = Value(const(I64, 1))
    passed = [select(eighths > odd * large, one, 0) for odd in (1.0, 3.0, 5.0, 7.0)]
    return (passed[0] + passed[1]) + (passed[2] + passed[3])


def _atan_of_quotient(small: Value, large: Value) -> Pair:
    """atan(small / large) for 0 <= small <= large, large in 2^-400 .. 2^1000.

    With c the quarter nearest to the quotient, atan c + atan t, t = (small - c large) / (large + c small).
    """
    index = _nearest_quarter(small, large)
    c = lookup(index, _QUARTERS)
    moved, moved_low = two_product(large, c)
    added, added_low = two_product(small, c)
    bottom, e = fast_two_sum(large, added)
    t, t_low = divide((small - moved, -moved_low), (bottom, e + added_low))
    z = t * t
    angle, e = fast_two_sum(lookup(index, k.ATAN_QUARTERS), t)
    return angle, e + (lookup(index, k.ATAN_QUARTERS_LOW) + (t_low + t * (z * polynomial(z, k.ATAN))))


def _beside(base: Pair, angle: Pair, subtracted: Value) -> Pair:
    """base + angle or base - angle, the base 0 or above the angle."""
    total, e = fast_two_sum(base[0], select(subtracted, -angle[0], angle[0]))
    return total, e + (base[1] + select(subtracted, -angle[1], angle[1]))


def atan(x: Value) -> Value:
    size = clamp(abs(x), 0.0, 2.0**200)  # beyond, pi/2
    one = size.same(1.0)
    inverted = size > 1.0
    angle = _atan_of_quotient(select(inverted, one, size), select(inverted, size, one))
    base = select(inverted, one.same(k.HALF_PI), 0.0), select(inverted, one.same(k.HALF_PI_LOW), 0.0)
    high, low = _beside(base, angle, inverted)
    return with_sign_of(high + low, x)


def _without_ends(y: Value, x: Value) -> Pair:
    """Finite magnitudes, not both 0, at the angle of (|x|, |y|): an infinite one becomes 1 beside 0 or 1."""
    x_ends, y_ends = x.equals(math.inf), y.equals(math.inf)
    ends = x_ends | y_ends
    both_zero = x.equals(0.0) & y.equals(0.0)
    x_end = select(x_ends, x.same(1.0), 0.0)
    y_end = select(y_ends, y.same(1.0), 0.0)
    return select(ends, y_end, y), select(both_zero, 1.0, select(ends, x_end, x))


def atan2(y: Value, x: Value) -> Value:
    """The angle of the point (x, y), with the special cases of C99."""
    rise, run = _without_ends(abs(y), abs(x))
    steep = rise > run
    small, large = select(steep, run, rise), select(steep, rise, run)
    factor = select(large > 2.0**900, large.same(2.0**-600), select(large < 2.0**-400, large.same(2.0**600), 1.0))
    small, large = small * factor, large * factor
    angle = _atan_of_quotient(small, large)
    back = is_negative(x)
    turned = select(steep, rise.same(k.HALF_PI), select(back, rise.same(2.0 * k.HALF_PI), 0.0))
    turned_low = select(steep, rise.same(k.HALF_PI_LOW), select(back, rise.same(2.0 * k.HALF_PI_LOW), 0.0))
    high, low = _beside((turned, turned_low), angle, steep ^ back)
    flat = (small < large * 2.0**-28) & ~steep & ~back  # the quotient itself, subnormal ones rounded once
    result = with_sign_of(select(flat, rise / run, high + low), y)
    return select(x.differs(x) | y.differs(y), math.nan, result)

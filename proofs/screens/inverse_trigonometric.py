"""Screens of the inverse trigonometric functions."""

from __future__ import annotations

from proofs import constants
from proofs.double_double import (
    Pair,
    add_smaller,
    constant,
    exact_sum,
    exactly,
    lookup_pair,
    select,
    series,
    sqrt,
    square,
)
from proofs.screens.tiny import odd_function
from repro.numerics.elementary.value import Value, f64, is_negative, nearest_integer


def _of_ratio(a: Pair, b: Pair) -> Pair:
    """atan(a / b) for 0 <= a <= b, b > 0: atan(c) + atan((a - c b) / (b + c a)), c the nearest multiple of 1/16."""
    nearest, j = nearest_integer(a.high / b.high * 16.0)
    c = nearest * 0.0625
    u = (a - b * c) / (b + a * c)
    z = square(u)
    rest = add_smaller(u, (z * series(z, constants.ATAN, constants.ATAN_TRAILING)) * u)
    return lookup_pair(constants.ARC_TANGENTS, j) + rest


def angle(y: Pair, x: Pair) -> Pair:
    """The angle of the point (x, y) in (-pi, pi], not both zero."""
    across, along = abs(y), abs(x)
    steep = along < across
    theta = _of_ratio(select(steep, along, across), select(steep, across, along))
    acute = select(steep, constant(constants.HALF_PI) - theta, theta)
    magnitude = select(x.high < 0.0, constant(constants.PI) - acute, acute)
    return select(is_negative(y.high), -magnitude, magnitude)


def atan2(y: Value, x: Value) -> Pair:
    return angle(exactly(y), exactly(x))


def atan(x: Value) -> Pair:
    return angle(exactly(x), exactly(f64(1.0)))


def _other_leg(x: Value) -> Pair:
    """sqrt(1 - x^2)."""
    return sqrt(exact_sum(-x, 1.0) * exact_sum(x, 1.0))


def asin(x: Value) -> Pair:
    a = abs(x)
    return odd_function(x, angle(exactly(a), _other_leg(a)), constants.ASIN_TINY, constants.ASIN_TINY_TRAILING)


def acos(x: Value) -> Pair:
    return angle(_other_leg(x), exactly(x))

"""Screens of roots and powers."""

from __future__ import annotations

from proofs import constants
from proofs.double_double import Pair, exact_product, exactly, fast_two_sum, select
from proofs.screens.exponential import GREATEST, exp_pair
from proofs.screens.logarithm import log_f64
from repro.ir.types import I64
from repro.numerics.elementary.value import (
    Value,
    f64,
    fma,
    nearest_integer,
    polynomial,
    power_of_two,
    small_integer_to_f64,
    sqrt,
)

_HALLEY_STEPS = 3


def _third_of_exponent(x: Value) -> Value:
    """k with x = 8^k m, m in [1/2, 4); x positive and normal."""
    exponent = (x.as_bits(I64) >> 52) - 1023
    return nearest_integer(small_integer_to_f64(exponent) * (1 / 3))[1]


def cbrt(x: Value) -> Pair:
    """8^k y for |x| = 8^k m: Halley's iteration y (y^3 + 2m) / (2y^3 + m), then y + d - d^2 / y, d = (m - y^3) / 3y^2.

    The start is off by less than 1/20 and each step takes 2/3 of the error's cube, so d is of the order of an ulp;
    y^3 is summed exactly but for 2 u^2.
    """
    magnitude = abs(x)
    k = _third_of_exponent(magnitude)
    m = magnitude * power_of_two(-(k + k + k))
    y = polynomial(m, constants.CUBE_ROOT)
    for _ in range(_HALLEY_STEPS):
        cube = y * y * y
        y = y * ((cube + (m + m)) / (cube + cube + m))
    squared = Pair(*exact_product(y, y))
    rest = exactly(m) - squared * y
    d = rest.high / (squared.high * 3.0)
    root = Pair(*fast_two_sum(y, fma(d / y, -d, d))).scaled(power_of_two(k))
    zero = exactly(f64(0.0))
    return select(magnitude.equals(0.0), zero, select(x < 0.0, -root, root))


def rsqrt(x: Value) -> Pair:
    """y + y (d / 2 + 3/8 d^2) for y = 1 / sqrt(x) in f64, d = 1 - x y^2 exactly but for 2 u^2."""
    y = 1.0 / sqrt(x)
    d = (1.0 - Pair(*exact_product(x, y)) * y).high
    return Pair(*fast_two_sum(y, y * (d * fma(d, 0.375, 0.5))))


def pow(x: Value, y: Value) -> Pair:  # noqa: A001
    """e^(y ln x), x > 0."""
    exponent = log_f64(x) * y
    bound = exactly(f64(GREATEST))
    below = select(exponent.high < -GREATEST, -bound, exponent)
    return exp_pair(select(exponent.high > GREATEST, bound, below))

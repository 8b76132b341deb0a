"""Screens of sine, cosine and tangent."""

from __future__ import annotations

from proofs import constants
from proofs.double_double import (
    Pair,
    add_smaller,
    constant,
    exact_product,
    exactly,
    fast_two_sum,
    lookup_pair,
    select,
    series,
    square,
    two_sum,
)
from proofs.screens.tiny import TINY, odd_function
from repro.ir.expressions import apply
from repro.numerics.elementary import value
from repro.numerics.elementary.value import Value, f64, fma, nearest_integer

_QUARTER_PI = 0.7853981633974483


def _modulo_four(x: Value) -> Value:
    """x less the nearest multiple of 4, exactly."""
    return fma(Value(apply("round", (x * 0.25).expr)), -4.0, x)


def reduced(x: Value) -> tuple[Pair, Value]:
    """(r, n): x = r + n pi/2 modulo 2 pi, |r| < pi/4 (1 + 2^-50), r = x where |x| < pi/4; |x| <= 2^128.

    x times each of the six words of 2/pi is an exact sum of two f64. Taking multiples of 4 off each of those
    twelve is exact too, and three f64 hold what is left to about 2^-150; cutting 2/pi costs 2^-190. An f64
    comes no nearer to a multiple of pi/2 than about 2^-60 (Kahan; Muller, Elementary Functions, 11.3).
    """
    total = [f64(0.0), f64(0.0), f64(0.0)]
    for word in constants.TWO_OVER_PI:
        for term in exact_product(x, f64(word)):
            rest = _modulo_four(term)
            total[0], rest = two_sum(total[0], rest)
            total[1], rest = two_sum(total[1], rest)
            total[2] = total[2] + rest
    nearest, n = nearest_integer(total[0])
    high, middle = two_sum(total[0] - nearest, total[1])
    middle, low = two_sum(middle, total[2])
    high, middle = two_sum(high, middle)
    turned = Pair(*fast_two_sum(high, middle + low)) * constant(constants.HALF_PI)
    small = abs(x) < _QUARTER_PI
    return select(small, exactly(x), turned), value.select(small, n.same(0), n)


def _at_node(r: Pair) -> tuple[Pair, Pair, Pair, Pair]:
    """sin c, cos c, sin d, 1 - cos d for |r| = c + d, c the multiple of 1/16 nearest to it."""
    magnitude = abs(r)
    nearest, j = nearest_integer(magnitude.high * 16.0)
    d = magnitude - nearest * 0.0625
    z = square(d)
    sine = add_smaller(d, (z * series(z, constants.SIN, constants.SIN_TRAILING)) * d)
    versine = z * series(z, constants.VERSINE, constants.VERSINE_TRAILING)
    return lookup_pair(constants.SINES, j), lookup_pair(constants.COSINES, j), sine, versine


def _sine(r: Pair, cosine: Value) -> Pair:
    """sin r, or cos r where `cosine`: A + (B sin d - A (1 - cos d)), (A, B) = (sin c, cos c) or (cos c, -sin c)."""
    sin_c, cos_c, sin_d, versine_d = _at_node(r)
    a, b = select(cosine, cos_c, sin_c), select(cosine, -sin_c, cos_c)
    total = a + (b * sin_d - a * versine_d)
    return select((r.high < 0.0) & ~cosine, -total, total)


def _quadrant(r: Pair, n: Value) -> Pair:
    """sin(r + n pi/2)."""
    total = _sine(r, (n & 1).differs(0))
    return select((n & 2).differs(0), -total, total)


def sin(x: Value) -> Pair:
    r, n = reduced(x)
    return _quadrant(r, n)


def cos(x: Value) -> Pair:
    r, n = reduced(x)
    return _quadrant(r, n + 1)


def tan(x: Value) -> Pair:
    """sin / cos; the signs of a half turn cancel."""
    r, n = reduced(x)
    sin_c, cos_c, sin_d, versine_d = _at_node(r)
    sine = sin_c + (cos_c * sin_d - sin_c * versine_d)
    cosine = cos_c - (sin_c * sin_d + cos_c * versine_d)
    odd = (n & 1).differs(0)
    quotient = select(odd, -cosine, sine) / select(odd, sine, cosine)
    turned = select(r.high < 0.0, -quotient, quotient)
    tiny = odd_function(x, turned, constants.TAN_TINY, constants.TAN_TINY_TRAILING)
    return select(abs(x) < TINY, tiny, turned)

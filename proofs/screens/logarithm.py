"""Screens of the logarithmic family."""

from __future__ import annotations

from proofs import constants
from proofs.double_double import (
    Pair,
    add_smaller,
    constant,
    exact_product,
    exact_sum,
    exactly,
    lookup_pair,
    select,
    series,
    sqrt,
    square,
)
from proofs.screens.tiny import odd_function
from repro.ir.types import I64
from repro.numerics.elementary.value import Value, f64, nearest_integer, power_of_two, small_integer_to_f64

_THREE_QUARTERS = 0x3FE8000000000000
"""Bits of 0.75."""


def _reduced(m: Pair, m_minus_one: Pair) -> tuple[Value, Pair]:
    """(k, l): ln m = k ln 2 + l, relative also near 1; m.high positive and normal.

    m = 2^k t with t in [3/4, 3/2), c = the multiple of 1/16 nearest to 1 / t, and then
    l = 2 atanh(f / (f + 2)) - ln c for f = c t - 1. Near 1, where k = 0 and c = 1, f is m_minus_one as given.
    """
    bits = m.high.as_bits(I64)
    k = (bits - _THREE_QUARTERS) >> 52
    t = Pair((bits - (k << 52)).as_bits(m.high.dtype), m.low * power_of_two(-k))
    sixteenths, j = nearest_integer(16.0 / t.high)
    f = select(k.equals(0) & j.equals(16), m_minus_one, t * (sixteenths * 0.0625) - 1.0)
    s = f / (f + 2.0)
    z = square(s)
    tail = z * series(z, constants.LOG, constants.LOG_TRAILING)
    twice = add_smaller(s, s * tail).scaled(2.0)
    return small_integer_to_f64(k), lookup_pair(constants.LOG_RECIPROCALS, j - 11) + twice


def _ln(reduction: tuple[Value, Pair]) -> Pair:
    k, rest = reduction
    return constant(constants.LN2_PAIR) * k + rest


def _of_f64(x: Value) -> tuple[Value, Pair]:
    return _reduced(exactly(x), exact_sum(x, -1.0))


def log_f64(x: Value) -> Pair:
    return _ln(_of_f64(x))


def log1p_pair(z: Pair) -> Pair:
    """ln(1 + z), relative also near z = 0."""
    return _ln(_reduced(z + 1.0, z))


def log(x: Value) -> Pair:
    return log_f64(x)


def log2(x: Value) -> Pair:
    """k + l / ln 2: exact for powers of two."""
    k, rest = _of_f64(x)
    return rest * constant(constants.LOG2_E) + k


def log10(x: Value) -> Pair:
    return log_f64(x) * constant(constants.LOG10_E)


def log1p(x: Value) -> Pair:
    return log1p_pair(exactly(x))


def asinh(x: Value) -> Pair:
    """ln(1 + a + a^2 / (1 + sqrt(1 + a^2))) for a = |x|."""
    a = abs(x)
    squared = Pair(*exact_product(a, a))
    argument = squared / (sqrt(squared + 1.0) + 1.0) + a
    return odd_function(x, log1p_pair(argument), constants.ASINH_TINY, constants.ASINH_TINY_TRAILING)


def acosh(x: Value) -> Pair:
    """ln(1 + w + sqrt(w (w + 2))) for w = x - 1."""
    w = exact_sum(x, -1.0)
    return log1p_pair(sqrt(w * (w + 2.0)) + w)


def atanh(x: Value) -> Pair:
    """ln(1 + 2a / (1 - a)) / 2 for a = |x|."""
    a = abs(x)
    quotient = exactly(a + a) / exact_sum(f64(1.0), -a)
    magnitude = log1p_pair(quotient).scaled(0.5)
    return odd_function(x, magnitude, constants.ATANH_TINY, constants.ATANH_TINY_TRAILING)

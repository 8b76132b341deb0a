"""Screens of the exponential family."""

from __future__ import annotations

from proofs import constants
from proofs.double_double import Pair, add_smaller, exactly, select, series, square, two_sum
from proofs.screens.tiny import odd_function
from repro.numerics.elementary import value
from repro.numerics.elementary.value import Value, f64, nearest_integer, power_of_two

GREATEST = 600.0
"""Arguments of exp beyond it in magnitude are taken for it: e^-600 < 2^-865, e^600 > 2^865."""

_HALVINGS = 5


def clamped(x: Value, bound: float) -> Value:
    return value.select(x > bound, f64(bound), value.select(x < -bound, f64(-bound), x))


def expm1_reduced(r: Pair) -> Pair:
    """e^r - 1 for |r| < 0.35, relative also near 0.

    Taylor's series for r / 32, where its terms fall by 2^-7 and more, and five times
    e^(2t) - 1 = (e^t - 1) (2 + (e^t - 1)).
    """
    t = r.scaled(0.5**_HALVINGS)
    tail = series(t, constants.EXP, constants.EXP_TRAILING)
    total = add_smaller(t, square(t) * tail)
    for _ in range(_HALVINGS):
        total = add_smaller(total.scaled(2.0), square(total))
    return total


def reduced(x: Pair) -> tuple[Pair, Value]:
    """(e, n): e^x = 2^n (1 + e), n = 0 and the argument not rounded for |x| < 0.34; |x| < 700.

    n has 10 bits and ln 2's first word 40, so their product is exact, and so is its difference from x.high.
    """
    short, middle, low = constants.LN2
    n, integer = nearest_integer(x.high * constants.LOG2_E[0])
    near = exactly(x.high - n * short) + x.low
    rest = Pair(f64(middle), f64(low)) * n
    return expm1_reduced(near - rest), integer


def exp_pair(x: Pair) -> Pair:
    """e^x for |x| < 700."""
    e, n = reduced(x)
    return (e + 1.0).scaled(power_of_two(n))


def expm1_pair(x: Pair) -> Pair:
    """e^x - 1 for |x| < 700; 2^n e + (2^n - 1), whose sum cancels by less than a factor 2."""
    e, n = reduced(x)
    scale = power_of_two(n)
    total = e.scaled(scale) + Pair(*two_sum(scale, f64(-1.0)))
    return select(n.equals(0), e, total)


def exp(x: Value) -> Pair:
    return exp_pair(exactly(clamped(x, GREATEST)))


def exp2(x: Value) -> Pair:
    """2^x = 2^n e^((x - n) ln 2)."""
    bounded = clamped(x, 860.0)
    n, integer = nearest_integer(bounded)
    rest = Pair(f64(constants.LN2_PAIR[0]), f64(constants.LN2_PAIR[1])) * (bounded - n)
    return (expm1_reduced(rest) + 1.0).scaled(power_of_two(integer))


def expm1(x: Value) -> Pair:
    return expm1_pair(exactly(clamped(x, GREATEST)))


def _expm1_halves(x: Value) -> tuple[Pair, Pair]:
    """(e, q): e = e^|x| - 1 and q = e / (1 + e) = 1 - e^-|x|."""
    e = expm1_pair(exactly(clamped(abs(x), GREATEST)))
    return e, e / (e + 1.0)


def sinh(x: Value) -> Pair:
    """(e + q) / 2."""
    e, q = _expm1_halves(x)
    return odd_function(x, (e + q).scaled(0.5), constants.SINH_TINY, constants.SINH_TINY_TRAILING)


def cosh(x: Value) -> Pair:
    """1 + e q / 2."""
    e, q = _expm1_halves(x)
    return (e * q).scaled(0.5) + 1.0


def tanh(x: Value) -> Pair:
    """e / (e + 2) with e = e^(2|x|) - 1; 1 - 2 / (e + 2) from 1 on, which leaves what 1 lacks in the low part."""
    e = expm1_pair(exactly(clamped(abs(x) + abs(x), 100.0)))
    large = abs(x) > 1.0
    quotient = select(large, exactly(x.same(2.0)), e) / (e + 2.0)
    magnitude = select(large, 1.0 - quotient, quotient)
    return odd_function(x, magnitude, constants.TANH_TINY, constants.TANH_TINY_TRAILING)

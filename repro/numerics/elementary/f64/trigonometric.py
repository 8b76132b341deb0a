"""sin, cos and tan, f64 to f64: x = q pi/2 + r with r as a pair, |r| <= pi/4.

Up to 2^30 by three parts of pi/2 (Cody and Waite 1980, with fma); beyond, where few arguments lie, by integer
arithmetic against the bits of 2/pi (Payne and Hanek 1983). Both leave r to 2^-70 of itself for every f64: the
closest any comes to a multiple of pi/2 is about 2^-61.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

from repro.ir.types import F64, I64, U64
from repro.numerics.elementary.f64 import trigonometric_constants as k
from repro.numerics.elementary.pairs import Pair, divide, fast_two_sum, multiply, square, two_product, two_sum
from repro.numerics.elementary.value import Value, fma, nearest_integer, polynomial, rarely, select

_HUGE = 2.0**30
_TINY = 2.0**-27
"""Below, sin x and tan x are x to 2^-54."""

_WORD = 32
_LOW_WORD = (1 << _WORD) - 1
_LEAD = 24
"""Zero bits before those of 2/pi, so that every huge argument's window begins inside."""
_WINDOW = 6
_BIAS = 1075
_GREATEST_EXPONENT = 2046


def _reduced(x: Value) -> tuple[Value, Pair]:
    """(q, r): x = q pi/2 + r for |x| < 2^30; q is i64."""
    n, q = nearest_integer(x * k.TWO_OVER_PI)
    r = fma(-n, k.HALF_PI, x)  # exact: a multiple of 2^-53 below 1
    middle, middle_low = two_product(n, k.HALF_PI_LOW)
    r, e = two_sum(r, -middle)
    return q, fast_two_sum(r, (e - middle_low) - n * k.HALF_PI_LOWEST)


def _word(position: int) -> int:
    """32 bits of 2/pi after _LEAD zero bits, from bit `position` on; past the stored ones, zeros."""
    bits = 0
    for word in k.TWO_OVER_PI_WORDS:
        bits = (bits << _WORD) | word
    shift = _WORD * len(k.TWO_OVER_PI_WORDS) + _LEAD - position - _WORD
    return (bits >> shift if shift >= 0 else bits << -shift) & _LOW_WORD


def _window(offset: Value) -> list[Value]:
    """_WINDOW 32-bit words (as u64) of 2/pi from bit `offset` (u64) on."""
    skip = offset >> 5
    greatest = _GREATEST_EXPONENT - _BIAS - 1 + _LEAD
    steps = [1 << bit for bit in reversed(range((greatest >> 5).bit_length()))]
    table = [offset.same(_word(_WORD * i)) for i in range(_WINDOW + 1 + sum(steps))]
    for step in steps:  # one bit of the word offset at a time
        taken = (skip & step).differs(0)
        table = [select(taken, table[i + step], table[i]) for i in range(len(table) - step)]
    within = offset & 31
    return [(((high << 32) | low) >> (32 - within)) & _LOW_WORD for high, low in pairwise(table)]


def _multiply(mantissa: Value, window: list[Value]) -> list[Value]:
    """The low len(window) words of mantissa * window, the most significant first; the mantissa has two words."""
    product = [mantissa.same(0)] * len(window)
    for limb in range(2):
        factor = (mantissa >> (_WORD * limb)) & _LOW_WORD
        carry = mantissa.same(0)
        for place in range(len(window) - 1 - limb, -1, -1):
            total = factor * window[place + limb] + product[place] + carry
            product[place], carry = total & _LOW_WORD, total >> 32
    return product


def _reduced_huge(x: Value) -> tuple[Value, Pair]:
    """(q, r) as above, for 2^30 <= |x| < infinity.

    |x| = M 2^e with whole M: bits of 2/pi that weigh 2^-(e - 2) or more only add multiples of 4, so that the
    window begins at 2^-(e - 1); M times its 192 bits leaves the fraction to 2^-137.
    """
    bits = abs(x).as_bits(U64)
    exponent = bits >> 52
    mantissa = (bits & ((1 << 52) - 1)) | (1 << 52)
    words = _multiply(mantissa, _window(exponent - (_BIAS + 2 - _LEAD)))
    high, middle, low = ((words[place] << 32) | words[place + 1] for place in (0, 2, 4))
    q = (((high + (1 << 61)) >> 62) & 3).as_bits(I64)
    r = multiply(_turns((high << 2) | (middle >> 62), (middle << 2) | (low >> 62), low << 2), _half_pi(x))
    negative = x < 0.0
    r, r_low = fast_two_sum(*r)
    return select(negative, -q, q), (select(negative, -r, r), select(negative, -r_low, r_low))


def _half_pi(x: Value) -> Pair:
    return x.same(k.HALF_PI), x.same(k.HALF_PI_LOW)


def _turns(high: Value, middle: Value, low: Value) -> Pair:
    """A signed 192-bit fraction of a quarter turn as a pair."""
    first = (high.as_bits(I64) >> 11).to(F64) * 2.0**-53
    second = (((high & 0x7FF) << 42) | (middle >> 22)).as_bits(I64).to(F64) * 2.0**-106
    third = (((middle & 0x3FFFFF) << 31) | (low >> 33)).as_bits(I64).to(F64) * 2.0**-159
    f, e = fast_two_sum(first, second)
    return fast_two_sum(f, e + third)


def _sin_near_zero(r: Pair) -> Pair:
    """sin r: r, and what is to be added to it."""
    high, low = r
    z, z_low = square(high)
    return high, fma(high, z * polynomial(z, k.SIN), low * (1.0 - 0.5 * z) + high * (z_low * k.SIN[0]))


def _cos_near_zero(r: Pair) -> Pair:
    """cos r: 1 - r^2/2 rounded, and what is to be added to it."""
    high, low = r
    z, z_low = square(high)
    w, e = fast_two_sum(z.same(1.0), -0.5 * z)
    return w, e + ((z * z * polynomial(z, k.COS) - 0.5 * z_low) - high * low)


def _sin_pair(r: Pair) -> Pair:
    """sin r as a pair, to 2^-59: its cubic term is multiplied out."""
    high, low = r
    z, z_low = square(high)
    s, e = fast_two_sum(z.same(k.SIN[0]), z * polynomial(z, k.SIN[1:]))
    p, p_low = multiply((z, z_low), (s, e + k.SIN_LOW))
    cubic, e = two_product(high, p)
    total, e_total = fast_two_sum(high, cubic)
    return total, e_total + (e + (high * p_low + low * (1.0 - 0.5 * z)))


def _is_odd(q: Value) -> Value:
    return (q & 1).differs(0)


def _chosen(condition: Value, then: Pair, otherwise: Pair) -> Pair:
    return select(condition, then[0], otherwise[0]), select(condition, then[1], otherwise[1])


def _sine(q: Value, r: Pair) -> Value:
    """sin(q pi/2 + r)"""
    high, low = _chosen(_is_odd(q), _cos_near_zero(r), _sin_near_zero(r))
    value = high + low
    return select((q & 2).differs(0), -value, value)


def _cosine(q: Value, r: Pair) -> Value:
    return _sine(q + 1, r)


def _tangent(q: Value, r: Pair) -> Value:
    """sin / cos, or -cos / sin after an odd number of quarter turns."""
    odd = _is_odd(q)
    s, c = _sin_pair(r), fast_two_sum(*_cos_near_zero(r))
    high, low = divide(_chosen(odd, c, s), _chosen(odd, s, c))
    return select(odd, -(high + low), high + low)


def _with_reduction(x: Value, function: Callable[[Value, Pair], Value]) -> Value:
    """The function after the shorter reduction, after the longer one where |x| is huge; NaN for infinity."""
    far = function(*_reduced_huge(x))
    far = select(abs(x) < math.inf, far, x - x)
    return rarely(abs(x) >= _HUGE, far, function(*_reduced(x)))


def sin(x: Value) -> Value:
    return select(abs(x) < _TINY, x, _with_reduction(x, _sine))


def cos(x: Value) -> Value:
    return _with_reduction(x, _cosine)


def tan(x: Value) -> Value:
    return select(abs(x) < _TINY, x, _with_reduction(x, _tangent))

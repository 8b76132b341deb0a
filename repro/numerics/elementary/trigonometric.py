"""sin, cos, tan and their inverses, f64 to f64, as branch-free sequences.

The argument is reduced by integer arithmetic against the bits of 2/pi (Payne and Hanek), for every finite x:
there is no range in which the result is worse.
"""

from __future__ import annotations

import math
from itertools import pairwise

from repro.ir.types import F64, I64, U64
from repro.numerics.elementary import constants as k
from repro.numerics.elementary.value import (
    Value,
    f64,
    is_negative,
    nearest_integer,
    polynomial,
    rational,
    select,
    sqrt,
    with_sign_of,
)

_SIN = tuple(rational((-1) ** n, math.factorial(2 * n + 1)) for n in range(1, 9))
_COS = tuple(rational((-1) ** n, math.factorial(2 * n)) for n in range(2, 10))
_ATAN = tuple(rational((-1) ** n, 2 * n + 1) for n in range(1, 11))

_WORD = 32
_LOW_WORD = (1 << _WORD) - 1
_FRACTION_BITS = 1280


def _word(position: int, lead: int) -> int:
    """32 bits of 2/pi after `lead` zero bits, from bit `position` on; past its stored end, zeros."""
    shift = _FRACTION_BITS + lead - position - _WORD
    return (k.TWO_OVER_PI >> shift if shift >= 0 else k.TWO_OVER_PI << -shift) & _LOW_WORD


def _window(offset: Value, greatest: int, lead: int, words: int) -> list[Value]:
    """`words` 32-bit words (as u64) of 2/pi from bit `offset` (u64, at most `greatest`) on."""
    skip = offset >> 5
    steps = [1 << bit for bit in reversed(range((greatest >> 5).bit_length()))]
    table = [offset.same(_word(_WORD * i, lead)) for i in range(words + 1 + sum(steps))]
    for step in steps:  # one bit of the word offset at a time
        taken = (skip & step).differs(0)
        table = [select(taken, table[i + step], table[i]) for i in range(len(table) - step)]
    within = offset & 31
    return [(((high << 32) | low) >> (32 - within)) & _LOW_WORD for high, low in pairwise(table)]


def _multiply(mantissa: Value, limbs: int, window: list[Value]) -> list[Value]:
    """The low len(window) words of mantissa * window, most significant first."""
    product = [mantissa.same(0)] * len(window)
    for limb in range(limbs):
        factor = (mantissa >> (_WORD * limb)) & _LOW_WORD
        carry = mantissa.same(0)
        for place in range(len(window) - 1 - limb, -1, -1):
            total = factor * window[place + limb] + product[place] + carry
            product[place], carry = total & _LOW_WORD, total >> 32
    return product


def reduce_to_octant(x: Value, mantissa_bits: int) -> tuple[Value, Value]:
    """(q, r): |x| = q pi/2 + r modulo 2 pi, |r| <= pi/4, q in 0..3 as u64.

    `mantissa_bits` is the precision of x (24 for a widened f32): it sets how many words are multiplied.
    """
    narrow = mantissa_bits <= 24
    bits = abs(x).as_bits(U64)
    exponent = bits >> 52
    greatest = 1022 + (128 if narrow else 1024)
    reducible = (exponent > 1022) & (exponent <= greatest)  # not below 1/2; infinity and NaN go their own way
    offset = select(reducible, exponent - 1022, exponent.same(0))
    significand = ((bits & ((1 << 52) - 1)) | (1 << 52)) >> (53 - mantissa_bits)
    # |x| 2/pi = significand * (2/pi 2^(offset - mantissa_bits)); two integer bits lead the window
    words = 4 if narrow else 7
    window = _window(offset, greatest - 1022, mantissa_bits + 2, words)
    product = _multiply(significand, 1 if narrow else 2, window)
    high = (product[0] << 32) | product[1]
    low = (product[2] << 32) | product[3]
    quadrant = ((high + (1 << 61)) >> 62) & 3
    fraction = ((high << 2) | (low >> 62)).as_bits(I64).to(F64) * 2.0**-64
    tail = ((low << 2) >> 11).as_bits(I64).to(F64) * 2.0**-117
    r = (fraction + tail) * k.HALF_PI_HIGH
    small = abs(x) <= math.pi / 4
    return select(small, quadrant.same(0), quadrant), select(small, abs(x), r)


def _sin_near_zero(r: Value) -> Value:
    z = r * r
    return r + r * (z * polynomial(z, _SIN))


def _cos_near_zero(r: Value) -> Value:
    z = r * r
    half = 0.5 * z
    w = 1.0 - half
    return w + (((1.0 - w) - half) + z * z * polynomial(z, _COS))


def _finite(x: Value, result: Value) -> Value:
    return select(abs(x) < math.inf, result, math.nan)


def _flip(value: Value, condition: Value) -> Value:
    return select(condition, -value, value)


def sin(x: Value, mantissa_bits: int = 53) -> Value:
    q, r = reduce_to_octant(x, mantissa_bits)
    value = select((q & 1).equals(0), _sin_near_zero(r), _cos_near_zero(r))
    return _finite(x, _flip(value, ((q & 2).differs(0)) ^ is_negative(x)))


def cos(x: Value, mantissa_bits: int = 53) -> Value:
    q, r = reduce_to_octant(x, mantissa_bits)
    value = select((q & 1).equals(0), _cos_near_zero(r), _sin_near_zero(r))
    return _finite(x, _flip(value, ((q + 1) & 2).differs(0)))


def tan(x: Value, mantissa_bits: int = 53) -> Value:
    q, r = reduce_to_octant(x, mantissa_bits)
    s, c = _sin_near_zero(r), _cos_near_zero(r)
    even = (q & 1).equals(0)
    value = select(even, s, -c) / select(even, c, s)
    return _finite(x, _flip(value, is_negative(x)))


def atan(x: Value) -> Value:
    size = abs(x)
    inverted = size > 1.0
    ratio = select(inverted, 1.0 / size, size)
    c = nearest_integer(ratio * 4.0)[0] * 0.25  # the nearest quarter
    top = select(inverted, 1.0 - c * size, size - c)
    bottom = select(inverted, size + c, 1.0 + c * size)
    t = select(size.equals(math.inf), 0.0, top / bottom)
    z = t * t
    correction = t * (z * polynomial(z, _ATAN))
    high, low = _quarter(c, k.ATAN_QUARTERS_HIGH), _quarter(c, k.ATAN_QUARTERS_LOW)
    angle = high + (t + (correction + low))
    outer = k.HALF_PI_HIGH - ((high - k.HALF_PI_LOW) + (t + (correction + low)))
    return with_sign_of(select(inverted, outer, angle), x)


def _quarter(c: Value, table: tuple[float, ...]) -> Value:
    chosen = f64(table[0])
    for position in range(1, 5):
        chosen = select(c.equals(position / 4), table[position], chosen)
    return chosen


def asin(x: Value) -> Value:
    return atan(x / sqrt((1.0 - x) * (1.0 + x)))


def acos(x: Value) -> Value:
    return 2.0 * atan(sqrt((1.0 - x) / (1.0 + x)))

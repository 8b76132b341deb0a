"""pow, f32 to f32: correctly rounded, in f64 arithmetic; undecided cases again in pairs of f64s.

x^y = 2^(y log2 x). With |x| = 2^e m and r a short reciprocal of m, z = m r - 1 is exact (27 bits), and so is p = y z
(24 + 27 bits). Then y log2|x| = y (e - log2 r) + p log2(1 + z)/z, where e - log2 r is a tabulated sum.

Common road, 65 operations in f64 with its leading products exact: relative error below 2^-49.3 (measured 2^-50.1),
tested with 2^-48; about one operand pair in 2^23.7 is undecided. Wide road, 500 operations: everything again within
2^-100 (measured 2^-102), and cases whose power has at most 25 significant bits, midpoints among them, by exact
products. About 2^60 operand pairs have a power in range that is not 1: if they lie at random, one within 2^-100 of a
midpoint exists with a chance of about 2^-15.
"""

from __future__ import annotations

import math

from repro.ir.types import F32, F64, I64, U32, U64
from repro.numerics.elementary.f32 import power_constants as k
from repro.numerics.elementary.f32.wide import horner_pair, rounded, undecided, with_sign
from repro.numerics.elementary.pairs import Pair, fast_two_sum, multiply, two_product, two_sum
from repro.numerics.elementary.value import (
    Value,
    clamp,
    f64,
    fma,
    horner,
    lookup,
    nearest_integer,
    rarely,
    select,
    sqrt,
    trunc,
)

BOUND = 2.0**-48
"""What the common road's result is tested with; its own error is below 2^-49.3."""

_INTERVALS = 0x3FE7000000000000
"""The bits of 23/32, where the eight intervals of m begin."""
_BIASED = _INTERVALS - (1024 << 52)
_FRACTION = (1 << 52) - 1
_INTEGERS = 0x4330000000000000
"""The bits of 2^52: an integer below them is one of an f64's last places."""
_SHIFTER = float((3 << 51) + 1023)
_EIGHTHS_SHIFTER = float((3 << 51) + 8 * 1023)
_BEYOND = 2.0**32
"""|log2 x| is 0 or at least 2^-24: a greater exponent gives 0, 1 or infinity as this one does."""


def _parts(size: Value) -> tuple[Value, Value, Value]:
    """(a, i, z): log2(size) = a + LOGS_LOW[i] + LOGS_LAST[i] + log2(1 + z), all exact; for an f64 of f32's range.

    Of 0 and infinity a is -+2^200 about, and z is 0.
    """
    bits = size.as_bits(U64) - (_BIASED % 2**64)
    exponent = ((bits >> 52) | _INTEGERS).as_bits(F64) - (2.0**52 + 1024.0)
    exponent = select(abs(exponent) > 500.0, exponent * 2.0**190, exponent)
    mantissa = ((bits & _FRACTION) + _INTERVALS).as_bits(F64)
    interval = (bits >> 49).as_bits(I64)
    return exponent + lookup(interval, k.LOGS), interval, fma(mantissa, lookup(interval, k.RECIPROCALS), -1.0)


def _common(y: Value, a: Value, interval: Value, z: Value) -> Value:
    """2^(y log2 size), f64.

    What is not exact in y log2 size = t + rest: the product p z Q, below 5, with three roundings and the fit; t itself
    below 2^8. So the sum is known to 2^-49.1, and the power to 2^-49.6; 2^r adds 2^-52.
    """
    p = y * z
    whole, product = y * a, p * k.LOG2_E
    low = fma(p, k.LOG2_E_LOW, fma(p, k.LOG2_E, -product)) + fma(y, lookup(interval, k.LOGS_LOW), fma(y, a, -whole))
    high, lost = fast_two_sum(whole, product)
    t, rest = fast_two_sum(high, fma(p * z, horner(z, k.LOG2_REST), low + lost))
    t = clamp(t, -200.0, 200.0)
    shifted = t + _SHIFTER
    r = (t - (shifted - _SHIFTER)) + rest
    return fma(r, horner(r, k.EXP2M1), 1.0) * (shifted.as_bits(I64) << 52).as_bits(F64)


def _exponent_pair(y: Value, a: Value, interval: Value, z: Value) -> tuple[Value, Pair]:
    """(t, rest): y log2 size = t + rest, within 2^-100; rest is a pair that may be as great as an ulp of t or so."""
    p = y * z
    whole, whole_low = two_product(y, a)
    product, product_low = two_product(p, k.LOG2_E)
    series = multiply(two_product(p, z), horner_pair((z, f64(0.0)), k.LOG2_SERIES, k.LOG2_SERIES_LOW))
    t, lost = two_sum(whole, product)
    t, lost_next = two_sum(t, series[0])
    second, second_low = two_product(y, lookup(interval, k.LOGS_LOW))
    third, third_low = two_product(p, k.LOG2_E_LOW)
    rest, last = lost, series[1] + second_low + third_low
    for term in (lost_next, whole_low, product_low, second, third):
        rest, error = two_sum(rest, term)
        last = last + error
    return t, (rest, last + fma(y, lookup(interval, k.LOGS_LAST), p * k.LOG2_E_LAST))


def _wide(y: Value, a: Value, interval: Value, z: Value) -> Value:
    """2^(y log2 size) as f32, from a pair within 2^-100: t = n/8 + r, and e^(r ln 2) by Taylor's series."""
    t, (rest, last) = _exponent_pair(y, a, interval, z)
    shifted = fma(clamp(t, -200.0, 200.0), 8.0, _EIGHTHS_SHIFTER)
    r, error = two_sum(fma(shifted - _EIGHTHS_SHIFTER, -0.125, t), rest)
    w = fast_two_sum(*multiply(fast_two_sum(r, error + last), (f64(k.LN2), f64(k.LN2_LOW))))
    eighth = shifted.as_bits(U64)
    scale = ((eighth >> 3) << 52).as_bits(F64)
    root = lookup(eighth.as_bits(I64), k.EIGHTHS), lookup(eighth.as_bits(I64), k.EIGHTHS_LOW)
    high, low = multiply(root, horner_pair(w, k.EXP_SERIES, k.EXP_SERIES_LOW))
    return rounded((high * scale, low * scale))


def _exact(size: Value, y: Value) -> tuple[Value, Value]:
    """(known, power): whether size^y was found by exact steps, and then its value in f64.

    A power of at most 25 bits, where size is no power of 2 (those are exact on the wide road): y is a positive n / 2^s,
    size has an exact 2^s-th root, s <= 3 because 3^16 has more than 24 bits, and n <= 15 because 3^16 has more than 25.
    """
    root, n = size, y
    known = (y > 0.0) & (y < 16.0)
    for _ in range(3):
        fractional = trunc(n).differs(n)
        next_root = sqrt(root)
        known = known & (~fractional | fma(next_root, next_root, -root).equals(0.0))
        root, n = select(fractional, next_root, root), select(fractional, n + n, n)
    known = known & trunc(n).equals(n) & (n < 16.0)
    exponent = nearest_integer(n)[1]
    power = select((exponent & 8).differs(0), root, 1.0)
    for bit in (4, 2, 1):
        square, error = two_product(power, power)
        longer, longer_error = two_product(square, root)
        odd = (exponent & bit).differs(0)
        known = known & error.equals(0.0) & (~odd | longer_error.equals(0.0))
        power = select(odd, longer, square)
    return known, power


def _decided_exactly(size: Value, y: Value, otherwise: Value) -> Value:
    known, power = _exact(size, y)
    return select(known, power.to(F32), otherwise)


def _special(x: Value, y: Value, result: Value) -> Value:
    """Sign, and the cases of C99 Annex F.9.4.4 that the magnitude does not settle."""
    whole, half = trunc(y).equals(y), y * 0.5
    odd = whole & trunc(half).differs(half)
    signed = with_sign(result, select(odd, x.as_bits(U32), 0))
    undefined = ~(x >= 0.0) & ~((whole & (x < 0.0)) | x.equals(-math.inf))
    return select(x.equals(1.0) | y.equals(0.0), 1.0, select(undefined | y.differs(y), math.nan, signed))


def pow(x: Value, y: Value) -> Value:  # noqa: A001
    """Correctly rounded x^y."""
    size, exponent = abs(x).to(F64), clamp(y.to(F64), -_BEYOND, _BEYOND)
    parts = _parts(size)
    v = _common(exponent, *parts)
    wide = _decided_exactly(size, exponent, _wide(exponent, *parts))
    return _special(x, y, rarely(undecided(v, BOUND), wide, v.to(F32)))

"""What the f32 functions of two operands share: the rounding test, and sums of two f64s where it fails.

A result v with |v - true| <= bound |v| decides the f32 where both ends of its interval round to one value (Ziv, "Fast
evaluation of elementary mathematical functions with correctly rounded last bit", 1991). That holds in the subnormal
range too, because the ends are converted themselves.
"""

from __future__ import annotations

from collections.abc import Sequence

from repro.ir.types import F32, F64, I64, U32
from repro.numerics.elementary.pairs import Pair, fast_two_sum, multiply
from repro.numerics.elementary.value import Value, f64, fma, horner, select

_SIGN = 0x80000000


def undecided(v: Value, bound: float) -> Value:
    """Whether v (1 - bound) and v (1 + bound) round to different f32s, for a v >= 0; not for a NaN."""
    return fma(v, -bound, v).to(F32) < fma(v, bound, v).to(F32)


def rounded(pair: Pair) -> Value:
    """A positive sum as f32, rounded once.

    The sum is rounded to odd in f64 first (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved
    algorithms using rounding to odd", 2008): an inexact one ends in a set bit, and so is no midpoint of f32s.
    """
    high, low = fast_two_sum(*pair)
    bits = high.as_bits(I64)
    inexact_even = low.differs(0.0) & (bits & 1).equals(0)
    towards = select(low > 0.0, bits + 1, bits - 1)
    return select(inexact_even, towards, bits).as_bits(F64).to(F32)


def horner_pair(z: Pair, coefficients: Sequence[float], lows: Sequence[float]) -> Pair:
    """A polynomial, lowest power first: in pairs where `lows` continues a coefficient, plain above them.

    A coefficient is at least twice what is added to it.
    """
    high, low = horner(z[0], coefficients[len(lows) :]), f64(0.0)
    for coefficient, rest in reversed(list(zip(coefficients, lows, strict=False))):
        product, product_low = multiply(z, (high, low))
        high, low = fast_two_sum(f64(coefficient), product)
        high, low = fast_two_sum(high, low + (product_low + rest))
    return high, low


def with_sign(magnitude: Value, sign: Value) -> Value:
    """An f32 whose sign bit is clear, with the sign bit of a U32."""
    return (magnitude.as_bits(U32) | (sign & _SIGN)).as_bits(F32)

"""Whether an f32 is the correctly rounded value: how far inside its rounding interval the true value lies."""

from __future__ import annotations

import math
from collections.abc import Sequence

from proofs.double_double import Pair
from proofs.screens import Screen
from repro.ir.expressions import Expr
from repro.ir.types import F32, F64, U32
from repro.numerics.elementary.value import Value, f64, select

_SIGN, _MAGNITUDE, _INFINITY = 1 << 31, (1 << 31) - 1, 0x7F800000


def _magnitude(bits: Value) -> Value:
    """The f32 of these bits as f64; 2^128 for infinity: where the next f32 would be."""
    return select(bits.equals(_INFINITY), 2.0**128, bits.as_bits(F32).to(F64))


def slack(result: Value, truth: Pair) -> Value:
    """Distance from the true value to the nearer end of the result's rounding interval, in ulps of the result (f64).

    `result` is an f32 by its bits. The ends are the midpoints between it and its neighbours, which are exact in
    f64, and so is the difference with `truth.high` where it is small. Positive: the result is right; negative: it
    is wrong, by more than half an ulp or in the sign; NaN: a NaN stands somewhere, or the true value is zero.
    """
    magnitude = result & _MAGNITUDE
    negative = (result & _SIGN).differs(0)
    high = select(negative, -truth.high, truth.high)
    low = select(negative, -truth.low, truth.low)
    here, above = _magnitude(magnitude), _magnitude(magnitude + 1)
    below = _magnitude(select(magnitude.equals(0), magnitude, magnitude - 1))
    infinite = magnitude.equals(_INFINITY)
    ulp = select(infinite, 2.0**104, above - here)
    from_below = (high - (here + below) * 0.5) + low
    from_above = ((here + above) * 0.5 - high) - low
    # Zero of either sign has no neighbour on the other side: the sign of the true value must be its own.
    signed = select(high > 0.0, ulp, select(high < 0.0, -ulp, f64(math.nan)))
    from_below = select(magnitude.equals(0), signed, from_below)
    from_above = select(infinite, ulp, from_above)
    nearer = select(from_below < from_above, from_below, from_above)
    return select(from_below.equals(from_below), nearer, from_below) / ulp


def verdict(screen: Screen, result: Expr, *operands: Expr) -> Sequence[Expr]:
    """The slack as f32, of a result given by its bits; NaN for operands outside the screen's domain."""
    wide = [Value(operand).to(F64) for operand in operands]
    found = slack(Value(result), screen.function(*wide))
    for operand, (low, high) in zip(wide, screen.domain, strict=True):
        found = select((operand > low) & (operand < high), found, math.nan)
    return [found.to(F32).expr]


def function_bits(result: Value) -> Value:
    """An f32's bits, the canonical NaN for every NaN (rule 4)."""
    return select(result.equals(result), result.as_bits(U32), 0x7FC00000)

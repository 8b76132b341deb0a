"""exp and its family, f32 to f32, in f64 arithmetic."""

from __future__ import annotations

from repro.ir.types import F32, F64, I64
from repro.numerics.elementary.f32 import exponential_constants as k
from repro.numerics.elementary.value import Value, clamp, fma, horner

_SHIFTER = float((3 << 51) + 1023)
"""Added to a small value, it leaves the nearest integer, plus an exponent's bias, in the low bits."""


def reduced(x: Value) -> tuple[Value, Value]:
    """(r, s): e^x = s e^r with |r| <= ln(2)/2 and s a power of two; an f64 x, |x| below 2^9."""
    shifted = fma(x, k.LOG2_E, _SHIFTER)
    n = shifted - _SHIFTER
    r = fma(n, -k.LN2_LOW, fma(n, -k.LN2, x))
    return r, (shifted.as_bits(I64) << 52).as_bits(F64)


def exp(x: Value) -> Value:
    r, s = reduced(clamp(x, -104.0, 89.0).to(F64))
    return (horner(r, k.EXP) * s).to(F32)

"""exp and its family, f32 to f32, in f64 arithmetic."""

from __future__ import annotations

from repro.ir.types import F32, F64, I64, U32
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


def expm1_parts(x: Value) -> Value:
    """e^x - 1 as f64, of an f64 x, |x| below 2^9; an x of -0 gives +0."""
    r, s = reduced(x)
    return fma(s, r * horner(r, k.EXPM1), s - 1.0)


def tanh(x: Value) -> Value:
    """E / (E + 2) with E = e^2x - 1; it rounds to 1 from 9.02 on."""
    e = expm1_parts(clamp(x, -10.0, 10.0).to(F64) * 2.0)
    result = (e / (e + 2.0)).to(F32)
    return (result.as_bits(U32) | (x.as_bits(U32) & 0x80000000)).as_bits(F32)

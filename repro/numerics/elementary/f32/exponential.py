"""exp and its family, f32 to f32, in f64 arithmetic."""

from __future__ import annotations

from repro.ir.types import F32, F64, I64, U32
from repro.numerics.elementary.f32 import exponential_constants as k
from repro.numerics.elementary.f32.wide import with_sign
from repro.numerics.elementary.value import Value, clamp, fma, horner, patched

_SHIFTER = float((3 << 51) + 1023)
"""Added to a small value, it leaves the nearest integer, plus an exponent's bias, in the low bits."""


def reduced(x: Value) -> tuple[Value, Value]:
    """(r, s): e^x = s e^r with |r| <= ln(2)/2 and s a power of two; an f64 x, |x| below 2^9."""
    shifted = fma(x, k.LOG2_E, _SHIFTER)
    n = shifted - _SHIFTER
    r = fma(n, -k.LN2_LOW, fma(n, -k.LN2, x))
    return r, (shifted.as_bits(I64) << 52).as_bits(F64)


def exp(x: Value) -> Value:
    """2^n e^r, r = x - n ln 2 in two steps: degree 10; 2^-51.0 before rounding; 17 64-bit operations."""
    r, s = reduced(clamp(x, -104.0, 89.0).to(F64))
    return (horner(r, k.EXP) * s).to(F32)


def exp2(x: Value) -> Value:
    """2^x = 2^n 2^r, r exact and |r| <= 1/2: degree 10; 2^-51.1 before rounding; 15 64-bit operations."""
    near = clamp(x, -151.0, 129.0).to(F64)
    shifted = near + _SHIFTER
    r = near - (shifted - _SHIFTER)
    result = (horner(r, k.EXP2) * (shifted.as_bits(I64) << 52).as_bits(F64)).to(F32)
    return patched(x, result, k.EXP2_PATCHES)


def expm1_parts(x: Value) -> Value:
    """e^x - 1 as f64, of an f64 x, |x| below 2^9; an x of -0 gives +0."""
    r, s = reduced(x)
    return fma(s, r * horner(r, k.EXPM1), s - 1.0)


def expm1(x: Value) -> Value:
    """s (e^r - 1) + (s - 1), with the sign of x, which -0 would lose; 2^-51.4 before rounding; 18 64-bit operations."""
    near = clamp(x, -25.0, 89.0)
    return with_sign(expm1_parts(near.to(F64)).to(F32), x.as_bits(U32))


def tanh(x: Value) -> Value:
    """E / (E + 2) with E = e^2x - 1; it rounds to 1 from 9.02 on.

    2^-51.0 before rounding; 21 64-bit operations, one of them a division.
    """
    e = expm1_parts(clamp(x, -10.0, 10.0).to(F64) * 2.0)
    return with_sign((e / (e + 2.0)).to(F32), x.as_bits(U32))

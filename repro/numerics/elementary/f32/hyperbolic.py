"""sinh and cosh, f32 to f32, in f64 arithmetic, without a division."""

from __future__ import annotations

from repro.ir.types import F32, F64, I64
from repro.numerics.elementary.f32 import hyperbolic_constants as k
from repro.numerics.elementary.f32.exponential import reduced
from repro.numerics.elementary.value import Value, clamp, fma, horner

_SUM_OF_EXPONENTS = 2044 << 52
"""Of s/2 and 1/(2 s), biased, in place."""


def _parts(x: Value) -> tuple[Value, Value, Value, Value]:
    """(C, S, u, v): cosh r, sinh r, sinh n ln 2 with the other sign, cosh n ln 2, where x = n ln 2 + r, |r| <= ln(2)/2.

    With s = 2^n, u = (1/s - s)/2 and v = (1/s + s)/2; u is +0 for n = 0.
    """
    r, s = reduced(clamp(x, -90.0, 90.0).to(F64))
    z = r * r
    grown = s.as_bits(I64) - (1 << 52)
    shrunk = (_SUM_OF_EXPONENTS - grown).as_bits(F64)
    half = grown.as_bits(F64)
    return horner(z, k.COSH), r * horner(z, k.SINH), shrunk - half, shrunk + half


def sinh(x: Value) -> Value:
    """v S - u C, degree 11 and 10; 2^-50.6 before rounding; 24 64-bit operations. The sum with -u keeps -0."""
    c, s, u, v = _parts(x)
    return fma(-u, c, v * s).to(F32)


def cosh(x: Value) -> Value:
    """v C - u S; 2^-50.9 before rounding."""
    c, s, u, v = _parts(x)
    return fma(-u, s, v * c).to(F32)

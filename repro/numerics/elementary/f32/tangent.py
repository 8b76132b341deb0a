"""tan, f32 to f32, in f64 arithmetic: one quotient of polynomials, upside down beside a pole."""

from __future__ import annotations

from repro.ir.types import F32, F64, U64
from repro.numerics.elementary.f32 import tangent_constants as k
from repro.numerics.elementary.f32.trigonometric import HUGE, huge
from repro.numerics.elementary.value import Value, fma, horner, rarely, select

_SHIFTER = float(3 << 51)
_SIGN = 1 << 63


def _near(x: Value) -> Value:
    """tan x of an f64 x, |x| < 2^23: tan r, or -1/tan r where n is odd, x = n pi/2 + r, |r| <= pi/4."""
    shifted = fma(x, k.TWO_OVER_PI, _SHIFTER)
    n = shifted - _SHIFTER
    r = fma(n, -k.HALF_PI_LOW, fma(n, -k.HALF_PI, x))
    z = r * r
    top, bottom = r * horner(z, k.NUMERATOR), horner(z, k.DENOMINATOR)
    parity = shifted.as_bits(U64)
    odd = (parity & 1).differs(0)
    quotient = select(odd, bottom, top) / select(odd, top, bottom)
    return (quotient.as_bits(U64) ^ (parity << 63)).as_bits(F64)


def tan(x: Value) -> Value:
    """tan r = r P(r^2)/Q(r^2), cubics both; 2^-50.9 before rounding; 21 f64 operations, one of them a division."""
    wide = x.to(F64)
    size = huge(x, 0) / huge(x, 1)
    far = (size.as_bits(U64) ^ (wide.as_bits(U64) & _SIGN)).as_bits(F64)
    return rarely(abs(x) >= HUGE, far.to(F32), _near(wide).to(F32))

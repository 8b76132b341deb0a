"""tan, f32 to f32, in f64 arithmetic: one quotient of polynomials, upside down beside a pole."""

from __future__ import annotations

from repro.ir.types import F32, F64, U64
from repro.numerics.elementary.f32 import tangent_constants as k
from repro.numerics.elementary.f32.trigonometric import HUGE, half_turns
from repro.numerics.elementary.value import Value, fma, horner, rarely, select

_SHIFTER = float(3 << 51)
_SIGN = 1 << 63


def _tangent(r: Value, quarters: Value) -> Value:
    """tan r, or -1/tan r where the u64 `quarters` is odd; f64, |r| <= pi/4."""
    z = r * r
    top, bottom = r * horner(z, k.TANGENT_TOP), horner(z, k.TANGENT_BOTTOM)
    odd = (quarters & 1).differs(0)
    quotient = select(odd, bottom, top) / select(odd, top, bottom)
    return (quotient.as_bits(U64) ^ (quarters << 63)).as_bits(F64)


def _huge(x: Value) -> Value:
    """tan |x| of a huge f32, as f64: |x| from the nearest multiple of pi/2, in units of pi; NaN for infinity."""
    fraction, from_pole = half_turns(x, 0)[1], half_turns(x, 1)[1]
    beside_pole = abs(fraction) > 0.25
    nothing = (x - x).to(F64)
    r = fma(select(beside_pole, from_pole, fraction), k.HALF_PI * 2.0, nothing)
    return _tangent(r, beside_pole.to(U64))


def tan(x: Value) -> Value:
    """tan r = r P(r^2)/Q(r^2), cubics both, where x = n pi/2 + r, |r| <= pi/4.

    2^-50.9 before rounding; 19 64-bit operations, one of them a division.
    """
    wide = x.to(F64)
    shifted = fma(wide, k.TWO_OVER_PI, _SHIFTER)
    n = shifted - _SHIFTER
    r = fma(n, -k.HALF_PI_LOW, fma(n, -k.HALF_PI, wide))
    near = _tangent(r, shifted.as_bits(U64))
    far = (_huge(x).as_bits(U64) ^ (wide.as_bits(U64) & _SIGN)).as_bits(F64)
    return rarely(abs(x) >= HUGE, far.to(F32), near.to(F32))

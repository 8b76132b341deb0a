"""erfc, f32 to f32, in f64 arithmetic."""

from __future__ import annotations

from repro.ir.types import F32, F64
from repro.numerics.elementary.f32 import complement_constants as k
from repro.numerics.elementary.f32.exponential import reduced
from repro.numerics.elementary.f32.exponential_constants import EXP
from repro.numerics.elementary.value import Value, horner, select

_END = 10.0625
"""erfc rounds to 0 before."""
_TWO = 2.0 - 2.0**-52
"""Rounds as 2 does, but for one argument: erfc(-0x1.D93EC4p-17) lies 2^-56 below a midpoint."""


def erfc(x: Value) -> Value:
    """e^(-x^2) P(|x|)/Q(|x|), from 2 where x is negative; x^2 is exact in f64.

    Degrees 10, 8 and 9; 2^-49.4 before rounding, 2^-50.4 up to 1/4; 39 64-bit operations, one of them a division.
    """
    size = abs(x)
    near = select(size > _END, _END, size).to(F64)
    r, s = reduced(near * -near)
    far = (horner(r, EXP) * s) * (horner(near, k.SCALED_TOP) / horner(near, k.SCALED_BOTTOM))
    return select(x < 0.0, _TWO - far, far).to(F32)

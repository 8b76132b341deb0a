"""erf, f32 to f32, in f64 arithmetic."""

from __future__ import annotations

from repro.ir.types import F32, F64, I64
from repro.numerics.elementary.f32 import error_function_constants as k
from repro.numerics.elementary.value import Value, clamp, fma, lookup

_SHIFTER = float(3 << 51)
_ONE = 3.93
"""erf rounds to 1 well before."""


def erf(x: Value) -> Value:
    """x P(|x|), with the polynomial of the piece that |x| lies in: each coefficient is looked up.

    Four pieces up to 3.9375, degree 15; 2^-50.4 before rounding; 23 64-bit operations and 16 lookups.
    """
    wide = clamp(x, -_ONE, _ONE).to(F64)
    place = fma(abs(wide), k.PIECES_A_UNIT, -0.5)
    shifted = place + _SHIFTER
    t = place - (shifted - _SHIFTER)
    piece = shifted.as_bits(I64)
    total = lookup(piece, k.ERF_PIECES[-1])
    for row in reversed(k.ERF_PIECES[:-1]):
        total = fma(total, t, lookup(piece, row))
    return (wide * total).to(F32)

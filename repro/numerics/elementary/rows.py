"""A fourth road to f32 functions: f32 arithmetic near one of many points, whose rows lie in memory.

For machines whose registers hold few entries of a table, and take several instructions to look one up (`tabled`). With
hundreds of points hardly anything is left to compute between them: a line, which needs two f32s, and a bend and a third
power, which do not. What the latter need follows from the function's own derivatives, so that rows are short. As on the
road by tables in registers, the sum lies below the value by less than a window, and what that does not decide is left
to the first road.
"""

from __future__ import annotations

from collections.abc import Sequence

from repro.ir.expressions import lookup
from repro.ir.types import F32, U32
from repro.numerics.elementary import rows_constants as k
from repro.numerics.elementary.f32 import error_function, exponential
from repro.numerics.elementary.f32.wide import with_sign
from repro.numerics.elementary.pairs import Pair
from repro.numerics.elementary.value import Value, fma, rarely, select

_LEAST = 2.0**-90
"""Magnitudes of erf below which low parts may be subnormal. 0 is none of them: it is given by itself."""


def _row(near: Value, last: int, rows: Sequence[Sequence[int]]) -> list[Value]:
    """Entries of the piece in which a magnitude is, or of the last one for what is not a number too.

    Pieces go by the first bits of 1 + near, which are fine near 0 and coarse where functions are flat. It is scaled to
    the least normal numbers, so that these bits are a small integer as they are.
    """
    bits = fma(near, k.SCALE, k.START).as_bits(U32) >> (23 - k.PIECES_BITS)
    place = select(bits < last, bits, last)
    first = last + 1 - len(rows)
    count = 1 << last.bit_length()
    filled = [*[rows[0]] * first, *rows, *[rows[-1]] * (count - last - 1)]
    return [Value(lookup(F32, column, place.expr)) for column in zip(*filled, strict=True)]


def ends(high: Value, low: Value, window: Value | float) -> Pair:
    """Both ends of the window, rounded."""
    return high + low, high + fma(high, window, low)


def tanh(x: Value) -> Value:
    """T + (1 - T^2) (t - T t^2 + (T^2 - 1/3) t^3), where T is tanh at the point and t goes from there.

    Points are f32s at which tanh nearly is one, so that a row is those two. T = 1 behind the last piece gives 1, and an
    argument of which nothing is left in t (2^42 and beyond), as NaN, is undecided. Small arguments are decided by
    themselves: the first row is 0, 0.
    """
    near = abs(x)
    point, value = _row(near, k.TANH_LAST, k.TANH_ROWS)
    t, square = near - point, value * value
    slope = 1.0 - square
    slope_low = fma(-value, value, 1.0 - slope)
    bend = fma(fma(square - 1.0 / 3, t, -value), t, -k.TANH_ERROR)
    high = fma(slope, t, value)
    low = fma(fma(slope, bend, slope_low), t, fma(slope, t, value - high))
    least, most = ends(high, low, k.TANH_WINDOW)
    return rarely(~least.equals(most), exponential.tanh(x), with_sign(least, x.as_bits(U32)))


def erf(x: Value) -> Value:
    """P + S (t - c t^2 + (2 c^2 - 1)/3 t^3) with erf P and its slope S at the point c, and t from there.

    Of the points near a piece's middle one is taken at which the slope has as much more than an f32 as that at 0 has.
    """
    near = abs(x)
    point, value, slope, value_low = _row(near, k.ERF_LAST, k.ERF_ROWS)
    t = near - point
    bend = fma(fma(fma(point * (2.0 / 3), point, -1.0 / 3), t, -point), t, k.ERF_LACK)
    high = fma(slope, t, value)
    low = fma(slope * t, bend, value_low + fma(slope, t, value - high))
    least, most = ends(high, low, k.ERF_WINDOW)
    undecided = ~select(least > _LEAST, least, _LEAST).equals(most)
    seldom = rarely(undecided & x.differs(0.0), error_function.erf(x), x)
    return rarely(undecided, seldom, with_sign(least, x.as_bits(U32)))

"""A third road to f32 functions: f32 arithmetic between the points of a table, for machines that look tables up in
registers.

As on the road in pairs (`single`), a value is found as an unevaluated sum of two f32s, and where that does not decide
the rounding the first road is taken, in f64. A table makes the sums short: between its points a function is nearly a
line, and only that needs two f32s. The sum lies below the value, by less than a window; where both ends of the window
round to one f32, that is the result (as in `f32.wide`, but one end costs nothing).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from repro.ir.expressions import lookup as table_lookup
from repro.ir.types import F32, I32, U32
from repro.numerics.elementary import rows
from repro.numerics.elementary import tabled_constants as k
from repro.numerics.elementary.f32 import error_function, exponential
from repro.numerics.elementary.f32.wide import with_sign
from repro.numerics.elementary.pairs import Pair, two_product
from repro.numerics.elementary.value import Value, fma, horner, rarely, select

_SHIFTER = float(3 << 22)
"""1.5 * 2^23: added to a small value it leaves the nearest integer in an f32's low bits."""


@dataclass(frozen=True)
class _ExpTable:
    """Constants for some number of points to a factor of two. Added to a multiple of the step, the shifter leaves its
    number in an f32's low bits: its place."""

    shifter: float
    places_a_unit: float
    step: float
    step_low: float
    entry: Callable[[Value], Pair]
    """A power near 2^(n/points), and what its logarithm lacks, by the bits of n + shifter."""
    undecided: Callable[[Value, Value, Value], Value]
    """Whether the argument, or n + shifter, is too far from 0, or the window's ends are not alike."""
    window: float
    tail: tuple[float, ...]
    window_growth: float | None = None
    """What the window grows by with r^2, where it does: one more operation, but with few points twice as many lanes
    would be undecided without it."""


def _shift(points: int) -> int:
    """From a place's bits to those of an f32, where the points within a factor of two lie below the exponent."""
    return 24 - points.bit_length()


def _two_tables(powers: Sequence[int], lows: Sequence[float]) -> Callable[[Value], Pair]:
    """For machines that look up an entry by one instruction."""

    def entry(place: Value) -> Pair:
        power = (_bits(place, powers).as_bits(I32) + (place << _shift(len(powers)))).as_bits(F32)
        return power, _entry(place, lows)

    return entry


def _one_table(entries: Sequence[int], power_mask: int, low_shift: int, first_low: int) -> Callable[[Value], Pair]:
    """For machines that look up an entry by several instructions: both parts are in its 32 bits, since a power need not
    be the nearest one. It is one of those that lack what the bits beside it say."""

    def entry(place: Value) -> Pair:
        both = _bits(place, entries).as_bits(U32)
        power = ((both & power_mask).as_bits(I32) + (place << _shift(len(entries)))).as_bits(F32)
        return power, ((both >> low_shift) + first_low).as_bits(F32)

    return entry


def _by_argument(x: Value, _shifted: Value, alike: Value) -> Value:
    """Below -75 low parts would be subnormal; beyond 75 nothing is decided either."""
    return ~((abs(x) <= 75.0) & alike)


def _by_place(_x: Value, shifted: Value, alike: Value) -> Value:
    """For machines that test bits by one instruction: the places of -62.4 to 26.3 are all there are, and a shifter of
    few bits tells any other argument, infinity or NaN from them. (Of 0 and the least subnormals it would not, but no
    argument makes one of them: `tools.constants` asserts it.) This is known early, so it stands apart."""
    return (shifted.as_bits(U32) & k.EXP_32_FAR_BITS).differs(0) | ~alike


_EXP_32 = _ExpTable(
    k.EXP_32_SHIFTER, k.EXP_32_PLACES_A_UNIT, k.EXP_32_STEP, k.EXP_32_STEP_LOW,
    _two_tables(k.EXP_32_POWERS, k.EXP_32_LOWS), _by_place, k.EXP_32_WINDOW, k.EXP_32_TAIL,
)  # fmt: skip
_EXP_16 = _ExpTable(
    k.EXP_16_SHIFTER, k.EXP_16_PLACES_A_UNIT, k.EXP_16_STEP, k.EXP_16_STEP_LOW,
    _one_table(k.EXP_16_ENTRIES, k.EXP_16_POWER_MASK, k.EXP_16_LOW_SHIFT, k.EXP_16_FIRST_LOW), _by_argument,
    k.EXP_16_WINDOW, k.EXP_16_TAIL, k.EXP_16_WINDOW_GROWTH,
)  # fmt: skip


def _line(slope: Value, at: Value, start: Value) -> Pair:
    """start + slope * at as a sum of two, for |start| >= |slope * at|; the low part is rounded."""
    high = fma(slope, at, start)
    return high, fma(slope, at, start - high)


def _exp(x: Value, table: _ExpTable) -> Value:
    """2^k T e^r, with 2^k T made by one addition of integers. Far arguments are left to the first road, so that none is
    clamped first; below -104 the result is 0."""
    shifted = fma(x, table.places_a_unit, table.shifter)
    n, place = shifted - table.shifter, shifted.as_bits(I32)
    power, lacking = table.entry(place)
    r = fma(n, -table.step, x)
    r_low = fma(n, -table.step_low, lacking)
    near_r = r + r_low
    square = near_r * near_r
    high, low = _line(power, r, power)
    low = fma(power, fma(square, horner(r, table.tail), r_low), low)
    growth = table.window_growth
    window = table.window if growth is None else fma(square, growth, table.window)
    least, most = rows.ends(high, low, window)
    undecided = table.undecided(x, shifted, least.equals(most))
    seldom = rarely(undecided & ~(x < -104.0), exponential.exp(x), x.same(0.0))
    return rarely(undecided, seldom, least)


@dataclass(frozen=True)
class _Pieces:
    """f(x) = x P(x) for x >= 0, P by pieces round multiples of `spacing`; f rounds to 1 from `saturation` on."""

    first: Callable[[Value], Value]
    saturation: float
    spacing: float
    pieces_a_unit: float
    leading: Sequence[Sequence[float]]
    trailing: Sequence[Sequence[float]]
    window: float


_ERF_32 = _Pieces(
    error_function.erf, 3.93, k.ERF_32_SPACING, k.ERF_32_PIECES_A_UNIT, k.ERF_32_LEADING, k.ERF_32_TRAILING,
    k.ERF_32_WINDOW,
)  # fmt: skip
_TANH_32 = _Pieces(
    exponential.tanh, 9.03, k.TANH_32_SPACING, k.TANH_32_PIECES_A_UNIT, k.TANH_32_LEADING, k.TANH_32_TRAILING,
    k.TANH_32_WINDOW,
)  # fmt: skip


def _by_pieces(x: Value, pieces: _Pieces) -> Value:
    """x P(|x|); magnitudes below 2^-90 take the first road, for want of room for low parts, but 0."""
    near = abs(x)
    near = select(near > pieces.saturation, pieces.saturation, near)
    start, start_low = _sum(near, pieces)
    high, low = two_product(near, start)
    least, most = rows.ends(high, fma(near, start_low, low), pieces.window)
    undecided = ~((near >= 2.0**-90) & least.equals(most))
    seldom = rarely(undecided & x.differs(0.0), pieces.first(x), x)
    return rarely(undecided, seldom, with_sign(least, x.as_bits(U32)))


def _sum(near: Value, pieces: _Pieces) -> Pair:
    """P(near) as a sum of two: from the third power on in single f32s."""
    shifted = fma(near, pieces.pieces_a_unit, _SHIFTER)
    t, place = fma(shifted - _SHIFTER, -pieces.spacing, near), shifted.as_bits(I32)
    start, start_low, slope, slope_low = (_entry(place, row) for row in pieces.leading)
    bend, *trailing = (_entry(place, row) for row in pieces.trailing)
    total = trailing[-1]
    for coefficient in reversed(trailing[:-1]):
        total = fma(total, t, coefficient)
    bend, bend_low = _line(total, t, bend)
    slope, rest = _line(bend, t, slope)
    slope_low = fma(bend_low, t, rest + slope_low)
    start, rest = _line(slope, t, start)
    return start, fma(slope_low, t, rest + start_low)


def _bits(index: Value, row: Sequence[int]) -> Value:
    """row[index mod len(row)] for an i32 index; f32 entries, by their bits."""
    return Value(table_lookup(F32, row, index.expr))


def _entry(index: Value, row: Sequence[float]) -> Value:
    return _bits(index, [struct.unpack("<I", struct.pack("<f", entry))[0] for entry in row])


ROADS: dict[int, Mapping[str, Callable[[Value], Value]]] = {
    16: {"exp": lambda x: _exp(x, _EXP_16), "erf": rows.erf, "tanh": rows.tanh},
    32: {
        "exp": lambda x: _exp(x, _EXP_32),
        "erf": lambda x: _by_pieces(x, _ERF_32),
        "tanh": lambda x: _by_pieces(x, _TANH_32),
    },
}
"""Functions by name, for tables of so many f32s. Where these are few, functions of many tables have rows."""

TOGETHER = 4
"""Registers of lanes that are best computed step by step beside each other, and of which it is asked at once whether a
lane is undecided: steps wait for each other, and a processor looks only so far ahead for others."""


def entries(permute_bits: int) -> int:
    """Of a table of f32s: as many as two registers hold that a permute takes lanes from."""
    return 2 * permute_bits // F32.bits


def roads(permute_bits: int) -> Mapping[str, Callable[[Value], Value]]:
    """Those of a machine whose permutes take lanes from registers of that width."""
    return ROADS.get(entries(permute_bits), {})

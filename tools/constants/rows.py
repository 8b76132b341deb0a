"""The road by rows in memory: what tanh and erf are at each of many points.

Between points the road sums up a line, a bend and a third power, which are the function's own: the coefficients follow
from a row's few f32s. So rows are chosen for what their f32s lack. What is left out of the fourth power on is greatest
where a piece ends, and half of the fourth power there is added everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import mpmath
import numpy as np
from mpmath import erf, exp, findroot, floor, log, mpf, nstr, pi, sqrt

from tools.constants.printing import header, scalar
from tools.constants.single import pair, rounded
from tools.constants.tabled import bits, window

PATH = "repro/numerics/elementary/rows_constants.py"

PIECES_BITS = 8
"""Pieces go by 1 + x: 2^8 of them to each factor of two."""
ALIGNED = mpf(2) ** -126
"""1 + x is scaled to this, the least normal number, so that the first bits of an f32 count from 2^8 on."""
TANH_ERROR, ERF_ERROR = mpf(2) ** -35.4, mpf(2) ** -36
"""Relative, before rounding. What is summed up is less than the function by as much."""
TANH_END, ERF_END = mpf(mpmath.atanh(1 - mpf(2) ** -25)), mpf(3.9192059)
"""From here on they round to 1."""
BELOW_ONE = mpf(1) - mpf(2) ** -24
MOVES = [each // 2 if each % 2 == 0 else -(each // 2) - 1 for each in range(1 << 16)]
"""0, -1, 1, -2, 2, ..."""

Row = Sequence[mpf]


@dataclass(frozen=True)
class Piece:
    low: mpf
    high: mpf

    @property
    def middle(self) -> mpf:
        return (self.low + self.high) / 2

    @property
    def width(self) -> mpf:
        return self.high - self.low

    @property
    def farthest(self) -> mpf:
        """A point up to which differences from what is in the piece are exact; the piece's ends are rounded."""
        return 2 * self.low - mpf(2) ** -23


def pieces(end: mpf) -> list[Piece]:
    """Those of x >= 0 up to the one behind the end. The first one's middle is 0."""
    count, found = 1 << PIECES_BITS, list[Piece]()
    while not found or found[-1].low < end:
        octave, place = divmod(len(found), count)
        unit = mpf(2) ** (octave - PIECES_BITS)
        low = unit * (count + place) - 1 - 1 / mpf(2 * count)
        found.append(Piece(low, low + unit))
    return found


def ulp(value: mpf) -> mpf:
    return mpf(2) ** (floor(log(value, 2)) - 23)


# tanh: a row is a point and the value there; derivatives are polynomials of the value ───────────────


def tanh(x: mpf) -> mpf:
    return mpf(mpmath.tanh(x))


def tanh_sum(row: Row, x: mpf) -> mpf:
    """What the road sums up, in exact arithmetic."""
    point, value = row
    t = x - point
    return value + (1 - value**2) * t * (1 - TANH_ERROR - t * value + t**2 * (value**2 - mpf(1) / 3))


def tanh_row(piece: Piece) -> Row:
    if piece.low < 0:
        return mpf(0), mpf(0)
    if piece.low >= TANH_END:
        return piece.low, mpf(1)
    value = tanh(piece.middle)
    few = (1 - value**2) * piece.width < 4 * min(ulp(value), 1 - BELOW_ONE)
    return flat_row(piece) if few else nearly_exact_row(piece)


def flat_row(piece: Piece) -> Row:
    """Where tanh comes by few f32s: the nearest one, and the point that makes the sum right in the piece's middle, or
    where 1 is reached."""
    value = min(rounded(tanh(rounded(piece.middle))), BELOW_ONE)
    at = min(piece.middle if piece.high < TANH_END else piece.high, TANH_END)
    wanted = tanh(at) * (1 - TANH_ERROR)
    return rounded(mpf(findroot(lambda point: tanh_sum((point, value), at) - wanted, (at, mpmath.atanh(value))))), value


def nearly_exact_row(piece: Piece) -> Row:
    """Of the f32s about the middle the one where tanh, less the error allowed for, is nearest to an f32 (after Gal,
    "Computing elementary functions: a new approach for achieving high accuracy and good performance", 1986), and the
    fourth power at the piece's ends is small. Taylor's series says what tanh is there, in f64 by ulps of the value."""
    start, half = rounded(piece.middle), piece.width / 2
    value = tanh(start)
    slope, unit = 1 - value**2, min(ulp(value), 1 - BELOW_ONE)
    fourth = slope * (mpf(2) / 3 - value**2)
    factor = (1 - TANH_ERROR + fourth * half**4 / 2) / unit
    series = [slope, -value * slope, slope * (value**2 - mpf(1) / 3), value * fourth]
    moves = np.array(MOVES, np.float64) * float(ulp(start))
    moves = moves[(np.abs(moves) <= float(half / 2)) & (moves < float(piece.farthest - start))]
    whole, places = floor(value * factor), np.zeros_like(moves)
    for coefficient in series[::-1]:
        places = (places + float(coefficient * factor)) * moves
    places = places + float(value * factor - whole)
    off = np.abs(places - np.rint(places)) * float(unit / value)
    chosen = int(np.argmin(off + float(abs(fourth)) * (float(half) + np.abs(moves)) ** 4))
    return start + mpf(float(moves[chosen])), (whole + int(np.rint(places[chosen]))) * unit


# erf: a row is a point, the value there in two f32s, and the slope, of which other derivatives are multiples ─────────


def erf_slope(x: mpf) -> mpf:
    return 2 / sqrt(pi) * exp(-(x**2))


ERF_LACK = erf_slope(mpf(0)) / rounded(erf_slope(mpf(0))) - 1
"""What the slope at 0 has more than an f32, relatively. Points are chosen where other slopes have as much more."""


def erf_sum(row: Row, x: mpf) -> mpf:
    """What the road sums up, in exact arithmetic."""
    point, value, slope, rest = row
    t = x - point
    return value + rest + slope * t * (1 + ERF_LACK - ERF_ERROR - t * point + t**2 * (2 * point**2 - 1) / 3)


def erf_row(piece: Piece) -> Row:
    if piece.low < 0:
        return mpf(0), mpf(0), rounded(erf_slope(mpf(0))), mpf(0)
    if piece.low >= ERF_END:
        return piece.low, mpf(1), mpf(0), mpf(0)
    point, slope = erf_point(piece)
    fourth = slope * point * (mpf(1) / 2 - point**2 / 3)
    value, rest = pair(erf(point) * (1 - ERF_ERROR) + fourth * (piece.width / 2) ** 4 / 2)
    return point, value, rounded(slope), rest


def erf_point(piece: Piece) -> tuple[mpf, mpf]:
    """The point nearest to the middle at which the slope, less what all slopes lack, is nearly an f32; and that slope.
    Near 0 slopes hardly change, so that they are gone through, and not the points."""
    middle = rounded(erf_slope(piece.middle))
    for move in MOVES:
        lacking = (middle + move * ulp(middle)) * (1 + ERF_LACK)
        point = rounded(sqrt(-log(lacking * sqrt(pi) / 2)))
        slope = erf_slope(point) / (1 + ERF_LACK)
        off = abs(rounded(slope) - slope) * piece.width
        if point < piece.farthest and off < erf(point) * mpf(2) ** -37.5:
            return point, slope
    raise AssertionError(f"no point in {piece}")


# both ───────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Rows:
    name: str
    function: Callable[[mpf], mpf]
    row: Callable[[Piece], Row]
    sum: Callable[[Row, mpf], mpf]
    error: mpf
    end: mpf
    columns: str
    judged_to: mpf
    """Behind it the sum need not be so near: it decides between the last few f32s below 1."""

    def off(self, piece: Piece, row: Row) -> mpf:
        """By how much the sum is off in a piece, beside the error allowed for."""
        first = max(piece.low, mpf(0))
        points = [first + (piece.high - first) * part / 16 for part in range(17)]
        return max(abs(self.sum(row, x) / self.function(x) / (1 - self.error) - 1) for x in points if x)


EVERY = (
    Rows("TANH", tanh, tanh_row, tanh_sum, TANH_ERROR, TANH_END, "a point, and tanh there", mpf(8)),
    Rows("ERF", erf, erf_row, erf_sum, ERF_ERROR, ERF_END, "a point, erf there, the slope, and its rest", ERF_END),
)


def table(rows: Rows) -> Iterator[str]:
    every, first = pieces(rows.end), 1 << PIECES_BITS
    found = [rows.row(piece) for piece in every]
    judged = zip(every, found, strict=True)
    off = max(rows.off(piece, row) for piece, row in judged if piece.high < rows.judged_to)
    assert off < 0.9 * rows.error, f"{rows.name}: 2^{nstr(log(off, 2), 5)}"
    yield f"{rows.name}_LAST = {first + len(every) - 1}"
    yield f'"""Places go from {first} to this."""'
    yield f"{rows.name}_ROWS = ("
    yield from (f"    ({', '.join(f'0x{bits(each):08X}' for each in row)})," for row in found)
    yield ")"
    yield f'"""Bits of f32s: {rows.columns}, less the error allowed for. Sums are off by 2^{nstr(log(off, 2), 5)}."""'
    yield from window(rows.name, rows.error)


def lines() -> Iterator[str]:
    yield header("tanh and erf by rows in memory")
    yield f"PIECES_BITS = {PIECES_BITS}"
    yield from scalar("SCALE", ALIGNED)
    yield from scalar("START", ALIGNED * (1 + mpf(2) ** -(PIECES_BITS + 1)), "A place: first bits of x SCALE + START.")
    yield from scalar("TANH_ERROR", rounded(TANH_ERROR))
    yield from scalar("ERF_LACK", rounded(ERF_LACK - ERF_ERROR), "What slopes lack, less the error allowed for.")
    for rows in EVERY:
        yield from table(rows)

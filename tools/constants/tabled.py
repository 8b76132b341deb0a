"""The tabled road of elementary functions: tables of f32s, and the polynomials between their points."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from mpmath import expm1, log, mpf, nstr, polyval, tanh

from tools.constants.f32_error_function import erf_over_argument
from tools.constants.minimax import minimax
from tools.constants.printing import header, scalar, table
from tools.constants.single import pair, rounded

PATH = "repro/numerics/elementary/tabled_constants.py"

EXP_POINTS = (32, 16)
"""Entries of the tables of e^x: as many as two vector registers hold."""
EXP_ERRORS = {32: mpf(2) ** -35.7, 16: mpf(2) ** -36}
"""Relative, before rounding, with room to spare."""
EXP_GROWTH = {16: mpf(2) ** -23}
"""The same, for each r^2, where a table has few points: most of what rounds there is in proportion to it."""
PACKED = (16,)
"""Tables whose entries hold both parts."""
PLACES_BELOW, PLACES = 90, 1 << 12
"""Of tables for each part: powers of two below 1 that have places, and how many places there are."""
LAST_PLACE = mpf(2) ** -22
"""Of a float from 2 to 4, whose exponent has only its highest bit."""
POWER_BITS, LOW_SHIFT, LEAST_LOW = 20, 10, mpf(2) ** -22
"""Found by trying: these lose least."""
UNIT = LEAST_LOW / 2**23
"""The last place of what a logarithm lacks."""


@dataclass(frozen=True)
class Pieces:
    """f(x)/x for x >= 0: a polynomial round each multiple of a spacing of few bits, as many as a table has entries."""

    name: str
    over_argument: Callable[[mpf], mpf]
    spacing: mpf
    entries: int
    degree: int
    error_log2: float
    """Relative, before rounding: more than `bound` says. What is summed up is less than the function by as much."""

    @property
    def half(self) -> mpf:
        return self.spacing / 2 * (1 + mpf(2) ** -16)

    @property
    def error(self) -> mpf:
        return mpf(2) ** self.error_log2


def tanh_over_argument(x: mpf) -> mpf:
    return tanh(x) / x if x > mpf(2) ** -80 else mpf(1)


PIECES = (
    Pieces("ERF_32", erf_over_argument, mpf(1) / 8, 32, 6, -37),
    Pieces("TANH_32", tanh_over_argument, mpf(37) / 128, 32, 7, -33.5),
)


def bits(value: mpf) -> int:
    return struct.unpack("<I", struct.pack("<f", float(value)))[0]


def value(of: int) -> mpf:
    return mpf(struct.unpack("<f", struct.pack("<I", of))[0])


def tail(r: mpf) -> mpf:
    """(e^r - 1 - r) / r^2."""
    return (expm1(r) - r) / r**2 if abs(r) > mpf(2) ** -40 else mpf(1) / 2 + r / 6


def exp_tables(points: int) -> Iterator[str]:
    step, error = log(mpf(2)) / points, EXP_ERRORS[points]
    last_place = mpf(1) if points in PACKED else LAST_PLACE
    yield from scalar(f"EXP_{points}_PLACES_A_UNIT", rounded(1 / step) * last_place)
    high, low = pair(step)
    yield from scalar(f"EXP_{points}_STEP", high / last_place)
    yield from scalar(f"EXP_{points}_STEP_LOW", low / last_place)
    yield from packed_table(points, step, error) if points in PACKED else two_tables(points, step, error)
    yield from window(f"EXP_{points}", error)
    end = step / 2 * (1 + mpf(2) ** -10)
    fit = minimax(tail, -end, end, range(3), lambda r: max(r**2, end**2 / 1000))
    first, *others = (mpf(c) for c in fit.coefficients)
    growth, less = EXP_GROWTH.get(points), ""
    if growth is not None:
        text = "What the window grows by with r^2: twice the error allowed for, and more for its own rounding."
        yield from scalar(f"EXP_{points}_WINDOW_GROWTH", rounded(growth * 2 * mpf(9) / 8), text)
        first, less = first - growth, ", less the error allowed for"
    yield from table(
        f"EXP_{points}_TAIL",
        [rounded(c) for c in (first, *others)],
        f"(e^r - 1 - r) / r^2 between points{less}, lowest power first; r^2 times its error {fit.bits}.",
    )


def two_tables(points: int, step: mpf, error: mpf) -> Iterator[str]:
    shift, below = 24 - points.bit_length(), PLACES_BELOW * points
    powers = [rounded(mpf(2) ** (mpf(j) / points)) for j in range(points)]
    shifter, scale = 2 + below * LAST_PLACE, rounded(1 / step) * LAST_PLACE
    nearest = rounded(-shifter / scale)
    assert abs(nearest * scale + shifter) > mpf(2) ** -126, "an argument has all bits 0, as the places have"
    yield from scalar(f"EXP_{points}_SHIFTER", shifter, f"1 as a power has place {below}.")
    yield f"EXP_{points}_FAR_BITS = 0x{0xFFFFFFFF & ~bits(mpf(2)) & ~(PLACES - 1):08X}"
    yield f'"""Those of n + shifter that are 0 if it is from 2 on, and its place one of {PLACES}."""'
    yield f"EXP_{points}_POWERS = ("
    yield from (f"    0x{(bits(power) - (below + j << shift)) % 2**32:08X}," for j, power in enumerate(powers))
    yield ")"
    place = f"the place, times 2^{shift}"
    yield f'"""Bits of 2^(j/{points}), less those of its place: {place}, adds them again, and k to the exponent."""'
    lows = [rounded(mpf(j) * step - log(power) - error) for j, power in enumerate(powers)]
    yield from table(f"EXP_{points}_LOWS", lows, "What the powers' logarithms lack, less the error allowed for.")


def packed_table(points: int, step: mpf, error: mpf) -> Iterator[str]:
    """One entry for a power and what its logarithm lacks.

    A power is 2^(j/points) less 2^-22 to 2^-21 of it. Its bits, less those of its place, are negative and above -2^20
    (2^y - 1 - y > -1/8), and are added to a place that is 2^20 lower. The twelve bits above them, and ten of them, are
    the last 22 bits of what the logarithm lacks: of the powers that might be taken, it is the one that this suits best.
    """
    lower = (1 << POWER_BITS) >> (24 - points.bit_length())
    candidates = [list(packed_candidates(j, points, step, error)) for j in range(points)]
    firsts = range(0, 1 << (POWER_BITS - LOW_SHIFT), 4)
    first = min(firsts, key=lambda each: max(packed(row, each)[0] for row in candidates))
    found = [packed(row, first) for row in candidates]
    yield from scalar(f"EXP_{points}_SHIFTER", mpf(2**23 + 127 * points - lower), "1 as a power has place 0.")
    yield f"EXP_{points}_ENTRIES = ("
    yield from (f"    0x{found[(place + lower) % points][1]:08X}," for place in range(points))
    yield ")"
    worst = nstr(log(max(off for off, _ in found) * UNIT, 2), 5)
    yield f'"""By n + shifter; what the logarithms lack, to 2^{worst}."""'
    yield f"EXP_{points}_POWER_MASK = 0x{(1 << POWER_BITS) - 1:X}"
    yield '"""Bits of a power, less those of its place."""'
    yield f"EXP_{points}_LOW_SHIFT = {LOW_SHIFT}"
    yield f"EXP_{points}_FIRST_LOW = 0x{bits(LEAST_LOW) + first:08X}"
    yield '"""Added to an entry\'s other bits: what its logarithm lacks, less the error allowed for."""'


def packed_candidates(j: int, points: int, step: mpf, error: mpf) -> Iterator[tuple[int, float]]:
    """Bits of powers, less those of their place, and how far what their logarithms lack is from the least, in units."""
    top = bits(rounded(mpf(2) ** (mpf(j) / points)))
    for each in range(top - 16, top + 1):
        lacking = (j * step - log(value(each)) - error - LEAST_LOW) / UNIT
        power = each - bits(mpf(1)) - (j << (24 - points.bit_length())) + (1 << POWER_BITS)
        if lacking >= 0 and 0 <= power < 1 << POWER_BITS:
            yield power, float(lacking)


def packed(row: Sequence[tuple[int, float]], first: int) -> tuple[float, int]:
    """The entry of the power that suits best, behind by how many units it is off."""
    span, found = 1 << (POWER_BITS - LOW_SHIFT), list[tuple[float, int]]()
    for power, lacking in row:
        rest = lacking - first - (power >> LOW_SHIFT)
        above = min(max(round(rest / span), 0), (1 << (32 - POWER_BITS)) - 1)
        found.append((abs(rest - above * span), above << POWER_BITS | power))
    return min(found)


def coefficients(pieces: Pieces, number: int) -> list[mpf]:
    """In t = x - number * spacing. That of t^2 is an f32, and its rounding made good by two others: on |t| <= h,
    t^2 is h^2/8 + t^4/h^2, to h^2/8."""
    half, centre = pieces.half, number * pieces.spacing
    low = mpf(0) if number == 0 else -half
    fit = minimax(lambda t: pieces.over_argument(centre + t), low, half, range(pieces.degree + 1), lambda _: mpf(1))
    found = [mpf(c) for c in fit.coefficients]
    rest = found[2] - rounded(found[2])
    found[2] -= rest
    found[0] += rest * half**2 / 8
    found[4] += rest / half**2
    return [*found[:3], *(rounded(c) for c in found[3:])]


def bound(pieces: Pieces, number: int, found: Sequence[mpf]) -> mpf:
    """Of the relative error of what the road sums up in f32.

    The fit with rounded coefficients, on a grid. From the third power on each step of Horner's rule rounds. Below that
    they are sums of two, with 2^-46 for all their roundings; but a coefficient that is less than what is added to it
    (`pairs.fast_two_sum`) may be lost, or as much as that rounds by.
    """
    half, centre = pieces.half, number * pieces.spacing
    low = mpf(0) if number == 0 else -half
    grid = [low + (half - low) * i / 64 for i in range(65)]
    fit = max(abs(polyval(found[::-1], t) / pieces.over_argument(centre + t) - 1) for t in grid)
    sizes = [abs(c) * half**power for power, c in enumerate(found)]
    sums = [sum(sizes[first:], mpf(0)) for first in range(len(found))]
    lost = (min(sizes[power], sums[power + 1] / 2**24) for power in range(3) if sizes[power] < sums[power + 1])
    rounding = sum((sums[power] / 2**24 for power in range(3, len(found) - 1)), sum(lost, mpf(0)))
    return fit + rounding / pieces.over_argument(centre + half) + mpf(2) ** -46


def piece_tables(pieces: Pieces) -> Iterator[str]:
    every = [coefficients(pieces, number) for number in range(pieces.entries)]
    worst = max(bound(pieces, number, found) for number, found in enumerate(every))
    assert worst <= 0.99 * pieces.error, f"{pieces.name}: 2^{nstr(log(worst, 2), 5)}"
    less = [[*(c * (1 - pieces.error) for c in found[:2]), *found[2:]] for found in every]
    leading = [list(part) for power in (0, 1) for part in zip(*(pair(found[power]) for found in less), strict=True)]
    yield from scalar(f"{pieces.name}_SPACING", pieces.spacing)
    yield from scalar(f"{pieces.name}_PIECES_A_UNIT", rounded(1 / pieces.spacing))
    yield from rows(f"{pieces.name}_LEADING", leading)
    yield '"""f(x)/x, less the error allowed for, in t = x - j spacing: columns by j; powers 0, 1, each in two f32s."""'
    powers = range(2, pieces.degree + 1)
    yield from rows(f"{pieces.name}_TRAILING", [[found[power] for found in every] for power in powers])
    yield f'"""Powers 2 and up. Error before rounding: at most 2^{nstr(log(worst, 2), 5)}."""'
    yield from window(pieces.name, pieces.error)


def window(name: str, error: mpf) -> Iterator[str]:
    yield from scalar(
        f"{name}_WINDOW", rounded(error * 2 * mpf(9) / 8), "Twice the error allowed for, and more for its own rounding."
    )


def rows(name: str, values: Sequence[Sequence[mpf]]) -> Iterator[str]:
    yield f"{name} = ("
    for row in values:
        yield "    ("
        yield from (f'        float.fromhex("{float(value).hex()}"),' for value in row)
        yield "    ),"
    yield ")"


def lines() -> Iterator[str]:
    yield header("elementary functions by tables")
    for points in EXP_POINTS:
        yield from exp_tables(points)
    for pieces in PIECES:
        yield from piece_tables(pieces)

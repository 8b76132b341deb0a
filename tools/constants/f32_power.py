"""pow in f32: log2 by eight short reciprocals, 2^r, and both again as unevaluated sums for the undecided cases."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from mpmath import expm1, factorial, floor, log, log1p, mpf, nint

from tools.constants.minimax import minimax
from tools.constants.printing import header, parts, polynomial, scalar, table

PATH = "repro/numerics/elementary/f32/power_constants.py"
EDGES = [mpf(edge) / 64 for edge in (46, 50, 54, 58, 62, 68, 76, 84, 92)]
"""Eight intervals, equally long in the bits of an f64, 1 inside the fifth."""
LOW, HIGH = mpf("-0.0557"), mpf("0.0626")
"""Where m r - 1 lies: `reciprocals` asserts it."""
SHORT = mpf(2) ** 44
LOG_TERMS, LOG_PAIRS = 26, 13
EXP_TERMS, EXP_PAIRS = 16, 9


def reciprocals() -> list[mpf]:
    """About 1/m for each interval, a multiple of 2^-7; 1 in the interval that holds 1.

    The product with an f32 m below 2, less 1, is a multiple of 2^-31 below 2^-4: 27 bits.
    """
    found = [mpf(1) if a < 1 < b else nint(256 / (a + b)) / 128 for a, b in pairwise(EDGES)]
    assert all(LOW <= a * r - 1 < b * r - 1 <= HIGH for r, (a, b) in zip(found, pairwise(EDGES), strict=True))
    return found


def log2_rest(z: mpf) -> mpf:
    """(log2(1 + z) - z/ln 2) / z^2."""
    if abs(z) < mpf(2) ** -60:
        return -1 / (2 * log(mpf(2)))
    return (log1p(z) - z) / (z * z * log(mpf(2)))


def exp2m1_over_argument(r: mpf) -> mpf:
    return expm1(r * log(mpf(2))) / r if r else log(mpf(2))


def series(name: str, values: list[mpf], pairs: int, comment: str) -> Iterator[str]:
    """Coefficients, and what the first ones leave out."""
    yield from table(name, values, comment)
    yield from table(f"{name}_LOW", [parts(value, 2)[1] for value in values[:pairs]], "What the first ones leave out.")


def logarithm_tables() -> Iterator[str]:
    logs = [-log(r, 2) for r in reciprocals()]
    first = [floor(value * SHORT) / SHORT for value in logs]
    rest = [parts(value - head, 2) for value, head in zip(logs, first, strict=True)]
    yield from table("RECIPROCALS", reciprocals(), "r, near 1/m in the interval that the leading bits of m name.")
    yield from table("LOGS", first, "-log2 r, a multiple of 2^-44: its sum with an exponent is exact.")
    yield from table("LOGS_LOW", [low for low, _ in rest], "What LOGS leaves out.")
    yield from table("LOGS_LAST", [last for _, last in rest], "What both leave out.")


def lines() -> Iterator[str]:
    ln2 = log(mpf(2))
    yield header("the f32 pow")
    yield from logarithm_tables()
    for name, part in zip(("LOG2_E", "LOG2_E_LOW", "LOG2_E_LAST"), parts(1 / ln2, 3), strict=True):
        yield from scalar(name, part)
    what = "(log2(1 + z) - z/ln 2)/z^2 for -0.0557 < z < 0.0626"
    yield from polynomial("LOG2_REST", minimax(log2_rest, LOW, HIGH, range(11)), what)
    half = mpf("0.5") * (1 + mpf(2) ** -30)
    fit = minimax(exp2m1_over_argument, -half, half, range(11))
    yield from polynomial("EXP2M1", fit, "(2^r - 1)/r for |r| <= 1/2")
    taylor = [(-1) ** (i + 1) / ((i + 2) * ln2) for i in range(LOG_TERMS)]
    yield from series("LOG2_SERIES", taylor, LOG_PAIRS, "As LOG2_REST, Taylor's.")
    for name, part in zip(("LN2", "LN2_LOW"), parts(ln2, 2), strict=True):
        yield from scalar(name, part)
    taylor = [1 / factorial(i) for i in range(EXP_TERMS)]
    yield from series("EXP_SERIES", taylor, EXP_PAIRS, "e^w, Taylor's.")
    yield from series("EIGHTHS", [mpf(2) ** (mpf(i) / 8) for i in range(8)], 8, "2^(i/8).")

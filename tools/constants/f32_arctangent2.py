"""atan2 in f32: an arctangent on [0, 1], and the same as unevaluated sums for the undecided cases."""

from __future__ import annotations

from collections.abc import Iterator

from mpmath import atan, mpf, pi, sqrt

from tools.constants.minimax import minimax
from tools.constants.printing import header, parts, polynomial, scalar, table

PATH = "repro/numerics/elementary/f32/arctangent2_constants.py"
DEGREE = 19
CENTRES = [mpf(0), *(mpf(2 * i + 1) / 16 for i in range(1, 8))]
TERMS, PAIRS = 16, 8


def atan_rest(z: mpf) -> mpf:
    """(atan(q)/q - 1)/z of z = q^2."""
    return (atan(sqrt(z)) / sqrt(z) - 1) / z if z > mpf(2) ** -60 else -mpf(1) / 3 + z / 5


def weight(z: mpf) -> mpf:
    """Of an error there, to one relative to atan q."""
    return z / (1 + z * atan_rest(z))


def pairs(name: str, values: list[mpf], count: int, comment: str) -> Iterator[str]:
    """Coefficients, and what the first ones leave out."""
    yield from table(name, values, comment)
    yield from table(f"{name}_LOW", [parts(value, 2)[1] for value in values[:count]], "What the first ones leave out.")


def lines() -> Iterator[str]:
    yield header("the f32 atan2")
    for name, part in zip(("PI", "PI_LOW"), parts(+pi, 2), strict=True):
        yield from scalar(name, part)
    what = "(atan(q)/q - 1)/z in z = q^2 for 0 <= q <= 1, the error beside atan q"
    yield from polynomial("ATAN_REST", minimax(atan_rest, 0, 1, range(DEGREE + 1), weight), what)
    yield from table("CENTRES", CENTRES, "c, near q in each eighth of [0, 1].")
    yield from pairs("ATAN_CENTRES", [atan(centre) for centre in CENTRES], 8, "atan c.")
    taylor = [(-1) ** (i + 1) / mpf(2 * i + 3) for i in range(TERMS)]
    yield from pairs("ATAN_SERIES", taylor, PAIRS, "As ATAN_REST, Taylor's.")

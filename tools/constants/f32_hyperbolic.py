"""sinh and cosh in f32, on the reduced interval of exp."""

from __future__ import annotations

from collections.abc import Iterator

from mpmath import cosh, log, mpf, sinh, sqrt

from tools.constants.minimax import minimax
from tools.constants.printing import header, polynomial

PATH = "repro/numerics/elementary/f32/hyperbolic_constants.py"


def sinh_over_argument(z: mpf) -> mpf:
    return sinh(sqrt(z)) / sqrt(z) if z > mpf(2) ** -100 else 1 + z / 6


def lines() -> Iterator[str]:
    end = (log(mpf(2)) / 2 * (1 + mpf(2) ** -20)) ** 2
    yield header("the f32 hyperbolic functions")
    fit = minimax(lambda z: cosh(sqrt(z)), 0, end, range(6))
    yield from polynomial("COSH", fit, "cosh(r) in r^2 for |r| <= ln(2)/2")
    fit = minimax(sinh_over_argument, 0, end, range(6))
    yield from polynomial("SINH", fit, "sinh(r)/r in r^2 for |r| <= ln(2)/2")

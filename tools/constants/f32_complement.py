"""erfc in f32: e^(-x^2) times a quotient of two polynomials with positive coefficients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mpmath import erfc, exp, mpf

from tools.constants.printing import header
from tools.constants.rational import interpolate, lines_of, nodes

PATH = "repro/numerics/elementary/f32/complement_constants.py"
TOP, BOTTOM = 8, 9
"""Degrees of numerator and denominator."""
END = mpf("10.06")
"""erfc is below 2^-150 from 10.055 on."""
CLOSENESS = mpf("2.85")
"""The nodes are Chebyshev's in x/(x + CLOSENESS): the value whose greatest error is least."""


def scaled(x: mpf) -> mpf:
    """e^(x^2) erfc(x)."""
    return exp(x * x) * erfc(x)


def spread(places: Sequence[mpf]) -> list[mpf]:
    """x, where x/(x + CLOSENESS) is given."""
    return [CLOSENESS * place / (1 - place) for place in places]


def lines() -> Iterator[str]:
    end = END / (END + CLOSENESS)
    yield header("the f32 complementary error function")
    quotient = interpolate(scaled, spread(nodes(TOP + BOTTOM + 1, 0, end)), TOP, BOTTOM)
    error = quotient.error(scaled, spread(nodes(400, 0, end)))
    yield from lines_of("SCALED", quotient, "e^(x^2) erfc(x) for 0 <= x <= 10.06", error)

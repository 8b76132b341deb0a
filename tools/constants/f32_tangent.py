"""tan in f32: a quotient of two polynomials on half an octant to either side."""

from __future__ import annotations

from collections.abc import Iterator

from mpmath import mpf, pi, sqrt, tan

from tools.constants.printing import header, parts, scalar
from tools.constants.rational import interpolate, lines_of, nodes

PATH = "repro/numerics/elementary/f32/tangent_constants.py"
TOP, BOTTOM = 3, 3
"""Degrees of numerator and denominator."""


def tangent_over_argument(z: mpf) -> mpf:
    return tan(sqrt(z)) / sqrt(z) if z > mpf(2) ** -100 else 1 + z / 3


def lines() -> Iterator[str]:
    end = (pi / 4 * (1 + mpf(2) ** -20)) ** 2
    yield header("the f32 tangent")
    yield from scalar("TWO_OVER_PI", 2 / pi)
    high, low = parts(pi / 2, 2)
    yield from scalar("HALF_PI", high)
    yield from scalar("HALF_PI_LOW", low)
    quotient = interpolate(tangent_over_argument, nodes(TOP + BOTTOM + 1, 0, end), TOP, BOTTOM)
    error = quotient.error(tangent_over_argument, nodes(400, 0, end))
    yield from lines_of("TANGENT", quotient, "tan(r)/r in r^2 for |r| <= pi/4", error)

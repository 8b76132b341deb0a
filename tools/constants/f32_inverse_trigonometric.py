"""asin, acos and atan in f32."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

from mpmath import asin, atan, mpf, pi, sqrt, tan

from tools.constants.minimax import Fit, minimax
from tools.constants.printing import header, polynomial, scalar, table

PATH = "repro/numerics/elementary/f32/inverse_trigonometric_constants.py"
OCTAVES = range(-4, 4)
"""Exponents of the pieces of atan: the first reaches down to 0, the last up to infinity."""
BIAS = 127


def asin_over_argument(z: mpf) -> mpf:
    return asin(sqrt(z)) / sqrt(z) if z > mpf(2) ** -100 else 1 + z / 6


def atan_over_argument(z: mpf) -> mpf:
    return atan(sqrt(z)) / sqrt(z) if z > mpf(2) ** -100 else 1 - z / 3


def centre(octave: int) -> mpf:
    """Of the angles of an octave, as an f64."""
    if octave == OCTAVES[0]:
        return mpf(0)
    if octave == OCTAVES[-1]:
        return mpf(2) ** 60
    return mpf(float(tan((atan(mpf(2) ** octave) + atan(mpf(2) ** (octave + 1))) / 2)))


def distance(octave: int) -> mpf:
    """The greatest |tan(atan x - atan c)| in an octave."""
    c = centre(octave)
    ends = [mpf(0) if octave == OCTAVES[0] else mpf(2) ** octave, mpf(2) ** (octave + 1)]
    if octave == OCTAVES[-1]:
        return 1 / ends[0]
    return max(abs((x - c) / (1 + c * x)) for x in ends)


def raised(fit: Fit) -> Fit:
    """With 1 + 2^-52 for the constant term: the arctangent of 0x1.1AD646p-4 lies 2^-56 above a midpoint."""
    return dataclasses.replace(fit, coefficients=(1 + 2.0**-52, *fit.coefficients[1:]))


def lines() -> Iterator[str]:
    yield header("f32 asin, acos and atan")
    yield from scalar("PI", +pi)
    yield from scalar("HALF_PI", pi / 2)
    yield from scalar(
        "HALF_PI_RAISED", math.nextafter(float(pi / 2), 2.0), "For acos: two values lie just above a midpoint."
    )
    fit = minimax(asin_over_argument, 0, mpf(1) / 4, range(12))
    yield from polynomial("ASIN", fit, "asin(s)/s in s^2 for |s| <= 1/2")
    by_low_bits = sorted(OCTAVES, key=lambda octave: (octave + BIAS) % len(OCTAVES))
    yield from table("CENTRES", [centre(octave) for octave in by_low_bits], "c by the exponent's lowest bits.")
    yield from table("ANGLES", [atan(centre(octave)) for octave in by_low_bits], "atan c.")
    end = max(distance(octave) for octave in OCTAVES)
    fit = minimax(atan_over_argument, 0, end**2, range(7))
    yield from polynomial("ATAN", raised(fit), f"atan(u)/u in u^2 for |u| <= {float(end):.4f}, and 2^-52")

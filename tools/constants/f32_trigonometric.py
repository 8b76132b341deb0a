"""sin, cos and tan in f32: a sine of half a period, and 1/pi for arguments that are huge."""

from __future__ import annotations

from collections.abc import Iterator

from mpmath import floor, mpf, pi, sin, sqrt

from tools.constants.minimax import minimax
from tools.constants.printing import header, parts, polynomial, scalar

PATH = "repro/numerics/elementary/f32/trigonometric_constants.py"


def sine_over_argument(z: mpf) -> mpf:
    return sin(sqrt(z)) / sqrt(z) if z > mpf(2) ** -100 else 1 - z / 6


def lines() -> Iterator[str]:
    yield header("the f32 trigonometric functions")
    yield from scalar("ONE_OVER_PI", 1 / pi)
    high, low = parts(+pi, 2)
    yield from scalar("PI", high)
    yield from scalar("PI_LOW", low)
    end = (pi / 2 * (1 + mpf(2) ** -20)) ** 2
    yield from polynomial("SIN", minimax(sine_over_argument, 0, end, range(8)), "sin(r)/r in r^2 for |r| <= pi/2")
    yield "ONE_OVER_PI_WORDS = ("
    for word in range(8):
        bits = int(floor(1 / pi * mpf(2) ** (63 + 32 * word))) % 2**64
        yield f"    0x{bits:016X},"
    yield ")"
    yield '"""Word j: the bits of 1/pi that weigh 2^(-32 j) down to 2^(-32 j - 63)."""'

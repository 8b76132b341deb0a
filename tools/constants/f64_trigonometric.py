"""The trigonometric functions in f64: pi in parts, sin and cos up to pi/4, asin up to 1/2, atan up to 1/8."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mpmath import asin, atan, cos, factorial, floor, mpf, pi, sin, sqrt, workprec

from tools.constants.minimax import minimax
from tools.constants.printing import header, parts, polynomial, scalar, table

PATH = "repro/numerics/elementary/f64/trigonometric_constants.py"
_NEAR_ZERO = mpf(2) ** -60
_WORDS = 40


def odd_rest(function: Callable[[mpf], mpf], first: mpf, second: mpf) -> Callable[[mpf], mpf]:
    """(f(x) - x)/x^3 in z = x^2, with its value and slope at 0."""

    def rest(z: mpf) -> mpf:
        if z < _NEAR_ZERO:
            return first + second * z
        x = sqrt(z)
        return (function(x) - x) / x**3

    return rest


def cos_rest(z: mpf) -> mpf:
    """(cos x - 1 + x^2/2)/x^4 in z = x^2."""
    if z < _NEAR_ZERO:
        return 1 / factorial(4) - z / factorial(6)
    return (cos(sqrt(z)) - 1 + z / 2) / z**2


def two_over_pi() -> Iterator[str]:
    """The bits of 2/pi as words of 32."""
    with workprec(32 * _WORDS + 200):
        bits = int(floor(2 / pi * mpf(2) ** (32 * _WORDS)))
    words = [(bits >> (32 * (_WORDS - 1 - place))) & 0xFFFFFFFF for place in range(_WORDS)]
    yield "TWO_OVER_PI_WORDS = ("
    yield from (f"    0x{word:08X}," for word in words)
    yield ")"
    yield '"""Word j: the bits of 2/pi that weigh 2^(-32 j - 1) down to 2^(-32 j - 32)."""'


def lines() -> Iterator[str]:
    yield header("the f64 trigonometric functions")
    yield from scalar("TWO_OVER_PI", 2 / pi)
    for suffix, part in zip(("", "_LOW", "_LOWEST"), parts(pi / 2, 3), strict=True):
        yield from scalar(f"HALF_PI{suffix}", part)
    yield from two_over_pi()
    end = (pi / 4 * (1 + mpf(2) ** -20)) ** 2
    sixth = mpf(1) / 6
    fit = minimax(odd_rest(sin, -sixth, mpf(1) / 120), 0, end, range(7))
    yield from polynomial("SIN", fit, "(sin x - x)/x^3 in x^2 for |x| <= pi/4")
    yield from scalar("SIN_LOW", -sixth - fit.coefficients[0], "What the first coefficient leaves out of -1/6.")
    yield from polynomial("COS", minimax(cos_rest, 0, end, range(6)), "(cos x - 1 + x^2/2)/x^4 in x^2 for |x| <= pi/4")
    fit = minimax(odd_rest(asin, sixth, mpf(3) / 40), 0, mpf(1) / 4, range(14))
    yield from polynomial("ASIN", fit, "(asin x - x)/x^3 in x^2 for |x| <= 1/2")
    fit = minimax(odd_rest(atan, -mpf(1) / 3, mpf(1) / 5), 0, (mpf(1) / 8) ** 2, range(7))
    yield from polynomial("ATAN", fit, "(atan x - x)/x^3 in x^2 for |x| <= 1/8")
    quarters = [parts(atan(mpf(k) / 4), 2) for k in (0, 1, 2, 3, 4, 4, 4, 4)]
    yield from table("ATAN_QUARTERS", [high for high, _ in quarters], "atan(k/4), k = 0..4.")
    yield from table("ATAN_QUARTERS_LOW", [low for _, low in quarters], "What they leave out.")

"""The exponential family in f64: ln 2 in parts, and what e^r and sinh leave after their leading terms."""

from __future__ import annotations

from collections.abc import Iterator

from mpmath import exp, expm1, factorial, log, mpf, sinh, sqrt

from tools.constants.minimax import minimax
from tools.constants.printing import header, parts, polynomial, scalar, short

PATH = "repro/numerics/elementary/f64/exponential_constants.py"
_NEAR_ZERO = mpf(2) ** -40


def exp_rest(r: mpf) -> mpf:
    """(e^r - 1 - r - r^2/2) / r^3."""
    if abs(r) < _NEAR_ZERO:
        return sum((r**k / factorial(k + 3) for k in range(4)), mpf(0))
    return (expm1(r) - r - r * r / 2) / r**3


def sinh_rest(z: mpf) -> mpf:
    """(sinh x - x) / x^3 in z = x^2."""
    if z < _NEAR_ZERO:
        return sum((z**k / factorial(2 * k + 3) for k in range(4)), mpf(0))
    x = sqrt(z)
    return (sinh(x) - x) / x**3


def lines() -> Iterator[str]:
    ln2 = log(mpf(2))
    half = ln2 / 2 * (1 + mpf(2) ** -20)
    yield header("the f64 exponential family")
    yield from scalar("LOG2_E", 1 / ln2)
    high, low = parts(ln2, 2)
    yield from scalar("LN2", high)
    yield from scalar("LN2_LOW", low)
    yield from scalar("LN2_SHORT", short(ln2, 32), "The first 32 bits of ln 2: its product with any exponent is exact.")
    yield from scalar("LN2_REST", ln2 - short(ln2, 32))
    what = "(e^r - 1 - r - r^2/2)/r^3 for |r| <= ln(2)/2"
    yield from polynomial("EXP", minimax(exp_rest, -half, half, range(10), lambda r: abs(r) ** 3 / exp(r)), what)
    what = "(sinh x - x)/x^3 in x^2 for |x| <= 3/4"
    yield from polynomial("SINH", minimax(sinh_rest, 0, mpf(9) / 16, range(6)), what)

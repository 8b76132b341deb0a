"""The logarithms and the inverse hyperbolic functions in f32: one series of the inverse hyperbolic tangent."""

from __future__ import annotations

from collections.abc import Iterator

from mpmath import atanh, exp, log, mpf, sqrt, tanh

from tools.constants.minimax import minimax
from tools.constants.printing import header, polynomial, scalar

PATH = "repro/numerics/elementary/f32/logarithm_constants.py"

EVEN_SPLIT = mpf(1) / 2
"""log2 of the greatest m of a split by comparison with sqrt(1/2)."""
LOOSE_SPLIT = mpf(1) / 2 + mpf("0.0861")
"""The same where the exponent is that of a bit pattern read as a logarithm, which is off by up to 0.0861."""


def series(base: mpf, z: mpf) -> mpf:
    """log((1 + s)/(1 - s)) / s to the base, with z = s^2."""
    s = sqrt(z)
    natural = 2 * atanh(s) / s if z > mpf(2) ** -150 else 2 + 2 * z / 3
    return natural / log(base)


def end(split: mpf) -> mpf:
    """The greatest z: s = (m - 1)/(m + 1) = tanh(log(m)/2)."""
    return tanh(split * log(mpf(2)) / 2) ** 2 * (1 + mpf(2) ** -20)


def lines() -> Iterator[str]:
    ln2, e = log(mpf(2)), exp(mpf(1))
    yield header("the f32 logarithms")
    yield from scalar("LN2", ln2)
    yield from scalar("LOG10_2", ln2 / log(mpf(10)))
    what = "((1 + s)/(1 - s)) / s in s^2 for |s| <= 0.1716"
    for name, base, function in (("LOG", e, "log"), ("LOG2", mpf(2), "log2"), ("LOG10", mpf(10), "log10")):
        fit = minimax(lambda z, base=base: series(base, z), 0, end(EVEN_SPLIT), range(8))
        yield from polynomial(name, fit, function + what)
    fit = minimax(lambda z: series(e, z) / 2, 0, end(LOOSE_SPLIT), range(8))
    yield from polynomial("ATANH", fit, "atanh(s) / s in s^2 for |s| <= 0.2004")

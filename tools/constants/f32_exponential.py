"""The exponential family in f32: results need 24 bits, so polynomials are fitted to about 2^-52."""

from __future__ import annotations

from collections.abc import Iterator

from mpmath import exp, expm1, log, mpf

from tools.constants.minimax import minimax
from tools.constants.printing import header, parts, patches, polynomial, scalar

PATH = "repro/numerics/elementary/f32/exponential_constants.py"

EXP2_HARD = (0x3B429D37, 0xBCF3A937)
"""2^x lies 2^-57 above the middle of two f32: no sum of two f64 tells."""


def expm1_over_argument(r: mpf) -> mpf:
    return expm1(r) / r if r else mpf(1)


def lines() -> Iterator[str]:
    ln2 = log(mpf(2))
    half = ln2 / 2 * (1 + mpf(2) ** -20)
    yield header("the f32 exponential family")
    yield from scalar("LOG2_E", 1 / ln2)
    high, low = parts(ln2, 2)
    yield from scalar("LN2", high)
    yield from scalar("LN2_LOW", low)
    yield from polynomial("EXP", minimax(exp, -half, half, range(11)), "e^r for |r| <= ln(2)/2")
    end = mpf(1) / 2
    yield from polynomial("EXP2", minimax(lambda r: mpf(2) ** r, -end, end, range(11)), "2^r for |r| <= 1/2")
    yield from patches("EXP2_PATCHES", EXP2_HARD, lambda x: mpf(2) ** x)
    fit = minimax(expm1_over_argument, -half, half, range(11))
    yield from polynomial("EXPM1", fit, "(e^r - 1)/r for |r| <= ln(2)/2")

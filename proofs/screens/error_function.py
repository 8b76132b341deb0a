"""Screens of the error function and its complement."""

from __future__ import annotations

from proofs import constants
from proofs.double_double import Pair, exact_product, exact_sum, lookup, select, series
from proofs.screens.exponential import clamped, exp_pair
from repro.numerics.elementary.value import Value, fma, nearest_integer

GREATEST = 10.5
"""Arguments of erfc beyond it are taken for it: erfc(10.5) < 2^-162."""

_SMALL = 0.5


def _erf_small(x: Value) -> Pair:
    """Taylor's series, |x| < 1/2: each term is below a tenth of the one before."""
    z = Pair(*exact_product(x, x))
    return series(z, constants.ERF, constants.ERF_TRAILING) * x


def _erfc_large(a: Value) -> Pair:
    """erfc(a) = e^(-a^2) G / (1 + 2a) for a in [1/2, 10.5]; G is a polynomial on each of four pieces of t."""
    t = exact_sum(a, -3.0) / exact_sum(a, 3.0)
    (first,), (width,) = constants.ERFC_FIRST, constants.ERFC_WIDTH
    number, piece = nearest_integer((t.high - first) * (1 / width) - 0.5)
    scaled = _piece(t - fma(number + 0.5, width, first), piece)
    square = Pair(*exact_product(a, a))
    return exp_pair(-square) * scaled / exact_sum(a + a, 1.0)


def _piece(u: Pair, piece: Value) -> Pair:
    """Horner's rule, whose first coefficients are pairs; the others' terms are below 2^-55."""
    leading = len(constants.ERFC_LOW)
    high = [lookup(row, piece) for row in constants.ERFC_HIGH]
    low = [lookup(row, piece) for row in constants.ERFC_LOW]
    rest = high[-1]
    for coefficient in reversed(high[leading:-1]):
        rest = fma(rest, u.high, coefficient)
    total: Pair = Pair(high[leading - 1], low[leading - 1]) + u * rest
    for pair in reversed([Pair(*words) for words in zip(high[: leading - 1], low[: leading - 1], strict=True)]):
        total = pair + u * total
    return total


def _parts(x: Value) -> tuple[Value, Pair, Pair]:
    """Whether |x| < 1/2; erf x, right if so; erfc |x|, right if not."""
    a = abs(clamped(x, GREATEST))
    return a < _SMALL, _erf_small(x), _erfc_large(a)


def erf(x: Value) -> Pair:
    small, near, complement = _parts(x)
    magnitude = 1.0 - complement
    return select(small, near, select(x < 0.0, -magnitude, magnitude))


def erfc(x: Value) -> Pair:
    small, near, complement = _parts(x)
    return select(small, 1.0 - near, select(x < 0.0, 2.0 - complement, complement))

"""cbrt and rsqrt in f32: starts from the bits of the argument, and what corrects them in f32."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from mpmath import cbrt, mpf, sqrt

from repro.ir.types import Array
from tools.constants.minimax import Fit, minimax
from tools.constants.printing import header, polynomial

PATH = "repro/numerics/elementary/f32/roots_constants.py"

_FIRST, _STEP = 0x3F000000, 257
"""Bits of 1/2; arguments are sampled at this distance of bits."""


def _arguments(binades: int) -> Array:
    return np.arange(_FIRST, _FIRST + (binades << 23), _STEP, dtype=np.int32)


def _as_f64(bits: Array) -> Array:
    return bits.astype(np.int32).view(np.float32).astype(np.float64)


def rsqrt_rest(start: int) -> float:
    """The greatest |1 - a r^2| over two binades where r has the bits start - a/2."""
    bits = _arguments(2)
    return float(np.abs(1 - _as_f64(bits) * _as_f64(start - (bits >> 1)) ** 2).max())


def cbrt_rest(start: int) -> float:
    """The greatest |1 - a r^3| over three binades where r has the bits 2^12 round(start - a / (3 2^12))."""
    bits = _arguments(3)
    return float(
        np.abs(1 - _as_f64(bits) * _as_f64(np.rint(start - bits / (3 << 12)).astype(np.int64) << 12) ** 3).max()
    )


def correction(root: int, rest: float, terms: int) -> Fit:
    """((1 - h)^(-1/root) - 1) / h for |h| <= rest, weighed so that its error is that of the root."""
    end = mpf(rest) * (1 + mpf(2) ** -8)

    def power(h: mpf) -> mpf:
        return 1 / (sqrt(1 - h) if root == 2 else cbrt(1 - h))

    def function(h: mpf) -> mpf:
        return (power(h) - 1) / h if abs(h) > mpf(2) ** -60 else mpf(1) / root

    return minimax(function, -end, end, range(terms), lambda h: max(abs(h), mpf(2) ** -60) / power(h))


def lines() -> Iterator[str]:
    yield header("the f32 roots")
    start = min(range(0x5F37_0000, 0x5F38_0000, 64), key=rsqrt_rest)
    yield f"RSQRT_START = 0x{start:08X}"
    rest = rsqrt_rest(start)
    yield f'"""Less half of the argument\'s bits, the bits of r with |1 - a r^2| <= {rest:.4f}."""'
    what = "(a^(-1/{0})/r - 1) / h in h = 1 - a r^{0}, to be rounded to f32"
    yield from polynomial("RSQRT", correction(2, rest, 3), what.format(2))
    start = min(range(346_400, 346_800), key=cbrt_rest)
    yield f"CBRT_START = {start}"
    rest = cbrt_rest(start)
    yield f'"""Less a third of the argument\'s bits, in units of 2^12, those of r with |1 - a r^3| <= {rest:.4f}."""'
    yield from polynomial("CBRT", correction(3, rest, 4), what.format(3))

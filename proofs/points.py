"""Arguments for proofs that cannot try them all: random and structured f64, the same for a seed on every host.

Drawn from the raw words of a bit generator, whose stream NumPy fixes, by exact arithmetic alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from proofs.mpfr import gmpy2
from repro.ir.types import Array

Family = Callable[[int], Array]
"""From a count to that many f64."""

_SIGN = np.uint64(1 << 63)


def ordered(x: Array) -> Array:
    """Integers (i64) in the order of the f64, neighbours next to each other; both zeros are 0."""
    bits = x.view(np.int64)
    return np.where(bits < 0, np.int64(-(2**63)) - bits, bits)


def from_ordered(keys: Array) -> Array:
    return np.where(keys < 0, np.int64(-(2**63)) - keys, keys).view(np.float64)


class Draws:
    """Families of points over one stream of random words."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.PCG64(seed)

    def words(self, count: int) -> Array:
        return self._generator.random_raw(count)

    def below(self, bound: int, count: int) -> Array:
        """i64 in 0..bound-1, uniform but for a bias of bound / 2^64."""
        return (self.words(count) % np.uint64(bound)).astype(np.int64)

    def in_bits(self, low: float, high: float) -> Family:
        """Uniform over the f64 of the interval: as many in each binade."""
        first, last = (int(ordered(np.array([end]))[0]) for end in (low, high))
        return lambda count: from_ordered(np.int64(first) + self.below(last - first + 1, count))

    def in_value(self, low: float, high: float) -> Family:
        """Uniform in value, on a grid of 2^-53 of the interval."""
        return lambda count: low + (high - low) * ((self.words(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53)

    def short(self, low: float, high: float, bits: int) -> Family:
        """As in_bits, the fraction cut to its leading bits."""
        family, mask = self.in_bits(low, high), np.uint64(2**64 - 2 ** (52 - bits))
        return lambda count: (family(count).view(np.uint64) & mask).view(np.float64)

    def near(self, centres: Sequence[float]) -> Family:
        """A centre of either sign, off by up to 2^j of its ulps, j from 0 to 48: near and very near."""
        keys = ordered(np.array(centres))

        def family(count: int) -> Array:
            reach = np.int64(1) << self.below(49, count)
            word = self.words(count)
            offset = (word >> np.uint64(2)).astype(np.int64) % reach
            chosen = keys[self.below(len(keys), count)] + np.where(word & np.uint64(1), offset, -offset)
            points = from_ordered(chosen).view(np.uint64)
            return (points ^ np.where(word & np.uint64(2), _SIGN, np.uint64(0))).view(np.float64)

        return family


def _multiples(unit: str, counts: Sequence[int]) -> list[float]:
    """Multiples of pi/4 or of ln(2)/2, each rounded once."""
    context = gmpy2.context(precision=300)
    step = context.div(context.const_pi() if unit == "pi" else context.const_log2(), 4 if unit == "pi" else 2)
    return [float(context.mul(step, count)) for count in counts]


_GRID = [k / 64 for k in range(1, 64 * 32)] + [math.ldexp(1.0, k) for k in range(-60, 61)]
"""Where a table or a reduction may change its entry."""
_ROOTS = [math.ldexp(c, k) for k in range(-70, 70) for c in (math.sqrt(0.5), 2 / 3, 0.75, 1.25, 4 / 3)]
_TURNS = [*range(1, 3000), *(3**k for k in range(8, 24)), *(2**k for k in range(12, 48))]


def centres(name: str) -> list[float]:
    """Points near which the function, or a usual way to compute it, is special."""
    if name in ("sin", "cos", "tan"):
        return _GRID + _multiples("pi", _TURNS)
    if name in ("exp", "expm1", "sinh", "cosh", "tanh"):
        return _GRID + _multiples("ln2", range(1, 1700))
    if name == "exp2":
        return _GRID + [k / 2 for k in range(1, 1700)]
    if name in ("log", "log2", "log10", "log1p", "asinh", "acosh", "atanh", "cbrt", "rsqrt"):
        return _GRID + _ROOTS
    return _GRID

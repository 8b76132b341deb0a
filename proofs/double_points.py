"""Which f64 arguments the proofs draw for each function: arrays of (operand, point).

`families` are for the screens, inside their domains; `outside` is for MPFR alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from proofs.points import Draws, Family, centres
from proofs.screens import SCREENS
from repro.ir.types import Array

Points = Callable[[int], Array]
"""From a count to arguments: (operand, point)."""

OUTSIDE = 40_000

_USUAL: dict[str, tuple[float, float]] = {
    "exp": (-600.0, 600.0), "exp2": (-860.0, 860.0), "expm1": (-45.0, 600.0), "sinh": (-600.0, 600.0),
    "cosh": (-600.0, 600.0), "tanh": (-20.0, 20.0), "log1p": (-1.0, 8.0), "asinh": (-30.0, 30.0),
    "acosh": (1.0, 30.0), "atanh": (-1.0, 1.0), "sin": (-2000.0, 2000.0), "cos": (-2000.0, 2000.0),
    "tan": (-2000.0, 2000.0), "asin": (-1.0, 1.0), "acos": (-1.0, 1.0), "atan": (-20.0, 20.0), "erf": (-6.0, 6.0),
    "erfc": (-6.0, 10.5), "cbrt": (-8.0, 8.0),
}  # fmt: skip
"""Where points are uniform in value; else 0 to 8."""

_FAR: dict[str, tuple[tuple[float, float], ...]] = {
    "exp": ((600.0, 710.0), (-746.0, -600.0)), "exp2": ((860.0, 1025.0), (-1076.0, -860.0)),
    "expm1": ((600.0, 710.0),), "sinh": ((600.0, 711.0),), "cosh": ((600.0, 711.0),), "erfc": ((10.5, 27.3),),
    "sin": ((2.0**128, math.inf),), "cos": ((2.0**128, math.inf),), "tan": ((2.0**128, math.inf),),
}  # fmt: skip
"""Intervals outside the screen's domain where the function still does something."""

_SPECIAL = [
    0.0, 1.0, 2.0, 3.0, 0.5, 1.5, 2.0**53, 2.0**53 - 1, math.inf, math.nan, 2.0**-1074, 2.0**-1022,
    2.0**1023 * (2 - 2**-52), 1 + 2**-52, 1 - 2**-53,
]  # fmt: skip
SPECIAL = np.array([*_SPECIAL, *(-value for value in _SPECIAL)])
"""Tried everywhere; of two operands, every pair."""


def families(name: str, draws: Draws) -> list[Points]:
    """The mixture of points inside the screen's domain, each family as often as it stands here."""
    if name == "pow":
        return _powers(draws, 840.0)
    if name == "atan2":
        return _quotients(draws)
    return [_single(family) for family in _unary(name, draws)]


def outside(name: str, draws: Draws) -> Array:
    """Special points, all bit patterns, and where results overflow, underflow or take the last reduction."""
    count = OUTSIDE // 2
    if len(SCREENS[name].domain) == 1:
        far = [draws.in_bits(*ends) for ends in _FAR.get(name, ())] or [draws.in_bits(-math.inf, math.inf)]
        anywhere = draws.words(count).view(np.float64)
        return np.concatenate([SPECIAL, anywhere, *(family(count // len(far)) for family in far)])[None]
    special = np.stack([part.reshape(-1) for part in np.meshgrid(SPECIAL, SPECIAL)])
    anywhere = draws.words(2 * count).view(np.float64).reshape(2, count)
    far = _negative_bases(draws, _powers(draws, 1090.0)[0](count)) if name == "pow" else _tiny_quotients(draws, count)
    return np.concatenate([special, anywhere, far], axis=1)


def _single(family: Family) -> Points:
    return lambda count: family(count)[None]


# ── one operand ─────────────────────────────────────────────────────────────────────────────────────


def _between(low: float, high: float, bound: float) -> tuple[float, float]:
    """The part of an interval of one sign whose magnitudes lie in 1/bound..bound: where most functions do most."""
    if low > 0.0:
        return max(low, 1 / bound), min(high, bound)
    return max(low, -bound), min(high, -1 / bound)


def _unary(name: str, draws: Draws) -> list[Family]:
    ((low, high),) = SCREENS[name].domain
    least = 2.0**-329
    signed = [(max(low, least), high)] if high > least else []
    signed += [(low, min(high, -least))] if low < -least else []
    whole = [draws.in_bits(*ends) for ends in signed]
    middle = [draws.in_bits(*_between(a, b, 2.0**60)) for a, b in signed]
    short = [draws.short(a, b, bits) for a, b in signed for bits in (4, 12)]
    value = draws.in_value(*_USUAL.get(name, (0.0, 8.0)))
    near = draws.near(centres(name))
    return [*whole, *middle, *middle, *short, value, value, value, near, near, near]


# ── pow ─────────────────────────────────────────────────────────────────────────────────────────────


def _powers(draws: Draws, greatest: float) -> list[Points]:
    """Pairs whose power is about 2^p, p uniform up to `greatest` in magnitude: over all bases, those near 1, and short
    exponents."""
    power = draws.in_value(-greatest, greatest)
    near_one = draws.near([1.0])

    def with_power(base: Array) -> Array:
        # The base-2 logarithm is taken as linear between powers of two.
        logarithm = base.view(np.int64).astype(np.float64) * 2.0**-52 - 1023.0
        return np.stack([base, power(base.size) / np.where(logarithm == 0.0, 1.0, logarithm)])

    def quarters(count: int) -> Array:
        exponent = (draws.below(256, count) - 128) * 0.25
        return np.stack([draws.in_bits(2.0**-20, 2.0**20)(count), exponent])

    everywhere, middle = draws.in_bits(2.0**-899, 2.0**899), draws.in_bits(2.0**-8, 2.0**8)
    return [
        lambda count: with_power(everywhere(count)),
        lambda count: with_power(middle(count)),
        lambda count: with_power(abs(near_one(count))),
        quarters,
    ]


def _negative_bases(draws: Draws, points: Array) -> Array:
    """A quarter of the bases turned negative, their exponents made whole."""
    turned = draws.below(4, points.shape[1]) == 0
    return np.stack([np.where(turned, -points[0], points[0]), np.where(turned, np.rint(points[1]), points[1])])


# ── atan2 ───────────────────────────────────────────────────────────────────────────────────────────


def _signed(draws: Draws, points: Array) -> Array:
    signs = draws.words(points.size).reshape(points.shape) & np.uint64(1 << 63)
    return (points.view(np.uint64) ^ signs).view(np.float64)


def _quotients(draws: Draws) -> list[Points]:
    """Of any size, of like size, and near the quotients at which tables and octants change."""
    everywhere, ratio = draws.in_bits(2.0**-329, 2.0**499), draws.in_bits(2.0**-12, 2.0**12)
    like = draws.in_bits(2.0**-200, 2.0**200)
    near = draws.near([k / 64 for k in range(1, 1024)])

    def times(family: Family) -> Points:
        def points(count: int) -> Array:
            x = like(count)
            return _signed(draws, np.stack([x * abs(family(count)), x]))

        return points

    any_pair: Points = lambda count: _signed(draws, np.stack([everywhere(count), everywhere(count)]))  # noqa: E731
    return [times(ratio), times(near), any_pair, times(ratio)]


def _tiny_quotients(draws: Draws, count: int) -> Array:
    """y / x about 2^-1100 to 2^-900: subnormal results and those that underflow."""
    x = draws.in_bits(2.0**50, 2.0**1000)(count)
    quotient = np.ldexp(x, (-draws.below(200, count) - 900).astype(np.int32))
    return _signed(draws, np.stack([quotient * draws.in_value(1.0, 2.0)(count), x]))

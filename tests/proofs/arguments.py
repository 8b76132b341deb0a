"""Arguments for the screens: random ones, and those where a function or its reduction turns."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache

import numpy as np

from proofs.screens import SCREENS, Screen
from repro.ir.types import Array
from tests.proofs.measured import gmpy2

_POLES = {"log1p": -1.0, "atanh": 1.0}
"""Ends of a domain where the function is infinite, by magnitude."""


def _powers_of_two() -> Array:
    """Every one in f32, and its neighbours in f32 and in f64."""
    powers = np.exp2(np.arange(-149.0, 128.0))
    narrow = powers.astype(np.float32)
    beside = [np.nextafter(narrow, np.float32(end)).astype(np.float64) for end in (0, np.inf)]
    return np.concatenate([powers, *beside, np.nextafter(powers, np.inf)])


def _turns() -> Array:
    """Multiples of pi/2 and of pi/4, the breakpoints, in f32 and in f64."""
    counts = np.concatenate([np.arange(1.0, 33.0), np.exp2(np.arange(6.0, 26.0)), 3 * np.exp2(np.arange(5.0, 20.0))])
    multiples = counts * (math.pi / 4)
    return np.concatenate([multiples, multiples.astype(np.float32)])


def _breakpoints() -> Array:
    """Zeros, and where one reduction or another takes its next node, with neighbours of all sizes."""
    points = [np.arange(1, 260) / 32.0, np.arange(1, 12) * math.log(2) / 2, 16 / (np.arange(11, 22) - 0.5)]
    pieces = -0.75 + np.arange(5) * 21 / 64
    points += [3 * (1 + pieces) / (1 - pieces), [10.5, 100.0, 20.0, 600.0, 860.0, 2.0**-10, math.sqrt(2)], _turns()]
    every = np.concatenate(points)
    near = every[:, None] * (1 + np.outer([-1, 1], [0.0, 2.0**-52, 2.0**-40, 2.0**-23]).reshape(-1))
    return np.concatenate([near.reshape(-1), near[:, 0].astype(np.float32)])


def _denominators(number: Fraction, bound: int) -> list[int]:
    """Those of its continued fraction's convergents, below the bound."""
    previous, current, found = 0, 1, list[int]()
    while current < bound and number.denominator != 1:
        found.append(current)
        number = 1 / (number - math.floor(number))
        previous, current = current, math.floor(number) * current + previous
    return found


def _hard_turns() -> Array:
    """Of each exponent the f32 and the f64 number q 2^e nearest, of their kind, to multiples of pi/2.

    q is the greatest denominator in range of a convergent of 2^e 2/pi (Kahan; Muller, Elementary Functions, 11.3).
    """
    with gmpy2.context(precision=700):
        ratio = Fraction(*map(int, (2 / gmpy2.const_pi()).as_integer_ratio()))
    found: list[float] = []
    for exponent in range(104):
        denominators = _denominators(ratio * 2**exponent, 1 << 53)
        found += [q * 2.0**exponent for q in (max(q for q in denominators if q < 1 << 24), denominators[-1])]
    numbers = np.array(found)
    return numbers[numbers < 2.0**128]


@cache
def structured() -> Array:
    largest, subnormal = float(np.finfo(np.float32).max), 2.0**-149
    huge = largest * np.exp2(-np.arange(0.0, 100.0, 3.0))
    tiny = subnormal * np.array([1.0, 2.0, 3.0, 5.0, 1234567.0, 8388607.0])
    positive = np.concatenate([_powers_of_two(), _breakpoints(), _hard_turns(), huge, tiny])
    return np.unique(np.concatenate([[0.0], positive, -positive]))


def random(rng: np.random.Generator, count: int) -> Array:
    """f32 numbers of any bits, and f64 numbers of middle size, near 1, and evenly spread."""
    bits = rng.integers(0, 2**32, count, dtype=np.uint32).view(np.float32)
    sign = np.where(rng.random(count) < 0.5, -1.0, 1.0)
    middle = np.exp2(rng.uniform(-14, 10, count))
    beside = 1 + np.exp2(rng.uniform(-50, 0, count)) * np.where(rng.random(count) < 0.5, -1.0, 1.0)
    spread = rng.uniform(0, 12, count)
    with np.errstate(invalid="ignore"):  # signalling NaNs among the bits; none is inside a domain
        wide = bits.astype(np.float64)
    return np.concatenate([wide, sign * middle, sign * beside, sign * spread, spread.astype(np.float32)])


def inside(screen: Screen, position: int, x: Array) -> Array:
    low, high = screen.domain[position]
    pole = _POLES.get(screen.name)
    kept = x[(x >= low) & (x <= high)]
    if pole is not None:
        kept = kept[(kept if pole < 0 else abs(kept)) != pole]
    return kept


@cache
def arguments(name: str, count: int) -> tuple[Array, ...]:
    """`count` arguments of that function inside its domain: structured ones, at most three in four, and random ones."""
    screen, rng = SCREENS[name], np.random.default_rng(len(name))
    if name == "pow":
        return _of_pow(rng, count)
    columns: list[Array] = []
    for position in range(len(screen.domain)):
        fixed = inside(screen, position, structured())
        chosen = fixed if 4 * len(fixed) <= 3 * count else rng.choice(fixed, 3 * count // 4, replace=False)
        drawn = inside(screen, position, random(rng, count))
        column = np.concatenate([chosen, rng.choice(drawn, count - len(chosen))])
        columns.append(rng.permutation(column) if position else column)
    if name == "atan2":
        columns = [np.where(column == 0, 1.0, column) for column in columns]
    return tuple(columns)


def _of_pow(rng: np.random.Generator, count: int) -> tuple[Array, Array]:
    """Bases from all of f32, exponents whose results are spread over f32's range and beyond."""
    bases = abs(np.concatenate([structured(), random(rng, count)]))
    bases = rng.choice(inside(SCREENS["pow"], 0, bases[bases != 1.0]), count)
    goals = np.where(rng.random(count) < 0.8, rng.uniform(-104, 90, count), rng.uniform(-590, 590, count))
    goals = np.where(rng.random(count) < 0.1, goals * 2.0**-30, goals)
    exponents = goals / np.log(bases)
    narrow = np.where(rng.random(count) < 0.5, exponents.astype(np.float32).astype(np.float64), exponents)
    return bases, np.clip(narrow, *SCREENS["pow"].domain[1])

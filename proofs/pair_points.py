"""Operand pairs for the proofs of f32 pow and atan2: random, structured, exact; the same for a seed on every host.

Blocks of u32 bit patterns. Random ones are finite; infinities and NaNs come with the special pairs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator

import numpy as np

from proofs.points import Draws
from repro.ir.types import Array

Pairs = tuple[Array, Array]
Family = Callable[[Draws, int], Pairs]

_MAGNITUDE, _SIGN = np.uint32(0x7FFFFFFF), np.uint32(0x80000000)
_FINITE = 0x7F800000

SPECIAL = [
    0.0, 2.0**-149, 2.0**-127, 2.0**-126, 0.1, 0.25, 0.5, 1 - 2**-24, 1.0, 1 + 2**-23, 1.5, 2.0, 3.0, 4.0, 10.0,
    2.0**23 + 1, 2.0**24, 2.0**24 - 1, 2.0**25, 2.0**31, 2.0**127, 2.0**128 - 2**104, math.inf, math.nan,
]  # fmt: skip
"""Every pair of these, of both signs, is tried."""


def bits_of(values: Array) -> Array:
    """f64 rounded to f32, by their bits; what overflows becomes the greatest f32."""
    greatest = 2.0**128 - 2.0**104
    return np.clip(values, -greatest, greatest).astype(np.float32).view(np.uint32)


def _finite(draws: Draws, count: int) -> Array:
    """Bits of a finite f32 of either sign, uniform."""
    magnitude = draws.below(_FINITE, count).astype(np.uint32)
    return magnitude | (draws.words(count).astype(np.uint32) & _SIGN)


def _unit(draws: Draws, count: int) -> Array:
    """Uniform in [0, 1), f64."""
    return (draws.words(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _any(draws: Draws, count: int) -> Pairs:
    return _finite(draws, count), _finite(draws, count)


# ── pow ─────────────────────────────────────────────────────────────────────────────────────────────


def _exponent_for(base: Array, power: Array) -> Array:
    """y with |x|^y near 2^power; the base-2 logarithm is taken as linear between powers of two."""
    logarithm = (base & _MAGNITUDE).astype(np.float64) * 2.0**-23 - 127.0
    return bits_of(power / np.where(logarithm == 0.0, 1.0, logarithm))


def _in_range(draws: Draws, count: int) -> Pairs:
    base = draws.below(_FINITE, count).astype(np.uint32)
    return base, _exponent_for(base, _unit(draws, count) * 280.0 - 151.0)


def _near_one(draws: Draws, count: int) -> Pairs:
    """1 give or take up to 2^-k, and an exponent that still makes something of it."""
    reach = np.int64(1) << draws.below(24, count)
    offset = draws.words(count).astype(np.int64) % reach
    base = (np.int64(0x3F800000) + offset).astype(np.uint32)
    return base, _exponent_for(base, _unit(draws, count) * 280.0 - 151.0)


def _at_the_ends(draws: Draws, count: int) -> Pairs:
    """Results about the greatest f32, the least normal one, the least one and half of it."""
    base = draws.below(_FINITE, count).astype(np.uint32)
    ends = np.array([128.0, -126.0, -149.0, -150.0])[draws.below(4, count)]
    return base, _exponent_for(base, ends + (_unit(draws, count) - 0.5) * 0.25)


def _quarters(draws: Draws, count: int) -> Pairs:
    """Exponents n/4 up to 16, bases within 2^-20 to 2^20."""
    base = (np.int64(0x35800000) + draws.below(0x14000000, count)).astype(np.uint32)
    return base, bits_of((draws.below(128, count) - 64) * 0.25)


def _negative_bases(draws: Draws, count: int) -> Pairs:
    """Whole exponents, odd and even, with results in range or nearly so; some that are no integers."""
    base, exponent = _near_one(draws, count)
    whole = np.rint(exponent.view(np.float32).astype(np.float64))
    return base | _SIGN, bits_of(whole + np.where(draws.below(16, count) == 0, 0.5, 0.0))


def exact_powers() -> Iterator[tuple[float, float]]:
    """(x, y), x > 0: each with a result of at most 25 significant bits within f32's exponents, but y = 1 and x = 1.

    Such a result needs y = n / 2^k, n odd where k > 0, and x = b^(2^k) for b = a 2^j with a odd; it is b^n. For a = 1
    n has either sign; a power of 1/a is no finite binary fraction for a > 1, so there n > 0. As a^(2^k) has at most 24
    bits and a^n at most 25, k <= 3 and n <= 15.
    """
    for k in range(4):
        roots = [a for a in range(3, 1 << 13, 2) if a ** (1 << k) < 1 << 24]
        for a, n in itertools.product(roots, range(1, 16)):
            if a**n < 1 << 25 and (n > 1 if k == 0 else n % 2):
                yield from _scaled_powers(a, k, n)
    for exponent in range(-149, 128):
        yield from ((math.ldexp(1.0, exponent), power / exponent) for power in range(-151, 129) if exponent)


def _scaled_powers(a: int, k: int, n: int) -> Iterator[tuple[float, float]]:
    odd = a ** (1 << k)
    for j in range(-150, 128):
        shift = j << k
        if -149 <= shift and shift + odd.bit_length() <= 128 and -152 <= j * n + (a**n).bit_length() <= 129:
            yield math.ldexp(float(odd), shift), n / (1 << k)


def _with_neighbours(base: Array, exponent: Array) -> Pairs:
    """The pairs, and each with either operand one f32 off, both ways."""
    up, down = np.uint32(1), np.uint32(0xFFFFFFFF)
    return (
        np.concatenate([base, base + up, base + down, base, base]),
        np.concatenate([exponent, exponent, exponent, exponent + up, exponent + down]),
    )


def pow_cases() -> Pairs:
    """Every exact power that f32 operands can have, those of negative bases and neighbours too; and special pairs."""
    listed = np.array(list(exact_powers()))
    held = (listed.astype(np.float32) == listed).all(axis=1)
    base, exponent = bits_of(listed[held, 0]), bits_of(listed[held, 1])
    whole = np.rint(exponent.view(np.float32)) == exponent.view(np.float32)
    negative = base[whole] | _SIGN, exponent[whole]
    listed_pairs = [_with_neighbours(base, exponent), negative, special_pairs()]
    return np.concatenate([first for first, _ in listed_pairs]), np.concatenate([second for _, second in listed_pairs])


# ── atan2 ───────────────────────────────────────────────────────────────────────────────────────────


def _comparable(draws: Draws, count: int) -> Pairs:
    """Both of like size: exponents at most 12 apart."""
    x = (np.int64(0x10000000) + draws.below(0x60000000, count)).astype(np.uint32)
    y = (x.astype(np.int64) + draws.below(24 << 23, count) - (12 << 23)).astype(np.uint32)
    signs = draws.words(count)
    return y | (signs.astype(np.uint32) & _SIGN), x | ((signs >> np.uint64(32)).astype(np.uint32) & _SIGN)


def _short_quotients(draws: Draws, count: int) -> Pairs:
    """y = q x exactly, q a short number: the result lies a hair below q where that is small."""
    bits = draws.below(11, count) + 1
    divisor = (draws.words(count).astype(np.int64) & 4095) | 1
    quotient = (draws.words(count).astype(np.int64) & ((np.int64(1) << bits) - 1)) | 1
    place, tiny = draws.below(120, count) - 20, draws.below(140, count) - 10
    x = np.ldexp(divisor.astype(np.float64), place.astype(np.int32))
    y = np.ldexp((divisor * quotient).astype(np.float64), (place - tiny).astype(np.int32))
    return bits_of(y), bits_of(x)


def _subnormal_quotients(draws: Draws, count: int) -> Pairs:
    """y = q x exactly for q = n 2^-150, a subnormal result or the midpoint of two."""
    quotient = draws.words(count).astype(np.int64) & 4095
    divisor = (draws.words(count).astype(np.int64) & 2047) | 1
    place = draws.below(116, count)
    x = np.ldexp(divisor.astype(np.float64), place.astype(np.int32))
    y = np.ldexp((divisor * quotient).astype(np.float64), (place - 150).astype(np.int32))
    return bits_of(y), bits_of(x)


def _diagonals(draws: Draws, count: int) -> Pairs:
    """|y| within 2^k ulps of |x|."""
    x, signs = _finite(draws, count), draws.words(count)
    offset = draws.words(count).astype(np.int64) % (np.int64(1) << draws.below(24, count))
    y = np.clip((x & _MAGNITUDE).astype(np.int64) + offset, 0, _FINITE - 1).astype(np.uint32)
    return y | (signs.astype(np.uint32) & _SIGN), x


def atan2_cases() -> Pairs:
    """Special pairs, and some whose angle is a hair below a midpoint of two subnormal results, or below one of them."""
    (y, x), (first, second) = special_pairs(), _subnormal_quotients(Draws(1), 1 << 15)
    return np.concatenate([y, first, first | _SIGN]), np.concatenate([x, second, second])


# ── both ────────────────────────────────────────────────────────────────────────────────────────────


def special_pairs() -> Pairs:
    numbers = bits_of_any(SPECIAL + [-value for value in SPECIAL])
    first, second = np.meshgrid(numbers, numbers)
    return first.reshape(-1), second.reshape(-1)


def bits_of_any(values: list[float]) -> Array:
    return np.array(values, np.float64).astype(np.float32).view(np.uint32)


FAMILIES: dict[str, tuple[Family, ...]] = {
    "pow": (_in_range, _near_one, _in_range, _quarters, _in_range, _at_the_ends, _negative_bases, _any),
    "atan2": (_comparable, _short_quotients, _comparable, _any, _diagonals),
}
"""Blocks take them in turn."""

CASES: dict[str, Callable[[], Pairs]] = {"pow": pow_cases, "atan2": atan2_cases}
"""Listed pairs, that every proof contains."""

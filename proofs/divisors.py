"""Show that quotients by one divisor (repro.numerics.elementary.divisors) are right for all pairs of significands.

    python -m proofs.divisors

For significands x and d in [1, 2) let y be the rounded reciprocal, which is off by 2^-25 at most (1/d lies in (1/2, 1],
whose ulp is 2^-24), and h half an ulp of the quotient. q = x y, rounded, is off by x 2^-25 + h at most: where x < d, x
y is below 1 as well, since the quotient is at least 2^-24 below it. The remainder q d - x, rounded, has a relative
error of 2^-24, and its product with y is subtracted unrounded. Before it is rounded the result is therefore off by

    (x 2^-25 + h) (2^-24 + d 2^-25 (1 + 2^-24))

at most. It rounds as the quotient does unless the middle between two f32s lies that near. Middles are N 2^-24 where
the quotient is 1 or more, else N 2^-25, for odd N from 2^24 to 2^25. With X = 2^23 x and D = 2^23 d, the quotient's
distance from one is k / (2^24 D) or k / (2^25 D), where k = 2^24 X - N D or 2^25 X - N D is an integer, and not 0,
since no quotient is a middle. By the bound above |k| is below 4, or below 6. For each D and each such k there are few N
that leave an X, by a division modulo a power of two; each of these pairs is tried.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from repro import ending
from repro.ir.expressions import Expr
from repro.ir.types import F32, Array
from repro.numerics import interpret
from repro.numerics.elementary import divisors
from repro.numerics.elementary.value import Value
from repro.tables import console, line

FIRST, LAST = 1 << 23, 1 << 24
BLOCK = 1 << 20
NEAREST = {24: 3, 25: 5}
"""The greatest |k| that the bound leaves, by the power of two in the middles' denominator."""


@dataclass(frozen=True)
class Found:
    """Pairs that were tried, and those whose result is not the quotient, as integers X and D."""

    tried: int
    wrong: Sequence[tuple[int, int]]


def inverse(odd: Array, bits: int) -> Array:
    """Modulo 2^bits, by Newton's iteration, which doubles the bits that are right: three of an odd number itself."""
    found = odd.copy()
    for _ in range(4):
        found = found * (2 - odd * found)
    return found & ((1 << bits) - 1)


def candidates(first: int, count: int) -> Iterator[tuple[Array, Array]]:
    """(X, D) whose quotient is too near to a middle for the bound, of divisors from a number on."""
    every = np.arange(first, first + count, dtype=np.int64)
    for bits, nearest in NEAREST.items():
        for k in (sign * size for size in range(1, nearest + 1) for sign in (1, -1)):
            yield from _candidates(every, bits, k)


def _candidates(every: Array, bits: int, k: int) -> Iterator[tuple[Array, Array]]:
    """N D = -k modulo 2^bits. N is odd, so D and k hold the same power of two, 2^z, which leaves 2^z numbers N."""
    z = (k & -k).bit_length() - 1
    divided = every[every & ((2 << z) - 1) == 1 << z]
    least = -(k >> z) * inverse(divided >> z, bits - z) & ((1 << bits - z) - 1)
    for more in range(1 << 25 - bits + z):
        middle = least + (more << bits - z)
        dividend = (middle * divided + k) >> bits
        below = dividend < divided
        good = (middle & 1 == 1) & (middle > 1 << 24) & (middle < 1 << 25) & (below == (bits == 25))
        good &= (dividend >= FIRST) & (dividend < LAST)
        yield dividend[good], divided[good]


def check(first: int = FIRST, count: int = LAST - FIRST) -> Found:
    """All pairs that the bound does not decide, of so many divisors."""

    def near(x: Expr, d: Expr) -> Expr:
        return divisors.near(Value(x), Value(d)).expr

    tried, wrong = 0, list[tuple[int, int]]()
    for start in range(first, first + count, BLOCK):
        for dividend, divisor in candidates(start, min(BLOCK, first + count - start)):
            x, d = (each.astype(np.float32) / np.float32(FIRST) for each in (dividend, divisor))
            differ = np.flatnonzero(interpret.evaluate(near, [x, d], [F32, F32]) != x / d)
            tried += x.size
            wrong += [(int(dividend[n]), int(divisor[n])) for n in differ]
    return Found(tried, wrong)


def main(words: Sequence[str]) -> int:
    argparse.ArgumentParser(
        prog="python -m proofs.divisors", description=(__doc__ or "").partition("\n")[0]
    ).parse_args(words)
    found, to = check(), console()
    for x, d in found.wrong[:100]:
        line(to, f"{x} / {d}: another result than the quotient", "bold red")
    told = f"{found.tried:,} pairs of significands are near to a middle; {len(found.wrong)} have another quotient"
    line(to, told, "bold red" if found.wrong else "green")
    return 1 if found.wrong else 0


if __name__ == "__main__":
    ending.run(main)

"""Philox4x32-10 (rule 16), in NumPy and as loop IR: which bits a random node draws.

Key: the 64-bit seed, low word first. Counter: (block low, block high, the node's slot, run number).
Element i takes word i mod 4 of block floor(i / 4); i is the global row-major index.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from repro.ir.expressions import Expr
from repro.ir.types import F32, I64, U32, U64, Array
from repro.numerics import elementary, interpret
from repro.numerics.elementary.value import Value, select, sqrt

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
"""Salmon, Moraes, Dror and Shaw, Parallel random numbers: as easy as 1, 2, 3 (2011)."""

_LOW = 0xFFFFFFFF


def seed_words(seed: int) -> tuple[int, int]:
    """The key of a 64-bit seed (negative ones by their two's complement)."""
    return seed & _LOW, (seed >> 32) & _LOW


def philox_block(counter: Sequence[Array], key: tuple[int, int]) -> list[Array]:
    """The four u32 words of each counter (four broadcasting arrays of u32 values)."""
    words = [np.asarray(word).astype(np.uint64) for word in counter]
    low = np.uint64(_LOW)
    key_low, key_high = key
    for _ in range(ROUNDS):
        first, second = words[0] * np.uint64(MULTIPLIERS[0]), words[2] * np.uint64(MULTIPLIERS[1])
        words = [
            (second >> np.uint64(32)) ^ words[1] ^ np.uint64(key_low),
            second & low,
            (first >> np.uint64(32)) ^ words[3] ^ np.uint64(key_high),
            first & low,
        ]
        key_low, key_high = (key_low + KEY_STEPS[0]) & _LOW, (key_high + KEY_STEPS[1]) & _LOW
    return [word.astype(np.uint32) for word in words]


def philox_words(seed: int, slot: int, run: int, count: int, start: int = 0) -> Array:
    """The words of elements start..start+count-1, u32."""
    first, last = start // 4, -(-(start + count) // 4)
    blocks = np.arange(first, last, dtype=np.uint64)
    counter = [blocks & np.uint64(_LOW), blocks >> np.uint64(32), np.array(slot & _LOW), np.array(run & _LOW)]
    words = philox_block(counter, seed_words(seed))
    flat = np.stack([np.broadcast_to(word, blocks.shape) for word in words], axis=-1).reshape(-1)
    return flat[start - 4 * first :][:count]


Word = Expr | int
"""A u32 expression, or its value where it is known at build."""


def _value(word: Word) -> Value:
    """A word as u64."""
    return Value(word).to(U64) if isinstance(word, Expr) else _NUMBER.same(word & _LOW)


_NUMBER = Value(interpret.argument(U64, 0))
"""Lends its type to constants."""


Seed = int | tuple[Word, Word]
"""The 64-bit seed, or its low and high word."""


def _block_of(position: Value, seed: Seed, slot: Word, run: Word) -> list[Value]:
    """The four words (u64 holding u32 values) of the block that holds an element (u64)."""
    block = position >> 2
    words = [block & _LOW, block >> 32, _value(slot), _value(run)]
    low, high = seed_words(seed) if isinstance(seed, int) else seed
    key_low, key_high = _value(low), _value(high)
    for _ in range(ROUNDS):
        first, second = words[0] * MULTIPLIERS[0], words[2] * MULTIPLIERS[1]
        words = [
            (second >> 32) ^ words[1] ^ key_low,
            second & _LOW,
            (first >> 32) ^ words[3] ^ key_high,
            first & _LOW,
        ]
        key_low, key_high = (key_low + KEY_STEPS[0]) & _LOW, (key_high + KEY_STEPS[1]) & _LOW
    return words


def _chosen(words: Sequence[Value], lane: Value) -> Value:
    """Word number `lane` (u64, 0..3)."""
    upper = (lane & 2).differs(0)
    even = select(upper, words[2], words[0])
    odd = select(upper, words[3], words[1])
    return select((lane & 1).differs(0), odd, even)


def philox_word(index: Expr, seed: Seed, slot: Word, run: Word) -> Expr:
    """The u32 word of the element with that global index (i64, not negative, or u64)."""
    position = Value(index).as_bits(U64)
    return _chosen(_block_of(position, seed, slot, run), position & 3).to(U32).expr


def uniform_from_word(word: Expr) -> Expr:
    """f32 in [0, 1): (w >> 8) * 2^-24, exact."""
    return ((Value(word) >> 8).to(F32) * 2.0**-24).expr


def uniform(index: Expr, seed: Seed, slot: Word, run: Word) -> Expr:
    """The uniform f32 of an element."""
    return uniform_from_word(philox_word(index, seed, slot, run))


TWO_PI = float(np.float32(2.0 * math.pi))


def normal(index: Expr, seed: Seed, slot: Word, run: Word) -> Expr:
    """The standard normal f32 of an element, by Box and Muller.

    Elements 2j and 2j+1 share words 2j (u1, in (0, 1]) and 2j+1 (u2): the radius is sqrt(-2 log u1), the
    angle 2 pi u2; the even element takes the cosine, the odd one the sine. Each step rounds in f32.
    """
    position = Value(index).as_bits(U64)
    words = _block_of(position, seed, slot, run)
    upper = (position & 2).differs(0)
    first, second = (select(upper, words[2 + i], words[i]).to(U32) for i in (0, 1))
    u1 = ((first >> 8) + 1).to(F32) * 2.0**-24
    u2 = (second >> 8).to(F32) * 2.0**-24
    radius = sqrt(Value(elementary.FUNCTIONS["log"](u1.expr)) * -2.0)
    angle = u2 * TWO_PI
    cosine, sine = (Value(elementary.FUNCTIONS[name](angle.expr)) for name in ("cos", "sin"))
    odd = (position & 1).differs(0)
    return (radius * select(odd, sine, cosine)).expr


def normals(seed: int, slot: int, run: int, count: int) -> Array:
    """The standard normals of elements 0..count-1, f32."""

    def of_index(index: Expr) -> Expr:
        return normal(index, seed, slot, run)

    return interpret.evaluate(of_index, [np.arange(count, dtype=np.int64)], [I64])


def uniforms(seed: int, slot: int, run: int, count: int) -> Array:
    """The uniforms of elements 0..count-1, f32 in [0, 1)."""
    words = philox_words(seed, slot, run, count)
    return (words >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)

"""Philox4x32-10 against the published known answers, and its two forms against each other."""

from __future__ import annotations

import numpy as np
import pytest

from repro.ir.types import I64, U32
from repro.numerics import interpret
from repro.numerics.random_bits import (
    normals,
    philox_block,
    philox_word,
    philox_words,
    seed_words,
    uniform,
    uniforms,
)

KNOWN_ANSWERS = [  # Random123's kat_vectors: counter, key, words
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    (
        (0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF),
        (0xFFFFFFFF, 0xFFFFFFFF),
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize("counter, key, words", KNOWN_ANSWERS)
def test_known_answers(counter, key, words):
    assert tuple(int(word) for word in philox_block([np.array(c) for c in counter], key)) == words


def test_elements_take_words_in_order():
    words = philox_words(seed=7, slot=3, run=5, count=11)
    assert words.dtype == np.uint32 and words.shape == (11,)
    for i in range(11):
        block = philox_block([np.array(v) for v in (i // 4, 0, 3, 5)], (7, 0))
        assert words[i] == block[i % 4]
    assert (philox_words(7, 3, 5, 6, start=5) == words[5:]).all()
    beyond = philox_words(7, 3, 5, 2, start=(1 << 34) + 1)
    assert (beyond == np.array(philox_block([np.array(v) for v in (0, 1, 3, 5)], (7, 0)))[1:3]).all()


@pytest.mark.parametrize("seed", [0, 1, -1, 0x0123456789ABCDEF])
def test_loop_ir_gives_the_same_words(seed):
    index = np.concatenate([np.arange(50), (1 << 34) + np.arange(10)])
    low, high = seed_words(seed)

    def static(i):
        return philox_word(i, seed, 9, 4)

    def dynamic(i, k0, k1, slot, run):
        return philox_word(i, (k0, k1), slot, run)

    expected = np.concatenate([philox_words(seed, 9, 4, 50), philox_words(seed, 9, 4, 10, start=1 << 34)])
    assert (interpret.evaluate(static, [index], [I64]) == expected).all()
    words = [np.array(w, np.uint32) for w in (low, high, 9, 4)]
    assert (interpret.evaluate(dynamic, [index, *words], [I64, U32, U32, U32, U32]) == expected).all()


def test_uniforms():
    drawn = uniforms(1, 0, 0, 100_000)
    assert drawn.dtype == np.float32 and drawn.min() >= 0 and drawn.max() < 1
    assert abs(float(np.mean(drawn, dtype=np.float64)) - 0.5) < 0.005
    got = interpret.evaluate(lambda i: uniform(i, 1, 0, 0), [np.arange(1000)], [I64])
    assert (got.view(np.uint32) == drawn[:1000].view(np.uint32)).all()


def test_normals_follow_box_and_muller():
    drawn = normals(42, 1, 2, 40_000)
    assert drawn.dtype == np.float32
    assert abs(float(drawn.astype(np.float64).mean())) < 0.02
    assert abs(float(drawn.astype(np.float64).std()) - 1) < 0.02
    words = philox_words(42, 1, 2, 40_000).astype(np.float64)
    u1, u2 = (words[0::2] // 256 + 1) / 2**24, (words[1::2] // 256) / 2**24
    radius = np.sqrt(-2 * np.log(u1))
    np.testing.assert_allclose(drawn[0::2], radius * np.cos(2 * np.pi * u2), atol=3e-6)
    np.testing.assert_allclose(drawn[1::2], radius * np.sin(2 * np.pi * u2), atol=3e-6)


def test_runs_and_slots_are_streams_of_their_own():
    streams = [philox_words(1, slot, run, 8).tolist() for slot in range(3) for run in range(3)]
    assert len({tuple(s) for s in streams}) == 9

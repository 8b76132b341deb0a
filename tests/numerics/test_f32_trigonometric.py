"""The f32 tan, asin, acos, atan, sinh, cosh, exp2, expm1 and erfc: special values, hard ones, samples against MPFR."""

from __future__ import annotations

import importlib
import math
from typing import Any

import numpy as np
import pytest

from repro.ir.types import F32
from repro.numerics.elementary import evaluate
from repro.numerics.elementary.f32 import SEQUENCES

gmpy2: Any = importlib.import_module("gmpy2")

inf, nan, pi = math.inf, math.nan, math.pi
LEAST, GREATEST = 2.0**-149, float(np.finfo(np.float32).max)
NAMES = ("tan", "asin", "acos", "atan", "sinh", "cosh", "exp2", "expm1", "erfc")

ODD = [(0.0, 0.0), (-0.0, -0.0), (LEAST, LEAST), (-LEAST, -LEAST), (2.0**-30, 2.0**-30), (nan, nan)]
OUTSIDE = [(1 + 2.0**-23, nan), (-1 - 2.0**-23, nan), (inf, nan), (-inf, nan), (nan, nan)]
SPECIALS = {
    "tan": [*ODD, (inf, nan), (-inf, nan)],
    "asin": [*ODD, *OUTSIDE, (1.0, pi / 2), (-1.0, -pi / 2)],
    "acos": [*OUTSIDE, (1.0, 0.0), (-1.0, pi), (0.0, pi / 2), (-0.0, pi / 2), (LEAST, pi / 2)],
    "atan": [*ODD, (inf, pi / 2), (-inf, -pi / 2), (GREATEST, pi / 2), (1.0, pi / 4), (-1.0, -pi / 4)],
    "sinh": [*ODD, (inf, inf), (-inf, -inf), (GREATEST, inf), (-GREATEST, -inf)],
    "cosh": [(0.0, 1.0), (-0.0, 1.0), (LEAST, 1.0), (inf, inf), (-inf, inf), (-GREATEST, inf), (nan, nan)],
    "exp2": [(0.0, 1.0), (-0.0, 1.0), (LEAST, 1.0), (inf, inf), (-inf, 0.0), (GREATEST, inf), (-GREATEST, 0.0),
             (128.0, inf), (-150.0, 0.0), (nan, nan)],
    "expm1": [*ODD[:4], (nan, nan), (inf, inf), (-inf, -1.0), (GREATEST, inf), (-GREATEST, -1.0), (-18.0, -1.0)],
    "erfc": [(0.0, 1.0), (-0.0, 1.0), (LEAST, 1.0), (inf, 0.0), (-inf, 2.0), (GREATEST, 0.0), (-GREATEST, 2.0),
             (10.0625, 0.0), (-4.0, 2.0), (nan, nan)],
}  # fmt: skip

MIDPOINTS = {
    "tan": [0x5FFD33A4],
    "acos": [0x328885A3, 0x39826222],
    "atan": [0x3D8D6B23],
    "exp2": [0x3B429D37, 0xBCF3A937],
    "erfc": [0xB76C9F62],
}
"""Bits of arguments whose value lies within 2^-55 of the middle of two f32."""


def bits(values: object) -> np.ndarray:
    """As f32 bits, every NaN the same."""
    array = np.asarray(values, np.float32)
    return np.where(np.isnan(array), np.float32(nan), array).view(np.uint32)


def rounded(name: str, x: np.ndarray) -> np.ndarray:
    """The correctly rounded f32 values, as bits."""
    function = getattr(gmpy2, name)
    with gmpy2.context(precision=24, emin=-148, emax=128, subnormalize=True):
        return bits([float(function(gmpy2.mpfr(value))) for value in x.tolist()])


@pytest.mark.parametrize("name", NAMES)
def test_special_values(name):
    arguments, wanted = (np.array(column, np.float32) for column in zip(*SPECIALS[name], strict=True))
    assert name in SEQUENCES
    np.testing.assert_array_equal(bits(evaluate(name, [arguments], F32)), bits(wanted))


def test_whole_powers_of_two_are_exact():
    exponents = np.arange(-149, 128)
    found = evaluate("exp2", [exponents.astype(np.float32)], F32)
    np.testing.assert_array_equal(found.astype(np.float64), np.ldexp(1.0, exponents))


@pytest.mark.parametrize("name", list(MIDPOINTS))
def test_values_beside_a_midpoint(name):
    x = np.array(MIDPOINTS[name], np.uint32).view(np.float32)
    np.testing.assert_array_equal(bits(evaluate(name, [x], F32)), rounded(name, x))


@pytest.mark.parametrize("name", ["tan", "asin", "atan", "sinh"])
def test_odd_functions_are_odd(name):
    x = samples(name)
    found = bits(evaluate(name, [-x], F32)) ^ np.where(np.isnan(x), np.uint32(0), np.uint32(1 << 31))
    real = ~np.isnan(evaluate(name, [x], F32))
    assert np.count_nonzero(real) > 2000
    np.testing.assert_array_equal(found[real], bits(evaluate(name, [x], F32))[real])


def samples(name: str) -> np.ndarray:
    """Any bits; values of both signs about 0, 1 and 10; neighbours of the places where a sequence changes its way."""
    rng = np.random.default_rng(sum(map(ord, name)))
    anywhere = rng.integers(0, 2**32, 3000, dtype=np.uint32).view(np.float32)
    small = (rng.uniform(-1, 1, 3000) * 2.0 ** rng.uniform(-40, 1, 3000)).astype(np.float32)
    usual = (rng.standard_normal(3000) * 10).astype(np.float32)
    places = [
        *(2.0 ** np.arange(-5, 24)),
        *(math.log(2) * np.arange(0.5, 8)),
        *(pi / 4 * np.arange(1, 16)),
        88.72284,
        89.41599,
    ]
    splits = np.nextafter(np.array(places, np.float32), np.array([[-inf], [inf]], np.float32))
    return np.concatenate([anywhere, small, usual, splits.ravel(), -splits.ravel()])


@pytest.mark.parametrize("name", NAMES)
def test_samples_are_correctly_rounded(name):
    x = samples(name)
    wanted = rounded(name, x)
    assert np.count_nonzero(~np.isnan(wanted.view(np.float32))) > 2000
    np.testing.assert_array_equal(bits(evaluate(name, [x], F32)), wanted)

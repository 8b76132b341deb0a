"""The f32 logarithms, inverse hyperbolic functions and roots: special values, exact ones, samples against MPFR."""

from __future__ import annotations

import importlib
import math
from typing import Any

import numpy as np
import pytest

from repro.ir.types import F32
from repro.numerics.elementary import evaluate

gmpy2: Any = importlib.import_module("gmpy2")

inf, nan = math.inf, math.nan
LEAST, GREATEST = 2.0**-149, float(np.finfo(np.float32).max)
NAMES = ("log", "log2", "log10", "log1p", "asinh", "acosh", "atanh", "cbrt", "rsqrt")

MPFR = {name: getattr(gmpy2, name) for name in NAMES if name != "rsqrt"} | {"rsqrt": gmpy2.rec_sqrt}

LOG_ENDS = [(0.0, -inf), (-0.0, -inf), (1.0, 0.0), (inf, inf), (-1.0, nan), (-LEAST, nan), (-inf, nan), (nan, nan)]
ODD_ZEROS = [(0.0, 0.0), (-0.0, -0.0), (LEAST, LEAST), (-LEAST, -LEAST), (nan, nan)]
SPECIALS = {
    "log": LOG_ENDS,
    "log2": [*LOG_ENDS, (LEAST, -149.0)],
    "log10": LOG_ENDS,
    "log1p": [*ODD_ZEROS, (-1.0, -inf), (-1.5, nan), (inf, inf), (-inf, nan)],
    "asinh": [*ODD_ZEROS, (inf, inf), (-inf, -inf)],
    "acosh": [(1.0, 0.0), (inf, inf), (0.9999999, nan), (0.0, nan), (-2.0, nan), (-inf, nan), (nan, nan)],
    "atanh": [*ODD_ZEROS, (1.0, inf), (-1.0, -inf), (1.0000001, nan), (-2.0, nan), (inf, nan), (-inf, nan)],
    "cbrt": [*ODD_ZEROS[:2], (nan, nan), (inf, inf), (-inf, -inf), (2.0**-147, 2.0**-49)],
    "rsqrt": [(0.0, inf), (-0.0, -inf), (inf, 0.0), (-1.0, nan), (-LEAST, nan), (-inf, nan), (nan, nan)],
}
EXACT = {
    "log2": [(2.0**n, float(n)) for n in range(-149, 128)],
    "log10": [(10.0**n, float(n)) for n in range(11)],
    "cbrt": [(n**3 * 8.0**e, n * 2.0**e) for n in range(-255, 256) if n for e in (-40, 0, 30)],
    "rsqrt": [(4.0**n, 2.0**-n) for n in range(-74, 64)],
}


def bits(values: object) -> np.ndarray:
    """As f32 bits, every NaN the same."""
    array = np.asarray(values, np.float32)
    return np.where(np.isnan(array), np.float32(nan), array).view(np.uint32)


def rounded(name: str, x: float) -> float:
    """The correctly rounded f32 value."""
    with gmpy2.context(precision=24, emin=-148, emax=128, subnormalize=True):
        return float(MPFR[name](gmpy2.mpfr(x)))


@pytest.mark.parametrize(("name", "pairs"), [(name, table[name]) for table in (SPECIALS, EXACT) for name in table])
def test_special_and_exact_values(name, pairs):
    arguments, wanted = (np.array(column, np.float32) for column in zip(*pairs, strict=True))
    np.testing.assert_array_equal(bits(evaluate(name, [arguments], F32)), bits(wanted))


def samples(name: str) -> np.ndarray:
    """Any bits; values about 1 and about 0, both signs; the ends of the finite numbers."""
    rng = np.random.default_rng(sum(map(ord, name)))
    anywhere = rng.integers(0, 2**32, 4000, dtype=np.uint32).view(np.float32)
    near_one = (1 + rng.uniform(-1, 1, 3000) * 2.0 ** rng.uniform(-24, 1, 3000)).astype(np.float32)
    near_zero = (rng.uniform(-1, 1, 3000) * 2.0 ** rng.uniform(-60, 0, 3000)).astype(np.float32)
    ends = np.array([2.0**-126, 2.0**-125, 0.5**0.5, 2.0**0.5, 0.2, GREATEST], np.float32)
    splits = np.nextafter(ends, np.array([[0], [2]], np.float32))
    return np.concatenate([anywhere, near_one, near_zero, splits.ravel(), np.array([GREATEST, LEAST], np.float32)])


@pytest.mark.parametrize("name", NAMES)
def test_samples_are_correctly_rounded(name):
    x = samples(name)
    found = bits(evaluate(name, [x], F32))
    wanted = bits([rounded(name, value) for value in x.tolist()])
    assert np.count_nonzero(~np.isnan(wanted.view(np.float32))) > 2000
    np.testing.assert_array_equal(found, wanted)

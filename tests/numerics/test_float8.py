"""Casts to f8 with and without saturation, against ml_dtypes and ONNX's table."""

from __future__ import annotations

import math

import numpy as np
import pytest

from repro.ir.expressions import convert
from repro.ir.types import F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, F16, F32, F64, I32
from repro.numerics.float8 import convert_unsaturated
from repro.numerics.interpret import evaluate
from repro.numerics.narrow_formats import NARROW

FORMATS = (F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ)


@pytest.mark.parametrize("target", FORMATS)
@pytest.mark.parametrize("source", [F32, F64])
def test_unsaturated_agrees_with_ml_dtypes(target, source):
    rng = np.random.default_rng(0)
    top = NARROW[target].value(NARROW[target].greatest)
    x = np.concatenate([
        rng.standard_normal(3000) * 2.0 ** rng.integers(-20, 18, 3000),
        np.array([top, -top, math.inf, -math.inf, math.nan, 0.0, -0.0]),
        top * np.linspace(1, 1.2, 241),
    ]).astype(np.float32).astype(source.storage)  # fmt: skip
    with np.errstate(over="ignore", invalid="ignore"):
        expected = x.astype(np.float32).astype(target.face)
    got = evaluate(lambda e: convert_unsaturated(e, target), [x], [source])
    number = ~np.isnan(expected.astype(np.float32))
    assert number.sum() > 2000
    assert (got == expected.view(np.uint8))[number].all()
    assert (got[np.isnan(expected.astype(np.float32))] == NARROW[target].nan).all()


@pytest.mark.parametrize("target", FORMATS)
def test_saturated_follows_the_table(target):
    fmt = NARROW[target]
    sign = 1 << 7
    x = np.array([0.0, -0.0, math.nan, math.inf, -math.inf, 1e9, -1e9], np.float32)
    got = evaluate(lambda e: convert(e, target), [x], [F32]).tolist()
    minus_zero = sign if fmt.negative_zero else 0
    assert got == [0, minus_zero, fmt.nan, fmt.greatest, sign | fmt.greatest, fmt.greatest, sign | fmt.greatest]


def test_other_sources():
    assert evaluate(lambda e: convert_unsaturated(e, F8E5M2), [np.array([1 << 20, -(1 << 20), 3])], [I32]).tolist() == [
        0x7C, 0xFC, 0x42,
    ]  # fmt: skip
    half = np.array([0x7C00, 0x3C00], np.uint16)
    assert evaluate(lambda e: convert_unsaturated(e, F8E4M3FN), [half], [F16]).tolist() == [0x7F, 0x38]

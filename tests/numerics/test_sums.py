"""Reduction orders against loops over one element at a time, written from the contract's words."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest

from repro.ir.expressions import Chain, Exact, Lanes, Sequential
from repro.ir.types import F32, F64
from repro.numerics.contract import LANES_ORDER, chain
from repro.numerics.numpy_scalars import evaluate
from repro.numerics.sums import reduce_reference


def bits(value):
    value = np.asarray(value)
    return value.view(np.dtype(f"u{value.dtype.itemsize}")).tolist()


def dtype_of(array):
    return F32 if array.dtype == np.float32 else F64


def scalar_fma(a, b, c, dtype):
    return evaluate("fma", dtype, [dtype] * 3, [np.array(v, dtype.storage) for v in (a, b, c)])[()]


def plain_chain(order: Chain, a, b, present=None):
    """Rule 7, one output."""
    dtype = dtype_of(a)
    blocks, panels = [], []
    for start in range(0, len(a), order.panel):
        acc = dtype.storage.type(0.0)
        for k in range(start, min(start + order.panel, len(a))):
            if present is None or present[k]:
                acc = scalar_fma(a[k], b[k], acc, dtype)
        panels.append(acc)
    for start in range(0, len(panels), order.panels_per_block):
        block = panels[start]
        for panel in panels[start + 1 : start + order.panels_per_block]:
            block = block + panel
        blocks.append(block)
    if not blocks:
        return dtype.storage.type(0.0)
    total = blocks[0]
    for block in blocks[1:]:
        total = total + block
    return total + dtype.storage.type(0.0)


def plain_lanes(order: Lanes, x, present=None, op=lambda a, b: a + b):
    """Rule 10, one output, with absent values left out altogether."""
    if len(x) == 0:
        return x.dtype.type(0.0)
    leaves = []
    for start in range(0, len(x), order.leaf):
        lanes = [None] * order.lanes
        for i, value in enumerate(x[start : start + order.leaf]):
            if present is None or present[start + i]:
                held = lanes[i % order.lanes]
                lanes[i % order.lanes] = value if held is None else op(held, value)
        half = order.lanes // 2
        while half:
            for j in range(half):
                left, right = lanes[j], lanes[j + half]
                lanes[j] = right if left is None else left if right is None else op(left, right)
            half //= 2
        leaves.append(x.dtype.type(-0.0) if lanes[0] is None else lanes[0])
    return leaves[0] if len(leaves) == 1 else plain_lanes(order, np.array(leaves), None, op)


def test_orders_are_stated_once():
    assert chain() == Chain(512, 8)
    assert chain(9) == Chain(504, 8)  # 56 channels of 3x3 taps
    assert chain(600) == Chain(600, 8)
    assert Lanes(32, 4096) == LANES_ORDER
    with pytest.raises(ValueError):
        chain(0)


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("k", [0, 1, 5, 16, 17, 70, 129])
@pytest.mark.parametrize("masked", [False, True])
def test_chain(dtype, k, masked):
    rng = np.random.default_rng(k)
    order = Chain(8, 4)
    a = rng.standard_normal((3, 1, k)).astype(dtype.storage)
    b = rng.standard_normal((1, 4, k)).astype(dtype.storage)
    present = rng.random((3, 1, k)) < 0.6 if masked else None
    if present is not None and k > 3:
        a[:, :, 3], present[:, :, 3] = np.inf, False  # an absent term takes part in nothing
    got = reduce_reference("fma", order, [a, b], present)
    for m in range(3):
        for n in range(4):
            mask = None if present is None else present[m, 0]
            assert bits(got[m, n]) == bits(plain_chain(order, a[m, 0], b[0, n], mask))


def test_chain_with_integers_that_tie():
    """Sums at midpoints of f32 with a small remainder: what a double addition alone gets wrong."""
    rng = np.random.default_rng(0)
    a = np.float32(2.0) ** rng.integers(-40, 25, (40, 1, 40)).astype(np.float32)
    b = (rng.integers(1, 4, (1, 5, 40)) * rng.choice([-1, 1], (1, 5, 40))).astype(np.float32)
    got = reduce_reference("fma", chain(), [a, b])
    for m in range(40):
        for n in range(5):
            assert bits(got[m, n]) == bits(plain_chain(chain(), a[m, 0], b[0, n]))


@pytest.mark.parametrize("dtype", [F32, F64])
def test_chain_in_subnormals(dtype):
    rng = np.random.default_rng(1)
    tiny = 2.0**-140 if dtype is F32 else 2.0**-1060
    a = (rng.standard_normal((6, 1, 20)) * tiny).astype(dtype.storage)
    b = rng.standard_normal((1, 6, 20)).astype(dtype.storage)
    got = reduce_reference("fma", chain(), [a, b])
    for m in range(6):
        for n in range(6):
            assert bits(got[m, n]) == bits(plain_chain(chain(), a[m, 0], b[0, n]))


def test_a_chain_is_never_minus_zero_and_zero_terms_change_nothing():
    tiny = np.array([-(2.0**-149)], np.float32)
    half = np.array([0.25], np.float32)
    assert bits(reduce_reference("fma", chain(), [tiny, half])) == 0
    a = np.array([1e-40, 0.0, -1.0, 0.0, 3.0], np.float32)
    b = np.array([-1e-5, -7.0, 3.0, 1e30, 1.0], np.float32)
    keep = [0, 2, 4]
    assert bits(reduce_reference("fma", chain(), [a, b])) == bits(reduce_reference("fma", chain(), [a[keep], b[keep]]))


def test_chain_with_non_finite_terms():
    a = np.array([[1.0, np.inf], [np.inf, 1.0], [np.inf, -np.inf], [np.nan, 1.0], [3e38, 3e38]], np.float32)
    got = reduce_reference("fma", chain(), [a, np.ones(2, np.float32)])
    assert got[:2].tolist() == [math.inf] * 2 and np.isnan(got[2:4]).all() and got[4] == math.inf


def test_chain_tiles_over_many_outputs():
    rng = np.random.default_rng(4)
    a = rng.standard_normal((300, 1, 3)).astype(np.float32)
    b = rng.standard_normal((1, 200, 3)).astype(np.float32)
    whole = reduce_reference("fma", chain(), [a, b])
    parts = [reduce_reference("fma", chain(), [a[i : i + 7], b]) for i in range(0, 300, 7)]
    assert bits(whole) == bits(np.concatenate(parts))


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("n", [0, 1, 31, 32, 33, 100, 128, 129, 700])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("combiner", ["add", "mul"])
def test_lanes(dtype, n, masked, combiner):
    rng = np.random.default_rng(n)
    order = Lanes(8, 32)
    x = (1 + 0.1 * rng.standard_normal((5, n))).astype(dtype.storage)
    present = rng.random((5, n)) < 0.3 if masked else None
    got = reduce_reference(combiner, order, [x], present)
    assert got.shape == (5,)
    op = (lambda a, b: a + b) if combiner == "add" else (lambda a, b: a * b)
    for row in range(5):
        mask = None if present is None else present[row]
        if combiner == "mul" and (n == 0 or masked):
            continue  # plain_lanes gives the empty leaf of a sum; products have a test of their own
        assert bits(got[row]) == bits(plain_lanes(order, x[row], mask, op))


def test_lanes_of_the_contract():
    x = np.random.default_rng(9).standard_normal((2, 4096 * 3 + 77)).astype(np.float32)
    got = reduce_reference("add", LANES_ORDER, [x])
    assert bits(got) == [bits(plain_lanes(LANES_ORDER, row)) for row in x]
    zeros = np.full((1, 5000), -0.0, np.float32)
    assert bits(reduce_reference("add", LANES_ORDER, [zeros])) == [0x80000000]
    assert bits(reduce_reference("add", LANES_ORDER, [zeros[:, :0]])) == [0]
    assert reduce_reference("mul", LANES_ORDER, [zeros[:, :0]]).tolist() == [1.0]


def test_absent_products_are_one():
    x = np.array([[2.0, np.inf, 3.0]], np.float32)
    assert reduce_reference("mul", LANES_ORDER, [x], np.array([True, False, True])).tolist() == [6.0]


def test_sequential():
    x = np.array([1e8, 1.0, -1e8, 1.0], np.float32)
    assert reduce_reference("add", Sequential(), [x]) == np.float32(1.0)
    mask = np.array([False, True, True, True])
    assert (
        bits(reduce_reference("add", Sequential(), [np.array([np.nan, -0.0, -0.0, -0.0], np.float32)], mask))
        == 0x80000000
    )
    assert reduce_reference("max", Sequential(), [x]) == np.float32(1e8)


VALUES = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 2.0**-149, -(2.0**-149), 5.0]


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("combiner", ["min", "max"])
def test_extremes_are_folds_of_the_scalar(dtype, combiner):
    rng = np.random.default_rng(6)
    x = rng.choice(VALUES[:6] + VALUES[7:], (200, 5)).astype(dtype.storage)
    x[:40, 2] = np.nan
    x[40:60] = rng.choice([0.0, -0.0], (20, 5))
    got = reduce_reference(combiner, Exact(), [x])
    for row, value in zip(x, got, strict=True):
        total = row[0]
        for other in row[1:]:
            total = evaluate(combiner, dtype, (dtype, dtype), (np.asarray(total), np.asarray(other)))
        assert bits(value) == bits(total)


@pytest.mark.parametrize("dtype", [F32, F64])
def test_positions_of_extremes(dtype):
    rng = np.random.default_rng(8)
    x = rng.choice(VALUES, (300, 4)).astype(dtype.storage)
    present = rng.random((300, 4)) < 0.7
    for mask in (None, present):
        greatest = reduce_reference("argmax", Exact(), [x], mask)
        least = reduce_reference("argmin", Exact(), [x], mask)
        for row in range(300):
            there = [i for i in range(4) if mask is None or mask[row, i]]
            if not there:
                assert greatest[row] == least[row] == 0
                continue
            key = [(1, 0.0) if math.isnan(v) else (0, v) for v in x[row].tolist()]
            assert greatest[row] == max(there, key=lambda i: (key[i], -i))
            assert least[row] == min(there, key=lambda i: (key[i], i))


def test_integer_and_boolean_reductions():
    x = np.array([[100, 100, 100], [-128, 1, 0]], np.int8)
    assert reduce_reference("add", Exact(), [x]).tolist() == [44, -127]
    assert reduce_reference("mul", Exact(), [x]).tolist() == [np.int32(100**3).astype(np.int8), 0]
    assert reduce_reference("fma", Exact(), [x, x]).tolist() == [(3 * 10000 + 128) % 256 - 128, 1]
    assert reduce_reference("max", Exact(), [x], np.array([False, True, True])).tolist() == [100, 1]
    assert reduce_reference("argmin", Exact(), [x], np.array([False, True, True])).tolist() == [1, 2]
    flags = np.array([[True, False], [True, True], [False, False]])
    assert reduce_reference("and", Exact(), [flags]).tolist() == [False, True, False]
    assert reduce_reference("or", Exact(), [flags]).tolist() == [True, True, False]
    assert reduce_reference("max", Exact(), [flags]).tolist() == [True, True, False]
    assert reduce_reference("argmax", Exact(), [np.array([1, 2**64 - 1, 2**63], np.uint64)]) == 1
    assert reduce_reference("max", Exact(), [np.zeros((2, 0), np.float32)]).tolist() == [-math.inf] * 2


def test_orders_that_do_not_fit_are_refused():
    x = np.ones(3, np.float32)
    for combiner, order, terms in (("add", chain(), [x]), ("add", Exact(), [x]), ("fma", LANES_ORDER, [x, x])):
        with pytest.raises(ValueError):
            reduce_reference(combiner, order, terms)


def test_a_sum_of_absent_values_is_the_identity():
    got = reduce_reference("add", LANES_ORDER, [np.ones((1, 9), np.float32)], np.zeros((1, 9), bool))
    assert struct.pack("<f", got[0]) == struct.pack("<f", -0.0)

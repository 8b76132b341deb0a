"""Known orders and roundings are recognised in results of plain loops, and in those of other runtimes."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from repro.audit.causes import causes
from repro.audit.causes.seeking import FAMILIES, NOT_COVERED, UNKNOWN
from repro.audit.causes.sums import ORDERS, pairwise, total
from repro.audit.golden import execute, own_executors
from repro.audit.probes.known import numpy_pairwise
from repro.audit.probes.rounding import Rounding, evaluate
from tests.audit.plain_loops import (
    chain,
    convolution,
    draw,
    in_blocks,
    in_f64,
    in_lanes,
    model_of,
    only,
    reference,
    sought,
    tail,
)

F32 = np.float32


# ── plain loops ─────────────────────────────────────────────────────────────────────────────────────


LOOPS = {
    "sequential, fma": lambda a, b: chain(a, b, True),
    "sequential, products rounded": chain,
    "sequential, backwards, products rounded": lambda a, b: chain(a[::-1], b[::-1]),
    "blocks of 4 in a row, fma": lambda a, b: in_blocks(a, b, 4, True),
    "blocks of 4 in a row, products rounded": lambda a, b: in_blocks(a, b, 4),
    "blocks of 32 in a row, products rounded": lambda a, b: in_blocks(a, b, 32),
    "lanes(2), fold halves, products rounded": lambda a, b: in_lanes(a, b, 2),
    "lanes(8), fold halves, fma": lambda a, b: in_lanes(a, b, 8, True),
    "lanes(16), fold halves, products rounded": lambda a, b: in_lanes(a, b, 16),
    "lanes(32), fold halves, products rounded": lambda a, b: in_lanes(a, b, 32),
    "lanes(16), fold neighbours, products rounded": lambda a, b: in_lanes(a, b, 16, neighbours=True),
    "lanes(4), fold halves, the rest one by one, products rounded": lambda a, b: tail(a, b, 4),
    "f64 accumulator, exact products": in_f64,
}


@pytest.mark.parametrize("name", LOOPS)
def test_a_matmul_by_a_plain_loop_is_named(name: str) -> None:
    a, b = draw(5, 67), draw(67, 8, seed=1)
    theirs = np.array([[LOOPS[name](row, column) for column in b.T] for row in a], F32)
    assert only(sought("MatMul", {"a": a, "b": b}, theirs)) == name


def test_batches_and_vectors() -> None:
    a, b = draw(3, 1, 4, 20), draw(2, 20, 5, seed=1)
    theirs = np.zeros((3, 2, 4, 5), F32)
    for i, j, m, n in itertools.product(range(3), range(2), range(4), range(5)):
        theirs[i, j, m, n] = in_blocks(a[i, 0, m], b[j, :, n], 8)
    assert only(sought("MatMul", {"a": a, "b": b}, theirs)) == "blocks of 8 in a row, products rounded"
    theirs = np.array([in_blocks(a[0, 0, 0], column, 8) for column in b[0].T], F32)
    name = only(sought("MatMul", {"a": a[0, 0, 0], "b": b[0]}, theirs))
    assert name == "possibly blocks of 8 in a row, products rounded", "five elements may be chance"


def test_gemm_with_its_factors_and_a_bias_first() -> None:
    a, b, c = draw(40, 6), draw(7, 40, seed=1), draw(7, seed=2)
    found = [[chain(row, column) for column in b] for row in a.T]
    theirs = F32(0.5) * np.array(found, F32) + F32(3) * c
    name = only(sought("Gemm", {"a": a, "b": b, "c": c}, theirs, transA=1, transB=1, alpha=0.5, beta=3.0))
    assert name == "sequential, products rounded"
    one = np.ones(1, F32)
    rows = [[chain(np.r_[bias, row], np.r_[one, column]) for column, bias in zip(b, c, strict=True)] for row in a.T]
    name = only(sought("Gemm", {"a": a, "b": b, "c": c}, np.array(rows, F32), transA=1, transB=1))
    assert name == "sequential, products rounded, starting from the bias"


@pytest.mark.parametrize(
    "attributes",
    [
        {"pads": [1, 0, 2, 1], "strides": [2, 1]},
        {"dilations": [2, 1], "group": 2},
        {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
        {"auto_pad": "SAME_LOWER"},
    ],
    ids=str,
)
def test_a_convolution_by_loops_is_named(attributes) -> None:
    x, bias = draw(2, 4, 7, 6), draw(6, seed=2)
    w = draw(6, 4 // attributes.get("group", 1), 3, 2, seed=1)
    theirs = convolution(x, w, bias, **attributes)
    assert only(sought("Conv", {"x": x, "w": w, "b": bias}, theirs, **attributes)) == "sequential, products rounded"


def test_a_convolution_tap_by_tap() -> None:
    x, w = draw(1, 16, 3, 3), draw(8, 16, 2, 2, seed=1)
    theirs = np.zeros((1, 8, 2, 2), F32)
    for o, i, j in np.ndindex(8, 2, 2):
        order = [(c, p, q) for block in (0, 8) for p in range(2) for q in range(2) for c in range(block, block + 8)]
        theirs[0, o, i, j] = chain([x[0, c, i + p, j + q] for c, p, q in order], [w[o, c, p, q] for c, p, q in order])
    name = only(sought("Conv", {"x": x, "w": w}, theirs))
    assert name == "tap by tap in blocks of 8 channels, in one row, products rounded"


def test_fused_nodes_behind_a_dot() -> None:
    a, b, bias = draw(6, 30), draw(30, 5, seed=1), draw(5, seed=2)
    sums = np.array([[in_blocks(row, column, 4) for column in b.T] for row in a], F32)
    after = (
        helper.make_node("Add", ["y", "bias"], ["z"], name="add"),
        helper.make_node("Relu", ["z"], ["w"], name="relu"),
    )
    theirs = np.maximum(sums + bias, 0)
    golden = np.where(theirs > 0, np.nextafter(theirs, F32(9)), theirs)
    node = helper.make_node("MatMul", ["a", "b"], ["y"], name="dot")
    arrays = {"a": a, "b": b, "bias": bias}
    assert only(causes(node, arrays, golden, theirs, after)) == "blocks of 4 in a row, products rounded"
    loose = (helper.make_node("Relu", ["elsewhere"], ["w"], name="relu"),)
    assert causes(node, arrays, golden, theirs, loose)[0].name == NOT_COVERED
    rounded = (*after[:1], helper.make_node("Round", ["z"], ["w"]))
    assert causes(node, arrays, golden, theirs, rounded)[0].name == NOT_COVERED


def test_a_batch_normalization_folded_into_a_convolution() -> None:
    x, w, own = draw(2, 3, 6, 6), draw(4, 3, 3, 3, seed=1), draw(4, seed=2)
    g, b, m, v = draw(4, seed=3), draw(4, seed=4), draw(4, seed=5), np.abs(draw(4, seed=6))
    factor = g / np.sqrt(v + F32(1e-5))
    folded = convolution(x, w * factor.reshape(4, 1, 1, 1), (own - m) * factor + b)
    theirs = np.maximum(folded, 0)
    golden = np.where(theirs > 0, np.nextafter(theirs, F32(9)), theirs)
    after = (
        helper.make_node("BatchNormalization", ["y", "g", "b", "m", "v"], ["z"], name="bn"),
        helper.make_node("Relu", ["z"], ["w2"], name="relu"),
    )
    node = helper.make_node("Conv", ["x", "w", "own"], ["y"], name="conv")
    arrays = {"x": x, "w": w, "own": own, "g": g, "b": b, "m": m, "v": v}
    assert only(causes(node, arrays, golden, theirs, after)) == "sequential, products rounded"


def test_a_sum_fused_behind_a_convolution_before_its_bias() -> None:
    x, w, bias, other = draw(1, 5, 6, 6), draw(4, 5, 3, 3, seed=1), draw(4, seed=2), draw(1, 4, 4, 4, seed=3)
    none = np.zeros(4, F32)
    apart = [convolution(x[:, c : c + 1], w[:, c : c + 1], none) for c in range(5)]
    sums = apart[0] + apart[1] + apart[2] + apart[3] + apart[4]
    theirs = (sums + other) + bias.reshape(1, 4, 1, 1)
    after = (
        helper.make_node("Reshape", ["elsewhere", "shape"], ["other"], name="beside"),
        helper.make_node("Add", ["y", "other"], ["z"], name="add"),
    )
    arrays = {"x": x, "w": w, "bias": bias, "other": other}
    golden = np.nextafter(theirs, F32(99))
    found = causes(helper.make_node("Conv", ["x", "w", "bias"], ["y"]), arrays, golden, theirs, after)
    assert only(found) == "channel by channel, products rounded, the bias last"


def test_a_gate_behind_a_dot_reads_it_twice() -> None:
    a, b = draw(6, 30), draw(30, 9, seed=1)
    sums = np.array([[in_blocks(row, column, 4) for column in b.T] for row in a], F32)
    gate = np.maximum(0, np.minimum(1, F32(0.2) * sums + F32(0.5)))
    after = (
        helper.make_node("HardSigmoid", ["y"], ["gate"], name="gate"),
        helper.make_node("Mul", ["y", "gate"], ["z"], name="mul"),
    )
    theirs = (sums * gate).astype(F32)
    golden = np.where(theirs != 0, np.nextafter(theirs, F32(99)), theirs)
    found = causes(helper.make_node("MatMul", ["a", "b"], ["y"]), {"a": a, "b": b}, golden, theirs, after)
    assert only(found) == "blocks of 4 in a row, products rounded"


def test_two_orders_by_place() -> None:
    """The last columns of a matrix in another order than the others, as at the edges of tiles."""
    a, b = draw(12, 70), draw(70, 12, seed=1)
    theirs = np.array([[(chain if n < 9 else in_f64)(row, column) for n, column in enumerate(b.T)] for row in a], F32)
    found = sought("MatMul", {"a": a, "b": b}, theirs)
    words = "by place, sequential, products rounded or f64 accumulator, exact products"
    assert [cause.name for cause in found] == [words]
    most, rest = (int(count) for count in found[0].evidence.removesuffix(" of 144 sampled elements").split(", "))
    assert most + rest == 144
    assert most >= 108, "the first nine columns, and what is the same in either order"


def test_noise_is_no_known_order() -> None:
    a, b = draw(20, 30), draw(30, 20, seed=1)
    exact = (a.astype(np.float64) @ b.astype(np.float64)).astype(F32)
    noise = np.random.Generator(np.random.PCG64(5)).integers(-9, 9, exact.shape)
    theirs = (exact.view(np.int32) + noise).astype(np.int32).view(F32)
    found = sought("MatMul", {"a": a, "b": b}, theirs)
    assert [cause.name for cause in found] == [UNKNOWN]
    assert "the nearest" in found[0].evidence


# ── sums of whole arrays against trees ──────────────────────────────────────────────────────────────


@given(st.integers(0, len(ORDERS) - 1), st.integers(2, 150), st.booleans(), st.integers(0, 1000))
@settings(max_examples=120, deadline=None)
def test_sums_of_columns_are_those_of_the_trees(position: int, terms: int, fused: bool, seed: int) -> None:
    order = ORDERS[position].make(terms)
    if order is None or order.backwards:
        return
    tree = order.build(terms)
    a, b = draw(terms, 3, seed=seed), draw(terms, seed=seed + 1)
    first = order.steps[0]
    if fused and (first.count == 1 or (terms - order.tail) % first.span):
        return  # a lane or block of one term has nothing to be fused with; the tree does not tell those apart
    joined = {right if right < terms else left for left, right in tree.nodes} if fused else set[int]()
    fused_leaves = {part for part in joined if part < terms}
    expected = evaluate(tree, Rounding(frozenset(fused_leaves), frozenset(), frozenset(), None), a.T.copy(), b)
    found = total(order, a, np.repeat(b[:, None], 3, axis=1), fused)
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("terms", [3, 8, 100, 129, 1000])
def test_pairwise_sums_are_numpys(terms: int) -> None:
    a = draw(terms, 4)
    none = Rounding(frozenset(), frozenset(), frozenset(), None)
    assert pairwise(a).tobytes() == evaluate(numpy_pairwise(terms), none, a.T.copy(), None).tobytes()


def test_reductions() -> None:
    x = draw(9, 50, 3)
    zeros = np.ones(150, F32)
    rows = np.moveaxis(x, 1, 2).reshape(27, 50)
    lanes = np.array([in_lanes(row, zeros[:50], 8) for row in rows], F32).reshape(9, 3)
    axes = np.array([1])
    assert only(sought("ReduceSum", {"x": x, "axes": axes}, lanes, keepdims=0)) == "lanes(8), fold halves"
    assert only(sought("ReduceMean", {"x": x, "axes": axes}, lanes / F32(50), keepdims=0)) == "lanes(8), fold halves"
    scaled = lanes * (F32(1) / F32(50))
    name = only(sought("ReduceMean", {"x": x}, scaled, axes=[1], keepdims=0))
    assert name == "lanes(8), fold halves, times 1 / count"


# ── real runtimes ───────────────────────────────────────────────────────────────────────────────────


REAL = {
    "MatMul": {"a": draw(24, 700), "b": draw(700, 32, seed=1)},
    "ReduceSum": {"a": draw(64, 1000), "axes": np.array([1])},
    "Softmax": {"a": draw(64, 100)},
    "Exp": {"a": draw(2000)},
}


@pytest.mark.parametrize("operator", REAL)
def test_other_runtimes_have_their_causes(operator: str) -> None:
    """At least one of the two differs from repro, and each that does has a cause with a name."""
    assert operator in FAMILIES
    arrays = REAL[operator]
    model = model_of(operator, arrays)
    inputs = {name: array for name, array in arrays.items() if array.dtype == F32}
    golden = execute(model, Path(), inputs, own_executors()[0], None)["y"]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    results = [np.asarray(session.run(None, inputs)[0]), reference(operator, arrays)]
    named = 0
    for theirs in results:
        found = causes(model.graph.node[0], arrays, golden, theirs)
        assert bool(found) == (theirs.tobytes() != golden.tobytes())
        named += bool(found) and found[0].name not in (UNKNOWN, NOT_COVERED)
    assert named >= 1

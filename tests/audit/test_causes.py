"""Known orders and roundings are recognised in results of plain loops, and in those of other runtimes."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from repro.audit.causes import causes
from repro.audit.causes.elementwise import FUNCTIONS
from repro.audit.causes.seeking import FAMILIES, NOT_COVERED, UNKNOWN
from repro.audit.causes.sums import ORDERS, pairwise, total
from repro.audit.golden import execute, own_executors
from repro.audit.probes.known import numpy_pairwise
from repro.audit.probes.rounding import Rounding, evaluate
from repro.ir.types import F32 as F32_TYPE
from repro.numerics.elementary import evaluate as elementary

F32 = np.float32


def draw(*shape: int, seed: int = 0):
    return np.random.Generator(np.random.PCG64(seed)).uniform(-2, 2, shape).astype(F32)


def sought(operator: str, arrays, theirs, golden=None, after=(), **attributes):
    """The causes of a node whose golden result is `theirs` with every bit but the last flipped, unless given."""
    node = helper.make_node(operator, list(arrays), ["y"], name="node", **attributes)
    theirs = np.asarray(theirs, F32)
    golden = np.nextafter(theirs, F32(np.inf)) if golden is None else golden
    return causes(node, arrays, golden, theirs, after)


def only(found) -> str:
    """The name of a cause that all sampled elements show."""
    assert len(found) == 1, found
    counted, _, elements = found[0].evidence.partition(" of ")
    assert elements.split()[0] == counted, found
    return found[0].name


# ── plain loops ─────────────────────────────────────────────────────────────────────────────────────


def fma(a, b, c) -> np.float32:
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    if not exact:
        return F32(0)
    unit = Fraction(2) ** (math.floor(math.log2(abs(exact))) - 23)
    return F32(float(round(exact / unit) * unit))


def chain(a, b, fused: bool = False):
    total = a[0] * b[0]
    for x, y in zip(a[1:], b[1:], strict=True):
        total = fma(x, y, total) if fused else total + x * y
    return total


def in_blocks(a, b, size: int, fused: bool = False):
    parts = [chain(a[at : at + size], b[at : at + size], fused) for at in range(0, len(a), size)]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def in_lanes(a, b, width: int, fused: bool = False, neighbours: bool = False):
    lanes = [chain(a[lane::width], b[lane::width], fused) for lane in range(width)]
    while len(lanes) > 1:
        half = len(lanes) // 2
        pairs = [(2 * k, 2 * k + 1) if neighbours else (k, k + half) for k in range(half)]
        lanes = [lanes[left] + lanes[right] for left, right in pairs]
    return lanes[0]


def in_f64(a, b):
    total = 0.0
    for x, y in zip(a, b, strict=True):
        total += float(x) * float(y)
    return F32(total)


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


def tail(a, b, width: int):
    body = len(a) // width * width
    result = in_lanes(a[:body], b[:body], width)
    for x, y in zip(a[body:], b[body:], strict=True):
        result = result + x * y
    return result


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


def convolution(x, w, bias, pads=None, strides=(1, 1), dilations=(1, 1), group=1, auto_pad="NOTSET"):
    """Taps that fall outside are left out, so that padding is no part of the loop."""
    shape = reference("Conv", {"x": x, "w": w}, **arguments(pads, strides, dilations, group, auto_pad)).shape
    if auto_pad == "NOTSET":
        begins = (pads or [0, 0, 0, 0])[:2]
    else:
        needed = [
            max(0, (size - 1) * s + (k - 1) * d + 1 - extent)
            for size, s, k, d, extent in zip(shape[2:], strides, w.shape[2:], dilations, x.shape[2:], strict=True)
        ]
        begins = [n // 2 if auto_pad == "SAME_UPPER" else n - n // 2 for n in needed]
    result = np.zeros(shape, F32)
    for n, o, i, j in np.ndindex(*shape):
        a, b = [], []
        for c, p, q in np.ndindex(*w.shape[1:]):
            row, column = i * strides[0] + p * dilations[0] - begins[0], j * strides[1] + q * dilations[1] - begins[1]
            if 0 <= row < x.shape[2] and 0 <= column < x.shape[3]:
                a.append(x[n, o // (w.shape[0] // group) * w.shape[1] + c, row, column])
                b.append(w[o, c, p, q])
        result[n, o, i, j] = chain(a, b) + bias[o]
    return result


def arguments(pads, strides, dilations, group, auto_pad):
    given = {"strides": list(strides), "dilations": list(dilations), "group": group, "auto_pad": auto_pad}
    return given | ({"pads": pads} if pads else {})


def reference(operator: str, arrays, **attributes):
    results = ReferenceEvaluator(model_of(operator, arrays, **attributes)).run(None, arrays)
    assert isinstance(results, list)
    return results[0]


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


# ── rows ────────────────────────────────────────────────────────────────────────────────────────────


def exp(x):
    return elementary("exp", [np.asarray(x, F32)], F32_TYPE)


def softmax_parts(x):
    e = exp(x - x.max(axis=1, keepdims=True))
    return e, np.array([[in_lanes(row, np.ones_like(row), 8)] for row in e], F32)


def test_softmax_by_division_and_by_the_reciprocal() -> None:
    x = draw(30, 33)
    e, s = softmax_parts(x)
    assert only(sought("Softmax", {"x": x}, e / s)) == "lanes(8), fold halves, one division"
    assert only(sought("Softmax", {"x": x}, e * (F32(1) / s))) == "lanes(8), fold halves, times 1 / sum"
    moved = np.ascontiguousarray((e / s).T.reshape(33, 5, 6))
    given = np.ascontiguousarray(x.T.reshape(33, 5, 6))
    assert only(sought("Softmax", {"x": given}, moved, axis=0)) == "lanes(8), fold halves, one division"


def test_a_softmax_that_is_renamed_behind() -> None:
    x = draw(30, 33)
    e, s = softmax_parts(x)
    node, named = helper.make_node("Softmax", ["x"], ["y"]), helper.make_node("Identity", ["y"], ["z"])
    theirs = e * (F32(1) / s)
    found = causes(node, {"x": x}, np.nextafter(theirs, F32(9)), theirs, [named])
    assert only(found) == "lanes(8), fold halves, times 1 / sum"


@pytest.mark.parametrize("reciprocal", [False, True])
def test_softmax_with_an_exp_of_its_own(reciprocal: bool) -> None:
    """An exp that is 2 ULP off now and then is seen through the quotient, and so is the way of dividing."""
    x = draw(60, 90)
    e, _ = softmax_parts(x)
    off = (np.random.Generator(np.random.PCG64(3)).random(e.shape) < 0.2) & (e < 1)
    e = np.where(off, (e.view(np.int32) + 2).view(F32), e)
    s = np.array([[chain(row, np.ones_like(row))] for row in e], F32)
    names = [cause.name for cause in sought("Softmax", {"x": x}, e * (F32(1) / s) if reciprocal else e / s)]
    assert names[0] == ("multiplies by the reciprocal of the sum" if reciprocal else "divides by the sum")
    assert names[1] == "exp not correctly rounded (by 2 ULP or more)"


def test_layer_normalization() -> None:
    x, g, b = draw(12, 40), draw(40, seed=1), draw(40, seed=2)
    ones = np.ones(40, F32)
    mean = np.array([[in_lanes(row, ones, 4) / F32(40)] for row in x], F32)
    d = x - mean
    variance = np.array([[in_lanes(row, row, 4) / F32(40)] for row in d], F32)
    root = np.sqrt(variance + F32(1e-5))
    name = only(sought("LayerNormalization", {"x": x, "g": g, "b": b}, d * (F32(1) / root) * g + b))
    assert name == "lanes(4), fold halves, times 1 / deviation"
    name = only(sought("LayerNormalization", {"x": x, "g": g, "b": b}, d / root * g + b))
    assert name == "lanes(4), fold halves, one division"


# ── elements ────────────────────────────────────────────────────────────────────────────────────────

PLAIN = {
    ("Sigmoid", "1 / (1 + exp(-x))"): lambda x: F32(1) / (F32(1) + exp(-x)),
    ("Swish", "x / (1 + exp(-x))"): lambda x: x / (F32(1) + exp(-x)),
    ("Softsign", "x * (1 / (1 + |x|))"): lambda x: x * (F32(1) / (F32(1) + abs(x))),
    ("Tanh", "1 - 2 / (exp(2 x) + 1)"): lambda x: F32(1) - F32(2) / (exp(F32(2) * x) + F32(1)),
    ("Gelu", "x * sigmoid(1.702 x)"): lambda x: x * (F32(1) / (F32(1) + exp(-(F32(1.702) * x)))),
}


@pytest.mark.parametrize(("operator", "name"), PLAIN, ids=str)
def test_formulas_are_named(operator: str, name: str) -> None:
    x = draw(500)
    theirs = np.array([PLAIN[operator, name](value) for value in x], F32).reshape(500)
    assert only(sought(operator, {"x": x}, theirs)) == name


@pytest.mark.parametrize("operator", sorted(FUNCTIONS))
def test_every_formula_is_found_again(operator: str) -> None:
    """Or one before it, where that has the same bits."""
    function = FUNCTIONS[operator]
    operands = [np.abs(draw(800, seed=3)), draw(800, seed=4)][: 2 if operator in ("Pow", "Div") else 1]
    if operator == "Pow":
        operands[1] = np.full(800, 3, F32)
    arrays = dict(zip("xy", operands, strict=False))
    names = list(function.formulas)
    for name, compute in function.formulas.items():
        found = only(sought(operator, arrays, compute(*operands)))
        assert names.index(found) <= names.index(name)


def test_a_gelu_that_was_fused_from_its_parts() -> None:
    x = draw(400)
    root, one, half = (np.array(value, F32) for value in (2**0.5, 1, 0.5))
    written = [
        ("Div", ["x", "root"]),
        ("Erf", ["a"]),
        ("Add", ["b", "one"]),
        ("Mul", ["x", "c"]),
        ("Mul", ["d", "half"]),
    ]
    nodes = [helper.make_node(op, read, ["abcde"[k]], name=f"n{k}") for k, (op, read) in enumerate(written)]
    erf = elementary("erf", [x / root], F32_TYPE)
    arrays = {"x": x, "root": root, "one": one, "half": half, "a": x / root, "b": erf, "c": erf + one}
    golden = (x * (erf + one)) * half
    theirs = x * (half * elementary("erf", [x * F32(2**-0.5)], F32_TYPE) + half)
    assert only(causes(nodes[0], arrays, golden, theirs, nodes[1:])) == "(0.5 x) (1 + erf(x * (1 / sqrt 2)))"
    wrong = np.where(np.abs(x) > 1, golden * 2, golden)
    assert causes(nodes[0], arrays, wrong, theirs, nodes[1:])[0].name == NOT_COVERED, "it is another function"


def test_an_elementary_function_that_is_not_correctly_rounded() -> None:
    x = draw(400)
    golden = exp(x)
    theirs = golden.copy()
    theirs[::10] = (theirs[::10].view(np.int32) - 3).view(F32)
    found = sought("Exp", {"x": x}, theirs, golden)
    assert [(cause.name, cause.evidence) for cause in found] == [
        ("not correctly rounded (up to 3 ULP)", "40 of 400 sampled elements")
    ]


def test_batch_normalization() -> None:
    x, g, b, m = draw(3, 4, 5, 5), draw(4, seed=1), draw(4, seed=2), draw(4, seed=3)
    v = np.abs(draw(4, seed=4))
    g, b, m, root = (each.reshape(4, 1, 1) for each in (g, b, m, np.sqrt(v + F32(1e-5))))
    arrays = dict(zip("xgbmv", (x, g.ravel(), b.ravel(), m.ravel(), v), strict=True))
    name = only(sought("BatchNormalization", arrays, x * (g / root) + (b - m * (g / root))))
    assert name == "x * a + (bias - mean * a), a = scale / deviation"


def test_what_needs_no_formula() -> None:
    x = draw(8)
    tiny = np.array([1e-40, 0.5, -2e-39], F32)
    found = sought("Mul", {"x": x}, np.where(np.abs(tiny) < 1e-38, F32(0), tiny), golden=tiny)
    assert [(cause.name, cause.evidence) for cause in found] == [
        ("subnormals flushed to zero", "all 2 elements that differ")
    ]
    zeros = np.array([0.0, 1.0], F32)
    assert sought("Round", {"x": x}, -zeros * F32(0) + zeros * zeros, golden=zeros) == ()
    assert sought("Round", {"x": x}, np.array([-0.0, 1.0], F32), golden=zeros)[0].name == "sign of zero"
    nan = np.array([np.nan], F32)
    assert sought("Exp", {"x": x}, (nan.view(np.uint32) | 1).view(F32), golden=nan) == ()
    assert sought("Round", {"x": x}, x) == (), "an operator without candidates"


# ── real runtimes ───────────────────────────────────────────────────────────────────────────────────


def model_of(operator: str, arrays, **attributes):
    node = helper.make_node(operator, list(arrays), ["y"], name="node", **attributes)
    constants = [numpy_helper.from_array(array, name) for name, array in arrays.items() if array.dtype != F32]
    inputs = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, array.shape)
        for name, array in arrays.items()
        if array.dtype == F32
    ]
    result = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "model", inputs, [result], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return onnx.shape_inference.infer_shapes(model)


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

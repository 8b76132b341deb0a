"""Softmax, normalizations, functions and activations: the formula that gives a result is named."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from repro.audit.causes import causes
from repro.audit.causes.elementwise import FUNCTIONS
from repro.audit.causes.seeking import NOT_COVERED
from repro.ir.types import F32 as F32_TYPE
from repro.numerics.elementary import evaluate as elementary
from tests.audit.plain_loops import (
    chain,
    draw,
    in_lanes,
    only,
    sought,
)

F32 = np.float32

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


def test_another_formula_is_measured_against_the_exact_value() -> None:
    """One that is a unit off, and one that is cut off where results are tiny."""
    x = draw(600) * F32(20)
    golden = F32(1) / (F32(1) + exp(-x))
    off = golden.copy()
    off[::7] = np.nextafter(off[::7], F32(0))
    (found,) = sought("Sigmoid", {"x": x}, off, golden)
    assert found.name == "another formula or function: 99 % within 2 ULP of the exact value"
    assert found.evidence == "600 sampled elements; repro's within 1 ULP"
    (found,) = sought("Sigmoid", {"x": x}, np.maximum(off, F32(1e-7)), golden)
    assert found.name == "another formula or function: 99 % within 1.2e-07 of the exact value", "two units below 1"


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

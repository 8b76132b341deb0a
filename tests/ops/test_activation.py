"""Activations against their formulas in float64, ONNX Runtime for old opsets, and the operators exporters write."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

from repro.ir.types import Array
from tests.ops.against_runtime import agrees
from tests.ops.one_node import run_model, run_node

_erf = np.vectorize(math.erf)
X = np.concatenate([np.linspace(-12, 12, 97), [0.0, -0.0, 1e-4, -1e-4, 100, -100]])


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def below(x: Array, otherwise: Array) -> Array:
    return np.where(x < 0, otherwise, x)


FORMULAS: list[tuple[str, int, dict[str, Any], Callable[[Array], Array]]] = [
    ("LeakyRelu", 7, {"alpha": 0.25}, lambda x: below(x, 0.25 * x)),
    ("Elu", 7, {"alpha": 0.5}, lambda x: below(x, 0.5 * np.expm1(x))),
    ("Selu", 7, {"alpha": 2.0, "gamma": 3.0}, lambda x: 3 * below(x, 2 * np.expm1(x))),
    ("Celu", 12, {"alpha": 2.0}, lambda x: below(x, 2 * np.expm1(x / 2))),
    ("ThresholdedRelu", 10, {"alpha": 2.0}, lambda x: np.where(x > 2, x, 0)),
    ("Sigmoid", 7, {}, sigmoid),
    ("HardSigmoid", 7, {"alpha": 0.25, "beta": 0.5}, lambda x: np.clip(0.25 * x + 0.5, 0, 1)),
    ("HardSwish", 14, {}, lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
    ("Swish", 24, {"alpha": 1.5}, lambda x: x * sigmoid(1.5 * x)),
    ("Softplus", 7, {}, lambda x: np.logaddexp(0, x)),
    ("Mish", 18, {}, lambda x: x * np.tanh(np.logaddexp(0, x))),
    ("Softsign", 7, {}, lambda x: x / (1 + np.abs(x))),
    ("Shrink", 9, {"lambd": 1.5, "bias": 0.5}, lambda x: np.where(x < -1.5, x + 0.5, np.where(x > 1.5, x - 0.5, 0))),
    ("Gelu", 20, {}, lambda x: 0.5 * x * (1 + _erf(x / math.sqrt(2)))),
    (
        "Gelu", 20, {"approximate": "tanh"},
        lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-13), (np.float32, 2e-6), (np.float16, 2e-3)])
@pytest.mark.parametrize(("op", "opset", "attributes", "formula"), FORMULAS, ids=lambda item: str(item)[:24])
def test_formula(op: str, opset: int, attributes: Any, formula: Any, dtype: Any, tolerance: float) -> None:
    x = X.astype(dtype)
    [found] = run_node(op, {"x": x}, ["y"], opset, **attributes)
    wide = x.astype(np.float64)
    with np.errstate(over="ignore"):
        expected = formula(wide)
    assert found.dtype == dtype
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=tolerance, atol=tolerance * 0.1)


def test_exponential_units_keep_small_arguments() -> None:
    x = np.array([-1e-6, -1e-3], np.float32)
    for op, opset in (("Elu", 7), ("Celu", 12)):
        [found] = run_node(op, {"x": x}, ["y"], opset)
        np.testing.assert_allclose(found, np.expm1(x.astype(np.float64)), rtol=1e-7)


def test_prelu_stretches_its_slope() -> None:
    x = X.astype(np.float32)[:96].reshape(4, 4, 6)
    agrees("PRelu", 7, x, np.array([[0.1], [0.2], [-3], [0]], np.float32))
    agrees("PRelu", 16, x, np.array([0.5], np.float32))


def test_activations_of_integers() -> None:
    x = np.array([-3, 0, 5], np.int32)
    assert run_node("Relu", {"x": x}, ["y"], 14)[0].tolist() == [0, 0, 5]
    assert run_node("PRelu", {"x": x, "s": np.array([2], np.int32)}, ["y"], 16)[0].tolist() == [-6, 0, 5]
    assert run_node("Shrink", {"x": x}, ["y"], 9, lambd=1.5, bias=1.0)[0].tolist() == [-2, 0, 4]
    assert run_node("Shrink", {"x": np.array([0, 9], np.uint8)}, ["y"], 9)[0].tolist() == [0, 9]


def test_nan_stays_and_negative_zero_goes() -> None:
    x = np.array([np.nan, -0.0], np.float32)
    [found] = run_node("Relu", {"x": x}, ["y"], 7)
    assert np.isnan(found[0]) and not np.signbit(found[1])


# ── over axes ───────────────────────────────────────────────────────────────────────────────────────

ROWS = np.random.default_rng(4).standard_normal((2, 3, 4, 5)).astype(np.float32)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("opset", [7, 11, 13])
@pytest.mark.parametrize("axis", [None, 0, 2, 3])
def test_over_axes_in_every_opset(op: str, opset: int, axis: int | None) -> None:
    attributes: dict[str, Any] = {} if axis is None else {"axis": axis}
    agrees(op, opset, ROWS, **attributes)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
def test_over_nothing(op: str) -> None:
    [found] = run_node(op, {"x": np.zeros((3, 0), np.float32)}, ["y"], 13)
    assert found.shape == (3, 0)


def test_the_first_greatest_and_nan_above_all() -> None:
    x = np.array([[1, 3, 3], [np.nan, 9, np.nan]], np.float32)
    assert run_node("Hardmax", {"x": x}, ["y"], 13)[0].tolist() == [[0, 1, 0], [1, 0, 0]]


# ── what exporters write in place of an operator ────────────────────────────────────────────────────


def written(text: str, x: Array) -> Array:
    """The output of a model in ONNX's text form, over one input."""
    shape = ",".join(map(str, x.shape))
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g (float[{shape}] x) => (float[{shape}] y) {text}'
    )
    [found] = run_model(model, {"x": x})
    return found


def test_decompositions_have_the_bits_of_the_operators() -> None:
    x = np.random.default_rng(9).standard_normal((6, 33)).astype(np.float32) * 4
    softmax = "{m = ReduceMax <axes = [-1]> (x) d = Sub(x, m) e = Exp(d) a = Constant <value_ints = [-1]> () "
    softmax += "s = ReduceSum(e, a) "
    half, root = "h = Constant <value_float = 0.5> () one = Constant <value_float = 1.0> () ", "1.41421354"
    erf = "{" + half + f"r = Constant <value_float = {root}> () q = Div(x, r) f = Erf(q) p = Add(f, one) "
    forms = {
        "Softmax": (13, softmax + "y = Div(e, s)}", {}),
        "LogSoftmax": (13, softmax + "l = Log(s) y = Sub(d, l)}", {}),
        "Sigmoid": (13, "{" + half + "n = Neg(x) e = Exp(n) d = Add(e, one) y = Div(one, d)}", {}),
        "Gelu": (20, erf + "z = Mul(x, p) y = Mul(z, h)}", {}),
        "Swish": (24, "{s = Sigmoid(x) y = Mul(x, s)}", {}),
    }
    assert forms
    for op, (opset, text, attributes) in forms.items():
        [found] = run_node(op, {"x": x}, ["y"], opset, **attributes)
        assert found.tobytes() == written(text, x).tobytes(), op

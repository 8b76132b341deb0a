"""Gradient, Adam, Momentum and Adagrad of ai.onnx.preview.training, beyond the cases of onnx itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from repro.errors import ReproError
from repro.frontend import Imported, import_model, load_model
from repro.frontend.scope import TRAINING_DOMAIN
from repro.ir.types import to_face, to_storage
from repro.ops.record import evaluate
from tests.frontend.models import model, node, value

FLOATS = np.array([0.5, -1.5, 2.0], np.float32)


def training_node(op: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    return node(op, inputs, outputs, name=f"the_{op}", domain=TRAINING_DOMAIN, **attributes)


def gradient(inputs: str, outputs: str, xs: str, y: str, zs: str = "") -> onnx.NodeProto:
    return training_node("Gradient", inputs, outputs, xs=xs.split(), y=y, **({"zs": zs.split()} if zs else {}))


def imported(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Any],
    outputs: str,
    initializers: Mapping[str, Any] | None = None,
    **more: Any,
) -> Imported:
    kinds = {name: helper.np_dtype_to_tensor_dtype(np.asarray(array).dtype) for name, array in inputs.items()}
    declared = [value(name, np.shape(array), kinds[name]) for name, array in inputs.items()]
    made = model(nodes, declared, outputs.split(), initializers, domains=[TRAINING_DOMAIN, "local"], **more)
    return import_model(load_model(made))


def run(nodes: Sequence[onnx.NodeProto], inputs: Mapping[str, Any], outputs: str, **more: Any) -> list[Any]:
    """The outputs by the reference."""
    found = imported(nodes, inputs, outputs, **more)
    given = [to_storage(np.asarray(inputs[port.name]), port.type.dtype) for port in found.inputs]
    results = evaluate(found.graph, given, [slot.initial for slot in found.parameters])
    return [to_face(array, port.type.dtype) for array, port in zip(results, found.outputs, strict=True)]


# ── Gradient ────────────────────────────────────────────────────────────────────────────────────────

X, W = FLOATS, np.array([3.0, 0.25, -2.0], np.float32)


def test_an_intermediate_tensor_is_a_variable_of_its_own() -> None:
    """h = x * w, y = h * w: with h given, dy/dw counts the second product alone."""
    nodes = [node("Mul", "x w", "h"), node("Mul", "h w", "y"), gradient("h w", "dh dw", "h w", "y")]
    dh, dw = run(nodes, {"x": X, "w": W}, "dh dw")
    np.testing.assert_array_equal(dh, W)
    np.testing.assert_array_equal(dw, X * W)


def test_other_values_can_be_fed() -> None:
    """The inputs, not the tensors of these names, say where the derivative is taken."""
    nodes = [node("Mul", "x x", "h"), node("Mul", "h w", "y"), gradient("w x", "dh dw", "h w", "y")]
    dh, dw = run(nodes, {"x": X, "w": W}, "dh dw")
    np.testing.assert_array_equal(dh, X)  # w is fed with x
    np.testing.assert_array_equal(dw, W)  # h is fed with w


def test_what_leads_to_zs_is_cut_off() -> None:
    nodes = [node("Mul", "x x", "z"), node("Mul", "z x", "y"), gradient("x z", "dx", "x", "y", zs="z")]
    (dx,) = run(nodes, {"x": X}, "dx")
    np.testing.assert_array_equal(dx, X * X)


def test_equal_tensors_are_not_confused() -> None:
    nodes = [node("Neg", "x", "a"), node("Neg", "x", "b"), node("Mul", "a b", "y"), gradient("a", "da", "a", "y")]
    nodes[-1].attribute.append(helper.make_attribute("zs", ["b"]))
    nodes[-1].input.append("b")
    (da,) = run(nodes, {"x": X}, "da")
    np.testing.assert_array_equal(da, -X)


def test_a_constant_is_a_variable_too() -> None:
    made = node("Constant", "", "c", value=numpy_helper.from_array(FLOATS))
    (dc,) = run([made, node("Mul", "c c", "y"), gradient("c", "dc", "c", "y")], {}, "dc")
    np.testing.assert_array_equal(dc, FLOATS + FLOATS)


def test_the_gradient_of_a_gradient() -> None:
    """y = x^3: 3 x^2, and of the sum of these 6 x."""
    nodes = [
        node("Mul", "x x", "s"),
        node("Mul", "s x", "y"),
        gradient("x", "g", "x", "y"),
        gradient("x", "gg", "x", "g"),
        gradient("x", "ggg", "x", "gg"),
    ]
    g, gg, ggg = run(nodes, {"x": X}, "g gg ggg")
    np.testing.assert_array_equal(g, 3 * X * X)
    np.testing.assert_array_equal(gg, 6 * X)
    np.testing.assert_array_equal(ggg, np.full(3, 6, np.float32))


def test_y_itself_and_left_out_outputs() -> None:
    nodes = [node("Mul", "x w", "y"), gradient("y", "dy", "y", "y"), gradient("x w", "_ dw", "x w", "y")]
    nodes[-1].name = "second"
    dy, dw = run(nodes, {"x": X, "w": W}, "dy dw")
    np.testing.assert_array_equal(dy, np.ones(3, np.float32))
    np.testing.assert_array_equal(dw, X)


def test_no_way_back_is_zero_and_a_warning() -> None:
    nodes = [node("Floor", "x", "f"), node("Mul", "f w", "y"), gradient("x w v", "dx dw dv", "x w v", "y")]
    found = imported(nodes, {"x": X, "w": W, "v": W}, "dx dv")
    assert [array.tolist() for array in evaluate(found.graph, [X, W, W])] == [[0, 0, 0], [0, 0, 0]]
    floor, absent = found.warnings
    assert "'x'" in floor and "floor" in floor
    assert "'v'" in absent and "does not depend" in absent


def test_random_numbers_are_those_of_the_forward_pass() -> None:
    """dy/dx of a Dropout is its mask: y where x is 1."""
    constants = {"ratio": np.float32(0.5), "training": np.bool_(True)}
    nodes = [
        *(node("Constant", "", name, value=numpy_helper.from_array(np.asarray(c))) for name, c in constants.items()),
        node("Dropout", "x ratio training", "y"),
        gradient("x", "dx", "x", "y"),
    ]
    y, dx = run(nodes, {"x": np.ones(100, np.float32)}, "y dx")
    np.testing.assert_array_equal(y, dx)
    assert set(y) == {0.0, 2.0}


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_other_float_types(dtype: Any) -> None:
    x = FLOATS.astype(dtype)
    (dx,) = run([node("Mul", "x x", "y"), gradient("x", "dx", "x", "y")], {"x": x}, "dx")
    assert dx.dtype == x.dtype
    np.testing.assert_array_equal(dx, x + x)


def test_inside_a_function() -> None:
    body = [node("Mul", "a a", "s"), gradient("a", "b", "a", "s")]
    imports = [helper.make_opsetid("", 21), helper.make_opsetid(TRAINING_DOMAIN, 1)]
    function = helper.make_function("local", "slope", ["a"], ["b"], body, imports)
    (y,) = run([node("slope", "x", "y", domain="local")], {"x": X}, "y", functions=[function])
    np.testing.assert_array_equal(y, X + X)


def test_inside_a_loop() -> None:
    """Three steps of descent on x * x, the gradient made by the loop's body: x - 0.25 * 2 x each."""
    body = helper.make_graph(
        [
            node("Mul", "v v", "s"),
            gradient("v", "g", "v", "s"),
            node("Mul", "g quarter", "d"),
            node("Sub", "v d", "v_next"),
            node("Identity", "go", "go_on"),
        ],
        "body",
        [value("i", (), TensorProto.INT64), value("go", (), TensorProto.BOOL), value("v", (3,))],
        [value("go_on", (), TensorProto.BOOL), value("v_next", (3,))],
    )
    nodes = [node("Loop", "count _ x", "y", body=body)]
    start = {"count": np.array(3, np.int64), "quarter": np.float32(0.25)}
    (y,) = run(nodes, {"x": X}, "y", initializers=start)
    np.testing.assert_array_equal(y, X / 8)


SQUARE = [node("Mul", "x x", "y")]
BROKEN: dict[str, tuple[list[onnx.NodeProto], str]] = {
    "fewer inputs": ([*SQUARE, gradient("x", "dx", "x x2", "y")], "do not fit the inputs"),
    "a name twice": ([*SQUARE, gradient("x x", "dx", "x", "y", zs="x")], "do not fit the inputs"),
    "no xs": ([*SQUARE, training_node("Gradient", "x", "dx", zs=["x"], y="y")], "'xs' is missing"),
    "an unknown x": ([*SQUARE, gradient("x", "dx", "nothing", "y")], "name no tensor"),
    "an unknown y": ([*SQUARE, gradient("x", "dx", "x", "nothing")], "stands for nothing"),
    "y is an input": ([*SQUARE, gradient("x", "dx", "x", "w")], "names no result"),
    "integers": ([node("Cast", "x", "i", to=7), *SQUARE, gradient("i", "dx", "i", "y")], "cannot vary"),
    "y is an integer": ([node("Cast", "x", "y", to=7), gradient("x", "dx", "x", "y")], "cannot be differentiated"),
    "its own result": ([gradient("x", "dx", "x", "dx")], "a cycle"),
    "a cycle": ([node("Mul", "x dx", "y"), gradient("x", "dx", "x", "y")], "a cycle"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_wrong_is_said(case: str) -> None:
    nodes, message = BROKEN[case]
    with pytest.raises(ReproError, match=message):
        imported(nodes, {"x": X, "w": W}, "dx")


def test_many_orders_end_early() -> None:
    """Each order imports what is below it once more: refused, not waited for."""
    nodes = [*SQUARE, *(gradient("x", f"g{n}", "x", f"g{n - 1}" if n else "y") for n in range(30))]
    with pytest.raises(ReproError, match="too many nodes"):
        imported(nodes, {"x": X}, "g29")


# ── optimizers, against float64 ─────────────────────────────────────────────────────────────────────

STEPS = (0, 1, 7, 1000)
_draw = np.random.default_rng(3)
SHAPES = {"1": (5,), "2": (2, 3)}
TENSORS = {f"{kind}{index}": _draw.random(shape) for kind in "XGVH" for index, shape in SHAPES.items()}
for _name in TENSORS:
    TENSORS[_name] -= 0.0 if _name[0] == "H" else 0.5


def stepped(op: str, kinds: str, new: str, dtype: Any, t: int, **attributes: float | str) -> dict[str, Any]:
    """The outputs of one step over both tensors, by name: X1', V2'…"""
    names = [f"{kind}{index}" for kind in kinds for index in (1, 2)]
    outputs = [f"{kind}{index}'" for kind in new for index in (1, 2)]
    inputs = {"R": np.asarray(0.05, dtype), "T": np.asarray(t, np.int64)}
    inputs |= {name: TENSORS[name].astype(dtype) for name in names}
    step = training_node(op, " ".join(inputs), " ".join(outputs), **attributes)
    return dict(zip(outputs, run([step], inputs, " ".join(outputs)), strict=True))


def exact(**attributes: float) -> tuple[float, ...]:
    """Attributes as ONNX stores them."""
    return tuple(float(np.float32(number)) for number in attributes.values())


def check(found: dict[str, Any], expected: dict[str, Any], dtype: Any) -> None:
    assert found.keys() == expected.keys()
    for name, array in found.items():
        assert array.dtype == dtype
        few = 4 * float(np.finfo(dtype).eps)  # a few roundings of terms of about 1, which may cancel
        np.testing.assert_allclose(array, expected[name], rtol=few, atol=few, err_msg=name)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("t", STEPS)
@pytest.mark.parametrize(("norm", "post"), [(0.0, 0.0), (0.01, 0.125)])
def test_adam(t: int, norm: float, post: float, dtype: Any) -> None:
    given = {"alpha": 0.8, "beta": 0.99, "epsilon": 1e-3, "norm_coefficient": norm, "norm_coefficient_post": post}
    alpha, beta, epsilon, norm, post = exact(**given)
    expected: dict[str, Any] = {}
    for index in "12":
        x, g, v, h = (TENSORS[kind + index].astype(dtype).astype(float) for kind in "XGVH")
        rate = float(dtype(0.05))
        if t > 0:
            rate *= np.sqrt(1 - beta**t) / (1 - alpha**t)
        g = g + norm * x
        expected[f"V{index}'"] = alpha * v + (1 - alpha) * g
        expected[f"H{index}'"] = beta * h + (1 - beta) * g**2
        step = rate * expected[f"V{index}'"] / (np.sqrt(expected[f"H{index}'"]) + epsilon)
        expected[f"X{index}'"] = (1 - post) * (x - step)
    found = stepped("Adam", "XGVH", "XVH", dtype, t, **given)
    check(found, {name: expected[name] for name in found}, dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("t", STEPS)
@pytest.mark.parametrize(("mode", "beta"), [("standard", 0.3), ("nesterov", 0.3), ("nesterov", 1.0)])
def test_momentum(t: int, mode: str, beta: float, dtype: Any) -> None:
    given = {"alpha": 0.8, "beta": beta, "norm_coefficient": 0.01}
    alpha, beta, norm = exact(**given)
    expected: dict[str, Any] = {}
    for index in "12":
        x, g, v = (TENSORS[kind + index].astype(dtype).astype(float) for kind in "XGV")
        g = g + norm * x
        new = expected[f"V{index}'"] = alpha * v + (beta if t > 0 else 1) * g
        expected[f"X{index}'"] = x - float(dtype(0.05)) * (g + alpha * new if mode == "nesterov" else new)
    found = stepped("Momentum", "XGV", "XV", dtype, t, mode=mode, **given)
    check(found, {name: expected[name] for name in found}, dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("t", STEPS)
@pytest.mark.parametrize(("norm", "decay"), [(0.0, 0.0), (0.01, 0.125)])
def test_adagrad(t: int, norm: float, decay: float, dtype: Any) -> None:
    given = {"norm_coefficient": norm, "decay_factor": decay, "epsilon": 1e-3}
    norm, decay, epsilon = exact(**given)
    expected: dict[str, Any] = {}
    for index in "12":
        x, g, h = (TENSORS[kind + index].astype(dtype).astype(float) for kind in "XGH")
        g = g + norm * x
        expected[f"H{index}'"] = h + g * g
        expected[f"X{index}'"] = x - float(dtype(0.05)) / (1 + t * decay) * g / (np.sqrt(h + g * g) + epsilon)
    found = stepped("Adagrad", "XGH", "XH", dtype, t, **given)
    check(found, {name: expected[name] for name in found}, dtype)


MOMENTUM = {"alpha": 0.5, "beta": 1.0, "norm_coefficient": 0.0, "mode": "standard"}
NUMBERS = {"R": np.float32(1), "T": np.int64(0), "x": X, "w": W, "v": np.zeros(3), "r": X, "t": np.float32(0)}
WRONG: dict[str, tuple[onnx.NodeProto, str]] = {
    "a tensor is missing": (training_node("Adam", "R T x w x", "y"), "the number of tensors"),
    "no tensor": (training_node("Adagrad", "R T", "y"), "the number of tensors"),
    "types differ": (training_node("Adagrad", "R T x w v", "y"), "differ in type"),
    "the rate is no number": (training_node("Adagrad", "r T x w x", "y"), "R is not one number"),
    "the count is a float": (training_node("Adagrad", "R t x w x", "y"), "T is not one number"),
    "no such mode": (training_node("Momentum", "R T x w x", "y", **{**MOMENTUM, "mode": "heavy"}), "no such momentum"),
    "no alpha": (training_node("Momentum", "R T x w x", "y", beta=1.0, mode="standard"), "'alpha' is missing"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_with_a_step_is_said(case: str) -> None:
    step, message = WRONG[case]
    with pytest.raises(ReproError, match=message):
        imported([step], {name: NUMBERS[name] for name in step.input}, "y")

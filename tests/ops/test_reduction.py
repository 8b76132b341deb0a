"""Reductions over axes given either way, of every opset; positions; running sums and products."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from repro.errors import ReproError
from repro.ir.types import Array
from tests.ops.against_runtime import agrees, model_with
from tests.ops.one_node import run_model, run_node

INT64 = TensorProto.INT64
X = np.abs(np.random.default_rng(2).standard_normal((3, 4, 5))).astype(np.float32)
REDUCTIONS = ["Sum", "Mean", "Prod", "Max", "Min", "L1", "L2", "LogSum", "LogSumExp", "SumSquare"]


def reduced(op: str, opset: int, x: Array, axes: Array | None = None, **attributes: Any) -> Array:
    fixed = {} if axes is None else {"axes": axes}
    [found] = run_model(model_with(op, {"x": x}, fixed, opset, ["y"], **attributes), {"x": x})
    return found


@pytest.mark.parametrize("opset", [7, 12])
@pytest.mark.parametrize("op", REDUCTIONS)
@pytest.mark.parametrize("attributes", [{}, {"axes": [1], "keepdims": 0}, {"axes": [2, 0]}])
def test_axes_as_an_attribute(op: str, opset: int, attributes: dict[str, Any]) -> None:
    agrees(f"Reduce{op}", opset, X, tolerance=1e-5, **attributes)


@pytest.mark.parametrize("op", REDUCTIONS)
@pytest.mark.parametrize(("axes", "attributes"), [
    ([], {}), ([-1, 0], {"keepdims": 0}), ([], {"noop_with_empty_axes": 1}), ([1], {"noop_with_empty_axes": 1}),
])  # fmt: skip
def test_axes_as_an_input(op: str, axes: list[int], attributes: dict[str, Any]) -> None:
    agrees(f"Reduce{op}", 18, X, fixed=[np.array(axes, np.int64)], tolerance=1e-5, **attributes)


def test_reductions_of_nothing() -> None:
    nothing, axes = np.zeros((2, 0, 3), np.float32), np.array([1], np.int64)
    expected = {"Sum": 0, "Prod": 1, "Max": -np.inf, "Min": np.inf, "LogSum": -np.inf, "LogSumExp": -np.inf, "L2": 0}
    for op, value in expected.items():
        found = reduced(f"Reduce{op}", 20, nothing, axes, keepdims=0)
        assert found.tobytes() == np.full((2, 3), value, np.float32).tobytes(), op
    assert np.isnan(reduced("ReduceMean", 20, nothing, axes)).all()
    for kind, least in ((np.int8, -128), (np.uint8, 0), (np.int64, -(2**63))):
        assert (reduced("ReduceMax", 20, nothing.astype(kind), axes) == least).all()
    assert not reduced("ReduceMax", 20, nothing.astype(np.bool_), axes).any()
    assert reduced("ReduceMin", 20, nothing.astype(np.bool_), axes).all()


def test_reductions_of_integers() -> None:
    x = np.array([[2**31 - 1, 1], [3, 4]], np.int32)
    axes = np.array([1], np.int64)
    assert reduced("ReduceSum", 18, x, axes, keepdims=0).tolist() == [-(2**31), 7]
    assert reduced("ReduceMean", 18, x[1:], axes, keepdims=0).tolist() == [3]
    assert reduced("ReduceL2", 18, x[1:], axes, keepdims=0).tolist() == [5]
    assert reduced("ReduceProd", 18, x[1:], axes, keepdims=0).tolist() == [12]


def test_the_log_of_a_sum_of_exponentials_does_not_overflow() -> None:
    x = np.array([[1000, 1000], [-1000, -1000], [-np.inf, -np.inf], [np.inf, 0], [np.nan, 0]], np.float32)
    found = reduced("ReduceLogSumExp", 18, x, np.array([1], np.int64), keepdims=0)
    expected = np.array([1000 + np.log(2), -1000 + np.log(2), -np.inf, np.inf, np.nan], np.float32)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_half_precision_sums_in_single() -> None:
    x = np.full((1, 4096), 1.0009765625, np.float16)
    found = reduced("ReduceSum", 13, x, np.array([1], np.int64))
    assert found.tobytes() == np.array([[4100]], np.float16).tobytes()


def test_a_scalar_reduces_to_itself() -> None:
    assert reduced("ReduceSum", 13, np.array(-0.0, np.float32)).tobytes() == np.float32(-0.0).tobytes()
    assert reduced("ReduceSumSquare", 18, np.array(3.0, np.float32)) == 9


def test_an_axis_out_of_range_names_the_node() -> None:
    with pytest.raises(ReproError, match="out of range") as error:
        run_node("ReduceSum", {"x": X}, ["y"], 11, axes=[3])
    assert error.value.node == "node"


# ── positions ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("opset", [7, 11, 13])
@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("attributes", [{}, {"axis": 2, "keepdims": 0}, {"axis": 1}])
def test_positions(op: str, opset: int, attributes: dict[str, Any]) -> None:
    agrees(op, opset, np.round(X * 2), types=[INT64], **attributes)


def test_positions_of_ties_and_nan() -> None:
    x = np.array([[0.0, -0.0, -0.0, 0.0], [np.nan, 5, np.nan, 7]], np.float32)

    def at(op: str, last: int) -> list[int]:
        [found] = run_node(op, {"x": x}, ["y"], 13, types=[INT64], axis=1, keepdims=0, select_last_index=last)
        return found.tolist()

    assert at("ArgMax", 0) == [0, 0] and at("ArgMax", 1) == [3, 2]
    assert at("ArgMin", 0) == [0, 1] and at("ArgMin", 1) == [3, 1]


def test_positions_of_integers_and_over_nothing() -> None:
    x = np.array([[3, -128, 127, 127]], np.int8)
    assert run_node("ArgMax", {"x": x}, ["y"], 13, types=[INT64], axis=1)[0].tolist() == [[2]]
    with pytest.raises(ReproError):
        run_node("ArgMax", {"x": np.zeros((2, 0), np.float32)}, ["y"], 13, types=[INT64], axis=1)


# ── running sums and products ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("opset", [11, 14])
@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("backwards", [0, 1])
def test_running_sums(opset: int, axis: int, exclusive: int, backwards: int) -> None:
    attributes: dict[str, Any] = {"exclusive": exclusive, "reverse": backwards}
    agrees("CumSum", opset, X, fixed=[np.array(axis, np.int64)], **attributes)
    agrees("CumSum", opset, (X * 100).astype(np.int64), fixed=[np.array(axis, np.int32)], **attributes)


def test_running_sums_are_sequential() -> None:
    x = np.random.default_rng(1).standard_normal(1000).astype(np.float32)
    total, expected = np.float32(0), np.empty_like(x)
    for position, value in enumerate(x):
        total = value if position == 0 else np.float32(total + value)
        expected[position] = total
    model = model_with("CumSum", {"x": x}, {"axis": np.array(0, np.int64)}, 14, ["y"])
    assert run_model(model, {"x": x})[0].tobytes() == expected.tobytes()


def test_an_axis_that_is_not_known_at_build() -> None:
    with pytest.raises(ReproError, match="must be known at build") as error:
        run_node("CumSum", {"x": X, "axis": np.array(0, np.int64)}, ["y"], 14)
    assert error.value.next == "fix what decides it at build: --set axis=VALUE"

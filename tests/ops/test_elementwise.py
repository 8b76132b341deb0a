"""Elementwise operators where onnx.backend.test has no case: old opsets, integers at their ends, narrow floats."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from repro.errors import ReproError
from repro.ir.types import Array
from tests.ops.against_runtime import agrees, model_with
from tests.ops.one_node import run_model, run_node

BOOL = TensorProto.BOOL
NAN, INF = np.nan, np.inf


def drawn(*shape: int, dtype: Any = np.float32, seed: int = 5) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def one(op: str, opset: int, *arrays: Array, **rest: Any) -> Array:
    [found] = run_node(op, {f"x{number}": array for number, array in enumerate(arrays)}, ["y"], opset, **rest)
    return found


@pytest.mark.parametrize("opset", [7, 12, 14])
@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div"])
def test_arithmetic_broadcasts_in_every_opset(op: str, opset: int) -> None:
    agrees(op, opset, drawn(3, 1, 5), drawn(4, 1, seed=6))


@pytest.mark.parametrize("opset", [7, 9, 13])
@pytest.mark.parametrize("op", ["Equal", "Less", "Greater"])
def test_comparisons_of_old_opsets(op: str, opset: int) -> None:
    a = np.array([1, -1, 0, 7], np.int32) if op == "Equal" else np.array([1, NAN, -0.0, INF], np.float32)
    agrees(op, opset, a, a[::-1].copy(), types=[BOOL])


@pytest.mark.parametrize("op", ["Sqrt", "Exp", "Log", "Tanh", "Abs", "Neg", "Floor", "Ceil", "Reciprocal"])
def test_functions_of_opset_seven(op: str) -> None:
    agrees(op, 7, np.abs(drawn(4, 9)) + np.float32(0.1))


@pytest.mark.parametrize("opset", [8, 12, 13])
@pytest.mark.parametrize("op", ["Sum", "Mean", "Min", "Max"])
def test_variadic_operators_broadcast(op: str, opset: int) -> None:
    agrees(op, opset, drawn(3, 4), drawn(4, seed=6), drawn(3, 1, seed=7))


def test_variadic_operators_of_opset_seven_take_one_shape() -> None:
    agrees("Sum", 7, drawn(3, 4), drawn(3, 4, seed=6))
    with pytest.raises(ReproError, match="does not broadcast"):
        one("Max", 7, drawn(3, 4), drawn(4))


def test_the_least_of_nan_and_zeros() -> None:
    a, b = np.array([NAN, 1, -0.0, 0.0], np.float32), np.array([1, NAN, 0.0, -0.0], np.float32)
    low, high = one("Min", 13, a, b), one("Max", 13, a, b)
    assert np.isnan(low[:2]).all() and np.isnan(high[:2]).all()
    assert np.signbit(low[2:]).tolist() == [True, True]
    assert np.signbit(high[2:]).tolist() == [False, False]


def test_sign_of_special_values() -> None:
    found = one("Sign", 13, np.array([-0.0, NAN, -INF, INF, 1e-45], np.float32))
    assert found.tobytes() == np.array([0.0, NAN, -1, 1, 1], np.float32).tobytes()
    assert one("Sign", 13, np.array([-128, 0, 3], np.int8)).tolist() == [-1, 0, 1]
    assert one("Sign", 13, np.array([255, 0], np.uint8)).tolist() == [1, 0]


# ── remainders and powers ───────────────────────────────────────────────────────────────────────────


def test_remainders_of_integers_at_their_ends() -> None:
    a, b = np.array([-128, -128, 7, -7, 7, -7], np.int8), np.array([-1, 0, -3, 3, 3, -3], np.int8)
    assert one("Mod", 13, a, b).tolist() == [0, 0, -2, 2, 1, -1]
    assert one("Mod", 13, a, b, fmod=1).tolist() == [0, 0, 1, -1, 1, -1]


def test_mod_of_floats_needs_fmod_before_opset_28() -> None:
    with pytest.raises(ReproError) as error:
        one("Mod", 13, drawn(3), drawn(3))
    assert error.value.op == "Mod" and error.value.node == "node"


@pytest.mark.parametrize("opset", [7, 12, 15])
def test_powers_of_floats(opset: int) -> None:
    agrees("Pow", opset, np.abs(drawn(4, 5)), drawn(5, seed=6))


@pytest.mark.parametrize(("base", "exponent"), [(np.float32, np.int64), (np.float32, np.int32), (np.int32, np.float32)])
def test_powers_of_mixed_types(base: Any, exponent: Any) -> None:
    x, y = np.array([1, 2, 3, 7], base), np.array([4, 5, 6, 2], exponent)
    assert one("Pow", 15, x, y).tolist() == [1, 32, 729, 49]


def test_powers_of_integers_are_exact_and_wrap() -> None:
    x = np.array([3, -3, 2, 2, 0, 1, -1, 5, 0], np.int64)
    y = np.array([39, 3, 63, 64, 0, -5, -5, -1, -1], np.int64)
    found = one("Pow", 13, x, y)
    assert found.tolist() == [3**39, -27, -(2**63), 0, 1, 1, -1, 0, 0]
    model = model_with("Pow", {"x": x}, {"y": np.array(2, np.int64)}, 13, ["z"])
    assert run_model(model, {"x": x})[0].tolist() == [int(n) * int(n) for n in x]


def test_half_precision_to_a_double_power_rounds_once() -> None:
    x, y = np.array([1.5, 2.0009765625], np.float16), np.array([0.3, 1.0], np.float64)
    assert one("Pow", 15, x, y).tobytes() == np.power(x.astype(np.float64), y).astype(np.float16).tobytes()


# ── bits, bounds, conversions ───────────────────────────────────────────────────────────────────────


def test_shifts_by_the_width_and_more() -> None:
    x, y = np.array([-128, -1, 64, 127, -2], np.int8), np.array([7, 8, -1, 100, 1], np.int8)
    assert one("BitShift", 28, x, y, direction="RIGHT").tolist() == [-1, -1, 0, 0, -1]
    assert one("BitShift", 28, x, y, direction="LEFT").tolist() == [0, 0, 0, 0, -4]
    u, by = np.array([255, 1, 128], np.uint8), np.array([8, 7, 255], np.uint8)
    assert one("BitShift", 11, u, by, direction="RIGHT").tolist() == [0, 0, 0]
    assert one("BitShift", 11, u, by, direction="LEFT").tolist() == [0, 128, 0]
    with pytest.raises(ReproError):
        one("BitShift", 11, u, by, direction="UP")


@pytest.mark.parametrize("bounds", [{}, {"min": -0.3}, {"max": 0.4}, {"min": -0.3, "max": 0.4}])
def test_clip_between_attributes(bounds: dict[str, Any]) -> None:
    agrees("Clip", 7, drawn(5, 6), **bounds)


@pytest.mark.parametrize("opset", [11, 12, 13])
def test_clip_between_inputs(opset: int) -> None:
    agrees("Clip", opset, drawn(5, 6), np.array(-0.3, np.float32), np.array(0.4, np.float32))


def test_clip_where_the_bounds_cross_and_where_they_are_no_numbers() -> None:
    x = np.array([-5, NAN, 5, -INF], np.float32)
    found = one("Clip", 13, x, np.array(2, np.float32), np.array(1, np.float32))
    assert found.tobytes() == np.array([1, NAN, 1, 1], np.float32).tobytes()
    with pytest.raises(ReproError, match="not one number"):
        one("Clip", 13, x, drawn(2), drawn(2))


def test_infinities_asked_for_one_by_one() -> None:
    x = np.array([INF, -INF, NAN, 0], np.float16)
    for positive in (0, 1):
        for negative in (0, 1):
            found = one("IsInf", 20, x, types=[BOOL], detect_positive=positive, detect_negative=negative)
            assert found.tolist() == [bool(positive), bool(negative), False, False]


def test_casts_to_integers_saturate() -> None:
    x = np.array([NAN, INF, -INF, 3e9, -1.9, 1.9], np.float32)
    found = one("Cast", 9, x, types=[TensorProto.INT32], to=TensorProto.INT32)
    assert found.tolist() == [0, 2**31 - 1, -(2**31), 2**31 - 1, -1, 1]
    assert one("Cast", 9, x, types=[BOOL], to=BOOL).tolist() == [True] * 6


def test_casts_from_double_round_once() -> None:
    x = np.array([1 + 2.0**-11 + 2.0**-40])  # f32 would make it a tie
    found = one("Cast", 13, x, types=[TensorProto.FLOAT16], to=TensorProto.FLOAT16)
    assert found[0] == np.float16(1 + 2.0**-10)


@pytest.mark.parametrize(("kind", "codes"), [("E4M3FN", [0x7F, 0x7E, 0x7F, 0x7F]), ("E5M2", [0x7C, 0x5F, 0x5F, 0x7E])])
def test_f8_without_saturation(kind: str, codes: list[int]) -> None:
    to = getattr(TensorProto, f"FLOAT8{kind}")
    x = np.array([1e6, 464, 465, NAN], np.float32)
    found = one("Cast", 19, x, types=[to], to=to, saturate=0)
    assert found.dtype == helper.tensor_dtype_to_np_dtype(to)
    assert found.view(np.uint8).tolist() == codes
    like = one("CastLike", 19, x, np.zeros(1, found.dtype), types=[to], saturate=0)
    assert like.tobytes() == found.tobytes()


def test_bits_of_a_nan_are_canonical() -> None:
    x = np.array([0xFFC00001, 0x3F800000], np.uint32).view(np.float32)
    found = one("BitCast", 26, x, types=[TensorProto.UINT32], to=TensorProto.UINT32)
    assert found.tolist() == [0x7FC00000, 0x3F800000]


def test_shapes_that_do_not_broadcast_name_the_node() -> None:
    with pytest.raises(ReproError) as error:
        one("Add", 14, drawn(3), drawn(4))
    assert error.value.node == "node"

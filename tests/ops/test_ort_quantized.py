"""The quantized operators of ONNX Runtime's QOperator format: within one step of its results, which round elsewhere,
and where a formula is simple equal to it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from repro.errors import ReproError
from repro.ir.types import Array
from tests.ops.one_node import Inputs, by_onnxruntime, model_of, run_model

MICROSOFT = "com.microsoft"
RANDOM = np.random.default_rng(11)


def numbers(*shape: int, kind: Any = np.uint8) -> Array:
    ends = np.iinfo(kind)
    return RANDOM.integers(ends.min, ends.max, shape, kind, endpoint=True)


def f32(value: float) -> Array:
    return np.array(value, np.float32)


def of(kind: Any, value: int) -> Array:
    return np.array(value, kind)


def model(op: str, inputs: Inputs, types: tuple[int, ...] = (), **attributes: Any) -> onnx.ModelProto:
    made = model_of(op, inputs, ["y"], 13, types, MICROSOFT)
    made.graph.node[0].attribute.extend(helper.make_attribute(*each) for each in attributes.items())
    return made


def near(op: str, inputs: Inputs, types: tuple[int, ...] = (), **attributes: Any) -> Array:
    """Our result, of which few numbers are a step from ONNX Runtime's and none is further from it."""
    made = model(op, inputs, types, **attributes)
    arrays = {name: array for name, array in inputs.items() if array is not None}
    (found,), (wanted,) = run_model(made, arrays), by_onnxruntime(made, arrays)
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    apart = np.abs(found.astype(np.int64) - wanted.astype(np.int64))
    assert apart.max(initial=0) <= 1
    assert np.mean(apart != 0) < 0.03
    return found


def operand(name: str, x: Array, scale: float, zero: int | None) -> dict[str, Array | None]:
    return {name: x, f"{name}s": f32(scale), f"{name}z": None if zero is None else of(x.dtype, zero)}


def result(kind: Any, scale: float, zero: int) -> dict[str, Array | None]:
    return {"ys": f32(scale), "yz": of(kind, zero)}


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize("zero", [None, 7])
def test_of_two(op: str, kind: Any, zero: int | None) -> None:
    a, b = numbers(3, 4, 16, kind=kind), numbers(4, 1, kind=kind)
    inputs = operand("a", a, 0.021, zero) | operand("b", b, 0.05, 3) | result(kind, 0.08, 100)
    if zero is None:  # ONNX Runtime's own type inference asks for it
        (found,) = run_model(model(op, inputs), {name: array for name, array in inputs.items() if array is not None})
    else:
        found = near(op, inputs)
    left, right = ((x - z) * s for x, z, s in ((a.astype(float), zero or 0, 0.021), (b.astype(float), 3, 0.05)))
    exact = (left + right if op == "QLinearAdd" else left * right) / 0.08 + 100
    ends = np.iinfo(kind)
    assert np.abs(found - np.clip(exact, ends.min, ends.max)).max() <= 0.5 + 1e-3


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
def test_of_one(kind: Any) -> None:
    x = operand("x", numbers(5, 33, kind=kind), 0.03, 11)
    near("QLinearLeakyRelu", x | result(kind, 0.03, 11), alpha=0.2)
    near("QLinearSigmoid", x | result(kind, 1 / 256, 0 if kind is np.uint8 else -128))


@pytest.mark.parametrize(("opset", "axis"), [(13, -1), (13, 1), (12, 1)])
def test_softmax(opset: int, axis: int) -> None:
    x = operand("x", numbers(3, 6, 10), 0.05, 90)
    near("QLinearSoftmax", x | result(np.uint8, 1 / 256, 0), axis=axis, opset=opset)


def test_concatenation() -> None:
    parts = operand("a", numbers(2, 3, 5), 0.02, 9) | operand("b", numbers(2, 4, 5), 0.07, 120)
    near("QLinearConcat", result(np.uint8, 0.05, 100) | parts, (TensorProto.UINT8,), axis=1)


def test_where() -> None:
    condition: dict[str, Array | None] = {"c": RANDOM.random((4, 6)) < 0.5}
    both = operand("p", numbers(4, 6), 0.02, 9) | operand("q", numbers(4, 6), 0.07, 120)
    rest: dict[str, Array | None] = {"zs": f32(0.06), "zz": of(np.uint8, 50)}
    near("QLinearWhere", condition | both | rest, (TensorProto.UINT8,))


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("last", [0, 1])
def test_pools(kind: Any, last: int) -> None:
    x = operand("x", numbers(2, 7, 9, 6, kind=kind), 0.03, 5)
    near("QLinearGlobalAveragePool", x | result(kind, 0.0217, 3), channels_last=last)
    shape: dict[str, Any] = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}
    near("QLinearAveragePool", x | result(kind, 0.0217, 3), (), channels_last=last, **shape)


@pytest.mark.parametrize("transposed", [0, 1])
@pytest.mark.parametrize("alpha", [1.0, 0.5])
@pytest.mark.parametrize("columns", [False, True])
def test_gemm(transposed: int, alpha: float, columns: bool) -> None:
    scale = RANDOM.random(10).astype(np.float32) * 0.01 if columns else f32(0.01)
    zero = numbers(10, kind=np.int8) if columns else of(np.int8, 3)
    b = numbers(10, 24, kind=np.int8) if transposed else numbers(24, 10, kind=np.int8)
    given: dict[str, Array | None] = operand("a", numbers(6, 24), 0.02, 9)
    given |= {"b": b, "bs": scale, "bz": zero, "c": RANDOM.integers(-9999, 9999, 10).astype(np.int32)}
    more: dict[str, Any] = {"transB": transposed, "alpha": alpha}
    near("QGemm", given | result(np.uint8, 0.4, 120), (), **more)
    made = model("QGemm", given, (TensorProto.FLOAT,), **more)
    arrays = {name: array for name, array in given.items() if array is not None}
    np.testing.assert_allclose(run_model(made, arrays)[0], by_onnxruntime(made, arrays)[0], rtol=1e-6)


def test_refusals() -> None:
    x = operand("x", numbers(2, 3, 4), 0.03, 5)
    wide = {"xs": np.ones(3, np.float32)}
    for op, inputs, attributes in (
        ("QLinearSigmoid", x | wide | result(np.uint8, 1, 0), {}),
        ("QLinearGlobalAveragePool", operand("x", numbers(2, 3), 1, 0) | result(np.uint8, 1, 0), {}),
        ("QLinearConcat", result(np.uint8, 1, 0) | {"a": numbers(2, 3)}, {"axis": 0}),
        ("QGemm", x | operand("b", numbers(4, 4), 1, 0), {}),
    ):
        made = model(op, inputs, (TensorProto.UINT8,), **attributes)
        with pytest.raises(ReproError):
            run_model(made, {name: array for name, array in inputs.items() if array is not None})


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int16, np.uint16])
@pytest.mark.parametrize("axis", [None, 1, -1])
def test_onnxruntime_has_own_operators_for_16_bits(kind: Any, axis: int | None) -> None:
    """Its tools write them where the model's opset has none of that type; per axis as in ONNX."""
    x = RANDOM.standard_normal((3, 4, 5)).astype(np.float32)
    count = () if axis is None else (x.shape[axis],)
    scale = np.asarray(RANDOM.random(count) * 0.01 + 0.01, np.float32)
    zero = np.asarray(RANDOM.integers(0, 100, count), kind)
    attributes = {} if axis is None else {"axis": axis}
    code = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    quantize = {"x": x * 5, "s": scale, "z": zero}
    made = model("QuantizeLinear", quantize, (code,), **attributes)
    (quantized,), (wanted,) = run_model(made, quantize), by_onnxruntime(made, quantize)
    np.testing.assert_array_equal(quantized, wanted)
    dequantize = {"x": quantized, "s": scale, "z": zero}
    made = model("DequantizeLinear", dequantize, (TensorProto.FLOAT,), **attributes)
    (found,), (wanted,) = run_model(made, dequantize), by_onnxruntime(made, dequantize)
    assert found.tobytes() == wanted.tobytes()

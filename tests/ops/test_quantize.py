"""Quantization against ONNX Runtime and the formulas of the contract."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto

from repro.errors import ReproError
from repro.frontend import import_model, load_model
from repro.ir.types import Array
from tests.ops.against_runtime import agrees
from tests.ops.one_node import by_onnxruntime, run_model
from tests.ops.test_moves import Case, f32, model

X = (np.random.default_rng(3).standard_normal((3, 4, 5)) * 300).astype(np.float32)
SCALES = f32(0.5, 2.5, 7.3, 1e-3)
KINDS = {np.uint8: TensorProto.UINT8, np.int8: TensorProto.INT8, np.uint16: TensorProto.UINT16}


@pytest.mark.parametrize("opset", [10, 13, 19, 21])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_per_tensor_as_onnxruntime_does(opset: int, dtype: Any) -> None:
    zero = np.asarray(5, dtype)
    made, arrays = model(Case("QuantizeLinear", opset, [X], (f32(1.7)[0], zero), {}, (KINDS[dtype],)))
    (quantized,) = run_model(made, arrays)
    np.testing.assert_array_equal(quantized, by_onnxruntime(made, arrays)[0])
    made, arrays = model(Case("DequantizeLinear", opset, [quantized], (f32(1.7)[0], zero)))
    np.testing.assert_array_equal(run_model(made, arrays)[0], by_onnxruntime(made, arrays)[0])


@pytest.mark.parametrize("opset", [13, 19, 21, 23])
@pytest.mark.parametrize("axis", [1, -2])
def test_per_axis_as_onnxruntime_does(opset: int, axis: int) -> None:
    zero = np.asarray([0, 100, -7, 3], np.int8)
    made, arrays = model(Case("QuantizeLinear", opset, [X], (SCALES, zero), {"axis": axis}, (TensorProto.INT8,)))
    (quantized,) = run_model(made, arrays)
    np.testing.assert_array_equal(quantized, by_onnxruntime(made, arrays)[0])
    made, arrays = model(Case("DequantizeLinear", opset, [quantized], (SCALES, zero), {"axis": axis}))
    np.testing.assert_array_equal(run_model(made, arrays)[0], by_onnxruntime(made, arrays)[0])


def test_blocks_as_onnxruntime_does() -> None:
    scale = np.abs(X[:, :2]) + 1
    zero = np.full(scale.shape, 9, np.uint8)
    attributes = {"axis": 1, "block_size": 2}
    made, arrays = model(Case("QuantizeLinear", 21, [X], (scale, zero), attributes, (TensorProto.UINT8,)))
    (quantized,) = run_model(made, arrays)
    np.testing.assert_array_equal(quantized, by_onnxruntime(made, arrays)[0])
    made, arrays = model(Case("DequantizeLinear", 21, [quantized], (scale, zero), attributes))
    np.testing.assert_array_equal(run_model(made, arrays)[0], by_onnxruntime(made, arrays)[0])


def test_without_zero_point_the_type_is_u8_or_the_attribute() -> None:
    made, arrays = model(Case("QuantizeLinear", 10, [X], (f32(1)[0],), {}, (TensorProto.UINT8,)))
    np.testing.assert_array_equal(run_model(made, arrays)[0], np.clip(np.round(X), 0, 255))
    attributes = {"output_dtype": TensorProto.UINT16}
    made, arrays = model(Case("QuantizeLinear", 21, [X], (f32(0.01)[0],), attributes, (TensorProto.UINT16,)))
    np.testing.assert_array_equal(run_model(made, arrays)[0], np.clip(np.round(X / f32(0.01)), 0, 65535))


def test_nan_gives_zero_and_infinities_the_ends() -> None:
    data = f32(np.nan, np.inf, -np.inf, 3e38, -0.5, 0.5, 1.5)
    made, arrays = model(
        Case("QuantizeLinear", 13, [data], (f32(1)[0], np.asarray(1, np.int8)), {}, (TensorProto.INT8,))
    )
    np.testing.assert_array_equal(run_model(made, arrays)[0], [0, 127, -128, 127, 1, 1, 3])


@pytest.mark.parametrize("saturate", [0, 1])
@pytest.mark.parametrize(
    ("kind", "face", "beyond"),
    [
        (TensorProto.FLOAT8E4M3FN, ml_dtypes.float8_e4m3fn, np.nan),
        (TensorProto.FLOAT8E4M3FNUZ, ml_dtypes.float8_e4m3fnuz, np.nan),
        (TensorProto.FLOAT8E5M2, ml_dtypes.float8_e5m2, np.inf),
        (TensorProto.FLOAT8E5M2FNUZ, ml_dtypes.float8_e5m2fnuz, np.nan),
    ],
)
def test_f8_saturates_or_not(saturate: int, kind: int, face: Any, beyond: float) -> None:
    most = float(ml_dtypes.finfo(face).max)
    data = f32(1.1, -3.3, 0.0, most, most * 1.02, most * 2, -most * 2, np.inf, np.nan, 1e-9)
    zero = np.zeros((), face)
    made, arrays = model(Case("QuantizeLinear", 19, [data], (f32(1)[0], zero), {"saturate": saturate}, (kind,)))
    found: Array = run_model(made, arrays)[0].astype(np.float32)
    expected = data.astype(face).astype(np.float32)
    over = most if saturate else beyond
    expected[3:8] = [most, most, over, -over, over]
    np.testing.assert_array_equal(found, expected)


def test_dequantizes_to_the_type_of_the_scale_rounded_once() -> None:
    data = np.arange(-128, 128).astype(np.int8)
    scale = np.asarray(0.1, np.float16)
    made, arrays = model(Case("DequantizeLinear", 19, [data], (scale,), {}, (TensorProto.FLOAT16,)))
    expected = (data.astype(np.float32) * np.float32(scale)).astype(np.float16)
    np.testing.assert_array_equal(run_model(made, arrays)[0], expected)
    wide = np.asarray([2**31 - 1, -(2**31), 7], np.int32)
    made, arrays = model(Case("DequantizeLinear", 13, [wide], (f32(2)[0],)))
    np.testing.assert_array_equal(run_model(made, arrays)[0], wide.astype(np.float32) * np.float32(2))


def test_refuses_scales_that_do_not_fit() -> None:
    cases = [
        Case("QuantizeLinear", 13, [X], (f32(1, 2, 3),), {"axis": 1}, (TensorProto.UINT8,)),
        Case("QuantizeLinear", 10, [X], (SCALES,), {}, (TensorProto.UINT8,)),
        Case("QuantizeLinear", 13, [X], (f32(1)[0], np.asarray(0, np.int32)), {}, (TensorProto.INT32,)),
        Case("DequantizeLinear", 13, [X.astype(np.int8)], (f32(1)[0], np.asarray(0, np.uint8))),
    ]
    for case in cases:
        made, arrays = model(case)
        with pytest.raises(ReproError, match="not fit"):
            import_model(load_model(made), input_shapes={name: array.shape for name, array in arrays.items()})


def test_dynamic_quantization_of_zeros() -> None:
    names = (TensorProto.UINT8, TensorProto.FLOAT, TensorProto.UINT8)
    made, arrays = model(Case("DynamicQuantizeLinear", 11, [np.zeros(5, np.float32)], (), {}, names))
    quantized, scale, zero = run_model(made, arrays)
    assert not quantized.any() and float(scale) == 0.0 and int(zero) == 0


# ── contractions of quantized tensors ───────────────────────────────────────────────────────────────


def weights(*shape: int) -> Array:
    """i8 of 7 bits: of 8, pairs of products saturate in ONNX Runtime's code for AVX2."""
    return np.random.default_rng(2).integers(-64, 64, shape).astype(np.int8)


def image(*shape: int) -> Array:
    return np.random.default_rng(1).integers(0, 256, shape).astype(np.uint8)


@pytest.mark.parametrize("per_column", [False, True])
def test_product_of_quantized_matrices_as_onnxruntime_does(per_column: bool) -> None:
    columns = 5 if per_column else 1
    scale = np.linspace(0.01, 0.03, columns, dtype=np.float32).reshape(-1 if per_column else ())
    zero = np.full(scale.shape, 3, np.int8)
    fixed = [f32(0.02)[0], np.asarray(120, np.uint8), weights(7, 5), scale, zero]
    agrees("QLinearMatMul", 10, image(2, 4, 7), fixed=[*fixed, f32(0.9)[0], np.asarray(99, np.uint8)], tolerance=0)


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_convolution_of_quantized_images_as_onnxruntime_does(per_channel: bool, biased: bool) -> None:
    channels = 4 if per_channel else 1
    scale = np.linspace(0.01, 0.03, channels, dtype=np.float32).reshape(-1 if per_channel else ())
    fixed = [f32(0.02)[0], np.asarray(120, np.uint8), weights(4, 3, 3, 3), scale, np.zeros(scale.shape, np.int8)]
    fixed += [f32(0.9)[0], np.asarray(99, np.uint8)]
    fixed += [np.array([500, -900, 0, 77], np.int32)] if biased else []
    agrees("QLinearConv", 10, image(2, 3, 6, 5), fixed=fixed, tolerance=0, pads=[1, 0, 1, 2], strides=[2, 1])

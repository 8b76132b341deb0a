"""Shape, indexing and selection operators of the opsets that onnx.backend.test has no case for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from repro.errors import ReproError
from repro.frontend import import_model, load_model
from repro.ir.types import Array
from repro.ops.record import evaluate
from tests.ops.one_node import by_onnxruntime, run_model

X = np.random.default_rng(7).standard_normal((3, 4, 5)).astype(np.float32)
IMAGE = np.random.default_rng(8).standard_normal((1, 2, 5, 4)).astype(np.float32)
BOOLEAN, FLOAT, INT64 = TensorProto.BOOL, TensorProto.FLOAT, TensorProto.INT64


@dataclass(frozen=True)
class Case:
    """One node: what it is given as it runs and at build, its attributes."""

    op: str
    opset: int
    given: Sequence[Array]
    fixed: Sequence[Array | None] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    outputs: Sequence[int] = (FLOAT,)

    def __str__(self) -> str:
        words = [f"{name}={value}" for name, value in self.attributes.items()]
        words += [str(None if each is None else each.tolist()) for each in self.fixed]
        return f"{self.op}-{self.opset}({', '.join(words)})"


def model(case: Case) -> tuple[onnx.ModelProto, dict[str, Array]]:
    arrays = {f"x{number}": array for number, array in enumerate(case.given)}
    constants = {f"c{number}": array for number, array in enumerate(case.fixed) if array is not None}
    fixed = [f"c{number}" if array is not None else "" for number, array in enumerate(case.fixed)]
    names = [f"y{number}" for number in range(len(case.outputs))]
    node = helper.make_node(case.op, [*arrays, *fixed], names, name="node", **case.attributes)
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in arrays.items()
    ]
    outputs = [helper.make_tensor_value_info(n, kind, None) for n, kind in zip(names, case.outputs, strict=True)]
    known = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph([node], "one", inputs, outputs, known)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", case.opset)], ir_version=8), arrays


def i64(*values: int) -> Array:
    return np.asarray(values, np.int64)


def f32(*values: float) -> Array:
    return np.asarray(values, np.float32)


MOVES = [
    Case("Slice", 7, [X], (), {"starts": [1, -4, 0], "ends": [9, 3, -1]}),
    Case("Slice", 9, [X], (), {"starts": [-2], "ends": [2147483647], "axes": [2]}),
    Case("Slice", 10, [X], (i64(3, -1), i64(0, -99), i64(1, 2), i64(-1, -2))),
    Case("Slice", 13, [X], (i64(-1), i64(-(2**63)), i64(-1), i64(-1))),
    Case("Slice", 13, [X], (i64(4), i64(2), i64(1))),
    Case("Squeeze", 7, [X[:1, :, :1]], (), {"axes": [0]}),
    Case("Squeeze", 11, [X[:1, :, :1]], (), {"axes": [-1]}),
    Case("Squeeze", 12, [X[:1, :, :1]]),
    Case("Unsqueeze", 7, [X], (), {"axes": [0, 4]}),
    Case("Unsqueeze", 11, [X], (), {"axes": [-1, 1]}),
    Case("Split", 7, [X], (), {"axis": 1}, (FLOAT, FLOAT)),
    Case("Split", 11, [X], (), {"axis": -1, "split": [1, 4]}, (FLOAT, FLOAT)),
    Case("Reshape", 7, [X], (i64(0, -1),)),
    Case("Reshape", 14, [X[:0]], (i64(0, 7, 0),), {"allowzero": 1}),
    Case("Flatten", 7, [X], (), {"axis": 0}),
    Case("Flatten", 11, [X], (), {"axis": -1}),
    Case("Concat", 7, [X, X[:, :2]], (), {"axis": 1}),
    Case("Pad", 7, [X], (), {"pads": [1, 0, 2, 0, -1, 1], "value": 2.5}),
    Case("Pad", 10, [X], (), {"pads": [1, 3, 2, 2, 0, 1], "mode": "reflect"}),
    Case("Pad", 7, [X], (), {"pads": [1, 3, 2, 2, 0, 7], "mode": "edge"}),
    Case("Pad", 11, [X], (i64(0, 1, -2, 1, 0, 1), f32(-1)[0])),
    Case("Pad", 18, [X], (i64(3, 1), None, i64(-2)), {"mode": "reflect"}),
    Case("Pad", 18, [X], (i64(2, 3, 4, 2, 0, 1),), {"mode": "wrap"}),
    Case("Pad", 19, [X], (i64(2, 3, 4, 2, 0, 1),), {"mode": "wrap"}),
    Case("DepthToSpace", 7, [np.ascontiguousarray(X.reshape(1, 12, 5, 1))], (), {"blocksize": 2}),
    Case("Tile", 7, [X], (i64(2, 1, 3),)),
    Case("Expand", 8, [X[:, :1]], (i64(2, 1, 4, 1),)),
    Case("Shape", 7, [X], outputs=(INT64,)),
    Case("Compress", 9, [X], (np.asarray([True, False, True]),), {"axis": 1}),
    Case("Compress", 11, [X], (np.asarray([False, True, True, False, True]),)),
    Case("Gather", 7, [X], (i64(2, 0, 1),), {"axis": 1}),
    Case("Gather", 11, [X], (np.asarray(-2, np.int32),), {"axis": -1}),
    Case("Gather", 13, [X, np.asarray([[0, -1], [-4, 3]], np.int64)], (), {"axis": 1}),
    Case("GatherElements", 11, [X, np.full((2, 4, 3), -2, np.int64)], (), {"axis": -1}),
    Case("GatherND", 11, [X, np.asarray([[0, -1], [2, 3]], np.int64)]),
    Case("GatherND", 12, [X, np.asarray([[0], [-1], [2]], np.int64)], (), {"batch_dims": 1}),
    Case("Scatter", 9, [X, np.full((1, 4, 2), 2, np.int64), X[1:2, :, :2]], (), {"axis": 0}),
    Case("ScatterElements", 11, [X, np.full((3, 1, 5), -1, np.int64), X[:, 1:2]], (), {"axis": 1}),
    Case("ScatterElements", 16, [X, np.full((3, 4, 5), 1, np.int64), X], (), {"axis": 2, "reduction": "add"}),
    Case("ScatterElements", 18, [X, np.full((3, 4, 5), 1, np.int64), X], (), {"axis": 0, "reduction": "max"}),
    Case("ScatterElements", 17, [X, np.full((3, 4, 5), 1, np.int64), X], (), {"axis": 0, "reduction": "max"}),
    Case("ScatterND", 11, [X, np.asarray([[2, -1], [0, 0]], np.int64), X[0, :2]]),
    Case("ScatterND", 16, [X, np.asarray([[1], [1]], np.int64), X[:2]], (), {"reduction": "mul"}),
    Case("ScatterND", 18, [X, np.asarray([[1], [1]], np.int64), X[:2]], (), {"reduction": "min"}),
    Case("TopK", 7, [X], (), {"axis": 1, "k": 2}, (FLOAT, INT64)),
    Case("TopK", 10, [X], (i64(3),), {"axis": 0}, (FLOAT, INT64)),
    Case("TopK", 11, [np.round(X)], (i64(4),), {"largest": 0}, (FLOAT, INT64)),
    Case("OneHot", 9, [i64(0, 5, -1, 3)], (i64(4), f32(2, 3)), {"axis": 0}),
    Case("Trilu", 14, [X], (i64(-1)[0],), {"upper": 0}),
    Case("ReverseSequence", 10, [X, i64(4, 1, 2)], (), {"batch_axis": 0, "time_axis": 1}),
    Case("Upsample", 7, [IMAGE], (), {"scales": [1.0, 1.0, 2.0, 3.0]}),
    Case("Upsample", 9, [IMAGE], (f32(1, 1, 1.6, 2),)),
    Case("Resize", 10, [IMAGE], (f32(1, 1, 0.6, 1.7),)),
]  # fmt: skip
"""Bits have to agree: nothing is rounded."""


@pytest.mark.parametrize("case", MOVES, ids=str)
def test_moves_elements_as_onnxruntime_does(case: Case) -> None:
    made, arrays = model(case)
    for found, expected in zip(run_model(made, arrays), by_onnxruntime(made, arrays), strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


INTERPOLATIONS = [
    Case("Upsample", 7, [IMAGE], (), {"scales": [1.0, 1.0, 2.0, 3.0], "mode": "linear"}),
    Case("Upsample", 9, [IMAGE], (f32(1, 1, 2, 3),), {"mode": "linear"}),
    Case("Resize", 10, [IMAGE], (f32(1, 1, 0.6, 1.7),), {"mode": "linear"}),
    Case("Resize", 11, [IMAGE], (f32(), f32(), i64(1, 2, 9, 3)), {"mode": "linear"}),
    Case("Resize", 13, [IMAGE], (None, f32(1, 1, 2, 2.5)), {"mode": "linear"}),
    Case("Resize", 13, [IMAGE], (None, None, i64(1, 2, 7, 9)), {
        "mode": "linear", "coordinate_transformation_mode": "align_corners"}),
    Case("Resize", 13, [IMAGE], (None, f32(1, 1, 2, 2)), {
        "mode": "cubic", "coordinate_transformation_mode": "pytorch_half_pixel"}),
    Case("Resize", 11, [IMAGE], (f32(), f32(1, 1, 2, 3)), {
        "mode": "nearest", "coordinate_transformation_mode": "tf_half_pixel_for_nn", "nearest_mode": "floor"}),
    Case("Resize", 18, [IMAGE], (None, f32(0.5, 0.4)), {"mode": "linear", "antialias": 1, "axes": [2, 3]}),
]  # fmt: skip


@pytest.mark.parametrize("case", INTERPOLATIONS, ids=str)
def test_interpolates_as_onnxruntime_does(case: Case) -> None:
    made, arrays = model(case)
    (found,), (expected,) = run_model(made, arrays), by_onnxruntime(made, arrays)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.float16, np.float64])
def test_interpolates_other_types_by_their_value(mode: str, dtype: Any) -> None:
    data = (np.arange(24).reshape(1, 1, 4, 6) ** 2 % 200).astype(dtype)
    attributes = {"mode": mode, "coordinate_transformation_mode": "asymmetric"}
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    made, arrays = model(Case("Resize", 13, [data], (None, f32(1, 1, 2, 2)), attributes, (kind,)))
    (found,) = run_model(made, arrays)
    made, arrays = model(Case("Resize", 13, [data.astype(np.float32)], (None, f32(1, 1, 2, 2)), attributes))
    (expected,) = by_onnxruntime(made, arrays)
    if np.dtype(dtype).kind in "iu":
        expected = np.clip(np.round(expected), np.iinfo(dtype).min, np.iinfo(dtype).max)
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=1e-3)


# ── rules of the contract ───────────────────────────────────────────────────────────────────────────


def test_indices_out_of_range_give_zero_or_are_dropped() -> None:
    indices = i64(-4, -3, 2, 3)
    (found,) = run_model(*model(Case("Gather", 13, [X, indices])))
    np.testing.assert_array_equal(found, np.stack([np.zeros_like(X[0]), X[0], X[2], np.zeros_like(X[0])]))
    (found,) = run_model(*model(Case("ScatterND", 18, [X, indices[:, None], np.ones((4, 4, 5), np.float32)])))
    np.testing.assert_array_equal(found, np.stack([np.ones_like(X[0]), X[1], np.ones_like(X[0])]))


def test_top_k_puts_nan_first_and_keeps_ties_in_order() -> None:
    data = f32(1, np.nan, -0.0, 0.0, np.inf, np.nan)
    values, places = run_model(*model(Case("TopK", 11, [data], (i64(6),), {}, (FLOAT, INT64))))
    np.testing.assert_array_equal(places, [1, 5, 4, 0, 2, 3])
    np.testing.assert_array_equal(values, data[places])
    _, places = run_model(*model(Case("TopK", 11, [data], (i64(6),), {"largest": 0}, (FLOAT, INT64))))
    np.testing.assert_array_equal(places, [2, 3, 0, 4, 1, 5])


def test_f16_combines_in_f32_and_rounds_once() -> None:
    data, updates = np.zeros(1, np.float16), np.full(4097, 1, np.float16)
    case = Case(
        "ScatterElements",
        18,
        [data, np.zeros(4097, np.int64), updates],
        (),
        {"reduction": "add"},
        (TensorProto.FLOAT16,),
    )
    made, arrays = model(case)
    (found,) = run_model(made, arrays)
    assert float(found[0]) == 4096.0  # the exact sum 4097 rounded once; in f16, adding would stop at 2048


@pytest.mark.parametrize(
    ("attribute", "value", "expected"),
    [
        ("value_int", -3, np.asarray(-3, np.int64)),
        ("value_ints", [1, 2], i64(1, 2)),
        ("value_float", 0.1, np.asarray(0.1, np.float32)),
        ("value_floats", [0.1, -0.0], f32(0.1, -0.0)),
    ],
)
def test_constant_of_every_attribute(attribute: str, value: Any, expected: Array) -> None:
    kind = helper.np_dtype_to_tensor_dtype(expected.dtype)
    (found,) = run_model(*model(Case("Constant", 12, [], (), {attribute: value}, (kind,))))
    assert found.tobytes() == expected.tobytes() and found.shape == expected.shape


def test_sparse_constants_become_dense() -> None:
    values = numpy_helper.from_array(f32(5, 6), "v")
    for indices in (i64(1, 5), np.asarray([[0, 1], [1, 2]], np.int64)):
        sparse = helper.make_sparse_tensor(values, numpy_helper.from_array(indices, "i"), [2, 3])
        (found,) = run_model(*model(Case("Constant", 12, [], (), {"sparse_value": sparse})))
        np.testing.assert_array_equal(found, f32(0, 5, 0, 0, 0, 6).reshape(2, 3))


def test_empty_extents() -> None:
    none = X[:0]
    (found,) = run_model(*model(Case("Gather", 13, [none, i64()], (), {"axis": 1})))
    assert found.shape == (0, 0, 5)
    (found,) = run_model(*model(Case("Slice", 13, [X], (i64(2), i64(2), i64(0)))))
    assert found.shape == (0, 4, 5)
    (found,) = run_model(*model(Case("Range", 11, [], (i64(5)[0], i64(5)[0], i64(1)[0]), {}, (INT64,))))
    assert found.shape == (0,)
    places = np.zeros((4, 0), np.int64)
    (found,) = run_model(
        *model(Case("ScatterElements", 18, [X[0], places, places.astype(np.float32)], (), {"axis": 1}))
    )
    np.testing.assert_array_equal(found, X[0])


BAD = [
    (Case("Reshape", 13, [X], (i64(7, -1),)), "element counts differ"),
    (Case("Reshape", 13, [X], (i64(-1, -1),)), "not determined"),
    (Case("Reshape", 13, [X], (i64(1, 1, 1, 0),)), "copies no axis"),
    (Case("Squeeze", 13, [X], (i64(1),)), "extent 1"),
    (Case("Split", 13, [X], (i64(1, 1),), {}, (FLOAT, FLOAT)), "lengths do not fit"),
    (Case("Pad", 13, [X], (i64(1, 2),)), "pads do not fit"),
    (Case("Pad", 17, [X], (i64(1, 0, 0, 0, 0, 0),), {"mode": "wrap"}), "not known"),
    (Case("Slice", 13, [X], (i64(0), i64(1), i64(0), i64(0))), "slice does not fit"),
    (Case("TopK", 11, [X], (i64(6),), {}, (FLOAT, INT64)), "k does not fit"),
    (Case("ScatterND", 13, [X, i64(0)[None], X[0][None]], (), {"reduction": "add"}), "not known"),
    (Case("ScatterND", 18, [X > 0, i64(0)[None], X[0][None] > 0], (), {"reduction": "max"}, (BOOLEAN,)), "not defined"),
    (Case("NonZero", 13, [X], (), {}, (INT64,)), "depends on data"),
    (Case("Range", 11, [], (i64(0)[0], i64(5)[0], i64(0)[0]), {}, (INT64,)), "without an end"),
    (Case("Range", 11, [], (i64(0)[0], i64(2**62)[0], i64(1)[0]), {}, (INT64,)), "size limit"),
    (Case("Resize", 13, [IMAGE], (None, f32(1, 1, 2))), "scales do not fit"),
    (Case("Expand", 13, [X], (i64(2**40, 1, 1, 1),)), "size limit"),
    (Case("Concat", 13, [X, X[0]], (), {"axis": 0}), "conflicts"),
    (Case("Pad", 13, [X[0, 0]], (i64(2**31, 0),), {"mode": "reflect"}), "too many positions to list"),
    (Case("Resize", 13, [X[0, 0]], (None, None, i64(2**31))), "too many positions to list"),
    (Case("Pad", 13, [X[0, 0]], (i64(-4, -4),)), "crop more than there is"),
]  # fmt: skip


@pytest.mark.parametrize(("case", "says"), BAD, ids=[f"{case} {says}" for case, says in BAD])
def test_refuses(case: Case, says: str) -> None:
    made, arrays = model(case)
    with pytest.raises(ReproError) as caught:
        import_model(load_model(made), input_shapes={name: array.shape for name, array in arrays.items()})
    assert says in str(caught.value)
    assert caught.value.op == case.op


# ── any slice, any padding ──────────────────────────────────────────────────────────────────────────

_ENDS = st.integers(-7, 7) | st.sampled_from([-(2**63), 2**63 - 1, -(2**31), 2**31 - 1])


@settings(max_examples=60, deadline=None)
@given(_ENDS, _ENDS, st.integers(-4, 4).filter(bool))
def test_any_slice(start: int, end: int, step: int) -> None:
    """By the text of Slice: ends are clamped after the extent is added, each for its direction."""
    extent = X.shape[2]
    low, high = (at + extent if at < 0 else at for at in (start, end))
    if step > 0:
        low, high = min(max(low, 0), extent), min(max(high, 0), extent)
    else:
        low, high = min(max(low, 0), extent - 1), min(max(high, -1), extent - 1)
    expected = X[:, :, np.arange(low, high, step)]
    made, arrays = model(Case("Slice", 13, [X], (i64(start), i64(end), i64(2), i64(step))))
    np.testing.assert_array_equal(by_reference(made, arrays), expected)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["constant", "reflect", "edge", "wrap"]), st.integers(-2, 9), st.integers(-2, 9))
def test_any_padding(mode: str, before: int, after: int) -> None:
    data = X[0, :, max(-before, 0) : X.shape[2] - max(-after, 0)]
    expected = np.pad(data, ((0, 0), (max(before, 0), max(after, 0))), mode=mode)  # pyright: ignore
    made, arrays = model(Case("Pad", 19, [X[0]], (i64(before, after), None, i64(1)), {"mode": mode}))
    np.testing.assert_array_equal(by_reference(made, arrays), expected)


def by_reference(made: onnx.ModelProto, arrays: Mapping[str, Array]) -> Array:
    imported = import_model(load_model(made), input_shapes={name: array.shape for name, array in arrays.items()})
    return evaluate(imported.graph, [arrays[port.name] for port in imported.inputs])[0]


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.int64, np.float16, np.float64, "bfloat16", "float8_e4m3fn"])
def test_moves_every_type(dtype: Any) -> None:
    face = np.dtype(getattr(ml_dtypes, dtype) if isinstance(dtype, str) else dtype)
    data = np.arange(24).reshape(2, 3, 4).astype(face)
    kind = helper.np_dtype_to_tensor_dtype(face)
    cases = [
        (Case("Transpose", 19, [data], (), {}, (kind,)), data.transpose()),
        (Case("Pad", 19, [data], (i64(0, 1, -1, 0, 0, 2),), {}, (kind,)), None),
        (Case("Gather", 19, [data, i64(2, 0, -1)], (), {"axis": 1}, (kind,)), data[:, [2, 0, -1]]),
        (
            Case("Expand", 19, [data[:, :1]], (i64(5, 1, 3, 1),), {}, (kind,)),
            np.broadcast_to(data[:, :1], (5, 2, 3, 4)),
        ),
        (Case("Trilu", 19, [data], (), {}, (kind,)), np.triu(data.astype(np.float64)).astype(face)),
        (Case("Resize", 19, [data], (None, None, i64(2, 3, 8)), {}, (kind,)), np.repeat(data, 2, 2)),
    ]
    for case, expected in cases:
        made, arrays = model(case)
        (found,) = run_model(made, arrays)
        if expected is None:
            expected = np.pad(data[:, :, 1:], ((0, 0), (1, 0), (0, 2)))
        assert found.dtype == face and found.shape == expected.shape
        assert found.tobytes() == np.ascontiguousarray(expected).tobytes(), str(case)

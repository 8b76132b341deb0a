"""Pools against ONNX Runtime, and against windows walked in NumPy where ONNX Runtime has no such pool."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from repro.errors import ReproError
from repro.ir.types import Array
from tests.ops.one_node import FLOAT, by_onnxruntime, graph_of_node, model_of, run_model, run_node

INT64 = 7


def drawn(*shape: int, dtype: Any = np.float32) -> Array:
    return np.random.default_rng(3 + len(shape)).standard_normal(shape).astype(dtype)


WINDOWS: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 11), {"kernel_shape": [3], "strides": [2], "pads": [1, 1]}),
    ((1, 2, 7, 6), {"kernel_shape": [3, 2], "strides": [2, 3], "pads": [1, 0, 2, 1]}),
    ((1, 2, 7, 8), {"kernel_shape": [3, 3], "strides": [2, 3], "ceil_mode": 1}),
    ((1, 2, 6, 6), {"kernel_shape": [3, 3], "strides": [3, 3], "pads": [1, 1, 1, 1], "ceil_mode": 1}),
    ((1, 1, 7, 7), {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ((1, 1, 6, 7), {"kernel_shape": [2, 4], "auto_pad": "SAME_LOWER"}),
    ((1, 2, 4, 5, 6), {"kernel_shape": [2, 2, 3], "strides": [1, 2, 2], "pads": [0, 1, 1, 1, 0, 1]}),
]


@pytest.mark.parametrize(("shape", "attributes"), WINDOWS)
def test_max_pool(shape: tuple[int, ...], attributes: dict[str, Any]) -> None:
    inputs = {"x": drawn(*shape)}
    model = model_of("MaxPool", inputs, ["y", "i"], 12, types=[FLOAT, INT64], **attributes)
    for found, expected in zip(run_model(model, inputs), by_onnxruntime(model, inputs), strict=True):
        assert np.array_equal(found, expected)


@pytest.mark.parametrize("storage_order", [0, 1])
def test_indices_count_through_batch_and_channels(storage_order: int) -> None:
    inputs = {"x": drawn(2, 3, 4, 5, 6)}
    attributes: dict[str, Any] = {"kernel_shape": [2, 3, 2], "dilations": [2, 1, 2], "storage_order": storage_order}
    model = model_of("MaxPool", inputs, ["y", "i"], 12, types=[FLOAT, INT64], **attributes)
    for found, expected in zip(run_model(model, inputs), by_onnxruntime(model, inputs), strict=True):
        assert np.array_equal(found, expected)


def test_max_pool_by_the_contract_of_order() -> None:
    x = np.array([[[0.0, -0.0, np.nan, 1.0, -0.0, 0.0]]], np.float32)
    y, i = run_node("MaxPool", {"x": x}, ["y", "i"], 12, types=[FLOAT, INT64], kernel_shape=[2], strides=[2])
    assert y.tobytes() == np.array([0.0, np.nan, 0.0], np.float32).tobytes()
    assert i.tolist() == [[[0, 2, 4]]]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_max_pool_of_bytes(dtype: Any) -> None:
    x = np.random.default_rng(2).integers(np.iinfo(dtype).min, np.iinfo(dtype).max, (1, 2, 9)).astype(dtype)
    [y] = run_node("MaxPool", {"x": x}, ["y"], 12, kernel_shape=[3], pads=[1, 1], strides=[2])
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1)), constant_values=np.iinfo(dtype).min)
    expected = np.stack([padded[..., start : start + 3].max(-1) for start in range(0, 9, 2)], -1)
    assert np.array_equal(y, expected)


def test_a_window_in_the_padding_has_the_least_value() -> None:
    x = np.ones((1, 1, 3), np.float32)
    [y] = run_node("MaxPool", {"x": x}, ["y"], 12, kernel_shape=[2], dilations=[4], pads=[1, 2])
    assert y.tolist() == [[[-np.inf, 1.0]]]


@pytest.mark.parametrize("count_include_pad", [0, 1])
@pytest.mark.parametrize(("shape", "attributes"), WINDOWS)
def test_average_pool(shape: tuple[int, ...], attributes: dict[str, Any], count_include_pad: int) -> None:
    inputs = {"x": drawn(*shape)}
    model = model_of("AveragePool", inputs, ["y"], 19, count_include_pad=count_include_pad, **attributes)
    expected = averages(inputs["x"], count_include_pad, **attributes)
    np.testing.assert_allclose(run_model(model, inputs)[0], expected, rtol=1e-5, atol=1e-6)
    if "ceil_mode" not in attributes or not count_include_pad:
        np.testing.assert_allclose(by_onnxruntime(model, inputs)[0], expected, rtol=1e-5, atol=1e-6)


def averages(
    x: Array,
    include: int,
    kernel_shape: list[int],
    strides: list[int] | None = None,
    pads: list[int] | None = None,
    ceil_mode: int = 0,
    auto_pad: str = "NOTSET",
) -> Array:
    """Window by window; the padding's share of the count ends where the model's padding ends."""
    rank = x.ndim - 2
    strides, pads = strides or [1] * rank, list(pads or [0] * 2 * rank)
    counts = list[int]()
    for axis, (n, k, s) in enumerate(zip(x.shape[2:], kernel_shape, strides, strict=True)):
        if auto_pad != "NOTSET":
            counts.append(-(-n // s))
            total = max(0, (counts[-1] - 1) * s + k - n)
            odd = total - total // 2
            pads[axis], pads[axis + rank] = (total // 2, odd) if auto_pad == "SAME_UPPER" else (odd, total // 2)
            continue
        room = n + pads[axis] + pads[axis + rank] - k
        counts.append((-(-room // s) if ceil_mode else room // s) + 1)
        counts[-1] -= (counts[-1] - 1) * s >= n + pads[axis]
    result = np.zeros((*x.shape[:2], *counts))
    for place in itertools.product(*map(range, counts)):
        starts = [p * s - low for p, s, low in zip(place, strides, pads, strict=False)]
        inside = tuple(slice(max(0, a), a + k) for a, k in zip(starts, kernel_shape, strict=True))
        values = x.astype(np.float64)[(..., *inside)]
        divisor = values[0, 0].size
        if include:
            ends = [n + high for n, high in zip(x.shape[2:], pads[rank:], strict=True)]
            divisor = int(np.prod([min(a + k, e) - a for a, k, e in zip(starts, kernel_shape, ends, strict=True)]))
        result[(..., *place)] = values.sum(tuple(range(2, x.ndim))) / divisor
    return result


@pytest.mark.parametrize("count_include_pad", [0, 1])
def test_average_pool_with_dilations(count_include_pad: int) -> None:
    inputs = {"x": drawn(1, 1, 9)}
    attributes: dict[str, Any] = {"kernel_shape": [3], "dilations": [3], "strides": [2], "pads": [4, 2]}
    [found] = run_node("AveragePool", inputs, ["y"], 19, count_include_pad=count_include_pad, **attributes)
    padded = np.pad(inputs["x"][0, 0].astype(np.float64), (4, 2), constant_values=0 if count_include_pad else np.nan)
    expected = [np.nanmean(padded[start : start + 7 : 3]) for start in range(0, 9, 2)]
    np.testing.assert_allclose(found[0, 0], expected, rtol=1e-6)


@pytest.mark.parametrize("op", ["GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"])
@pytest.mark.parametrize("shape", [(2, 3, 7), (2, 3, 5, 4), (1, 2, 3, 4, 5)])
def test_global_pools(op: str, shape: tuple[int, ...]) -> None:
    inputs = {"x": drawn(*shape, dtype=np.float64)}
    axes = tuple(range(2, len(shape)))
    by_numpy = {
        "GlobalAveragePool": np.mean(inputs["x"], axes, keepdims=True),
        "GlobalMaxPool": np.max(inputs["x"], axes, keepdims=True),
        "GlobalLpPool": (np.abs(inputs["x"]) ** 3).sum(axes, keepdims=True) ** (1 / 3),
    }
    attributes: dict[str, Any] = {"p": 3} if op == "GlobalLpPool" else {}
    [found] = run_node(op, inputs, ["y"], 7, types=[11], **attributes)
    np.testing.assert_allclose(found, by_numpy[op], rtol=1e-12)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_lp_pool(p: int) -> None:
    inputs = {"x": drawn(1, 2, 7, 6)}
    attributes: dict[str, Any] = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 0, 1], "p": p}
    model = model_of("LpPool", inputs, ["y"], 18, **attributes)
    np.testing.assert_allclose(run_model(model, inputs)[0], by_onnxruntime(model, inputs)[0], rtol=1e-5)


def test_max_unpool_puts_back_what_max_pool_took() -> None:
    x = drawn(2, 3, 6, 4)
    y, i = run_node("MaxPool", {"x": x}, ["y", "i"], 12, types=[FLOAT, INT64], kernel_shape=[2, 2], strides=[2, 2])
    [back] = run_node("MaxUnpool", {"y": y, "i": i}, ["z"], 11, kernel_shape=[2, 2], strides=[2, 2])
    kept = np.zeros(x.size, np.float32)
    kept[i.reshape(-1)] = x.reshape(-1)[i.reshape(-1)]
    assert np.array_equal(back, kept.reshape(x.shape))
    none = {"y": y[:0], "i": i[:0]}
    [back] = run_node("MaxUnpool", none, ["z"], 11, kernel_shape=[2, 2], strides=[2, 2])
    assert back.shape == (0, 3, 6, 4)


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("MaxPool", {}),
        ("MaxPool", {"kernel_shape": [2, 2, 2]}),
        ("MaxPool", {"kernel_shape": [9, 1]}),
        ("AveragePool", {"kernel_shape": [2, 2], "strides": [1, -1]}),
        ("AveragePool", {"kernel_shape": [2, 0]}),
        ("LpPool", {"kernel_shape": [2, 2], "p": 0}),
        ("AveragePool", {"kernel_shape": [2**31 - 1, 2**31 - 1], "auto_pad": "SAME_UPPER"}),
        ("MaxPool", {"kernel_shape": [1, 1], "pads": [2**31 - 1] * 4}),
    ],
)
def test_pools_refuse(op: str, attributes: dict[str, Any]) -> None:
    with pytest.raises(ReproError) as caught:
        graph_of_node(op, {"x": drawn(1, 2, 5, 5)}, ["y"], 19, **attributes)
    assert caught.value.op == op

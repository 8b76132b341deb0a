"""ONNX Runtime's gradient operators against central differences of NumPy formulas in float64; reference and CPU agree.

A forward formula is written here in NumPy, on float64, and knows nothing of the operators under test.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from repro.errors import ReproError
from repro.frontend import import_model, load_model
from repro.ir.types import Array
from tests.ops.numpy_differences import MICROSOFT, close, differences, drawn, model_of, node
from tests.ops.one_node import run_model

# ── activations ─────────────────────────────────────────────────────────────────────────────────────

_erf = np.vectorize(math.erf)


def gelu(x: Array) -> Array:
    return 0.5 * x * (1 + _erf(x / math.sqrt(2)))


def fast_gelu(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


FROM_OPERAND: dict[str, tuple[Callable[[Array], Array], dict[str, Any]]] = {
    "GeluGrad": (gelu, {}),
    "FastGeluGrad": (fast_gelu, {}),
    "QuickGeluGrad": (lambda x: x * sigmoid(1.3 * x), {"alpha": 1.3}),
    "ErfGrad": (_erf, {}),
}
FROM_RESULT: dict[str, tuple[Callable[[Array], Array], dict[str, Any]]] = {
    "ReluGrad": (lambda x: np.maximum(x, 0), {}),
    "LeakyReluGrad": (lambda x: np.where(x < 0, 0.3 * x, x), {"alpha": 0.3}),
    "SigmoidGrad": (sigmoid, {}),
    "TanhGrad": (np.tanh, {}),
}


@pytest.mark.parametrize("op", FROM_OPERAND)
def test_activations_by_their_operand(op: str) -> None:
    forward, attributes = FROM_OPERAND[op]
    x, dy = drawn(4, 5), drawn(4, 5, seed=1)
    close(node(op, {"dy": dy, "x": x}, ["dx"], **attributes), differences(forward, [x], dy))


@pytest.mark.parametrize("op", FROM_RESULT)
def test_activations_by_their_result(op: str) -> None:
    forward, attributes = FROM_RESULT[op]
    x, dy = drawn(4, 5), drawn(4, 5, seed=1)
    y = forward(x.astype(np.float64)).astype(np.float32)
    close(node(op, {"dy": dy, "y": y}, ["dx"], **attributes), differences(forward, [x], dy))


@pytest.mark.parametrize(("op", "forward"), [("BiasGeluGrad_dX", gelu), ("BiasFastGeluGrad_dX", fast_gelu)])
def test_activations_with_a_bias(op: str, forward: Callable[[Array], Array]) -> None:
    x, bias, dy = drawn(4, 5), drawn(5), drawn(4, 5, seed=1)
    expected = differences(lambda x: forward(x + bias), [x], dy)
    close(node(op, {"dy": dy, "x": x, "bias": bias}, ["dx"]), expected)


@pytest.mark.parametrize(("op", "forward"), [("Gelu", gelu), ("FastGelu", fast_gelu), ("BiasGelu", gelu)])
def test_forward_activations(op: str, forward: Callable[[Array], Array]) -> None:
    x, bias = drawn(4, 5), drawn(5)
    given = {"x": x} if op == "Gelu" else {"x": x, "bias": bias}
    close(node(op, given, ["y"]), [forward(x + (0 if op == "Gelu" else bias))])


# ── softmaxes and loss ──────────────────────────────────────────────────────────────────────────────


def softmax(x: Array, axes: tuple[int, ...]) -> Array:
    e = np.exp(x - x.max(axes, keepdims=True))
    return e / e.sum(axes, keepdims=True)


@pytest.mark.parametrize(
    ("op", "axis", "axes"),
    [
        ("SoftmaxGrad", 1, (1, 2)),
        ("SoftmaxGrad_13", 1, (1,)),
        ("LogSoftmaxGrad", -1, (2,)),
        ("LogSoftmaxGrad_13", 0, (0,)),
    ],
)
def test_softmaxes(op: str, axis: int, axes: tuple[int, ...]) -> None:
    def forward(x: Array) -> Array:
        return np.log(softmax(x, axes)) if op.startswith("Log") else softmax(x, axes)

    x, dy = drawn(3, 4, 2), drawn(3, 4, 2, seed=1)
    y = forward(x.astype(np.float64)).astype(np.float32)
    close(node(op, {"dy": dy, "y": y}, ["dx"], axis=axis), differences(forward, [x], dy))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ignored", [None, 2])
@pytest.mark.parametrize("shape", [(6, 4), (2, 4, 3)])
def test_cross_entropy(reduction: str, weighted: bool, ignored: int | None, shape: tuple[int, ...]) -> None:
    x = drawn(*shape)
    labels = np.random.Generator(np.random.Philox(3)).integers(0, 4, (shape[0], *shape[2:]))
    weights = np.asarray([0.5, 2.0, 1.5, 0.25], np.float32)
    counts = (labels != ignored) * (weights[labels].astype(np.float64) if weighted else 1.0)

    def forward(x: Array) -> Array:
        logarithms = np.log(softmax(x, (1,)))
        losses = -np.take_along_axis(logarithms, np.expand_dims(labels, 1), 1)[:, 0] * counts
        return losses if reduction == "none" else losses.sum() / (counts.sum() if reduction == "mean" else 1)

    dy = drawn(*labels.shape) if reduction == "none" else np.asarray(0.75, np.float32)
    given = {"dy": dy, "y": np.log(softmax(x.astype(np.float64), (1,))).astype(np.float32), "labels": labels}
    attributes = {"reduction": reduction} | ({} if ignored is None else {"ignore_index": ignored})
    found = node("SoftmaxCrossEntropyLossGrad", given | ({"w": weights} if weighted else {}), ["dx"], **attributes)
    close(found, differences(forward, [x], dy))


def test_cross_entropy_that_ignores_by_an_input() -> None:
    x, labels = drawn(4, 3), np.asarray([0, -100, 2, -100])
    constants = {"ignored": np.asarray(-100, np.int64), "dy": np.asarray(2.0, np.float32)}
    nodes = [
        helper.make_node(
            "SoftmaxCrossEntropyLossInternal", ["x", "labels", "", "ignored"], ["loss", "y"], domain=MICROSOFT
        ),
        helper.make_node(
            "SoftmaxCrossEntropyLossInternalGrad", ["dy", "y", "labels", "", "ignored"], ["dx"], domain=MICROSOFT
        ),
    ]
    found = run_model(
        model_of(nodes, {"x": x, "labels": labels}, constants, ["loss", "dx"]), {"x": x, "labels": labels}
    )

    def forward(x: Array) -> Array:
        return -(np.log(softmax(x, (1,)))[[0, 2], [0, 2]]).mean()

    close(found, [forward(x.astype(np.float64)), *differences(forward, [x], np.asarray(2.0))])


@pytest.mark.parametrize("training", [None, True, False])
def test_dropout(training: bool | None) -> None:
    dy, mask, ratio = drawn(3, 5), drawn(3, 5, seed=2) > 0, np.asarray(0.25, np.float32)
    mode = {} if training is None else {"training": np.asarray(training)}
    (found,) = node("DropoutGrad", {"dy": dy, "mask": mask, "ratio": ratio, **mode}, ["dx"])
    close([found], [dy if training is False else np.where(mask, dy / 0.75, 0)], 1e-6)


def test_dropout_with_packed_masks() -> None:
    """What the forward pass kept is what the backward pass lets through."""
    x = np.ones((5, 15), np.float32)
    nodes = [
        helper.make_node("BitmaskDropout", ["x", "ratio", "on"], ["y", "mask"], domain=MICROSOFT, seed=7),
        helper.make_node("BitmaskDropoutGrad", ["x", "mask", "ratio", "on"], ["dx"], domain=MICROSOFT),
    ]
    constants = {"ratio": np.asarray(0.5, np.float32), "on": np.asarray(True)}
    y, mask, dx = run_model(model_of(nodes, {"x": x}, constants, ["y", "mask", "dx"]), {"x": x})
    assert np.array_equal(y, dx) and set(np.unique(y)) == {0.0, 2.0}
    bits = np.unpackbits(mask.astype("<u4").view(np.uint8), bitorder="little")
    assert mask.shape == (3,) and np.array_equal(bits, np.pad(y.reshape(-1) > 0, (0, 21)))


# ── normalizations ──────────────────────────────────────────────────────────────────────────────────


def statistics(x: Array, axes: tuple[int, ...], epsilon: float) -> tuple[Array, Array]:
    wide = x.astype(np.float64)
    inverse = 1 / np.sqrt(wide.var(axes, keepdims=True) + epsilon)
    return wide.mean(axes, keepdims=True).astype(np.float32), inverse.astype(np.float32)


@pytest.mark.parametrize("axis", [-1, 1])
def test_layer_normalization(axis: int) -> None:
    axes, epsilon = tuple(range(axis % 3, 3)), 1e-3
    x, dy = drawn(3, 4, 5), drawn(3, 4, 5, seed=1)
    scale, bias = (drawn(*x.shape[axes[0] :], seed=seed) for seed in (2, 3))

    def forward(x: Array, scale: Array, bias: Array) -> Array:
        d = x - x.mean(axes, keepdims=True)
        return d / np.sqrt((d * d).mean(axes, keepdims=True) + epsilon) * scale + bias

    mean, inverse = statistics(x, axes, epsilon)
    given = {"dy": dy, "x": x, "scale": scale, "mean": mean, "inverse": inverse}
    found = node("LayerNormalizationGrad", given, ["dx", "dscale", "dbias"], axis=axis)
    close(found, differences(forward, [x, scale, bias], dy))


def test_simplified_layer_normalization() -> None:
    x, dy, scale, epsilon = drawn(3, 5), drawn(3, 5, seed=1), drawn(5), 1e-3

    def forward(x: Array, scale: Array) -> Array:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * scale

    inverse = 1 / np.sqrt((x.astype(np.float64) ** 2).mean(-1, keepdims=True) + epsilon)
    given = {"dy": dy, "x": x, "scale": scale, "inverse": inverse.astype(np.float32)}
    found = node("SimplifiedLayerNormalizationGrad", given, ["dx", "dscale"], axis=-1)
    close(found, differences(forward, [x, scale], dy))


def batch_norm(x: Array, scale: Array, bias: Array) -> Array:
    d = x - x.mean((0, 2, 3), keepdims=True)
    n = d / np.sqrt((d * d).mean((0, 2, 3), keepdims=True) + 1e-3)
    return n * scale[:, None, None] + bias[:, None, None]


def test_batch_normalization() -> None:
    """The forward operator, and its gradient from what that saved."""
    x, dy = drawn(3, 2, 4, 2), drawn(3, 2, 4, 2, seed=1)
    scale, bias, running = drawn(2), drawn(2, seed=5), [drawn(2, seed=6), np.asarray([0.5, 2.0], np.float32)]
    inputs = {"x": x, "scale": scale, "bias": bias, "mean": running[0], "variance": running[1]}
    outputs = ["y", "next_mean", "next_variance", "saved", "inverse"]
    made = node("BatchNormInternal", inputs, outputs, epsilon=1e-3, momentum=0.8)
    wide = x.astype(np.float64)
    own = [wide.mean((0, 2, 3)), wide.var((0, 2, 3))]
    next_values = [0.8 * old + 0.2 * new for old, new in zip(running, own, strict=True)]
    close(made, [batch_norm(wide, scale, bias), *next_values, own[0], 1 / np.sqrt(own[1] + 1e-3)])
    given = {"dy": dy, "x": x, "scale": scale, "mean": made[3], "inverse": made[4]}
    found = node("BatchNormalizationGrad", given, ["dx", "dscale", "dbias"], epsilon=1e-3)
    close(found, differences(batch_norm, [x, scale, bias], dy))


# ── windows ─────────────────────────────────────────────────────────────────────────────────────────


def convolved(x: Array, w: Array, stride: int, pad: int, groups: int) -> Array:
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, w.shape[2:], (2, 3))[:, :, ::stride, ::stride]
    own, made = w.shape[1], w.shape[0] // groups
    parts = [
        np.einsum("nchwij,ocij->nohw", windows[:, g * own : (g + 1) * own], w[g * made : (g + 1) * made])
        for g in range(groups)
    ]
    return np.concatenate(parts, 1)


def transposed(x: Array, w: Array, stride: int) -> Array:
    shape = [(extent - 1) * stride + taps for extent, taps in zip(x.shape[2:], w.shape[2:], strict=True)]
    made = np.zeros((x.shape[0], w.shape[1], *shape))
    for i, j in np.ndindex(*x.shape[2:]):
        part = np.einsum("nc,coij->noij", x[:, :, i, j], w)
        made[:, :, i * stride : i * stride + w.shape[2], j * stride : j * stride + w.shape[3]] += part
    return made


@pytest.mark.parametrize(("stride", "pad", "groups"), [(1, 1, 1), (2, 0, 1), (1, 0, 2)])
def test_convolution(stride: int, pad: int, groups: int) -> None:
    x, w, bias = drawn(2, 2, 5, 4), drawn(4, 2 // groups, 3, 2), np.zeros(4, np.float32)

    def forward(x: Array, w: Array, bias: Array) -> Array:
        return convolved(x, w, stride, pad, groups) + bias[:, None, None]

    dy = drawn(*forward(x, w, bias).shape, seed=1)
    attributes: dict[str, Any] = {"strides": [stride] * 2, "pads": [pad] * 4, "group": groups}
    found = node("ConvGrad", {"dy": dy, "x": x, "w": w}, ["dx", "dw", "db"], **attributes)
    close(found, differences(forward, [x, w, bias], dy))


def test_transposed_convolution() -> None:
    x, w, bias = drawn(2, 3, 3, 2), drawn(3, 2, 2, 3), np.zeros(2, np.float32)

    def forward(x: Array, w: Array, bias: Array) -> Array:
        return transposed(x, w, 2) + bias[:, None, None]

    dy = drawn(*forward(x, w, bias).shape, seed=1)
    found = node("ConvTransposeGrad", {"dy": dy, "x": x, "w": w}, ["dx", "dw", "db"], strides=[2, 2])
    close(found, differences(forward, [x, w, bias], dy))


def pooled(x: Array, reduce: Callable[..., Array]) -> Array:
    """3 x 2 windows, 2 x 1 apart."""
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 2), (2, 3))[:, :, ::2]
    return reduce(windows, axis=(4, 5))


@pytest.mark.parametrize("domain", ["", MICROSOFT])
def test_max_pool_with_its_forward_pass(domain: str) -> None:
    """Windows overlap, so that several may choose one element."""
    x = drawn(2, 2, 7, 4)
    dy = drawn(*pooled(x, np.max).shape, seed=1)
    attributes: dict[str, Any] = {"kernel_shape": [3, 2], "strides": [2, 1]}
    nodes = [
        helper.make_node("MaxPool", ["x"], ["y", "chosen"], **attributes),
        helper.make_node("MaxPoolGrad", ["dy", "chosen"], ["dx"], domain=domain, **attributes),
    ]
    found = run_model(model_of(nodes, {"x": x, "dy": dy}, {}, ["dx"]), {"x": x, "dy": dy})
    close(found, differences(lambda x: pooled(x, np.max), [x], dy))


def test_average_pool_by_the_shape_that_the_model_notes() -> None:
    x = drawn(2, 2, 7, 4)
    dy = drawn(*pooled(x, np.mean).shape, seed=1)
    grad = helper.make_node("AveragePoolGrad", ["dy"], ["dx"], kernel_shape=[3, 2], strides=[2, 1])
    model = model_of([grad, helper.make_node("Identity", ["dx"], ["out"])], {"dy": dy}, {}, ["out"])
    with pytest.raises(ReproError, match="extents"):
        import_model(load_model(model))
    model.graph.value_info.append(helper.make_tensor_value_info("dx", TensorProto.FLOAT, ["N", 2, 7, 4]))
    close(run_model(model, {"dy": dy}), differences(lambda x: pooled(x, np.mean), [x], dy))

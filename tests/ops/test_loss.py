"""Losses over labels against float64, with weights, ignored labels and every reduction."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from repro.errors import ReproError
from repro.ir.types import Array
from tests.ops.one_node import run_node

RANDOM = np.random.default_rng(6)
SCORES = RANDOM.standard_normal((4, 5, 3, 2)).astype(np.float32)
LABELS = RANDOM.integers(0, 5, (4, 3, 2))
LABELS[0, 0, 0] = 2
WEIGHTS = RANDOM.uniform(0.5, 2, 5).astype(np.float32)


def log_softmax(x: Array) -> Array:
    distance = x - x.max(1, keepdims=True)
    return distance - np.log(np.exp(distance).sum(1, keepdims=True))


def expected(y: Array, labels: Array, weights: Array | None, ignored: int | None, reduction: str) -> Array:
    """In float64."""
    kept = np.ones(labels.shape, bool) if ignored is None else labels != ignored
    safe = np.where(kept, labels, 0)
    w = (np.ones(y.shape[1]) if weights is None else weights.astype(np.float64))[safe] * kept
    losses = -np.take_along_axis(y, safe[:, None], 1)[:, 0] * w
    total = {"none": losses, "sum": losses.sum(), "mean": losses.sum() / w.sum()}
    return total[reduction]


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("ignored", [None, 2, -100])
@pytest.mark.parametrize("weighted", [False, True])
def test_losses(reduction: str, ignored: int | None, weighted: bool) -> None:
    labels = np.where(LABELS == 4, ignored, LABELS) if ignored == -100 else LABELS
    inputs: dict[str, Array | None] = {"x": SCORES, "labels": labels.astype(np.int64 if weighted else np.int32)}
    if weighted:
        inputs["w"] = WEIGHTS
    attributes: dict[str, Any] = {"reduction": reduction} | ({} if ignored is None else {"ignore_index": ignored})
    wide = SCORES.astype(np.float64)
    weights = WEIGHTS if weighted else None
    [loss] = run_node("NegativeLogLikelihoodLoss", inputs, ["loss"], 13, **attributes)
    np.testing.assert_allclose(loss, expected(wide, labels, weights, ignored, reduction), rtol=1e-5, atol=1e-6)
    loss, y = run_node("SoftmaxCrossEntropyLoss", inputs, ["loss", "y"], 13, **attributes)
    np.testing.assert_allclose(y, log_softmax(wide), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        loss, expected(log_softmax(wide), labels, weights, ignored, reduction), rtol=1e-5, atol=1e-6
    )


def test_the_second_result_has_the_bits_of_log_softmax() -> None:
    _, y = run_node("SoftmaxCrossEntropyLoss", {"x": SCORES, "labels": LABELS}, ["loss", "y"], 13)
    [direct] = run_node("LogSoftmax", {"x": SCORES}, ["y"], 13, axis=1)
    assert y.tobytes() == direct.tobytes()


def test_a_matrix_of_scores() -> None:
    [loss] = run_node("SoftmaxCrossEntropyLoss", {"x": SCORES[:, :, 0, 0], "labels": LABELS[:, 0, 0]}, ["loss"], 12)
    wanted = expected(log_softmax(SCORES[:, :, 0, 0].astype(np.float64)), LABELS[:, 0, 0], None, None, "mean")
    np.testing.assert_allclose(loss, wanted, rtol=1e-6)


def test_half_precision_rounds_once() -> None:
    inputs = {"x": SCORES.astype(np.float16), "labels": LABELS}
    loss, y = run_node("SoftmaxCrossEntropyLoss", inputs, ["loss", "y"], 13)
    wide = {"x": inputs["x"].astype(np.float32), "labels": LABELS}
    wide_loss, wide_y = run_node("SoftmaxCrossEntropyLoss", wide, ["loss", "y"], 13)
    assert loss.dtype == y.dtype == np.float16
    assert loss.tobytes() == wide_loss.astype(np.float16).tobytes()
    assert y.tobytes() == wide_y.astype(np.float16).tobytes()


@pytest.mark.parametrize(
    ("inputs", "attributes"),
    [
        ({"x": SCORES, "labels": LABELS[:3]}, {}),
        ({"x": SCORES, "labels": LABELS.astype(np.float32)}, {}),
        ({"x": SCORES, "labels": LABELS, "w": WEIGHTS[:3]}, {}),
        ({"x": SCORES, "labels": LABELS}, {"reduction": "average"}),
    ],
)
def test_what_does_not_fit_names_the_node(inputs: dict[str, Array], attributes: dict[str, Any]) -> None:
    with pytest.raises(ReproError) as error:
        run_node("NegativeLogLikelihoodLoss", inputs, ["loss"], 13, **attributes)
    assert error.value.node == "node" and error.value.expected

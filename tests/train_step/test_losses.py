"""Values and gradients of the losses against PyTorch's recorded float64 values, and their edges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from repro.autodiff import cotangents
from repro.errors import ReproError
from repro.ir.types import F32, I64, Array, TensorType
from repro.ops import div, scalar
from repro.train_step import training_of, words_of
from repro.train_step.losses import LOSSES, BinaryCrossEntropyWithLogits, Loss
from repro.train_step.options import choose
from tests.train_step import record_torch as cases
from tests.train_step.running import arguments, results

RECORD = np.load(cases.RECORD)


def value_and_gradient(loss: Loss, given: dict[str, Any], weighted: bool) -> tuple[Array, ...]:
    """Loss and gradient at the output, as a training step takes them."""
    arrays = [given["x"], given["labels"], *([given["weight"]] if weighted else [])]
    x, y, *w = arguments(arrays)
    weight = w[0] if w else None
    assert y.type == loss.labels_type(x.type)
    assert weight is None or weight.type == loss.weight_type(x.type)
    total, count = loss.total(x, y, weight), loss.count(y, weight, x.dtype)
    (gradient,) = cotangents([(total.value, div(scalar(1, x.dtype), count))], [x], total.steps)
    assert gradient is not None
    return results((div(total.value, count), gradient), arrays)


def loss_of(case: str) -> Loss:
    return choose("loss", LOSSES, cases.LOSSES[case].loss, cases.LOSSES[case].options)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("case", cases.LOSSES)
def test_value_and_gradient_are_those_of_pytorch(case: str, weighted: bool) -> None:
    given = cases.loss_operands(case, weighted)
    found = cases.flat(value_and_gradient(loss_of(case), given, weighted))
    expected = RECORD[f"loss/{case}/{weighted}"]
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)


def test_every_loss_has_a_case() -> None:
    assert {case.loss for case in cases.LOSSES.values()} == set(LOSSES)


@pytest.mark.parametrize("case", cases.LOSSES)
def test_f32_stays_close(case: str) -> None:
    given = {
        name: value.astype(np.float32) if value.dtype == np.float64 else value
        for name, value in cases.loss_operands(case, True).items()
    }
    found = cases.flat(value_and_gradient(loss_of(case), given, True))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, RECORD[f"loss/{case}/True"], rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("case", ["mse", "l1", "bce_with_logits", "bce_with_logits_positive"])
def test_a_nan_in_the_output_is_a_nan_in_loss_and_gradient(case: str) -> None:
    given = cases.loss_operands(case, False)
    given["x"][2, 1] = np.nan
    loss, gradient = value_and_gradient(loss_of(case), given, False)
    assert np.isnan(loss)
    assert np.isnan(gradient[2, 1])
    assert np.isnan(gradient).sum() == 1


def test_another_label_can_be_ignored() -> None:
    given = cases.loss_operands("nll", False)
    given["labels"][given["labels"] == -100] = 3
    loss = choose("loss", LOSSES, "nll", {"ignore_index": 3})
    kept = given["labels"] != 3
    assert 0 < kept.sum() < kept.size
    expected = -given["x"][np.arange(kept.size), given["labels"]][kept].mean()
    np.testing.assert_allclose(value_and_gradient(loss, given, False)[0], expected, rtol=1e-14)


def test_types_of_labels_and_weights() -> None:
    planes = TensorType(F32, (2, 5, 7))
    assert loss_of("nll").labels_type(planes) == TensorType(I64, (2, 7))
    assert loss_of("nll").weight_type(planes) == TensorType(F32, (5,))
    assert loss_of("mse").labels_type(planes) == planes
    with pytest.raises(ReproError, match="a score for each class"):
        loss_of("softmax_cross_entropy").labels_type(TensorType(F32, (4,)))
    with pytest.raises(ReproError, match="no such option"):
        choose("loss", LOSSES, "mse", {"ignore_index": 1})


def test_options_that_do_not_fit_are_refused() -> None:
    for loss, options, words in (
        ("softmax_cross_entropy", {"label_smoothing": 1.5}, "label_smoothing is out of range"),
        ("softmax_cross_entropy", {"soft_labels": True, "ignore_index": 3}, "no meaning for soft labels"),
        ("bce_with_logits", {"pos_weight": (1.0, -1.0)}, "pos_weight is out of range"),
        ("nll", {"label_smoothing": 0.1}, "no such option"),
    ):
        with pytest.raises(ReproError, match=words):
            choose("loss", LOSSES, loss, options)
    with pytest.raises(ReproError, match="pos_weight does not fit"):
        loss_of("bce_with_logits_positives").labels_type(TensorType(F32, (4, 3)))


def test_soft_labels_are_probabilities_of_the_outputs_type() -> None:
    scores = TensorType(F32, (2, 5, 7))
    assert loss_of("soft").labels_type(scores) == scores
    assert loss_of("soft").weight_type(scores) == TensorType(F32, (5,))
    assert loss_of("soft").ignored_label is None
    assert loss_of("smoothed").ignored_label == -100


def test_smoothed_labels_are_soft_labels() -> None:
    """The two forms of one loss: class labels, smoothed, and the probabilities that this means."""
    given = cases.loss_operands("smoothed", False)
    given["labels"] = np.arange(6) % 4
    soft = given | {"labels": np.eye(4)[given["labels"]] * 0.9 + 0.1 / 4}
    found = value_and_gradient(loss_of("smoothed"), given, False)
    for mine, other in zip(found, value_and_gradient(loss_of("soft"), soft, False), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-12, atol=1e-15)


def test_options_are_words() -> None:
    for given in (
        {"loss": "bce_with_logits", "pos_weight": "2,0x1.8p+0"},
        {"loss": "bce_with_logits", "pos_weight": 2.5},
        {"loss": "bce_with_logits"},
        {"loss": "softmax_cross_entropy", "label_smoothing": "0.1", "soft_labels": "true"},
    ):
        options = training_of(given)
        assert training_of(words_of(options)) == options
    assert training_of({"loss": "bce_with_logits", "pos_weight": "2,0x1.8p+0"}).loss == BinaryCrossEntropyWithLogits(
        (2.0, 1.5)
    )
    with pytest.raises(ReproError, match="option pos_weight has no such value"):
        training_of({"loss": "bce_with_logits", "pos_weight": "two"})

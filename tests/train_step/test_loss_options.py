"""Options of losses in training steps: compiled bits are the reference's, parts of a batch differ by rounding alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from repro.errors import ReproError
from repro.frontend import import_model, load_model
from repro.ir.types import Array
from repro.train_step import TrainStep, train_step, training_of
from tests.train_step.digits import GOLDEN
from tests.train_step.test_digits import Compiled, by_position, by_reference

ROWS, STEPS, CLASSES = 8, 3, 10
OPTIONS: dict[str, dict[str, Any]] = {
    "smoothed": {"loss": "softmax_cross_entropy", "label_smoothing": 0.1},
    "smoothed, weighted": {"loss": "softmax_cross_entropy", "label_smoothing": 0.25, "weighted": True},
    "soft": {"loss": "softmax_cross_entropy", "soft_labels": True},
    "soft, smoothed, weighted": {
        "loss": "softmax_cross_entropy", "soft_labels": True, "label_smoothing": 0.1, "weighted": True
    },
    "one positive weight": {"loss": "bce_with_logits", "pos_weight": 3.0},
    "positive weights, weighted": {
        "loss": "bce_with_logits", "pos_weight": [0.5 * number for number in range(CLASSES)], "weighted": True
    },
}  # fmt: skip


def step_of(options: dict[str, Any], **parts: int) -> TrainStep:
    rows = ROWS // (parts.get("accumulation", 1) * parts.get("shards", 1))
    model = import_model(load_model(GOLDEN / "digits_mlp" / "forward.onnx"), {"N": rows})
    return train_step(model, training_of({**options, **parts, "optimizer": "momentum", "learning_rate": 0.1}))


def batches(step: TrainStep) -> list[list[Array]]:
    """Random inputs of the step's types; labels are classes, or numbers in [0, 1)."""
    draw = np.random.default_rng(3)
    return [
        [
            draw.integers(0, CLASSES, port.type.shape) if port.type.dtype.is_integer
            else draw.random(port.type.shape, np.float32)
            for port in step.inputs
        ]
        for _ in range(STEPS)
    ]  # fmt: skip


@pytest.mark.parametrize("parts", [{}, {"accumulation": 2, "shards": 2}], ids=["whole", "in parts"])
@pytest.mark.parametrize("name", OPTIONS)
def test_compiled_steps_have_the_bits_of_the_reference(name: str, parts: dict[str, int]) -> None:
    step = step_of(OPTIONS[name], **parts)
    data = batches(step)
    expected = by_reference(step, data)
    assert len(expected) == STEPS
    for mine, reference in zip(Compiled.of(step).run(data, 2), expected, strict=True):
        assert mine == by_position(step, reference)


@pytest.mark.parametrize("name", OPTIONS)
def test_parts_of_a_batch_differ_from_the_whole_by_rounding(name: str) -> None:
    whole, parted = step_of(OPTIONS[name]), step_of(OPTIONS[name], accumulation=2, shards=2)
    data = batches(whole)
    assert [port.type for port in whole.inputs] == [port.type for port in parted.inputs]
    expected, found = by_reference(whole, data)[-1], by_reference(parted, data)[-1]
    assert len(found) == len(expected) > 6
    for mine, reference in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, reference, rtol=0, atol=1e-5 * np.abs(reference).max())


@pytest.mark.parametrize("given", [{"outpt": "x"}, {"learning_rate": "0.1", "memory": "1GB"}])
def test_a_word_that_is_no_option_is_named(given: dict[str, str]) -> None:
    """Without a loss too: any keyword that `build` does not know comes here."""
    with pytest.raises(ReproError, match="no such option") as refused:
        training_of(given)
    assert refused.value.found in ("outpt", "memory")
    with pytest.raises(ReproError, match="needs a loss"):
        training_of({"learning_rate": "0.1", "label_smoothing": "0.1"})

"""Validation of models that bring their step, and of losses with options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import repro
from repro.errors import ReproError
from repro.ir.types import Array
from repro.training import checkpoint as checkpoints
from tests.frontend.models import node
from tests.frontend.record_ort_training import ARTIFACTS
from tests.train_step.training_info import Info, graph, scaled, with_training
from tests.training.conftest import BATCH, DIGITS, ROOT

INFO = ROOT / "golden" / "digits_mlp_training_info" / "model.onnx"
SAMPLES = 5 * BATCH + 3


@pytest.fixture(scope="module")
def digits() -> dict[str, Array]:
    with np.load(DIGITS) as data:
        return {"input": data["x"][:SAMPLES].reshape(-1, 64), "labels": data["y"][:SAMPLES]}


def built(model: Any, folder: Path, target: str, **options: Any) -> Path:
    repro.build(model, folder, bind={"N": BATCH}, targets=[] if target == "reference" else [target], **options)
    return folder


def cross_entropy(scores: Any, labels: Any) -> float:
    """The mean in float64."""
    x = scores.astype(np.float64)
    logarithms = x - x.max(1, keepdims=True)
    logarithms -= np.log(np.exp(logarithms).sum(1, keepdims=True))
    return float(-logarithms[np.arange(len(labels)), labels].mean())


def scores_of(artifact: Path, state: dict[str, Array], data: dict[str, Array], target: str) -> Any:
    """What the model says of the whole batches, with a state."""
    found: list[Array] = []
    with repro.load(artifact).session("infer", target) as session:
        session.state = {name: state[name] for name in session.state}
        for start in range(0, SAMPLES - BATCH + 1, BATCH):
            rows = slice(start, start + BATCH)
            given = {value.name: data[value.name][rows] for value in session.entry.inputs}
            found.append(session.run(given)["logits"])
    return np.concatenate(found)


@pytest.mark.parametrize("model", [INFO, ARTIFACTS / "digits_mlp"], ids=["training_info", "artifacts of a runtime"])
def test_a_model_that_brings_its_step_is_measured(
    model: Path, tmp_path: Path, target: str, digits: dict[str, Array]
) -> None:
    artifact = built(model, tmp_path / "made", target)
    run: dict[str, Any] = {"epochs": 4, "target": target, "threads": 2}
    done = repro.train(artifact, digits, checkpoint=tmp_path / "run", validation=digits, evaluate_every=10, **run)
    plain = repro.train(artifact, digits, checkpoint=tmp_path / "plain", **run)
    assert done.state == plain.state
    state = checkpoints.read(tmp_path / "run").state
    scores, labels = scores_of(artifact, state, digits, target), digits["labels"][: SAMPLES - 3]
    assert done.validation is not None
    assert done.validation["samples"] == SAMPLES - 3 == len(scores)
    assert done.validation["loss"] == pytest.approx(cross_entropy(scores, labels), rel=1e-6)
    assert done.validation["accuracy"] == np.mean(scores.argmax(1) == labels)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    measured = [line["validation"]["loss"] for line in lines if "validation" in line]
    assert len(measured) == 2 and measured[1] < measured[0]


def test_too_few_samples_and_other_data_are_refused(tmp_path: Path, target: str, digits: dict[str, Array]) -> None:
    artifact = built(INFO, tmp_path / "made", target)
    few = {name: array[:5] for name, array in digits.items()}
    for data, words in ((few, "no whole batch of validation data"), ({"input": few["input"]}, "are missing: labels")):
        with pytest.raises(ReproError, match=words):
            repro.train(artifact, digits, checkpoint=tmp_path / "run", validation=data, steps=1, target=target)
    assert not (tmp_path / "run").exists()


def test_a_step_without_a_loss_is_refused(tmp_path: Path, target: str) -> None:
    """Its first output is what a run follows."""
    x = np.ones(3, np.float32)
    algorithm = graph([node("Neg", "y", "w1")], outputs="w1", initializers={"last": x})
    made = with_training(scaled(), Info(algorithm, "w=w1 last=w1"))
    artifact = repro.build(made.proto, tmp_path / "made", targets=[] if target == "reference" else [target])
    with pytest.raises(ReproError, match="the training step has no loss"):
        repro.train(artifact.folder, {"x": x}, checkpoint=tmp_path / "run", steps=1, target=target)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_soft_labels_are_trained_on_and_measured(
    smoothing: float, tmp_path: Path, target: str, digits: dict[str, Array]
) -> None:
    """Nothing can be ignored among them, so that padding counts samples twice; validation counts each once."""
    soft = {"input": digits["input"], "labels": np.eye(10, dtype=np.float32)[digits["labels"]]}
    model = ROOT / "golden" / "digits_mlp" / "forward.onnx"
    options: dict[str, Any] = {"loss": "softmax_cross_entropy", "soft_labels": True, "label_smoothing": smoothing}
    artifact = built(model, tmp_path / "made", target, optimizer="adam", **options)
    run: dict[str, Any] = {"epochs": 3, "last": "pad", "target": target, "validation": soft}
    done = repro.train(artifact, soft, checkpoint=tmp_path / "run", **run)
    assert done.step == 3 * 6
    assert done.validation is not None
    assert done.validation["samples"] == SAMPLES and "accuracy" not in done.validation
    state = checkpoints.read(tmp_path / "run").state
    given = {name: np.concatenate([array, array[: 6 * BATCH - SAMPLES]]) for name, array in soft.items()}
    with repro.load(artifact).session("infer", target) as session:
        session.state = {name: state[name] for name in session.state}
        scores = [session.run({"input": given["input"][i : i + BATCH]})["logits"] for i in range(0, 6 * BATCH, BATCH)]
    x = np.concatenate(scores)[:SAMPLES].astype(np.float64)
    logarithms = x - np.log(np.exp(x).sum(1, keepdims=True))
    wanted = soft["labels"].astype(np.float64) * (1 - smoothing) + smoothing / 10
    assert done.validation["loss"] == pytest.approx(-(logarithms * wanted).sum(1).mean(), rel=1e-5)

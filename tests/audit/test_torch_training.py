"""PyTorch's training steps: losses, optimizers and schedules mean what repro's mean; a planted change is found."""

# pyright: reportMissingImports=false, reportUntypedBaseClass=false
# PyTorch is an extra, and may not be installed.

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from repro.audit import comparison, training
from repro.audit.explaining import explained
from repro.audit.peers.pytorch import executor
from repro.audit.records import Capture, Executor, Kind, Outcome
from repro.ir.types import Array
from repro.train_step import training_of
from repro.train_step.losses import LOSSES
from repro.train_step.optimizers import OPTIMIZERS
from tests.audit import training_runs as runs
from tests.audit.training_runs import STEPS

pytest.importorskip("torch")

PLAIN = executor(threads="1")
NEAR = 1e-5
"""Of the tensor's largest magnitude."""
ZERO = {"digits_cnn": "conv1.bias"}
"""It stands before a normalization: its gradient is zero by algebra, so its rounding is measured by the largest
gradient of the model."""

OPTIMIZERS_TRIED: dict[str, dict[str, Any]] = {
    "sgd": {"optimizer": "sgd", "weight_decay": 0.1},
    "momentum": {"optimizer": "momentum", "momentum": 0.8, "dampening": 0.3, "weight_decay": 0.01},
    "nesterov": {"optimizer": "nesterov"},
    "adagrad": {"optimizer": "adagrad", "lr_decay": 0.1, "initial_accumulator_value": 0.5},
    "rmsprop": {"optimizer": "rmsprop", "momentum": 0.5, "centered": True, "epsilon": 1e-4},
    "adam": {"optimizer": "adam", "amsgrad": True, "weight_decay": 0.1, "epsilon": 1e-3},
    "adamw": {"optimizer": "adamw", "epsilon": 1e-3},
}
LOSSES_TRIED: dict[str, dict[str, Any]] = {
    "softmax_cross_entropy": {"label_smoothing": 0.1, "weighted": True},
    "softmax_cross_entropy, soft": {"soft_labels": True},
    "nll": {"weighted": True},
    "mse": {"weighted": True},
    "l1": {},
    "bce": {"weighted": True},
    "bce_with_logits": {"pos_weight": (0.5, 1.0, 2.0, 3.0)},
}
LAST = {"nll": "LogSoftmax", "bce": "Sigmoid"}
WHOLE: dict[str, dict[str, Any]] = {
    "parts": {"accumulation": 2, "shards": 2, "clip_norm": 0.1},
    "scheduled": {"schedule": "cosine", "total_steps": 6, "warmup_steps": 2, "frozen": ("b",)},
}


def near(found: Array, expected: Array, scale: float | None = None) -> bool:
    wide = found.astype(np.float64) - expected
    return float(np.abs(wide).max(initial=0)) <= NEAR * (scale or float(np.abs(expected).max(initial=1e-30)))


def small(options: dict[str, Any], rows: int = 4) -> tuple[Capture, Capture]:
    """Golden and PyTorch's run of four steps of the small model."""
    chosen = training_of(options)
    run = training.prepare(runs.small_model(LAST.get(options["loss"])), chosen, 4, {"N": rows}, _data(options, rows))
    best = training.golden(run, runs.CACHE, lambda *_: None)
    return best, runs.captured(run, best, PLAIN, training.PEERS)


def _data(options: dict[str, Any], rows: int) -> dict[str, Array]:
    """Samples for four steps; labels as the loss takes them."""
    draw = np.random.default_rng(2)
    samples = 4 * rows * options.get("accumulation", 1) * options.get("shards", 1)
    data: dict[str, Any] = {"x": draw.standard_normal((samples, 3)).astype(np.float32)}
    if options["loss"] in ("softmax_cross_entropy", "nll") and not options.get("soft_labels"):
        data["labels"] = draw.integers(0, 4, samples)
        weight: Any = draw.random(4)
    else:
        data["labels"] = draw.random((samples, 4)).astype(np.float32)
        weight = draw.random((samples, 4))
    return {**data, "weight": weight.astype(np.float32)} if options.get("weighted") else data


def check(best: Capture, other: Capture) -> None:
    assert other.ran, other.reason
    assert other.values.keys() == best.values.keys() == other.fed.keys()
    slopes = max(float(np.abs(array).max()) for name, array in best.arrays.items() if "/grad/" in name)
    for name, array in best.arrays.items():
        for found in (other.arrays[name], other.fed_arrays[name]):
            assert near(found, array, slopes if "/grad/" in name else None), name


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_an_optimizer_is_pytorchs(kind: str) -> None:
    check(*small({"loss": "softmax_cross_entropy", "learning_rate": 0.05, **OPTIMIZERS_TRIED[kind]}))


@pytest.mark.parametrize("kind", LOSSES_TRIED)
def test_a_loss_is_pytorchs(kind: str) -> None:
    check(*small({"loss": kind.split(",")[0], "optimizer": "sgd", "learning_rate": 0.1, **LOSSES_TRIED[kind]}))


def test_every_loss_and_optimizer_is_tried() -> None:
    assert {name.split(",")[0] for name in LOSSES_TRIED} == set(LOSSES)
    assert set(OPTIMIZERS_TRIED) == set(OPTIMIZERS)


@pytest.mark.parametrize("kind", WHOLE)
@pytest.mark.parametrize("loss", ["softmax_cross_entropy", "mse"])
def test_parts_of_a_step_are_pytorchs(kind: str, loss: str) -> None:
    check(*small({"loss": loss, "optimizer": "adamw", "learning_rate": 0.02, "epsilon": 1e-3, **WHOLE[kind]}))


@pytest.mark.parametrize("name", runs.OPTIONS)
def test_pytorch_drifts_a_little_from_the_first_step_on(name: str) -> None:
    run, best = runs.audited(name), runs.golden(name)
    other = runs.captured(run, best, PLAIN, training.PEERS)
    assert other.ran and other.faithful, other.reason
    (pair,) = comparison.audit((runs.record(run, best, other),)).pairs
    assert pair.first_node == "step 1 loss and gradients" and pair.origins[0].nodes == (pair.first_node,)
    largest = max(float(np.abs(array).max()) for key, array in best.arrays.items() if "/grad/" in key)
    for key, array in best.arrays.items():
        zero = key.startswith("step") and f"/{ZERO.get(name)}" in key
        assert near(other.arrays[key], array, largest if zero else None), key


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "nesterov"])
def test_why_an_update_drifts_is_known(optimizer: str) -> None:
    """PyTorch's kernels for AVX2 and up fuse products into sums; those for SSE have no such instruction."""
    chosen = {"loss": "softmax_cross_entropy", "optimizer": optimizer, "learning_rate": 0.1, "weight_decay": 0.01}
    path = str(runs.GOLDEN / "digits_mlp" / "forward.onnx")
    run = training.prepare(path, training_of(chosen), 2, {"N": 8})
    best = training.golden(run, runs.CACHE, lambda *_: None)
    other = runs.captured(run, best, PLAIN, training.PEERS)
    found = explained(comparison.audit((runs.record(run, best, other),)), run, best, lambda *_: None)
    causes = {cause.name for origin in found.pairs[0].origins if "update" in origin.nodes[0] for cause in origin.causes}
    assert causes == {"products fused into sums (fma)"}


def test_a_planted_momentum_is_found_in_pytorch_too() -> None:
    """What the fed updates make differs from the plain peer's from the second step on, in updates alone."""
    run, best = runs.audited("digits_mlp"), runs.golden("digits_mlp")
    plain = runs.captured(run, best, PLAIN, training.PEERS)
    table = {"planted": "tests.audit.planted_torch:PlantedTorch"}
    planted = runs.captured(run, best, Executor("planted", PLAIN.options), table)
    (pair,) = (
        each for each in comparison.audit((runs.record(run, best, plain, planted),)).pairs if each.left == PLAIN.name
    )
    nodes = {node for origin in pair.origins for node in origin.nodes}
    assert nodes == {f"step {s} update {name}" for s in range(2, STEPS + 1) for name in _parameters(best)}
    assert {origin.kind for origin in pair.origins} == {Kind.NODE}
    assert min(origin.value.split("/")[0] for origin in pair.origins) == "step 2"
    assert {origin.value.split("/")[0] for origin in pair.origins if not origin.fed} == {"step 2"}


def _parameters(best: Capture) -> set[str]:
    return {name.split("/grad/")[1] for name in best.values if "/grad/" in name}


def test_it_refuses_what_has_no_counterpart() -> None:
    run = training.prepare(str(runs.GOLDEN / "digits_mlp_training_info" / "model.onnx"), None, 1, {"N": 8})
    best = training.golden(run, runs.CACHE, lambda *_: None)
    refused = runs.captured(run, best, PLAIN, training.PEERS)
    assert refused.outcome is Outcome.REFUSED and "brings its own training step" in refused.reason


def test_it_refuses_random_numbers() -> None:
    run = training.prepare(runs.random_model(), training_of({"loss": "mse", "optimizer": "sgd"}), 1, {"N": 4})
    best = training.golden(run, runs.CACHE, lambda *_: None)
    refused = runs.captured(run, best, PLAIN, training.PEERS)
    assert refused.outcome is Outcome.REFUSED and "random numbers" in refused.reason

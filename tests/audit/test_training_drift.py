"""Training steps audited: repro's targets agree in every value; what is planted is found at its step and tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import repro
from repro.audit import capture, comparison, running, training
from repro.audit.golden import own_executors
from repro.audit.records import Executor, Kind, Outcome, Record
from repro.errors import ReproError
from repro.train_step import training_of
from tests.audit import training_runs as runs
from tests.audit.training_runs import GOLDEN, STEPS

RECORDED = Path(__file__).with_name("torch_digits_mlp.json")
"""A run of PyTorch 2.13.0 on an AVX-512 machine: `python -m tests.audit.record_torch` writes it."""
PARAMETERS = ("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias", "fc3.weight", "fc3.bias")


def updates(step: int) -> set[str]:
    return {f"step {step} update {name}" for name in PARAMETERS}


# ── repro ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["digits_mlp", "digits_cnn"])
def test_repros_targets_agree_in_every_value(name: str) -> None:
    run, best = runs.audited(name), runs.golden(name)
    kinds = {key.split("/")[1] for key in best.values}
    assert kinds == {"loss", "grad", "state"}
    assert best.values.keys() == run.types.keys()
    assert len({best.values[f"step {step}/loss"] for step in range(1, STEPS + 1)}) == STEPS
    others = [each for each in own_executors() if each != best.executor and each.option("threads") != "1"]
    captures = [runs.captured(run, best, each, training.PEERS) for each in others]
    assert len(captures) >= 2 and all(each.ran and each.faithful for each in captures)
    found = comparison.audit((runs.record(run, best, *captures),))
    assert len(found.groups) == 1
    assert [(pair.compared, pair.different, pair.origins) for pair in found.pairs] == [(len(best.values), 0, ())] * len(
        captures
    )


def test_a_running_statistic_moves_with_the_loss() -> None:
    run = runs.audited("digits_cnn")
    node = next(node for node in run.summary.nodes if node.name == "step 2 loss and gradients")
    assert {"step 1/state/bn1.running_mean", "step 2/input", "step 2/labels"} <= set(node.inputs)
    assert {"step 2/state/bn1.running_var", "step 2/loss", "step 2/grad/fc.weight"} <= set(node.outputs)


def test_a_planted_momentum_is_found_in_the_second_steps_updates() -> None:
    """In the first step the buffers are zero, so it has no effect; below the second it is only passed on."""
    run, best = runs.audited("digits_mlp"), runs.golden("digits_mlp")
    planted = runs.captured(run, best, _like(best.executor, "planted"), {"planted": f"{runs.__name__}:PlantedOwn"})
    assert planted.ran, planted.reason
    (pair,) = comparison.audit((runs.record(run, best, planted),)).pairs
    assert planted.notes == ("its nodes cannot be fed: a compiled step is not run node by node",)
    assert pair.first_node in updates(2)
    assert {node for origin in pair.origins for node in origin.nodes} == updates(2)
    assert all(origin.kind is Kind.NODE and not origin.fed for origin in pair.origins)
    growth = dict(pair.growth)
    assert all(not drift.different for name, drift in growth.items() if name.startswith("step 1/"))
    assert growth["step 2/state/fc1.weight.momentum_buffer"].max_relative > 1e-3
    assert growth["step 5/state/fc1.weight"].max_absolute > growth["step 2/state/fc1.weight"].max_absolute


def test_a_changed_option_between_two_records_is_an_attribute() -> None:
    run, best = runs.audited("digits_mlp"), runs.golden("digits_mlp")
    path = str(GOLDEN / "digits_mlp" / "forward.onnx")
    options = training_of({**runs.OPTIONS["digits_mlp"], "momentum": runs.PLANTED})
    other = training.prepare(path, options, STEPS, {"N": 8})
    changed = Record(other.summary, {}, training.golden(other, runs.CACHE, lambda *_: None), (), {}, "new")
    found = comparison.audit((Record(run.summary, {}, best, (), {}, "old"), changed))
    nodes = {node for origin in found.pairs[0].origins for node in origin.nodes if origin.kind is Kind.ATTRIBUTE}
    assert nodes == set().union(*(updates(step) for step in range(1, STEPS + 1)))


def _like(executor: Executor, family: str) -> Executor:
    return Executor(family, executor.options)


# ── what comes in ───────────────────────────────────────────────────────────────────────────────────


def test_batches_of_data_are_those_of_training() -> None:
    draw = np.random.default_rng(0)
    data = {"input": draw.random((20, 64), np.float32), "labels": draw.integers(0, 10, 20)}
    path = str(GOLDEN / "digits_mlp" / "forward.onnx")
    run = training.prepare(path, training_of(runs.OPTIONS["digits_mlp"]), 3, {"N": 8}, data=data, seed=4)
    rows = [data["input"].tolist().index(row) for row in run.inputs["step 1/input"].tolist()]
    assert data["labels"][rows].tolist() == run.inputs["step 1/labels"].tolist()
    assert len({run.inputs[f"step {step}/input"].tobytes() for step in (1, 2, 3)}) == 3


def test_drawn_batches_differ_and_labels_are_classes() -> None:
    inputs = runs.audited("digits_mlp").inputs
    assert len({inputs[f"step {step}/input"].tobytes() for step in range(1, STEPS + 1)}) == STEPS
    assert all(0 <= inputs[f"step {step}/labels"].min() <= inputs[f"step {step}/labels"].max() < 10 for step in (1, 5))


def test_a_step_that_draws_random_numbers_shows_no_gradients() -> None:
    """The entry of gradients draws for run 0, so its masks are not the step's."""
    options = training_of({"loss": "mse", "optimizer": "sgd"})
    run = training.prepare(runs.random_model(), options, 2, {"N": 4})
    best = training.golden(run, runs.CACHE, lambda *_: None)
    assert {name.split("/")[1] for name in best.values} == {"loss", "state"}
    reference = next(each for each in own_executors() if each.option("target") == "reference")
    own = runs.captured(run, best, reference, training.PEERS)
    assert own.ran and own.values == best.values


def test_a_model_without_a_training_step_is_refused() -> None:
    with pytest.raises(ReproError, match="no training step"):
        training.prepare(str(GOLDEN / "digits_mlp" / "forward.onnx"), None, 2, {"N": 8})
    with pytest.raises(ReproError, match="needs steps"):
        training.prepare("any.onnx", None, 0)


@pytest.mark.parametrize(
    "source", ["golden/digits_mlp_training_info/model.onnx", "tests/frontend/ort_training/digits_mlp"]
)
def test_a_models_own_step_runs_on_repros_targets_alone(source: str) -> None:
    run = training.prepare(str(runs.ROOT / source), None, 2, {"N": 8})
    best = training.golden(run, runs.CACHE, lambda *_: None)
    assert best.values.keys() == run.types.keys()
    reference = next(each for each in own_executors() if each.option("target") == "reference")
    own = runs.captured(run, best, reference, training.PEERS)
    assert own.ran and own.values == best.values
    refused = runs.captured(run, best, Executor("onnxruntime"), training.PEERS)
    assert (refused.outcome, refused.reason) == (
        Outcome.REFUSED,
        "the inference package has no gradients and no optimizers",
    )


def test_an_artifact_is_trained_as_it_was_built(tmp_path: Path) -> None:
    words: dict[str, Any] = {"loss": "mse", "optimizer": "adam", "clip_norm": 1.0}
    made = repro.build(runs.small_model(None), tmp_path / "small.repro", bind={"N": 4}, targets="reference", **words)
    run = training.prepare(tmp_path / "small.repro" / "artifact.json", None, 2)
    direct = training.prepare(runs.small_model(None), training_of(words), 2, {"N": 4})
    assert run.summary.nodes == direct.summary.nodes and len(run.summary.nodes) == 2 * (1 + 1 + 4)
    session = made.session("train_step", "reference", 1)
    loss = session.run({name: run.inputs[f"step 1/{name}"] for name in ("x", "labels")})["loss"]
    best = training.golden(run, runs.CACHE, lambda *_: None)
    assert best.arrays["step 1/loss"].tobytes() == loss.tobytes()
    with pytest.raises(ReproError, match="its own training options"):
        training.prepare(tmp_path / "small.repro", training_of(words), 2)


def test_executors_run_in_processes_of_their_own() -> None:
    run, best = runs.audited("digits_mlp"), runs.golden("digits_mlp")
    chosen = running.choose(["onnxruntime"], training.PEERS)
    wanted = [each for each in chosen if each.family != "repro" or each.option("target") == "reference"]
    captures = running.run_all(run, best, wanted, running.Limits(), True, lambda *_: None, runs.CACHE, training.PEERS)
    assert [each.outcome for each in captures] == [Outcome.RAN, Outcome.REFUSED]
    assert captures[0].values == best.values


# ── PyTorch, recorded ───────────────────────────────────────────────────────────────────────────────


def test_a_recorded_run_of_pytorch_has_these_origins() -> None:
    """Its golden values are those of this machine; PyTorch drifts from the first step on, in every step's gradients;
    a planted momentum of 0.91 adds the updates from the second step on, and nothing else."""
    recorded = capture.read(RECORDED)
    assert recorded.model == runs.audited("digits_mlp").summary
    assert recorded.golden.values == runs.golden("digits_mlp").values
    plain, planted = (pair for pair in comparison.audit((recorded,)).pairs if pair.left == comparison.GOLDEN)
    assert plain.first_node == "step 1 loss and gradients"
    gradients = {f"step {step} loss and gradients" for step in range(1, STEPS + 1)}
    assert gradients <= {node for origin in plain.origins for node in origin.nodes}
    without, with_it = (c for c in recorded.captures)
    moved = {name for name, value in with_it.fed.items() if value != without.fed[name]}
    assert moved == {
        f"step {step}/state/{name}{end}"
        for step in range(2, STEPS + 1)
        for name in PARAMETERS
        for end in ("", ".momentum_buffer")
    }
    assert planted.different >= plain.different

"""Two runs that part: the step, the tensor, the node."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import repro
from repro import cli
from repro.errors import EXIT_GOOD, EXIT_MISMATCH, EXIT_USAGE, ReproError
from repro.ir.types import Array
from repro.ops.record import OPS
from repro.targets import registry
from repro.training import nodes
from repro.training.compare import difference
from tests.training.conftest import BATCH, MODEL
from tests.training.planted import MIRRORED, STEPS, Train


@pytest.mark.parametrize("seed", range(3))
def test_a_flipped_bit_is_found_to_the_step_and_the_tensor(
    train: Train, flip: Callable[[int, str, int], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    artifact: Path, samples: Path, target: str, seed: int,
):  # fmt: skip
    chosen = random.Random(seed)
    step, name = (
        chosen.randint(2, STEPS - 1),
        chosen.choice(["fc1.weight", "fc2.bias.exp_avg", "fc3.weight.exp_avg_sq"]),
    )
    left = train("left", checkpoint_every=3, trace_tensors=True)
    flip(step, name, 5)
    right = train("right", checkpoint_every=1, keep=STEPS, trace_tensors=True)
    monkeypatch.undo()
    found = repro.bisect(left, right)
    assert (found.step, found.tensors) == (step, (name,))
    assert found.state_before_step == step - 1
    assert "state" in [field.name for field in found.fields]
    located = repro.bisect(
        left, right, artifact=artifact, data=samples, left_checkpoint=tmp_path / "left",
        right_checkpoint=tmp_path / "right", left_target=target, right_target=target, threads=1,
    )  # fmt: skip
    assert located.step == step
    (value,) = located.values
    assert (value.name, value.differing, value.ulps, value.index[-1]) == (name, 1, 1, 5)
    assert located.node is None
    assert any("right" in line and f"leaves its own trace at step {step}" in line for line in located.verdict)
    assert any("no operation is at fault" in line for line in located.verdict)


def test_equal_traces_agree_and_a_longer_one_goes_on(train: Train):
    left, right = train("left"), train("right", steps=STEPS - 3)
    found = repro.bisect(left, right)
    assert (found.step, found.steps, found.exit_code) == (None, STEPS - 3, EXIT_GOOD)
    assert "the left one goes on for 3" in found.verdict[-1]


def test_other_data_is_told_from_other_arithmetic(train: Train, artifact: Path, samples: Path, target: str):
    given = repro.read_npz(samples)
    changed = {**given, "input": given["input"].copy()}
    changed["input"][37, 11] += 1
    left, right = train("left"), train("right", changed)
    found = repro.bisect(left, right)
    assert found.step is not None
    assert found.fields[0].name == "inputs"
    assert "the data differs" in found.verdict[-1]
    assert "different runs (data: blake3:" in found.verdict[0]
    again = repro.bisect(left, right, artifact=artifact, data=samples, right_target=target)
    assert (again.step, again.node) == (found.step, None)
    assert "not run again" in again.verdict[-1]
    with pytest.raises(ReproError, match="the data is not that of the trace"):
        repro.bisect(left, artifact=artifact, data=changed, right_target=target)


def test_runs_of_another_seed_are_said_to_be_other_runs(train: Train):
    found = repro.bisect(train("left"), train("right", seed=3))
    assert found.step == 1
    assert "different runs (seed" in found.verdict[0]


def test_a_checkpoint_of_another_run_is_wrong_use(
    train: Train, flip: Callable[[int, str, int], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    artifact: Path, samples: Path,
):  # fmt: skip
    left = train("left")
    train("other", seed=3, steps=2)
    flip(4, "fc1.weight", 5)
    right = train("right")
    monkeypatch.undo()
    with pytest.raises(ReproError, match="the checkpoint is not of this trace") as caught:
        repro.bisect(left, right, artifact=artifact, data=samples, left_checkpoint=tmp_path / "other")
    assert caught.value.exit_code == EXIT_USAGE


def test_states_that_were_not_digested_are_not_compared(train: Train, flip: Callable[[int, str, int], None]):
    left = train("left", trace_state_every=4)
    flip(6, "fc3.bias", 0)
    found = repro.bisect(left, train("right", trace_state_every=4))
    assert found.step in (7, 8)
    assert found.state_before_step == 4


def test_a_damaged_trace_is_refused(train: Train):
    left, right = train("left"), train("right")
    lines = right.read_bytes().splitlines(keepends=True)
    right.write_bytes(b"".join([*lines[:4], re.sub(rb'"loss":"0x.', b'"loss":"0x7', lines[4]), *lines[5:]]))
    with pytest.raises(ReproError, match="damaged at line 6") as caught:
        repro.bisect(left, right)
    assert caught.value.exit_code == EXIT_MISMATCH


# ── nodes ───────────────────────────────────────────────────────────────────────────────────────────


def test_code_and_reference_agree_at_every_node(artifact: Path, samples: Path, target: str, train: Train):
    found = repro.bisect(train("left", steps=3), artifact=artifact, data=samples, right_target="reference")
    assert found.step is None
    assert "the re-run on reference gives the trace, steps 1 to 3" in found.verdict[0]


@pytest.mark.skipif(registry.best(registry.CPU) is None, reason="compiled code runs on no target here")
def test_a_reordered_sum_is_found_to_the_node(artifact: Path, samples: Path, monkeypatch: pytest.MonkeyPatch):
    loaded = repro.load(artifact)
    entry, state = loaded.entry_graph("train_step"), loaded.initial_state("train_step")
    given = repro.read_npz(samples)
    inputs = {name: array[:16] for name, array in given.items()}
    best = registry.best(registry.CPU)
    assert best is not None
    good = nodes.on_target(best, 1, None)
    assert nodes.first_difference(entry, inputs, state, nodes.on_reference, good) is None
    monkeypatch.setitem(OPS, "dot", MIRRORED)
    found = nodes.first_difference(entry, inputs, state, nodes.on_reference, nodes.on_target(best, 1, None))
    assert found is not None
    assert (found.op, found.value.type) == ("dot", "f32[16,64]")
    assert "fc2" in found.source or "Gemm" in found.source
    assert all(operand.left == operand.right for operand in found.operands)
    assert any("fc2.weight" in operand.source for operand in found.operands) or len(found.operands) == 2
    assert 0 < found.value.differing <= 16 * 64
    assert found.value.ulps is not None
    assert found.value.ulps > 0


@pytest.mark.skipif(registry.best(registry.CPU) is None, reason="compiled code runs on no target here")
@pytest.mark.parametrize(
    ("options", "iterations"),
    [
        ({"accumulation": 2}, (0,)),
        pytest.param({"accumulation": 2, "shards": 2}, (0, 0), marks=pytest.mark.full),
    ],
)
def test_a_reordered_sum_is_found_inside_of_loops(
    options: dict[str, Any], iterations: tuple[int, ...], tmp_path: Path, samples: Path, monkeypatch: pytest.MonkeyPatch
):
    made = repro.build(
        MODEL, tmp_path / "loops.repro", bind={"N": BATCH}, targets=["reference"], loss="softmax_cross_entropy",
        optimizer="sgd", **options,
    )  # fmt: skip
    entry, state = made.entry_graph("train_step"), made.initial_state("train_step")
    given = repro.read_npz(samples)
    inputs = {port.name: given[port.name][: port.type.shape[0]] for port in entry.inputs}
    best = registry.best(registry.CPU)
    assert best is not None
    monkeypatch.setitem(OPS, "dot", MIRRORED)
    found = nodes.first_difference(entry, inputs, state, nodes.on_reference, nodes.on_target(best, 1, None))
    assert found is not None
    assert (found.op, found.value.type, found.iterations) == ("dot", "f32[16,64]", iterations)
    assert "fc2" in found.source or "Gemm" in found.source
    assert all(operand.left == operand.right for operand in found.operands)


@pytest.mark.parametrize(
    ("left", "right", "ulps"),
    [(1.0, np.nextafter(np.float32(1), np.float32(2)), 1), (-0.0, 0.0, 0), (-1e-45, 1e-45, 2), (1.0, -1.0, 2130706432)],
)
def test_distances_are_counted_on_the_line_of_all_floats(left: Any, right: Any, ulps: int):
    one, other = (np.array([[7, value]], np.float32) for value in (left, right))
    found = difference("x", one, other)
    assert found is not None
    assert (found.ulps, found.index, found.differing, found.elements) == (ulps, (0, 1), 1, 2)


def test_integers_and_equal_bits():
    nan: Array = np.array([np.nan], np.float32)
    assert difference("x", nan, nan.copy()) is None
    found = difference("x", np.array(3), np.array(5))
    assert found is not None
    assert (found.ulps, found.left, found.right) == (None, "3", "5")


# ── the command ─────────────────────────────────────────────────────────────────────────────────────


def test_the_command_exits_with_1_and_shows_full_digests(
    train: Train, flip: Callable[[int, str, int], None], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):  # fmt: skip
    left = train("left", trace_tensors=True)
    assert cli.main(["bisect", str(left), str(train("same", trace_tensors=True))]) == EXIT_GOOD
    flip(9, "fc1.weight", 0)
    right = train("right", trace_tensors=True)
    monkeypatch.undo()
    capsys.readouterr()
    assert cli.main(["bisect", str(left), str(right)]) == EXIT_MISMATCH
    shown = capsys.readouterr().out
    assert "step 9" in shown
    assert "fc1.weight" in shown
    assert cli.main(["bisect", str(left), str(right), "--json"]) == EXIT_MISMATCH
    found = json.loads(capsys.readouterr().out)
    assert found["step"] == 9
    assert all(len(each["left"]) == 71 for each in found["fields"] if each["name"] == "state")
    digest = next(each["left"] for each in found["fields"] if each["name"] == "state")
    assert digest in shown


def test_the_train_command_says_what_it_did(
    artifact: Path, samples: Path, tmp_path: Path, target: str, capsys: pytest.CaptureFixture[str]
):
    words = ["train", str(artifact), "--data", str(samples), "--validation", str(samples), "--epochs", "1"]
    where = ["--checkpoint", str(tmp_path / "c"), "--target", target, "--json"]
    assert cli.main([*words, *where]) == EXIT_GOOD
    done = json.loads(capsys.readouterr().out)
    assert (done["step"], done["epoch"], done["interrupted"]) == (12, 1, False)
    assert set(done["validation"]) == {"loss", "accuracy", "samples"}
    assert cli.main([*words, *where]) == 2
    assert "already holds checkpoints" in capsys.readouterr().err
    assert cli.main(["export", str(tmp_path / "c"), "-o", str(tmp_path / "t.onnx")]) == EXIT_GOOD
    assert (tmp_path / "t.onnx").exists()

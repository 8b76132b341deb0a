"""A hundred steps give the same state on every target and number of threads, under a memory budget, traced, resumed."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import repro
from repro.artifact.reading import open_artifact
from repro.ir.types import Array
from tests.goldens import qemu
from tests.targets.native import HERE

ROOT = Path(__file__).resolve().parents[2]
STEPS, FEW, BATCH = 100, 10, 16
MODELS = {"digits_mlp": ("adamw", (64,)), "digits_cnn": ("nesterov", (1, 8, 8))}
GPT = "nano_gpt"
KEPT = 0.985
"""The part of the arena that a budget allows."""


def build(
    name: str, folder: Path, targets: Sequence[str] = (), memory_budget: int | None = None
) -> repro.LoadedArtifact:
    optimizer, bind = ("adam", {}) if name == GPT else (MODELS[name][0], {"N": BATCH})
    return repro.build(
        ROOT / "golden" / name / "forward.onnx", folder, bind=bind, loss="softmax_cross_entropy",
        optimizer=optimizer, learning_rate=0.01, targets=targets or [machine.name for machine in HERE],
        memory_budget=memory_budget,
    )  # fmt: skip


def batches(name: str, steps: int) -> list[dict[str, Array]]:
    """The inputs of each step."""
    if name == GPT:
        draws = [np.random.default_rng(step).integers(0, 96, (8, 33)) for step in range(steps)]
        return [{"ids": lines[:, :-1].copy(), "labels": lines[:, 1:].reshape(-1)} for lines in draws]
    with np.load(ROOT / "examples" / "data" / "digits.npz") as data:
        x, y = data["x"].reshape(-1, *MODELS[name][1]).astype(np.float32), data["y"]
    rows = [(np.arange(BATCH) + step * BATCH) % len(x) for step in range(steps)]
    return [{"input": x[taken], "labels": y[taken]} for taken in rows]


def digest(losses: Sequence[Array], state: Mapping[str, Array]) -> str:
    """sha256 of the losses and the whole state."""
    made = hashlib.sha256()
    for loss in losses:
        made.update(loss.tobytes())
    for name, array in sorted(state.items()):
        made.update(name.encode() + array.tobytes())
    return made.hexdigest()


def after(artifact: repro.LoadedArtifact, name: str, target: str, threads: int, steps: int = STEPS) -> str:
    """The digest of losses and state after the steps."""
    with artifact.session("train_step", target, threads) as session:
        losses = [session.run(inputs)["loss"] for inputs in batches(name, steps)]
        assert session.state["step"] == steps
        return digest(losses, session.state)


def after_emulated(artifact: repro.LoadedArtifact, name: str, folder: Path, threads: int, steps: int) -> str:
    """The same of the artifact's AArch64 objects; the state goes from one run of them to the next."""
    folder.mkdir()
    runner = qemu.Runner(open_artifact(artifact.folder), folder, artifact.entries["train_step"])
    state, losses = artifact.initial_state("train_step"), list[Array]()
    for inputs in batches(name, steps):
        found = runner.run(inputs, threads, state)
        losses.append(found.pop("loss"))
        assert found.keys() < state.keys()
        state |= found
    assert state["step"] == steps
    return digest(losses, state)


def _missing() -> list[str]:
    """What an emulated run lacks here. Under CI nothing may be missing: then it fails where it is wanted."""
    return [] if os.environ.get("CI") == "true" else qemu.missing_tools()


def arena(artifact: repro.LoadedArtifact) -> int:
    """Bytes of temporaries of its greatest program."""
    heads = (blob.read_bytes()[:40] for blob in (artifact.folder / "blobs" / "sha256").glob("*"))
    return max(int(head.split(b"arena=")[1].split()[0]) for head in heads if head.startswith(b"program arena="))


@pytest.mark.parametrize("name", MODELS)
def test_a_hundred_steps_are_the_same_bits_everywhere(name: str, tmp_path: Path) -> None:
    artifact = build(name, tmp_path / "kept")
    found = {
        (machine.name, threads): after(artifact, name, machine.name, threads)
        for machine in HERE
        for threads in (1, 2, 5)
    }
    if name == "digits_mlp":
        found["reference", 1] = after(artifact, name, "reference", 1)
    within = build(name, tmp_path / "within", memory_budget=int(KEPT * arena(artifact)))
    assert arena(within) < arena(artifact)
    found["within a budget", 2] = after(within, name, "cpu", 2)
    assert len(found) >= 4
    assert len(set(found.values())) == 1, found


@pytest.mark.full
def test_a_hundred_steps_of_a_transformer_are_the_same_bits_everywhere(tmp_path: Path) -> None:
    """The reference goes ten of them, as AArch64 does."""
    artifact = build(GPT, tmp_path / "made", (*(machine.name for machine in HERE), "cpu/aarch64"))
    found = {after(artifact, GPT, machine.name, threads) for machine in HERE for threads in (1, 2, 5)}
    assert len(found) == 1
    few = {after(artifact, GPT, "cpu", 2, FEW), after(artifact, GPT, "reference", 1, FEW)}
    if not _missing():
        few.add(after_emulated(artifact, GPT, tmp_path / "emulated", 2, FEW))
    assert len(few) == 1


@pytest.mark.full
def test_a_hundred_steps_of_a_convolutional_model_are_those_of_the_reference(tmp_path: Path) -> None:
    artifact = build("digits_cnn", tmp_path / "made", (HERE[0].name,))
    assert after(artifact, "digits_cnn", "reference", 1) == after(artifact, "digits_cnn", "cpu", 2)


def _resumed_is_unbroken(folder: Path, steps: Sequence[int]) -> None:
    """Runs that go on from checkpoints of a traced run end in its state: elsewhere, with other threads, some untraced.

    The first of the steps is how often the run is saved. Half of them are of another artifact, which has a memory
    budget; the graph is the same.
    """
    kept = build("digits_mlp", folder / "kept")
    within = build("digits_mlp", folder / "within", memory_budget=int(KEPT * arena(kept)))
    with np.load(ROOT / "examples" / "data" / "digits.npz") as data:
        given = {"input": data["x"][:200].reshape(-1, 64).astype(np.float32), "labels": data["y"][:200]}
    run: dict[str, Any] = {"steps": STEPS, "checkpoint_every": STEPS}
    traced: dict[str, Any] = {"trace": folder / "whole.trace", "trace_state_every": 3}
    often: dict[str, Any] = {"steps": STEPS, "checkpoint_every": steps[0], "keep": STEPS}
    whole = repro.train(kept.folder, given, checkpoint=folder / "whole", **traced, **often)
    plain = repro.train(kept.folder, given, checkpoint=folder / "plain", threads=1, **run)
    assert plain.state == whole.state and whole.step == STEPS
    for step in steps:
        again = folder / f"from-{step}"
        again.mkdir()
        for ending in ("json", "safetensors"):
            shutil.copy(folder / "whole" / f"step-{step:08}.{ending}", again)
        more: dict[str, Any] = {**traced, "trace": again / "run.trace"} if step % 2 else {}
        if more:
            shutil.copy(folder / "whole.trace", more["trace"])
        found = repro.train(
            (within if step % 4 < 2 else kept).folder, given, checkpoint=again, resume=True,
            target=HERE[step % len(HERE)].name, threads=(1, 2, 5)[step % 3], **run, **more,
        )  # fmt: skip
        assert (found.step, found.state) == (STEPS, whole.state), step
        assert not more or more["trace"].read_bytes() == (folder / "whole.trace").read_bytes(), step


def test_resumed_at_some_steps_is_unbroken(tmp_path: Path) -> None:
    _resumed_is_unbroken(tmp_path, (13, 26, 65, 78))


@pytest.mark.full
def test_resumed_at_any_step_is_unbroken(tmp_path: Path) -> None:
    _resumed_is_unbroken(tmp_path, range(1, STEPS))


def _same_under_emulation(name: str, folder: Path, steps: int, threads: Sequence[int]) -> None:
    missing = _missing()
    if missing:
        pytest.skip(f"not run: {', '.join(missing)} missing (Debian: qemu-user-static gcc-aarch64-linux-gnu)")
    here = HERE[0].name
    artifact = build(name, folder / "made", (here, "cpu/aarch64"))
    expected = after(artifact, name, here, 2, steps)
    for count in threads:
        assert after_emulated(artifact, name, folder / f"threads-{count}", count, steps) == expected


@pytest.mark.parametrize("name", MODELS)
def test_ten_steps_of_its_aarch64_objects_are_those_bits(name: str, tmp_path: Path) -> None:
    _same_under_emulation(name, tmp_path, FEW, (2,))


@pytest.mark.full
@pytest.mark.parametrize("name", MODELS)
def test_a_hundred_steps_of_its_aarch64_objects_are_those_bits(name: str, tmp_path: Path) -> None:
    _same_under_emulation(name, tmp_path, STEPS, (1, 2, 5))

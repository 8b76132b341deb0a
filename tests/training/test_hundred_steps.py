"""A hundred steps give the same state on every target and number of threads, and under a memory budget."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

import repro
from tests.targets.native import HERE

ROOT = Path(__file__).resolve().parents[2]
STEPS, BATCH = 100, 16
MODELS = {"digits_mlp": ("adamw", (64,)), "digits_cnn": ("nesterov", (1, 8, 8))}
KEPT = 0.9
"""The part of the arena that a budget allows."""


def build(name: str, folder: Path, memory_budget: int | None = None) -> repro.LoadedArtifact:
    optimizer, _ = MODELS[name]
    return repro.build(
        ROOT / "golden" / name / "forward.onnx", folder, bind={"N": BATCH}, loss="softmax_cross_entropy",
        optimizer=optimizer, learning_rate=0.01, targets=[machine.name for machine in HERE],
        memory_budget=memory_budget,
    )  # fmt: skip


def state_after(artifact: repro.LoadedArtifact, shape: tuple[int, ...], target: str, threads: int) -> str:
    """sha256 of the losses and the whole state after the steps."""
    with np.load(ROOT / "examples" / "data" / "digits.npz") as data:
        x, y = data["x"].reshape(-1, *shape).astype(np.float32), data["y"]
    digest = hashlib.sha256()
    with artifact.session("train_step", target, threads) as session:
        for step in range(STEPS):
            rows = (np.arange(BATCH) + step * BATCH) % len(x)
            digest.update(session.run({"input": x[rows], "labels": y[rows]})["loss"].tobytes())
        for name, array in sorted(session.state.items()):
            digest.update(name.encode() + array.tobytes())
        assert session.state["step"] == STEPS
    return digest.hexdigest()


def arena(artifact: repro.LoadedArtifact) -> int:
    """Bytes of temporaries of its greatest program."""
    heads = (blob.read_bytes()[:40] for blob in (artifact.folder / "blobs" / "sha256").glob("*"))
    return max(int(head.split(b"arena=")[1].split()[0]) for head in heads if head.startswith(b"program arena="))


@pytest.mark.parametrize("name", MODELS)
def test_a_hundred_steps_are_the_same_bits_everywhere(name: str, tmp_path: Path) -> None:
    shape = MODELS[name][1]
    artifact = build(name, tmp_path / "kept")
    found = {
        (machine.name, threads): state_after(artifact, shape, machine.name, threads)
        for machine in HERE
        for threads in (1, 2, 5)
    }
    if name == "digits_mlp":
        found["reference", 1] = state_after(artifact, shape, "reference", 1)
    within = build(name, tmp_path / "within", memory_budget=int(KEPT * arena(artifact)))
    assert arena(within) < arena(artifact)
    found["within a budget", 2] = state_after(within, shape, "cpu", 2)
    assert len(found) >= 4
    assert len(set(found.values())) == 1, found

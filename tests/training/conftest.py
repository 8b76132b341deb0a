from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import repro
from repro.artifact.sessions import Session
from repro.targets import cpu
from tests.training.planted import STEPS, Train

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "golden" / "digits_mlp" / "forward.onnx"
DIGITS = ROOT / "examples" / "data" / "digits.npz"
BATCH = 16


@pytest.fixture(scope="session")
def target() -> str:
    """What this host runs best; the reference where it runs none."""
    machine = cpu.best_machine()
    return "reference" if machine is None else machine.name


@pytest.fixture(scope="session")
def artifact(target: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """digits_mlp with a training step, for this host."""
    folder = tmp_path_factory.mktemp("artifact") / "mlp.repro"
    options: dict[str, Any] = {
        "loss": "softmax_cross_entropy",
        "optimizer": "adam",
        "learning_rate": 0.003,
        "clip_norm": 5.0,
    }
    repro.build(MODEL, folder, bind={"N": BATCH}, targets=[target], **options)
    return folder


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """200 digits as .npz: twelve batches of 16, and 8 samples over."""
    path = tmp_path_factory.mktemp("data") / "digits.npz"
    with np.load(DIGITS) as digits:
        repro.write_npz(path, {"input": digits["x"][:200].reshape(-1, 64), "labels": digits["y"][:200]})
    return path


@pytest.fixture
def train(artifact: Path, samples: Path, tmp_path: Path, target: str) -> Train:
    """Train into `tmp_path/NAME`; the path of its trace."""

    def run(name: str, data: Any = samples, **options: Any) -> Path:
        chosen: dict[str, Any] = {"steps": STEPS, "threads": 1, "target": target} | options
        path = tmp_path / f"{name}.trace"
        repro.train(artifact, data, checkpoint=tmp_path / name, trace=path, **chosen)
        return path

    return run


@pytest.fixture
def flip(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, str, int], None]:
    """From now on, flip the lowest bit of an element of a state tensor just after a step."""
    run = Session.run

    def plant(step: int, name: str, element: int) -> None:
        counts: dict[int, int] = {}

        def flipping(self: Session, inputs: Any) -> Any:
            outputs = run(self, inputs)
            counts[id(self)] = counts.get(id(self), 0) + 1
            if counts[id(self)] == step:
                tensor = self.state[name]
                tensor.reshape(-1).view(np.uint32)[element] ^= 1
                self.state = {name: tensor}
            return outputs

        monkeypatch.setattr(Session, "run", flipping)

    return plant

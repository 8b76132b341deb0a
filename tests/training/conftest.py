from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import repro
from repro.targets import cpu

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "golden" / "digits_mlp" / "forward.onnx"
DIGITS = ROOT / "examples" / "data" / "digits.npz"
BATCH = 16


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory):
    """A cache of the test run's own, so that no test reads or fills the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REPRO_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def target() -> str:
    """What this host runs best; the reference where it runs none."""
    machine = cpu.best_machine()
    return "reference" if machine is None else machine.name


@pytest.fixture(scope="session")
def artifact(own_cache: None, target: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
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

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import repro
from repro.targets.llvm import toolchain
from tests import compiled

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
MODEL = GOLDEN / "digits_mlp" / "forward.onnx"
INPUTS = GOLDEN / "digits_mlp" / "inputs.npz"


@pytest.fixture(autouse=True)
def objects_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rebuilds emit code again; LLVM is asked once for each text: that it repeats itself is tests/goldens' matter."""
    monkeypatch.setattr(toolchain, "object_code", compiled.object_code)


@pytest.fixture(scope="session")
def mlp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The artifact of digits_mlp. Read only: a test that changes it takes a copy."""
    folder = tmp_path_factory.mktemp("mlp") / "mlp.repro"
    repro.build(MODEL, folder, inputs=repro.read_npz(INPUTS))
    return folder


@pytest.fixture
def copy(mlp: Path, tmp_path: Path) -> Callable[[], Path]:
    """A writable copy of the artifact."""

    def make() -> Path:
        folder = tmp_path / "copy.repro"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(mlp, folder)
        for path in folder.rglob("*"):
            if path.is_file():
                path.chmod(0o644)
        return folder

    return make

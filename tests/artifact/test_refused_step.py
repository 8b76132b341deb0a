"""A training step that is refused changes nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import repro
from repro.errors import ReproError

MODEL = Path(__file__).resolve().parents[2] / "golden" / "digits_mlp" / "forward.onnx"


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_a_label_out_of_range_leaves_the_state(target: str, tmp_path: Path) -> None:
    artifact = repro.build(MODEL, tmp_path / "out", bind={"N": 4}, loss="softmax_cross_entropy", optimizer="adam")
    x = np.linspace(0, 1, 256, dtype=np.float32).reshape(4, 64)
    with artifact.session("train_step", target, threads=1) as session:
        before = session.state
        with pytest.raises(ReproError, match="out of range"):
            session.run({"input": x, "labels": np.array([1, 2, 99, 3])})
        assert all(np.array_equal(before[name], array) for name, array in session.state.items())
        session.run({"input": x, "labels": np.array([1, 2, 9, 3])})
        assert session.state["step"] == 1

"""Golden outputs against a float64 evaluation by onnx's own reference evaluator.

The error is relative to the output's largest magnitude: a logit near zero is a difference of larger ones.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from golden import bless
from repro.artifact.reading import open_artifact
from tests.goldens import qemu
from tests.goldens.wide import evaluate_wide

CASES = {name: case for name, case in bless.cases().items() if "training" not in case}
"""Trained ones infer as these do."""


@pytest.mark.parametrize("name", CASES)
def test_outputs_are_close_to_float64(name: str, tmp_path: Path) -> None:
    session = bless.build(CASES[name], tmp_path / "out").session(threads=2)
    stored = open_artifact(tmp_path / "out")
    inputs = qemu.golden_inputs(stored, stored.config.golden[0])
    found = session.run(inputs)
    wide = evaluate_wide(str(bless.HERE / CASES[name]["model"]), inputs)
    assert len(found) == len(wide) > 0
    for mine, exact in zip(found.values(), wide, strict=True):
        assert exact.dtype == np.float64
        assert np.max(np.abs(mine - exact)) <= 1e-5 * np.max(np.abs(exact))

"""Each golden model built for the simulated TPU: its own routines give its golden bits, on chips of two array sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

import repro
from golden import bless
from repro.artifact import tensors
from repro.artifact.checks import Status
from repro.artifact.reading import open_artifact
from tests.goldens import qemu, simulated

CHIPS = ("tpu-sim/v5e", "tpu-sim/v6e")
CASES = bless.cases()


def build(name: str, out: Path) -> repro.LoadedArtifact:
    case = CASES[name]
    inputs = repro.read_npz(bless.HERE / case["inputs"]) if "inputs" in case else None
    training, bind = case.get("training", {}), case.get("bind", {})
    return repro.build(bless.HERE / case["model"], out, targets=CHIPS, bind=bind, inputs=inputs, **training)


@pytest.mark.parametrize("name", simulated.CASES)
def test_its_routines_give_the_golden_bits(name: str, tmp_path: Path) -> None:
    """Golden runs are the host CPU's; every entry is run from the code that the artifact carries."""
    artifact = build(name, tmp_path / "out")
    stored = open_artifact(tmp_path / "out")
    assert repro.load(tmp_path / "out").layers == artifact.layers
    assert stored.config == artifact.config
    assert [target.name for target in stored.config.targets] == list(CHIPS)
    assert len(stored.config.golden) == len(stored.config.entries)
    for run in stored.config.golden:
        for chip in CHIPS:
            with artifact.session(entry=run.entry, target=chip) as session:
                outputs = session.run(qemu.golden_inputs(stored, run))
                found = [tensors.digest(outputs[each.name]) for each in run.outputs]
                found += [tensors.digest(session.state[each.name]) for each in run.state]
            assert found == [each.digest for each in (*run.outputs, *run.state)], f"{run.entry} on {chip}"


def test_verify_runs_it_by_name(tmp_path: Path) -> None:
    """`tpu-sim` is the default chip; another one's code is made when it is asked for."""
    bless.build(CASES["digits_mlp"], tmp_path / "out")
    report = repro.verify(tmp_path / "out", targets=["tpu-sim", "tpu-sim/v4"])
    assert report.exit_code == 0
    good = {check.name for check in report.checks if check.status is Status.GOOD}
    assert {"run tpu-sim/v5e", "run tpu-sim/v4"} <= good

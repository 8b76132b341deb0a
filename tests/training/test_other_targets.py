"""Training on a target that is no CPU writes the CPU's trace, and every node of a step has the reference's bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import repro
from repro.training import nodes
from tests.training.conftest import BATCH, MODEL

RUNNERS = ("gpu/interpreter",)
TRAINED: dict[str, Any] = {
    "loss": "softmax_cross_entropy",
    "optimizer": "adam",
    "learning_rate": 0.003,
    "clip_norm": 5.0,
}


@pytest.fixture(scope="module")
def both(target: str, tmp_path_factory: pytest.TempPathFactory) -> repro.LoadedArtifact:
    folder = tmp_path_factory.mktemp("both") / "mlp.repro"
    return repro.build(MODEL, folder, bind={"N": BATCH}, targets=[target, *RUNNERS], **TRAINED)


@pytest.mark.parametrize("runner", RUNNERS)
def test_the_trace_is_the_cpus(
    both: repro.LoadedArtifact, runner: str, target: str, samples: Path, tmp_path: Path
) -> None:
    traces: list[bytes] = []
    for name in (target, runner):
        trace = tmp_path / f"{name.replace('/', '-')}.trace"
        repro.train(both.folder, samples, checkpoint=tmp_path / name, steps=3, trace=trace, target=name)
        traces.append(trace.read_bytes())
    assert traces[0] == traces[1]
    assert traces[0].count(b"\n") >= 4


@pytest.mark.parametrize("runner", RUNNERS)
def test_every_node_of_a_step_has_the_references_bits(both: repro.LoadedArtifact, runner: str, samples: Path) -> None:
    given = {name: array[:BATCH] for name, array in repro.read_npz(samples).items()}
    entry, state = both.entry_graph("train_step"), both.initial_state("train_step")
    run = nodes.runner(runner, 1, None)
    assert nodes.first_difference(entry, given, state, nodes.on_reference, run) is None

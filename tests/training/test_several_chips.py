"""Training on several simulated chips writes the CPU's trace; numbers of chips that cannot be are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import repro
from repro.errors import ReproError
from tests.training.conftest import BATCH, MODEL

TRAINED: dict[str, Any] = {"loss": "softmax_cross_entropy", "optimizer": "adam", "learning_rate": 0.003}


@pytest.fixture(scope="module")
def sharded(target: str, tmp_path_factory: pytest.TempPathFactory) -> repro.LoadedArtifact:
    folder = tmp_path_factory.mktemp("sharded") / "mlp.repro"
    return repro.build(MODEL, folder, bind={"N": BATCH}, targets=[target, "tpu-sim"], shards=4, **TRAINED)


def test_the_trace_is_the_cpus(sharded: repro.LoadedArtifact, target: str, samples: Path, tmp_path: Path) -> None:
    traces = dict[tuple[str, int], bytes]()
    for name, chips in ((target, 1), ("tpu-sim", 1), ("tpu-sim", 2), ("tpu-sim", 4)):
        trace, folder = tmp_path / f"{chips}{name[:3]}.trace", tmp_path / f"{chips}{name[:3]}"
        repro.train(sharded.folder, samples, checkpoint=folder, steps=2, trace=trace, target=name, chips=chips)
        traces[name, chips] = trace.read_bytes()
    assert len(set(traces.values())) == 1
    assert all(trace.count(b"\n") >= 3 for trace in traces.values())


@pytest.mark.parametrize(("chips", "why"), [(3, "power of two that divides 4"), (8, "power of two that divides 4")])
def test_chips_must_divide_the_shards(
    sharded: repro.LoadedArtifact, samples: Path, tmp_path: Path, chips: int, why: str
) -> None:
    with pytest.raises(ReproError, match="cannot share the shards") as caught:
        repro.train(sharded.folder, samples, checkpoint=tmp_path, steps=1, target="tpu-sim", chips=chips)
    assert why in str(caught.value)


def test_a_target_of_one_device_says_so(
    sharded: repro.LoadedArtifact, target: str, samples: Path, tmp_path: Path
) -> None:
    with pytest.raises(ReproError, match="runs a step on one device") as caught:
        repro.train(sharded.folder, samples, checkpoint=tmp_path, steps=1, target=target, chips=2)
    assert "--target tpu-sim" in str(caught.value)


def test_a_step_without_shards_says_how_to_get_them(target: str, samples: Path, tmp_path: Path) -> None:
    built = repro.build(MODEL, tmp_path / "a.repro", bind={"N": BATCH}, targets=[target, "tpu-sim"], **TRAINED)
    with pytest.raises(ReproError, match="shards") as caught:
        repro.train(built.folder, samples, checkpoint=tmp_path / "c", steps=1, target="tpu-sim", chips=2)
    assert "--shards" in str(caught.value)

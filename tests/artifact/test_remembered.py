"""What a build remembers is what it would make: the same artifact without a cache, with an empty one, and again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import repro
from golden import bless
from passes import pipeline
from repro.artifact import golden_runs, workers
from repro.artifact.canonical import sha256
from repro.artifact.checks import Status
from repro.artifact.entries import BuiltEntry

CASE = bless.cases()["digits_mlp_trained"]
TARGETS = ("cpu", "gpu", "tpu-sim")


def built(out: Path, targets: tuple[str, ...] = TARGETS) -> bytes:
    return (bless.build(CASE, out, targets).folder / "artifact.json").read_bytes()


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that one build has filled."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REPRO_CACHE", str(folder))
        (folder / "first").write_bytes(built(folder / "out"))
    return folder


@pytest.fixture(autouse=True)
def use_it(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRO_CACHE", str(cache))


def refuse(*_: object, **__: object) -> None:
    raise AssertionError("made again")


def test_nothing_is_made_again(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "lower", refuse)
    monkeypatch.setattr(BuiltEntry, "session", refuse)
    assert built(tmp_path / "again") == (cache / "first").read_bytes()


def test_other_inputs_are_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "lower", refuse)
    training = CASE["training"]
    before, after = (
        repro.build(bless.HERE / CASE["model"], tmp_path / str(seed), bind=CASE["bind"], golden_seed=seed, **training)
        for seed in (0, 1)
    )
    first, second = before.config.golden_run("train_step"), after.config.golden_run("train_step")
    assert first is not None
    assert second is not None
    assert [each.digest for each in first.outputs] != [each.digest for each in second.outputs]
    assert [each.digest for each in first.state] != [each.digest for each in second.state]


def test_a_wrong_memory_does_not_verify(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`verify` remembers nothing, so it finds what a cache had wrong."""
    run = golden_runs._run

    def wrong(*given: Any) -> Any:
        outputs, state, _ = run(*given)
        return [replace(each, digest=sha256(b"")) for each in outputs], state, []

    monkeypatch.setenv("REPRO_CACHE", str(tmp_path / "cache"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(golden_runs, "_run", wrong)
        first = built(tmp_path / "first", ("cpu",))
    assert built(tmp_path / "second", ("cpu",)) == first, "it was taken from the cache"
    report = repro.verify(tmp_path / "second", targets=("cpu",))
    bad = {check.name for check in report.checks if check.status is Status.MISMATCH}
    assert any("train_step" in name for name in bad)
    assert any("infer" in name or name.startswith("run cpu") for name in bad)


def test_worker_processes_make_the_same_bytes(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a cache, too: the first build was made in this process alone (conftest.py)."""
    monkeypatch.setenv("REPRO_CACHE", "off")
    monkeypatch.setattr(workers, "cores", lambda: 2)
    monkeypatch.setattr(workers, "JOBS_PER_WORKER", 1)
    monkeypatch.setattr(workers, "apply", refuse)  # nothing is left for this process
    assert built(tmp_path / "again") == (cache / "first").read_bytes()

"""Tuning files: what is read, what is refused, what a build makes of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import repro
from repro.artifact import tuning as tunings
from repro.artifact.build import current_versions
from repro.artifact.canonical import encode
from repro.artifact.tuning import Host, Tuned, Tuning
from repro.errors import EXIT_GOOD, ReproError
from repro.ir.describe import describe
from repro.targets import registry
from tests.cli.conftest import INPUTS, MODEL

TARGET = "cpu/x86-64-v3"


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REPRO_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> repro.LoadedArtifact:
    return repro.build(MODEL, tmp_path_factory.mktemp("plain") / "out", targets="cpu", inputs=repro.read_npz(INPUTS))


def tuned_everywhere(artifact: repro.LoadedArtifact, target: str = TARGET) -> Tuning:
    """Another schedule for each kernel that has one."""
    choices = registry.code_target(target).choices
    assert choices is not None
    compiled = artifact.compiled("infer", target)
    found: list[Tuned] = []
    for kernel, schedule in zip(compiled.program.kernels, compiled.schedules, strict=True):
        others = [s for d in choices.dimensions for s in choices.variants(d, kernel, schedule)]
        if others:
            found.append(Tuned(target, f"sha256:{kernel.digest}", describe(kernel), others[-1], 1, schedule, 2))
    assert found
    kernels = tuple(sorted(found, key=lambda each: each.kernel))
    return Tuning(tunings.FORMAT_VERSION, current_versions(), Host("a cpu", 2, 1), kernels)


def built(tuning: Tuning, folder: Path, targets: str = "cpu") -> repro.LoadedArtifact:
    (folder / "tuning.json").write_bytes(tuning.data)
    return repro.build(
        MODEL, folder / "out", targets=targets, inputs=repro.read_npz(INPUTS), tuning=folder / "tuning.json", force=True
    )


def test_a_tuned_artifact_has_other_code_and_equal_results(plain: repro.LoadedArtifact, tmp_path: Path) -> None:
    tuning = tuned_everywhere(plain)
    artifact = built(tuning, tmp_path)
    assert artifact.warnings == ()
    assert artifact.config.build.tuning == tuning.digest
    assert dict(artifact.layers)["tuning.json"] == len(tuning.data)
    assert artifact.config.golden == plain.config.golden
    for mine, theirs in zip(artifact.config.targets, plain.config.targets, strict=True):
        schedules = [{k.kernel: k.schedule for e in t.entries for k in e.kernels} for t in (mine, theirs)]
        wanted = {each.kernel: each.schedule for each in tuning.kernels if each.target == mine.name}
        assert schedules[0] == schedules[1] | wanted
    assert built(tuning, tmp_path).id == artifact.id
    (tmp_path / "tuning.json").unlink()
    report = repro.verify(artifact.folder)
    assert report.exit_code == EXIT_GOOD, report.summary
    assert any(check.name == "rebuild" and check.status.value == "good" for check in report.checks)


def test_kernels_of_other_models_are_ignored_with_a_note(plain: repro.LoadedArtifact, tmp_path: Path) -> None:
    tuning = tuned_everywhere(plain)
    strange = replace(tuning.kernels[0], kernel="sha256:" + "f" * 64)
    more = replace(tuning, kernels=(*tuning.kernels, strange))
    count = len(more.kernels)
    artifact = built(more, tmp_path)
    assert artifact.warnings == (f"1 of {count} tuned kernels are not in this build; they are ignored",)
    elsewhere = built(tuning, tmp_path, "cpu/aarch64")
    assert len(elsewhere.warnings) == (1 if not _is_best(TARGET) else 0)


def _is_best(name: str) -> bool:
    best = registry.best(registry.CPU)
    return best is not None and best.name == name


def test_a_file_reads_back(plain: repro.LoadedArtifact) -> None:
    tuning = tuned_everywhere(plain)
    assert tunings.parse(tuning.data, "it") == tuning


Change = Callable[[dict[str, Any]], Any]


def _kernel(**changes: Any) -> Change:
    return lambda document: document["kernels"][0].update(changes)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda document: document.update(format=2), "format 2"),
        (lambda document: document.pop("kernels"), "'kernels' is a required property"),
        (lambda document: document.update(note="mine"), "note"),
        (lambda document: document["kernels"].append(document["kernels"][0]), "out of order, or one of them twice"),
        (lambda document: document["kernels"].reverse(), "out of order"),
        (_kernel(kernel="sha256:12"), "kernels/0/kernel"),
        (_kernel(schedule="axis=0 width=3 block=8"), "cannot have"),
        (_kernel(schedule="axis=99 width=8 block=8"), "cannot have"),
        (_kernel(schedule="axis=0  width=8 block=8"), "cannot have"),
        (_kernel(schedule="as fast as you can"), "cannot have"),
        (_kernel(schedule="axis=x width=8 block=8"), "cannot have"),
        (_kernel(nanoseconds=0), "kernels/0/nanoseconds"),
    ],
)  # fmt: skip
def test_bad_files_are_refused(plain: repro.LoadedArtifact, tmp_path: Path, change: Change, words: str) -> None:
    document = json.loads(tuned_everywhere(plain).data)
    change(document)
    (tmp_path / "tuning.json").write_bytes(encode(document))
    with pytest.raises(ReproError) as raised:
        repro.build(
            MODEL, tmp_path / "out", inputs=repro.read_npz(INPUTS), targets=TARGET, tuning=tmp_path / "tuning.json"
        )
    assert words in str(raised.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b'{"format": 1}', b"\xff\xfe", b'{"format":1}\n'])
def test_what_is_no_tuning_file_is_said_to_be_none(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "tuning.json").write_bytes(data)
    with pytest.raises(ReproError, match=r"tuning\.json"):
        repro.build(MODEL, tmp_path / "out", inputs=repro.read_npz(INPUTS), tuning=tmp_path / "tuning.json")


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ReproError, match="nowhere"):
        repro.build(MODEL, tmp_path / "out", inputs=repro.read_npz(INPUTS), tuning=tmp_path / "nowhere.json")


def test_a_target_without_choices_takes_no_other_schedule(plain: repro.LoadedArtifact, tmp_path: Path) -> None:
    tuning = tuned_everywhere(plain)
    digests = sorted(f"sha256:{kernel.digest}" for kernel in plain.programs()["infer"].kernels)
    gpu = replace(tuning, kernels=tuple(replace(tuning.kernels[0], target="gpu", kernel=each) for each in digests))
    with pytest.raises(ReproError, match="one schedule alone"):
        built(gpu, tmp_path, "gpu")

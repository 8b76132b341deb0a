"""repro tune, from the command line to a tuned artifact."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import repro
from repro import cli
from repro.artifact import tuning as tunings
from repro.errors import ReproError
from repro.targets.cpu.counting import Run, Variant
from repro.tuning import measure, search
from repro.tuning.measure import Samples
from tests.cli.conftest import INPUTS, MODEL

WORDS = [str(MODEL), "--inputs", str(INPUTS)]


def test_what_it_finds_is_what_build_takes(tmp_path: Path, mlp: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "tuning.json"
    assert cli.main(["tune", *WORDS, "--budget", "3", "--threads", "1", "-o", str(file), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    tuning = tunings.read(file)
    assert said["tuning"] == tuning.digest
    entry = said["entries"]["infer"]
    assert entry["default_seconds"] > 0
    assert all(kernel["tried"] >= 1 for kernel in entry["kernels"])
    assert any(kernel["tried"] > 1 for kernel in entry["kernels"]), "nothing was tried"
    changed = {each["kernel"]: each["schedule"] for each in entry["kernels"] if each["schedule"] != each["default"]}
    assert {each.kernel.removeprefix("sha256:"): each.schedule for each in tuning.kernels} == changed
    assert all(each.target == said["target"] and each.nanoseconds > 0 for each in tuning.kernels)
    assert cli.main(["build", *WORDS, "-o", str(tmp_path / "out"), "--tuning", str(file)]) == 0
    artifact, plain = repro.load(tmp_path / "out"), repro.load(mlp)
    assert artifact.config.build.tuning == tuning.digest
    assert artifact.config.golden == plain.config.golden
    assert cli.main(["verify", str(tmp_path / "out" / "artifact.json")]) == 0


def test_the_table_names_kernels_and_the_whole_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "tuning.json"
    assert cli.main(["tune", *WORDS, "--budget", "0.1", "-o", str(file)]) == 0
    out = capsys.readouterr().out
    assert "the whole run" in out
    assert "the budget ended before everything was tried" in out
    assert f"tuning {tunings.read(file).digest}" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--target", "gpu"], "nothing to tune"),
        (["--target", "reference"], "unknown target"),
        (["--target", "cpu/z80"], "unknown target"),
        (["-o", "no/such/folder/tuning.json"], "no such folder"),
        (["--budget", "0"], "seconds"),
    ],
)
def test_wrong_words_are_told(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["tune", *WORDS, *words]) == 2
    assert said in capsys.readouterr().err


def test_a_target_of_another_host_is_incomplete(capsys: pytest.CaptureFixture[str]) -> None:
    import platform

    other = "cpu/x86-64-v3" if platform.machine() == "aarch64" else "cpu/aarch64"
    assert cli.main(["tune", *WORDS, "--target", other]) == 3
    assert "does not run here" in capsys.readouterr().err


class _Planted:
    """A program whose third variant gives another bit."""

    def run(self, variant: int, inputs: object) -> Run:
        return Run(1.0, (1.0,), (np.array([1.0, np.nextafter(2.0, 3.0) if variant == 2 else 2.0]),))

    def state(self) -> tuple[()]:
        return ()


def test_a_schedule_that_changes_a_bit_is_found() -> None:
    variants = [Variant((f"s{number}", "same"), (b"", b"")) for number in range(4)]
    samples, found = measure._first_runs(_Planted(), variants, [])  # pyright: ignore[reportArgumentType]
    assert found == ["one of s2"]
    assert len(samples) == 4


def test_a_failed_measurement_is_told(tmp_path: Path) -> None:
    request = measure.Request(tmp_path, "infer", "cpu", 1, (), (1, 1), 1.0)
    with pytest.raises(ReproError, match="measuring schedules failed"):
        measure.measured(request)


def test_what_is_kept_is_beyond_noise() -> None:
    rng = np.random.default_rng(7)
    noise = 1 + 0.1 * np.abs(rng.standard_normal((2, 40)))
    low, high = search._interval(noise)
    assert low < 1 < high
    faster = noise * np.array([[1.0], [0.8]])
    low, high = search._interval(faster)
    assert low < 0.8 < high < search.KEPT
    taken = Samples(faster, faster[:, :, None])
    assert np.median(search._ratios(taken, 1, 0)) < search.PROMISING

"""A benchmark of a device outlives what it runs: a lost device, a fault of the driver, a kernel that never ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import gpu_golden, gpu_results
from benchmarks.gpu_watched import watched
from repro.errors import EXIT_INCOMPLETE, ReproError

MODULE = "tests.bench.watched_cases"


def lines_of(file: Path) -> dict[str, dict[str, Any]]:
    lines = gpu_results.read(file)
    assert len({line["case"] for line in lines}) == len(lines), "a case was tried twice"
    return {line["case"]: line for line in lines}


def test_each_failure_costs_its_own_case_alone(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Each case is tried once, by four processes; what was found before a failure is kept, and not found again."""
    file = tmp_path / "results.jsonl"
    file.write_text('{"case": "cut sh')
    names = ["first", "loses", "second", "killed", "sleeps", "third"]
    assert watched(MODULE, [*names, "--results", str(file), "--patience", "4"]) == EXIT_INCOMPLETE
    found = lines_of(file)
    assert sorted(found) == sorted(names)
    assert "DeviceLostError: CUDA_ERROR_ILLEGAL_ADDRESS" in found["loses"]["error"]
    assert found["killed"]["error"] == "the process was ended by SIGSEGV"
    assert found["sleeps"]["error"] == "nothing came of it in 4 s, and the process was ended"
    assert len({found[name]["value"] for name in ("first", "second", "third")}) == 3
    assert len({line["run"] for line in found.values()}) == 1
    assert all(line["device"] == "none" and line["code"] for line in found.values())
    out, err = capfd.readouterr()
    assert "a table" in out and gpu_results.BEGUN not in out
    assert "failed: loses, killed, sleeps" in err


def test_another_run_tries_what_failed_again(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    words = ["first", "killed", "--results", str(file)]
    assert watched(MODULE, words) == EXIT_INCOMPLETE
    assert watched(MODULE, [*words, "--resume"]) == EXIT_INCOMPLETE
    assert [line["case"] for line in gpu_results.read(file)] == ["first", "killed", "killed"]


def test_a_process_that_begins_nothing_is_not_begun_again() -> None:
    assert watched(MODULE, ["no start"]) == EXIT_INCOMPLETE


def test_good_ends_are_as_they_are() -> None:
    """Without a file of results too; an argument that is none is the parser's matter."""
    assert watched(MODULE, ["first", "second"]) == 0
    assert watched(MODULE, ["first", "--minutes", "0"]) == EXIT_INCOMPLETE
    assert watched(MODULE, ["first", "--unheard-of"]) == 2


def test_what_was_not_compared_is_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a run that resumes would leave it out."""

    class Report:
        exit_code, summary, checks = EXIT_INCOMPLETE, "1 of 2 did not run", ()

    class Artifact:
        folder, id = tmp_path, "sha256:0"

    monkeypatch.setattr(gpu_golden.bless, "build", lambda *_: Artifact)
    monkeypatch.setattr(gpu_golden.repro, "verify", lambda *_, **__: Report)
    with pytest.raises(ReproError, match="digits_mlp was not compared on gpu"):
        gpu_golden.verified("digits_mlp", tmp_path, "gpu", None)
    Report.exit_code = 1
    assert gpu_golden.verified("digits_mlp", tmp_path, "gpu", None)["exit code"] == 1

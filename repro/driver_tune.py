"""`repro tune` as a Python function."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnx import ModelProto

from repro import driver
from repro.artifact import tensors
from repro.artifact.build import current_versions
from repro.artifact.loaded import LoadedArtifact, thread_count
from repro.artifact.tuning import FORMAT_VERSION, Host, Tuned, Tuning
from repro.audit.environment import host
from repro.driver import Progress
from repro.errors import EXIT_INCOMPLETE, ReproError
from repro.ir.describe import describe
from repro.ir.work import program_operations
from repro.signatures import checked
from repro.targets import registry
from repro.targets.protocol import Runner
from repro.tuning.search import Outcome, Place, Search

__all__ = ["Found", "tune"]


@dataclass(frozen=True)
class Found:
    """A tuning file, and what was measured for it. `target` is its full name."""

    tuning: Tuning
    path: Path
    target: str
    threads: int
    outcomes: tuple[Outcome, ...]


def _silent(stage: str, done: int, total: int) -> None:
    """No progress is shown."""


@checked
def tune(
    model: str | Path | ModelProto,
    out: str | Path = "tuning.json",
    *,
    target: str = "cpu",
    threads: int | None = None,
    budget: float = 120.0,
    progress: Progress = _silent,
    **options: Any,
) -> Found:
    """Measure schedules of a model's kernels on this machine and write those that are faster to the file `out`.

    `options` are those of `build`, which the file is for: the same model, bindings and training. `budget` is about how
    many seconds the search takes. `threads` is how many the runs have, one for
    each core unless given. No schedule changes a bit, and each one's results are compared. Raises ReproError.
    """
    runner, count = _tunable(target), thread_count(threads)
    if not 0 < budget < 1e6:
        raise ReproError("the budget is out of range", found=str(budget), expected="seconds above 0, below 10^6")
    if not Path(out).parent.is_dir():
        raise ReproError("there is no such folder for the tuning file", found=str(Path(out).parent))
    with tempfile.TemporaryDirectory(prefix="repro-tune-") as folder:
        made = Path(folder) / "model.repro"
        artifact = driver.build(model, made, targets=runner.name, progress=progress, **options)
        outcomes = _outcomes(artifact, runner, count, budget, progress)
    tuning = _tuning(runner.name, count, outcomes)
    tensors.write_output(Path(out), tuning.data)
    return Found(tuning, Path(out), runner.name, count, outcomes)


def _tunable(target: str) -> Runner:
    """The target's runner. Raises ReproError for one that has nothing to tune, or that does not run here."""
    runner = registry.runner(target)
    if runner.code.choices is None:
        tunable = {each.code.name for each in registry.runners() if each.code.choices is not None}
        expected = ", ".join(sorted(tunable))
        raise ReproError(f"target {runner.name} has nothing to tune", found="one schedule a kernel", expected=expected)
    reason = runner.obstacle()
    if reason is not None:
        raise ReproError(f"target {runner.name} does not run here", found=reason, exit_code=EXIT_INCOMPLETE)
    return runner


def _outcomes(
    artifact: LoadedArtifact, runner: Runner, threads: int, budget: float, progress: Progress
) -> tuple[Outcome, ...]:
    """Every entry, the longest first: a kernel is tuned in the first one that has it."""
    programs = artifact.programs()
    ordered = sorted(programs, key=lambda name: -program_operations(programs[name]))
    work = sum(program_operations(each) for each in programs.values())
    known: dict[str, str] = {}
    found: list[Outcome] = []
    for name in ordered:
        share = program_operations(programs[name]) / max(work, 1)
        place = Place(artifact.folder, name, artifact.compiled(name, runner.name), threads, driver.default_cache())
        found.append(Search(place, budget * share, known, progress).run())
        known.update((trial.kernel.digest, trial.schedule) for trial in found[-1].trials)
    return tuple(found)


def _tuning(target: str, threads: int, outcomes: tuple[Outcome, ...]) -> Tuning:
    here = host()
    kernels = [
        Tuned(
            target=target,
            kernel=f"sha256:{trial.kernel.digest}",
            what=describe(trial.kernel),
            schedule=trial.schedule,
            nanoseconds=_nanoseconds(trial.seconds),
            default_schedule=trial.default,
            default_nanoseconds=_nanoseconds(trial.default_seconds),
        )
        for outcome in outcomes
        for trial in outcome.trials
        if trial.changed
    ]
    kernels.sort(key=lambda each: each.kernel)
    return Tuning(FORMAT_VERSION, current_versions(), Host(here["cpu"], here["cores"], threads), tuple(kernels))


def _nanoseconds(seconds: float) -> int:
    return max(1, round(seconds * 1e9))

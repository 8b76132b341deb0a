"""A program by several sets of schedules, run in turn, so that what disturbs the machine disturbs all of them.

It runs in a process of its own (`measured` starts it): a request comes in as a pickled file, samples go out as JSON.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from repro.artifact import tensors
from repro.artifact.loaded import LoadedArtifact
from repro.artifact.reading import open_artifact
from repro.artifact.sessions import match
from repro.errors import EXIT_INCOMPLETE, EXIT_MISMATCH, ReproError
from repro.ir.types import Array, to_storage
from repro.targets.cpu.counting import Counted, Variant
from repro.targets.cpu.target import machine_of

MOST_REPEATS, SAMPLE_SECONDS = 5, 0.2
"""A sample is the best of so many runs, fewer where they would take longer: what disturbs a run only lengthens it."""

HOPELESS = 3
"""Times the first variant's kernels in the first run: such a variant is not run again."""

_Sample = tuple[float, list[float]]
"""Seconds of the whole run, and of each kernel."""


@dataclass(frozen=True)
class Request:
    """`rounds` (at least, at most) of every variant: between them no more are begun than `seconds` have room for."""

    artifact: Path
    entry: str
    target: str
    threads: int
    variants: tuple[Variant, ...]
    rounds: tuple[int, int]
    seconds: float


@dataclass(frozen=True)
class Samples:
    """Seconds, of each variant in each round: whole runs [variants, rounds], kernels [variants, rounds, kernels]."""

    runs: Array
    kernels: Array


def measured(request: Request) -> Samples:
    """Measure in a process of its own. Raises ReproError where it ends early, or a schedule changed a bit."""
    with tempfile.TemporaryDirectory(prefix="repro-tune-") as folder:
        path = Path(folder) / "request"
        path.write_bytes(pickle.dumps(request))
        command = [sys.executable, "-m", "repro.tuning.measure", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise ReproError("measuring schedules failed", found=last, exit_code=EXIT_INCOMPLETE)
    answer = json.loads(done.stdout.splitlines()[-1])
    if answer["different"]:
        raise ReproError(
            "a schedule changed the bits of a result, which is a fault of repro",
            found="; ".join(answer["different"]),
            next="please report it with the model; a build without a tuning file is not affected",
            exit_code=EXIT_MISMATCH,
        )
    return Samples(np.array(answer["runs"]), np.array(answer["kernels"]))


def main(path: str) -> None:
    request: Request = pickle.loads(Path(path).read_bytes())
    artifact = LoadedArtifact(open_artifact(request.artifact))
    compiled = artifact.compiled(request.entry, request.target)
    run = artifact.config.golden_run(request.entry)
    assert run is not None, "every build has a golden run"
    inputs = match(artifact.golden_inputs(run), artifact.entries[request.entry].inputs)
    state = artifact.initial_state(request.entry).values()
    parameters = [to_storage(array, tensors.type_of(array).dtype).reshape(-1) for array in state]
    with Counted(compiled.program, request.variants, parameters, machine_of(compiled), request.threads) as counted:
        first, different = _first_runs(counted, request.variants, inputs)
        taken = [] if different else _rounds(counted, request, inputs, first)
    runs = [[seconds for seconds, _ in samples] for samples in zip(*taken, strict=True)]
    kernels = [[kernels for _, kernels in samples] for samples in zip(*taken, strict=True)]
    sys.stdout.write(json.dumps({"different": different, "runs": runs, "kernels": kernels}) + "\n")


def _first_runs(
    counted: Counted, variants: Sequence[Variant], inputs: Sequence[Array]
) -> tuple[list[_Sample], list[str]]:
    """What each variant takes the first time, and the schedules of those whose results have other bits than those of
    the first variant."""
    known: list[bytes] = []
    samples: list[_Sample] = []
    different: list[str] = []
    for number, each in enumerate(variants):
        run = counted.run(number, inputs)
        samples.append((run.seconds, list(run.kernels)))
        results = [array.tobytes() for array in (*run.outputs, *counted.state())]
        known = known or results
        if results != known:
            changed = (text for text, other in zip(each.schedules, variants[0].schedules, strict=True) if text != other)
            different.append(f"one of {', '.join(changed)}")
    return samples, different


def _rounds(
    counted: Counted, request: Request, inputs: Sequence[Array], first: Sequence[_Sample]
) -> list[list[_Sample]]:
    """Each round begins with another variant, so that none always follows the same one. Of a hopeless variant its first
    run stands for all."""
    taken: list[list[_Sample]] = []
    count, limit = len(first), HOPELESS * sum(first[0][1])
    repeats = max(1, min(MOST_REPEATS, round(SAMPLE_SECONDS / max(first[0][0], 1e-6))))
    started = time.perf_counter()
    fewest, most = request.rounds
    for number in range(most):
        if number >= fewest and time.perf_counter() - started > request.seconds:
            break
        samples = list(first)
        for variant in ((number + position) % count for position in range(count)):
            if sum(first[variant][1]) <= limit:
                samples[variant] = _sample(counted, variant, inputs, repeats)
        taken.append(samples)
    return taken


def _sample(counted: Counted, variant: int, inputs: Sequence[Array], repeats: int) -> _Sample:
    runs = [counted.run(variant, inputs) for _ in range(repeats)]
    kernels = [min(times) for times in zip(*(run.kernels for run in runs), strict=True)]
    return min(run.seconds for run in runs), kernels


if __name__ == "__main__":
    main(sys.argv[1])

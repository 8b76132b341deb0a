"""How long a build takes: with an empty cache, and with what that left.

    python -m benchmarks.build_time [--workload resnet18] [--targets cpu,gpu,tpu-sim] [--rounds 1]

The training step of a workload of `repro bench`, built from an ONNX file. Every build is a process of its own, with
Python's start and imports; a round has a cache folder of its own, empty at first, and one for Python's bytecode.
Seconds on the clock, and processor seconds of the process with its workers; the medians of the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

import onnx
from rich.table import Table

from repro import ending
from repro.bench.workloads import STEP, WORKLOADS
from repro.tables import console

_BUILD = """
import json, sys
import repro
model, out, targets, training = sys.argv[1:]
print(repro.build(model, out, targets=targets.split(","), **json.loads(training)).id)
"""
_COLD, _WARM = "empty cache", "warm cache"


@dataclass(frozen=True)
class Time:
    clock: float
    processor: float


def build(model: Path, out: Path, targets: str, training: str) -> tuple[Time, str]:
    """A build in a process of its own: seconds, and the artifact's id."""
    command = [sys.executable, "-c", _BUILD, str(model), str(out), targets, training]
    own = {"REPRO_CACHE": str(model.with_name("cache")), "PYTHONPYCACHEPREFIX": str(model.with_name("bytecode"))}
    environment = {**os.environ, **own, "PYTHONDONTWRITEBYTECODE": ""}
    before, start = _spent(), time.perf_counter()
    found = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return Time(time.perf_counter() - start, _spent() - before), found.stdout.split()[-1]


def _spent() -> float:
    """Processor seconds of the processes that were waited for, and of theirs."""
    used = getrusage(RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(name: str, targets: str, rounds: int) -> dict[str, list[Time]]:
    """Times of builds with an empty and with a warm cache, which give one artifact."""
    workload = WORKLOADS[name]
    network, outputs = workload.network(STEP)
    found: dict[str, list[Time]] = {_COLD: [], _WARM: []}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            onnx.save(network.model(*outputs), folder / "model.onnx")
            ids: set[str] = set()
            for number, times in enumerate(found.values()):
                out = folder / f"artifact{number}"
                taken, made = build(folder / "model.onnx", out, targets, json.dumps(dict(workload.training)))
                times.append(taken)
                ids.add(made)
            assert len(ids) == 1, f"the cache changed the artifact: {ids}"
    return found


def table(found: dict[str, list[Time]], title: str) -> Table:
    made = Table("build", "seconds", "processor seconds", title=title)
    for build_of, times in found.items():
        made.add_row(build_of, _median([t.clock for t in times]), _median([t.processor for t in times]))
    return made


def _median(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.1f}"


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", choices=[n for n, each in WORKLOADS.items() if each.training], default="resnet18")
    parser.add_argument("--targets", default="cpu,gpu,tpu-sim")
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args(words)
    found = measure(options.workload, options.targets, options.rounds)
    title = f"{options.workload}'s training step for {options.targets}, {os.cpu_count()} processors"
    console().print(table(found, title))


if __name__ == "__main__":
    ending.run(main)

"""One task of a benchmark, in a process of its own: a request as JSON in, an answer as one line of JSON out."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import repro
from repro.bench import measuring, peaks
from repro.bench.kernels import profile_entry
from repro.bench.sides import Job
from repro.bench.workloads import WORKLOADS


def rounds(job: Job, request: Mapping[str, Any]) -> dict[str, Any]:
    floor = peaks.floor(peaks.this_machine(), job.threads, peaks.Work(*request["work"]))
    found = measuring.rounds(job, request["sides"], request["rounds"], request["seconds"], floor)
    return {"timings": [asdict(each) for each in found]}


def memory(job: Job, request: Mapping[str, Any]) -> Mapping[str, Any]:
    return measuring.memory(job, request["side"])


def kernels(job: Job, request: Mapping[str, Any]) -> dict[str, Any]:
    return asdict(profile_entry(repro.load(job.folder / "artifact"), job.entry, job.inputs, job.threads))


TASKS = {"rounds": rounds, "memory": memory, "kernels": kernels}


def main(request: Mapping[str, Any]) -> None:
    words = (request["mode"], request["threads"], Path(request["folder"]), request["copies"])
    job = Job(WORKLOADS[request["workload"]], *words)
    measuring.same_processors(job.threads)
    sys.stdout.write(json.dumps(TASKS[request["task"]](job, request)) + "\n")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))

"""A whole benchmark: each workload, mode and number of threads in a process of its own, its sides in turn."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field, replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import repro
from repro.audit.environment import host
from repro.bench import peaks, processes
from repro.bench.kernels import KernelTime
from repro.bench.measuring import MACHINE, Ratio, Timing, ratio
from repro.bench.peaks import Peaks
from repro.bench.sides import OTHER, SIDES, Job
from repro.bench.workloads import STEP, WORKLOADS
from repro.errors import ReproError
from repro.ir.work import program_byte_products, program_bytes, program_multiply_adds

Progress = Callable[[str, int, int], None]
AGREEMENT = 1e-2
"""Relative to the largest of the compared elements: sides that are further apart compute something else."""
MODES = ("forward", "step")


@dataclass(frozen=True)
class Plan:
    """What to measure. `seconds` is the most that the rounds of one process may take; of several `processes` a
    measurement, each gives one sample, the median of its rounds. `copies` of the inputs are given in turn. `memory`
    asks for peak memory too, `kernels` for the time of each kernel; `tuning` is a file that our builds take. `other` is
    a folder with another version of this package: what it builds runs in turn with ours."""

    workloads: tuple[str, ...] = tuple(WORKLOADS)
    modes: tuple[str, ...] = MODES
    threads: tuple[int, ...] = (1, 2)
    sides: tuple[str, ...] = ("repro", "torch", "torch.compile", "onnxruntime")
    rounds: int = 15
    seconds: float = 60.0
    processes: int = 1
    copies: int = 1
    memory: bool = True
    kernels: bool = False
    tuning: Path | None = None
    other: Path | None = None


@dataclass(frozen=True)
class Measurement:
    """One row. `ratios` are by peer: its time over ours; `share` is what the machine's own loops, those of `bound`,
    take over ours (records of earlier versions name none: an fma loop for whatever contracts). Of one run: `flops`, the
    floating point operations of its contractions (two a multiply-add, those of padding among them); bytes `read` and
    `written`, what it is given and what it makes once each. `processes` and `copies` are as in the plan; `artifact` and
    `other` are the ids of what this version built, and another one."""

    workload: str
    mode: str
    threads: int
    timings: tuple[Timing, ...]
    ratios: dict[str, Ratio]
    build_seconds: float
    flops: int
    read: int
    written: int
    share: Ratio | None
    memory: dict[str, int] = field(default_factory=dict[str, int])
    waiting: float = 0.0
    kernels: tuple[KernelTime, ...] = ()
    bound: str = ""
    products: int = 0
    processes: int = 1
    copies: int = 1
    artifact: str = ""
    other: str = ""

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Measurement:
        """From `asdict` by way of JSON."""
        timings = tuple(Timing.of(each) for each in document["timings"])
        ratios = {side: Ratio(**each) for side, each in document["ratios"].items()}
        share = None if document["share"] is None else Ratio(**document["share"])
        kernels = tuple(KernelTime(**each) for each in document["kernels"])
        read: dict[str, Any] = {"timings": timings, "ratios": ratios, "share": share, "kernels": kernels}
        return cls(**{**document, **read})

    @property
    def share_of_peak(self) -> tuple[float, str] | None:
        """Of what the machine allows on as many threads, and what that is: loops of fmas or of products of bytes for
        contractions, memory for what has none, or few operations for each byte. None where we did not run."""
        bound = self.bound or (peaks.FMA if self.flops else peaks.MEMORY)
        return None if self.share is None else (self.share.value, bound)

    def timing(self, side: str) -> Timing | None:
        return next((each for each in self.timings if each.side == side and each.samples), None)


@dataclass(frozen=True)
class Benchmark:
    peaks: tuple[Peaks, ...]
    measurements: tuple[Measurement, ...]

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Benchmark:
        """What `json` gave, but for its host."""
        measurements = tuple(Measurement.of(each) for each in document["measurements"])
        return cls(tuple(Peaks(**each) for each in document["peaks"]), measurements)

    def json(self) -> dict[str, Any]:
        """Every sample, and on what it was taken."""
        return {
            "host": {**host(), "target": peaks.this_machine().name},
            "versions": {name: version(name) for name in ("numpy", "onnxruntime", "torch") if find_spec(name)},
            "peaks": [asdict(each) for each in self.peaks],
            "measurements": [asdict(each) for each in self.measurements],
        }


def run(plan: Plan, progress: Progress) -> Benchmark:
    """Measure everything of a plan. Raises ReproError for unknown names, and where a side computes something else."""
    named = (("workload", plan.workloads, WORKLOADS), ("side", plan.sides, SIDES), ("mode", plan.modes, MODES))
    for what, given, known in named:
        for name in given:
            if name not in known:
                raise ReproError(f"unknown {what} '{name}'", found=name, expected=", ".join(known))
    jobs = [(WORKLOADS[name], mode) for name in plan.workloads for mode in WORKLOADS[name].modes if mode in plan.modes]
    if not jobs:
        raise ReproError("there is nothing to measure", found=", ".join(plan.modes), expected=", ".join(MODES))
    if plan.other is not None:
        plan = replace(plan, sides=_beside(plan.other, plan.sides))
    found: list[Measurement] = []
    with tempfile.TemporaryDirectory(prefix="repro-bench-") as name:
        for number, (workload, mode) in enumerate(jobs):
            progress("measure", number, len(jobs))
            job = Job(workload, mode, 1, Path(name), plan.copies)
            built = _build(job, plan.tuning)
            if plan.other is not None:
                built = replace(built, other=_build_other(job, plan.other))
            found += [_measured(replace(job, threads=threads), plan, built) for threads in plan.threads]
    machine = peaks.this_machine()
    return Benchmark(tuple(peaks.measure(machine, threads) for threads in plan.threads), tuple(found))


def _beside(other: Path, sides: tuple[str, ...]) -> tuple[str, ...]:
    """The sides with another version beside ours. Raises ReproError where there is none, or nothing of ours."""
    if "repro" not in sides:
        raise ReproError("another version is measured beside this one", found=", ".join(sides), expected="repro")
    if not (other / "repro" / "__init__.py").is_file():
        where = "a checkout, or a folder that pip install --target wrote"
        raise ReproError("another version of repro is not there", found=str(other), expected=where)
    return (*sides, OTHER.name)


@dataclass(frozen=True)
class _Built:
    seconds: float
    flops: int
    products: int
    read: int
    written: int
    id: str
    other: str = ""

    @property
    def work(self) -> peaks.Work:
        return peaks.Work(self.flops, self.products, self.read, self.read + self.written)


def _build(job: Job, tuning: Path | None) -> _Built:
    """Write the model and its artifact for this host, without a cache."""
    network, outputs = job.workload.network(job.mode)
    (job.folder / "model.onnx").write_bytes(network.model(*outputs).SerializeToString())
    training = dict(job.workload.training) if job.mode == STEP else {}
    before = os.environ.get("REPRO_CACHE")
    os.environ["REPRO_CACHE"] = "off"
    try:
        start = time.perf_counter()
        artifact = repro.build(
            job.folder / "model.onnx",
            job.folder / "artifact",
            targets=peaks.this_machine().name,
            inputs=None if job.mode == STEP else job.inputs,
            force=True,
            tuning=tuning,
            **training,
        )
        seconds = time.perf_counter() - start
    finally:
        if before is None:
            del os.environ["REPRO_CACHE"]
        else:
            os.environ["REPRO_CACHE"] = before
    program = artifact.compiled(job.entry).program
    return _Built(
        seconds,
        2 * program_multiply_adds(program),
        program_byte_products(program),
        *program_bytes(program),
        artifact.id,
    )


def _build_other(job: Job, package: Path) -> str:
    """The same workload by the package in another folder; the artifact's id. Raises ReproError where it cannot."""
    training, inputs = job.mode == STEP, job.folder / "inputs.npz"
    if not training:
        repro.write_npz(inputs, job.inputs)
    words = {
        "model": str(job.folder / "model.onnx"),
        "out": str(job.folder / OTHER.folder),
        "target": peaks.this_machine().name,
        "inputs": None if training else str(inputs),
        "training": dict(job.workload.training) if training else {},
    }
    return processes.build_by(package, words, f"building '{job.workload.name}' by the package in {package} failed")


def _measured(job: Job, plan: Plan, built: _Built) -> Measurement:
    base = {"workload": job.workload.name, "mode": job.mode, "threads": job.threads, "folder": str(job.folder)}
    base |= {"copies": job.copies}
    wanted = {"sides": plan.sides, "rounds": plan.rounds, "seconds": plan.seconds, "work": astuple(built.work)}
    answers = [processes.task({**base, "task": "rounds", **wanted}) for _ in range(plan.processes)]
    each_process = [[Timing.of(each) for each in answer["timings"]] for answer in answers]
    for found in each_process:
        _check(job, found)
    timings = joined(each_process)
    by_name = {each.side: each for each in timings}
    ours = by_name.get("repro")
    ratios = {} if ours is None else {
        name: ratio(each, ours) for name, each in by_name.items() if name != "repro" and each.samples
    }  # fmt: skip
    share = ratios.pop(MACHINE, None)
    memory: dict[str, int] = {}
    if plan.memory:
        ran = [each.side for each in timings if each.result and each.side != OTHER.name]
        memory = {side: processes.task({**base, "task": "memory", "side": side})["bytes"] for side in ran}
    profile = processes.task({**base, "task": "kernels"}) if plan.kernels and "repro" in plan.sides else {}
    kernels = tuple(KernelTime(**each) for each in profile.get("kernels", ()))
    return Measurement(
        job.workload.name, job.mode, job.threads, timings, ratios, built.seconds, built.flops,
        built.read, built.written, share, memory, profile.get("waiting", 0.0), kernels,
        built.work.bound, built.products, plan.processes, plan.copies, built.id, built.other,
    )  # fmt: skip


def joined(processes: Sequence[Sequence[Timing]]) -> tuple[Timing, ...]:
    """The timings of several processes as one of each side: a process's median is a sample, because where its memory
    happens to lie is the same in all of its rounds. A side that one of them could not run has the reason alone."""
    if len(processes) == 1:
        return tuple(processes[0])
    return tuple(
        next((each for each in of_side if each.reason), None)
        or replace(of_side[0], samples=tuple(each.seconds for each in of_side))
        for of_side in zip(*processes, strict=True)
    )


def _check(job: Job, timings: Sequence[Timing]) -> None:
    """A side that is fast because it computes something else is no peer."""
    results = {each.side: each.result for each in timings if each.result}
    ours = results.pop("repro", None)
    for side, theirs in results.items():
        if ours is not None and not agree(ours, theirs):
            raise ReproError(
                f"{side} computes something else for '{job.workload.name}'", found=str(theirs), expected=str(ours)
            )


def agree(ours: Sequence[float], theirs: Sequence[float]) -> bool:
    """Whether elements are within `AGREEMENT` of the largest; a NaN agrees with nothing."""
    largest = max((abs(value) for value in ours), default=0.0)
    return len(ours) == len(theirs) and all(
        abs(a - b) <= AGREEMENT * largest for a, b in zip(ours, theirs, strict=True)
    )

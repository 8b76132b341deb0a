"""Interleaved rounds: each side runs in turn, so that what disturbs the machine disturbs all of them."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from repro.bench.sides import OTHER, SIDES, Job, Run, Side, UnavailableError
from repro.tables import with_interval

SAMPLE_SECONDS = 0.05
"""A sample is as many runs as take about this long, so that a clock's and a caller's cost vanish in it."""
PAUSE_SECONDS = 0.25
"""Before each side's turn: the threads of the one before may wait for work by spinning (OpenMP's for 0.2 s), on
processors that this one needs."""
RESAMPLES = 2000
MACHINE = "machine"
"""No peer: what the machine's own loops take for as many operations or bytes (`peaks.floor`). Its time over ours is the
share of the machine's peak."""


@dataclass(frozen=True)
class Timing:
    """Seconds a run, one for each round, or for each process of several; or the reason why the side did not run."""

    side: str
    samples: tuple[float, ...] = ()
    reason: str = ""
    result: tuple[float, ...] = ()
    """Some elements of the first result, to see that the sides compute the same."""

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Timing:
        """From `asdict` by way of JSON."""
        return cls(document["side"], tuple(document["samples"]), document["reason"], tuple(document["result"]))

    @property
    def seconds(self) -> float:
        return median(self.samples)


@dataclass(frozen=True)
class Ratio:
    """A peer's time over ours: of medians, with the 95 % interval over resampled samples (percentile bootstrap, Efron
    1979). Of fewer than six it is little more than the least and the greatest."""

    value: float
    low: float
    high: float

    @property
    def text(self) -> str:
        """With its interval, as tables have it."""
        return with_interval(self.value, self.low, self.high)


@dataclass
class _Open:
    run: Run
    result: tuple[float, ...]
    repeats: int
    samples: list[float] = field(default_factory=list[float])


def same_processors(threads: int) -> None:
    """Keep this process and its threads on as many processors as threads: of a shared machine's, one may be slower than
    another, and no side shall have the better one."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def rounds(job: Job, sides: Sequence[str], count: int, seconds: float, floor: Callable[[], float]) -> list[Timing]:
    """Every side `count` times in turn; fewer, but at least three, where that would take more than `seconds`. The last
    timing is that of `MACHINE`, which is asked for its `floor` once a round."""
    opened: dict[str, _Open] = {}
    reasons: dict[str, str] = {}
    for name in sides:
        try:
            opened[name] = _warm(_side(name).open(job))
        except UnavailableError as error:
            reasons[name] = str(error)
    started = time.perf_counter()
    floors: list[float] = []
    for number in range(count):
        if number >= 3 and time.perf_counter() - started > seconds:
            break
        for each in opened.values():
            each.samples.append(_sample(each))
        time.sleep(PAUSE_SECONDS)
        floors.append(floor())
    timings = [
        Timing(name, tuple(opened[name].samples), result=opened[name].result)
        if name in opened
        else Timing(name, reason=reasons[name])
        for name in sides
    ]
    return [*timings, Timing(MACHINE, tuple(floors))]


def _side(name: str) -> Side:
    return OTHER if name == OTHER.name else SIDES[name]


def _warm(run: Run) -> _Open:
    result = tuple(float(value) for value in np.ravel(run())[:8])
    start = time.perf_counter()
    run()
    taken = time.perf_counter() - start
    return _Open(run, result, max(1, min(1000, round(SAMPLE_SECONDS / max(taken, 1e-6)))))


def _sample(each: _Open) -> float:
    time.sleep(PAUSE_SECONDS)
    for _ in range(each.repeats - 1):
        each.run()  # its own threads awake, its memory near
    start = time.perf_counter()
    for _ in range(each.repeats):
        each.run()
    return (time.perf_counter() - start) / each.repeats


def ratio(theirs: Timing, ours: Timing) -> Ratio:
    """Samples are drawn in pairs, as they were run."""
    both = np.array([theirs.samples, ours.samples])
    drawn = np.random.default_rng(0).integers(0, both.shape[1], (RESAMPLES, both.shape[1]))
    medians = np.median(both[:, drawn], axis=2)
    low, high = np.quantile(medians[0] / medians[1], (0.025, 0.975))
    return Ratio(theirs.seconds / ours.seconds, float(low), float(high))


# ── memory ──────────────────────────────────────────────────────────────────────────────────────────


def resident() -> int:
    """Bytes that this process holds in memory now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def peak_resident() -> int:
    """Bytes that this process has held at most. (Of `getrusage` the greatest may be that of the process that started
    this one: it outlives an exec.)"""
    status = Path("/proc/self/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def memory(job: Job, side: str) -> Mapping[str, int]:
    """The greatest resident size over three runs, less what was resident when the side was open. For a process of its
    own: the greatest is the process's."""
    run = _side(side).open(job)
    before = resident()
    for _ in range(3):
        run()
    return {"bytes": peak_resident() - before}

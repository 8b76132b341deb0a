"""The walk: every kernel that takes time tries the variants along one of its dimensions, then along the next.

A run measures one schedule of each kernel in its place, between its neighbours and over their data, so a step takes
as many runs as the kernel with the most variants has. What looked best on the way is measured again at the end, against
the cost model's schedules, with fresh samples: a lucky sample on the way keeps nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from repro.artifact.cache import Cache
from repro.artifact.compiling import compile_kernels
from repro.ir.loops import Kernel
from repro.ir.types import Array
from repro.targets.cpu.counting import Variant
from repro.targets.protocol import Choices, CodeTarget, CompiledProgram
from repro.tuning.measure import Request, Samples, measured

Progress = Callable[[str, int, int], None]

LEAST_SHARE = 0.003
"""Of a run, below which a kernel is not worth a trial."""
WALK_ROUNDS, LAST_ROUNDS = (2, 7), (5, 25)
"""At least and at most: between them time decides."""
PROMISING = 0.98
"""Of the time of the schedule before, at which the walk goes on from a variant."""
KEPT = 0.99
"""Of the default's time, below which the whole 95 % interval has to lie."""
RESAMPLES = 1000
LAST_PART = 0.25
"""Of the budget, for the last measurements."""


@dataclass(frozen=True)
class Trial:
    """What became of one kernel: seconds of all its calls in a run, by medians of the last measurement."""

    kernel: Kernel
    default: str
    schedule: str
    default_seconds: float
    seconds: float
    tried: int

    @property
    def changed(self) -> bool:
        return self.schedule != self.default


@dataclass(frozen=True)
class Outcome:
    """An entry's kernels, those that take the most time first, and seconds before and after: of a whole run by the
    clock (`interval` is the 95 % interval of after over before), and of all kernels together."""

    entry: str
    default_seconds: float
    seconds: float
    interval: tuple[float, float]
    default_work: float
    work: float
    trials: tuple[Trial, ...]
    complete: bool
    """Whether the budget sufficed for every dimension."""


@dataclass(frozen=True)
class Place:
    """What is tuned and where: an entry of an artifact on a target of this machine."""

    artifact: Path
    entry: str
    compiled: CompiledProgram
    threads: int
    cache: Cache | None

    @property
    def target(self) -> CodeTarget:
        return self.compiled.target

    @property
    def choices(self) -> Choices:
        assert self.target.choices is not None, "a target that can be tuned"
        return self.target.choices

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        return self.compiled.program.kernels


class Search:
    """The tuning of one entry: at least one step of the walk, and as many as there is time for.

    `known` are schedules by kernel digest that another entry's search decided: they are used and stay.
    """

    def __init__(self, place: Place, seconds: float, known: Mapping[str, str], progress: Progress) -> None:
        self.place, self.progress = place, progress
        begin = time.perf_counter()
        self.deadline, self.end = begin + seconds * (1 - LAST_PART), begin + seconds
        self.default = list(place.compiled.schedules)
        self.best = [known.get(kernel.digest, text) for kernel, text in zip(place.kernels, self.default, strict=True)]
        self.tried: list[set[str]] = [{text} for text in self.default]
        self.open = {number for number, kernel in enumerate(place.kernels) if kernel.digest not in known}

    def run(self) -> Outcome:
        heavy = self._heavy()
        ahead = {n: list(self.place.choices.dimensions) for n in heavy}
        most = max((len(self._reachable(n)) for n in heavy), default=0)
        for step in range(most):
            now = time.perf_counter()
            if step and now >= self.deadline:
                break
            self.progress(f"tune {self.place.entry}", step, most + 1)
            self._step({n: self._next(n, ahead[n]) for n in heavy}, now + (self.deadline - now) / (most - step))
        self.progress(f"tune {self.place.entry}", most, most + 1)
        complete = not any(self._next(n, ahead[n]) for n in heavy)
        outcome = self._outcome(heavy, complete)
        self.progress(f"tune {self.place.entry}", most + 1, most + 1)
        return outcome

    def _reachable(self, kernel: int) -> list[str]:
        """The dimensions along which a kernel has variants to begin with."""
        return [each for each in self.place.choices.dimensions if self._variants(each, kernel)]

    def _variants(self, dimension: str, kernel: int) -> tuple[str, ...]:
        return self.place.choices.variants(dimension, self.place.kernels[kernel], self.best[kernel])

    def _next(self, kernel: int, ahead: list[str]) -> tuple[str, ...]:
        """The variants along the first of the dimensions ahead that has any; it and those before it are done with."""
        while ahead:
            found = self._variants(ahead.pop(0), kernel)
            if found:
                return found
        return ()

    def _heavy(self) -> list[int]:
        """The kernels that are worth a trial, the longest first."""
        taken = self._measure([self.default], (3, 3), self.deadline)
        seconds = np.median(taken.kernels[0], axis=0)
        longest = np.argsort(-seconds, kind="stable").tolist()
        return [n for n in longest if n in self.open and seconds[n] >= LEAST_SHARE * seconds.sum()]

    def _step(self, options: Mapping[int, Sequence[str]], until: float) -> None:
        """Try variants of every kernel, and go on from those that are faster."""
        kernels = self.place.kernels
        count = max((len(each) for each in options.values()), default=0)
        if not count:
            return
        rows = [list(self.best)]
        for position in range(count):
            rows.append([
                options[n][position] if n in options and position < len(options[n]) else self.best[n]
                for n in range(len(kernels))
            ])  # fmt: skip
        taken = self._measure(rows, WALK_ROUNDS, until)
        for n, found in options.items():
            self.tried[n].update(found)
            ratios = [float(np.median(_ratios(taken, row, n))) for row in range(1, len(found) + 1)]
            if found and min(ratios) < PROMISING:
                self.best[n] = found[ratios.index(min(ratios))]

    def _measure(self, rows: Sequence[Sequence[str]], rounds: tuple[int, int], until: float) -> Samples:
        place, kernels = self.place, self.place.kernels
        wanted = [(place.target, kernel, text) for row in rows for kernel, text in zip(kernels, row, strict=True)]
        objects = compile_kernels(wanted, place.cache, lambda *_: None)
        size = len(kernels)
        variants = tuple(Variant(tuple(row), tuple(objects[n * size : (n + 1) * size])) for n, row in enumerate(rows))
        chosen = (place.artifact, place.entry, place.target.name, place.threads)
        return measured(Request(*chosen, variants, rounds, until - time.perf_counter()))

    def _outcome(self, heavy: Sequence[int], complete: bool) -> Outcome:
        """Fresh samples: first of everything that looked better, then of what has proved so."""
        now = time.perf_counter()
        middle = now + (self.end - now) / 2
        last = self._measure_both(middle)
        while lost := self._lost(last, heavy):
            for n in lost:
                self.best[n] = self.default[n]
            last = self._measure_both(self.end)
        medians = np.median(last.kernels, axis=1)
        trials = [
            Trial(self.place.kernels[n], self.default[n], self.best[n], float(medians[0, n]), float(medians[1, n]),
                  len(self.tried[n]))
            for n in heavy
        ]  # fmt: skip
        before, after = (float(value) for value in np.median(last.runs, axis=1))
        default_work, work = (float(value) for value in medians.sum(axis=1))
        whole = (before, after, _interval(last.runs), default_work, work)
        return Outcome(self.place.entry, *whole, tuple(trials), complete)

    def _lost(self, taken: Samples, heavy: Sequence[int]) -> list[int]:
        """Changed kernels that are not faster beyond noise: what is kept is so in the measurement that is reported."""
        changed = [n for n in heavy if self.best[n] != self.default[n]]
        return [n for n in changed if _interval(taken.kernels[:, :, n])[1] >= KEPT]

    def _measure_both(self, until: float) -> Samples:
        """The default and the best so far; samples of one alone, twice, where they are the same."""
        same = self.best == self.default
        taken = self._measure([self.default] if same else [self.default, self.best], LAST_ROUNDS, until)
        return Samples(taken.runs[[0, -1]], taken.kernels[[0, -1]])


def _ratios(taken: Samples, row: int, kernel: int) -> Array:
    """A variant's time over that of the first row, round by round."""
    return taken.kernels[row, :, kernel] / np.maximum(taken.kernels[0, :, kernel], 1e-12)


def _interval(seconds: Array) -> tuple[float, float]:
    """The 95 % interval of the second row's median over the first's: rounds are resampled in pairs (percentile
    bootstrap, Efron 1979)."""
    drawn = np.random.default_rng(0).integers(0, seconds.shape[1], (RESAMPLES, seconds.shape[1]))
    medians = np.maximum(np.median(seconds[:, drawn], axis=2), 1e-12)
    low, high = np.quantile(medians[1] / medians[0], (0.025, 0.975))
    return float(low), float(high)

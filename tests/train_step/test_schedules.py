"""Schedules against their closed forms at high precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest

from repro.errors import ReproError
from repro.train_step.schedules import Schedule
from tests.train_step.running import arguments, results

ULP = 2.0**-53
CASES = {
    "constant": Schedule(),
    "warm-up": Schedule(warmup_steps=7, warmup_start=0.1),
    "linear": Schedule("linear", total_steps=30),
    "linear to a tenth": Schedule("linear", total_steps=31, end_factor=0.1, warmup_steps=4),
    "cosine": Schedule("cosine", total_steps=30, end_factor=0.01),
    "cosine behind a warm-up": Schedule("cosine", total_steps=40, warmup_steps=9, warmup_start=0.25),
}


def factors(schedule: Schedule, finished: list[int]) -> list[float]:
    (n,) = arguments([np.int64(0)])
    value = schedule.factor(n)
    return [float(results((value,), [np.int64(number)])[0]) for number in finished]


def closed_form(schedule: Schedule, n: int) -> Any:
    if n < schedule.warmup_steps:
        start = mpmath.mpf(schedule.warmup_start)
        return start + (1 - start) * mpmath.mpf(n) / schedule.warmup_steps
    if schedule.total_steps is None:
        return mpmath.mpf(1)
    p = min(mpmath.mpf(n - schedule.warmup_steps) / (schedule.total_steps - schedule.warmup_steps), mpmath.mpf(1))
    end = mpmath.mpf(schedule.end_factor)
    shapes: dict[str, Callable[[Any], Any]] = {
        "linear": lambda p: 1 - p,
        "cosine": lambda p: (1 + mpmath.cos(mpmath.pi * p)) / 2,
    }
    return end + (1 - end) * shapes[schedule.kind](p)


@pytest.mark.parametrize("name", CASES)
def test_factors_are_those_of_the_closed_form(name: str) -> None:
    schedule, steps = CASES[name], [*range(45), 10**12]
    with mpmath.workdps(40):
        for n, found in zip(steps, factors(schedule, steps), strict=True):
            assert abs(found - closed_form(schedule, n)) <= 4 * ULP, n


@pytest.mark.parametrize("name", CASES)
def test_ends_are_exact(name: str) -> None:
    schedule = CASES[name]
    w, total = schedule.warmup_steps, schedule.total_steps
    first, top = factors(schedule, [0, w])
    assert top == 1.0
    assert first == (schedule.warmup_start if w else 1.0)
    if total is not None:
        assert factors(schedule, [total, total + 1]) == [schedule.end_factor] * 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"kind": "step"}, "no schedule of this name"),
        ({"kind": "linear"}, "must know where it ends"),
        ({"kind": "cosine", "total_steps": 5, "warmup_steps": 5}, "must know where it ends"),
        ({"total_steps": 5}, "has no end"),
        ({"warmup_steps": -1}, "warmup_steps is out of range"),
        ({"warmup_start": 1.5}, "warmup_start is out of range"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ReproError, match=said):
        Schedule(**options)

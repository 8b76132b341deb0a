"""How far a long command has come, shown only if it takes longer than a glance."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

SECONDS_UNTIL_SHOWN = 2.0


class DelayedProgress:
    """A function of (stage, done, total) that draws a bar on a terminal once the command has run for two seconds."""

    def __init__(self, console: Console) -> None:
        self._display = Progress(*self.columns(), console=console, transient=True)
        self._stages: dict[str, TaskID] = {}
        self._timer = threading.Timer(SECONDS_UNTIL_SHOWN, self._display.start)
        self._timer.daemon = True

    def columns(self) -> tuple[ProgressColumn | str, ...]:
        return (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())

    def __call__(self, stage: str, done: int, total: int) -> None:
        if stage not in self._stages:
            self._stages[stage] = self._display.add_task(stage, total=total)
        self._display.update(self._stages[stage], completed=done, total=total)

    def __enter__(self) -> Self:
        if self._display.console.is_terminal:
            self._timer.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._timer.cancel()
        if self._timer.ident is not None:
            self._timer.join()
        if self._display.live.is_started:
            self._display.stop()


class _StepsPerSecond(ProgressColumn):
    """How many steps a second makes."""

    def render(self, task: Task) -> Text:
        return Text("" if task.speed is None else f"{task.speed:.1f} steps/s")


class TrainingProgress(DelayedProgress):
    """Steps of a training: the loss, steps per second, and the time that is left."""

    def columns(self) -> tuple[ProgressColumn | str, ...]:
        details = (TextColumn("{task.fields[note]}"), _StepsPerSecond(), TimeRemainingColumn())
        return (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), *details)

    def step(self, done: int, total: int, note: str) -> None:
        """A finished step, and what to say of it."""
        if "train" not in self._stages:
            self._stages["train"] = self._display.add_task("train", total=total, completed=done - 1, note=note)
        self._display.update(self._stages["train"], completed=done, note=note)

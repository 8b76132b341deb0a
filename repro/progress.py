"""How far a long command has come, shown only if it takes longer than a glance."""

from __future__ import annotations

import threading
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

SECONDS_UNTIL_SHOWN = 2.0


class DelayedProgress:
    """A function of (stage, done, total) that draws a bar once the command has run for two seconds."""

    def __init__(self, console: Console) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._display = Progress(*columns, console=console, transient=True)
        self._stages: dict[str, TaskID] = {}
        self._timer = threading.Timer(SECONDS_UNTIL_SHOWN, self._display.start)
        self._timer.daemon = True

    def __call__(self, stage: str, done: int, total: int) -> None:
        if stage not in self._stages:
            self._stages[stage] = self._display.add_task(stage, total=total)
        self._display.update(self._stages[stage], completed=done, total=total)

    def __enter__(self) -> DelayedProgress:
        self._timer.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._timer.cancel()
        self._timer.join()
        if self._display.live.is_started:
            self._display.stop()

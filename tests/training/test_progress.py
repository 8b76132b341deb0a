"""What a terminal shows of a training."""

from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from repro import progress


def test_a_training_shows_steps_loss_and_speed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(progress, "SECONDS_UNTIL_SHOWN", 0.0)
    screen = io.StringIO()
    with progress.TrainingProgress(Console(file=screen, force_terminal=True, width=120)) as shown:
        while not shown._display.live.is_started:
            time.sleep(0.001)
        for step in range(21, 61):
            shown.step(step, 100, f"loss {1 / step:.4f}")
    assert "60/100" in screen.getvalue()
    assert "loss 0.0167" in screen.getvalue()
    assert "steps/s" in screen.getvalue()


def test_a_short_one_shows_nothing():
    screen = io.StringIO()
    with progress.TrainingProgress(Console(file=screen, force_terminal=True, width=120)) as shown:
        shown.step(1, 1, "loss 1")
    assert "loss" not in screen.getvalue()


def test_what_is_no_terminal_gets_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(progress, "SECONDS_UNTIL_SHOWN", 0.0)
    screen = io.StringIO()
    with progress.TrainingProgress(Console(file=screen, width=120)) as shown:
        time.sleep(0.05)
        shown.step(1, 1, "loss 1")
    assert not screen.getvalue()

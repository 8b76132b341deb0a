from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys

import pytest

from repro.artifact import workers


def square(number: int) -> tuple[int, int]:
    if number == 13:
        raise ValueError("thirteen")
    return number * number, os.getpid()


@pytest.fixture(autouse=True)
def as_in_a_build(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker for few jobs (conftest.py has none)."""
    monkeypatch.setattr(workers, "JOBS_PER_WORKER", 20)


@pytest.mark.parametrize("count", [0, 1, 40])
def test_results_keep_their_order(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "cores", lambda: 2)
    seen: list[int] = []
    results = workers.parallel_map("tests.artifact.test_workers:square", [(n + 20,) for n in range(count)], seen.append)
    assert [value for value, _ in results] == [(n + 20) ** 2 for n in range(count)]
    assert seen == list(range(1, count + 1))
    processes = {process for _, process in results}
    assert (os.getpid() not in processes) if count == 40 else processes <= {os.getpid()}


def test_an_exception_in_a_worker_is_raised_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "cores", lambda: 2)
    with pytest.raises(ValueError, match="thirteen"):
        workers.parallel_map("tests.artifact.test_workers:square", [(n,) for n in range(40)], lambda _: None)


def test_a_dead_worker_is_an_internal_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "cores", lambda: 2)
    with pytest.raises(Exception, match="ended early"):
        workers.parallel_map("os:_exit", [(3,)] * 40, lambda _: None)


def test_without_workers_the_caller_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "cores", lambda: 2)
    monkeypatch.setattr("sys.executable", __file__)  # no program
    results = workers.parallel_map("tests.artifact.test_workers:square", [(n + 20,) for n in range(40)], lambda _: None)
    assert results == [((n + 20) ** 2, os.getpid()) for n in range(40)]


def interruptible() -> bool:
    return signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_an_interrupt_is_for_the_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    """From a worker's first instruction on, and of this process no thread but the workers' own is deaf to it."""
    monkeypatch.setattr(workers, "cores", lambda: 2)
    assert not any(workers.parallel_map("tests.artifact.test_workers:interruptible", [()] * 40, lambda _: None))
    assert interruptible()


def test_a_worker_that_nobody_waits_for_ends_quietly() -> None:
    command = [sys.executable, "-c", workers._START, json.dumps(sys.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        assert worker.stderr is not None
        worker.stdout.close()
        worker.stdin.write(pickle.dumps(("math:sqrt", (4.0,))))
        worker.stdin.close()
        assert worker.stderr.read() == b""

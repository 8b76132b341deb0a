"""A function over many jobs, on several processes: llvmlite holds one lock, so threads would not help.

Workers are plain child processes that import only what the function needs. (multiprocessing would import the
user's main module again, or fork a process that has threads.)
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, BinaryIO

from repro.errors import InternalError

JOBS_PER_WORKER = 20
"""Starting a worker takes about as long as this many compilations: 0.8 s, and of a small model's kernels 15 to 35 ms
each."""

_START = "import json,sys; sys.path[:]=json.loads(sys.argv[1]); from repro.artifact.workers import serve; serve()"


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def apply(name: str, job: tuple[Any, ...]) -> Any:
    """Call a function named as `module:function`."""
    module, _, function = name.partition(":")
    return getattr(import_module(module), function)(*job)


def parallel_map(name: str, jobs: Sequence[tuple[Any, ...]], done: Callable[[int], None]) -> list[Any]:
    """Results of `module:function` for each job, in order; `done` is told how many are ready.

    An exception in a worker is raised here.
    """
    count = min(cores(), len(jobs) // JOBS_PER_WORKER)
    if count < 2 or not sys.executable:
        results: list[Any] = []
        for job in jobs:
            results.append(apply(name, job))
            done(len(results))
        return results
    return _Pool(name, jobs, done).run(count)


class _Pool:
    """One thread per worker process, taking jobs from one list."""

    def __init__(self, name: str, jobs: Sequence[tuple[Any, ...]], done: Callable[[int], None]) -> None:
        self.name, self.jobs, self.done = name, jobs, done
        self.results: list[Any] = [None] * len(jobs)
        self.lock = threading.Lock()
        self.next = 0
        self.ready = 0
        self.error: BaseException | None = None

    def run(self, count: int) -> list[Any]:
        threads = [threading.Thread(target=self._drive, daemon=True) for _ in range(count)]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except BaseException as error:
            self.error = error  # tells the threads to stop, so that Ctrl-C ends the workers too
            raise
        if self.error is not None:
            raise self.error
        while (position := self._take()) is not None:  # no worker could be started: do it here
            self._finish(position, (True, apply(self.name, self.jobs[position])))
        return self.results

    def _take(self) -> int | None:
        with self.lock:
            if self.error is not None or self.next >= len(self.jobs):
                return None
            self.next += 1
            return self.next - 1

    def _drive(self) -> None:
        command = [sys.executable, "-c", _START, json.dumps(sys.path)]
        # Ctrl-C is for the parent, which then closes a worker's stdin. The worker inherits what this thread blocks.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        except OSError:  # an interpreter that this system cannot start by itself, as under qemu-user
            return
        try:
            with worker:
                assert worker.stdin is not None
                assert worker.stdout is not None
                while (position := self._take()) is not None:
                    self._finish(position, _ask(worker.stdin, worker.stdout, self.name, self.jobs[position]))
        except (OSError, EOFError, pickle.PickleError) as error:
            self._fail(InternalError(f"a compile worker ended early: {error}"))
        except Exception as error:  # raised in the main thread by run
            self._fail(error)

    def _finish(self, position: int, result: tuple[bool, Any]) -> None:
        good, value = result
        if not good:
            raise value
        with self.lock:
            self.results[position] = value
            self.ready += 1
            self.done(self.ready)

    def _fail(self, error: BaseException) -> None:
        with self.lock:
            self.error = self.error or error


def _ask(to: BinaryIO | Any, back: BinaryIO | Any, name: str, job: tuple[Any, ...]) -> tuple[bool, Any]:
    pickle.dump((name, job), to)
    to.flush()
    return pickle.load(back)


def serve() -> None:
    """A worker: jobs in on stdin, results out on stdout, until stdin ends."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what anything prints goes to stderr, not between the results
    while True:
        try:
            name, job = pickle.load(sys.stdin.buffer)
        except (EOFError, pickle.UnpicklingError):  # the parent has ended, perhaps within a job's text
            return
        try:
            result: tuple[bool, Any] = (True, apply(name, job))
        except Exception as error:  # travels back to the caller
            result = (False, error)
        try:
            pickle.dump(result, out)
            out.flush()
        except BrokenPipeError:  # nobody waits for it any more
            os._exit(1)

"""Threads that stay: each enters a program's code when asked, and tells when it has left."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

Part = Callable[[int], int]
"""A thread's part of a run, by its number; gives the status of `repro.targets.llvm.context`."""


class ThreadPool:
    """`threads` daemon threads. They sleep between runs and end with `close`."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._jobs: list[queue.SimpleQueue[Part | None]] = [queue.SimpleQueue() for _ in range(threads)]
        self._done: queue.SimpleQueue[int | BaseException] = queue.SimpleQueue()
        for number in range(threads):
            threading.Thread(target=self._work, args=(number,), daemon=True, name=f"repro-{number}").start()

    def _work(self, number: int) -> None:
        while (part := self._jobs[number].get()) is not None:
            try:
                self._done.put(part(number))
            except Exception as error:  # noqa: BLE001 - raised again in the caller's thread
                self._done.put(error)

    def run(self, part: Part, interrupt: Callable[[], None]) -> list[int]:
        """Every thread's status. Ctrl-C calls `interrupt`, waits until all threads have left, and goes on up."""
        for jobs in self._jobs:
            jobs.put(part)
        results: list[int | BaseException] = []
        try:
            self._collect(results)
        except KeyboardInterrupt:
            interrupt()
            self._collect(results)
            raise
        statuses = [result for result in results if isinstance(result, int)]
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return statuses

    def _collect(self, results: list[int | BaseException]) -> None:
        while len(results) < self.threads:
            results.append(self._done.get())

    def close(self) -> None:
        for jobs in self._jobs:
            jobs.put(None)

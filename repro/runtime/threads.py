"""A pool of threads that enter native code together, and can be stopped."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import SimpleQueue

from repro.errors import ReproError


def other_process() -> ReproError:
    found = "this process was forked from the one that opened it, and has none of its threads"
    return ReproError("the session is another process's", found=found, next="open a session in each process")


class Pool:
    """`threads` workers; `run` gives each its number and waits. The caller stays out of native code, so that
    it can still take a Ctrl-C; it then calls `stop` and waits for the workers to notice."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._process = os.getpid()
        self._jobs: list[SimpleQueue[Callable[[int], None] | None]] = [SimpleQueue() for _ in range(threads)]
        self._done: SimpleQueue[BaseException | None] = SimpleQueue()
        self._workers = [threading.Thread(target=self._work, args=(n,), daemon=True) for n in range(threads)]
        for worker in self._workers:
            worker.start()

    def _work(self, number: int) -> None:
        processors = sorted(os.sched_getaffinity(0))
        if len(processors) == self.threads:  # else two might wake on one of them, and each wait there for the other
            os.sched_setaffinity(0, {processors[number]})
        while (job := self._jobs[number].get()) is not None:
            try:
                job(number)
                self._done.put(None)
            except BaseException as error:  # handed to the caller of run
                self._done.put(error)
            del job  # which holds what it runs: that may be forgotten while this waits

    def run(self, job: Callable[[int], None], stop: Callable[[], None]) -> None:
        """Every worker runs `job(number)`. Raises what one of them raised, and ReproError in a forked process."""
        if os.getpid() != self._process:
            raise other_process()
        for queue in self._jobs:
            queue.put(job)
        left, failure = self.threads, None
        while left:
            try:
                failure = self._done.get() or failure
                left -= 1
            except KeyboardInterrupt as interrupt:
                failure = interrupt
                stop()
        if failure is not None:
            raise failure

    def close(self) -> None:
        for queue in self._jobs:
            queue.put(None)

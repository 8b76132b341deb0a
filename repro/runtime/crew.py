"""Threads that run a short program together with their caller, who is one of them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading

import numpy as np

from repro.errors import InternalError
from repro.ir.types import Array
from repro.runtime.threads import other_process
from repro.targets.cpu import Code, CrewFunction, best_machine, crew_function
from repro.targets.llvm.crew import END, LEAD, SERVE, SLOT_BYTES

_C = ctypes.CDLL(None)


def _serve(native: CrewFunction, slots: Array, words: tuple[int, ...]) -> None:
    """A thread's life; it holds the slots, at which it looks until the very end."""
    native.call(*words)


class Crew:
    """`threads` of them with the caller. A run cannot be interrupted: it is for programs that end before anybody could
    miss Ctrl-C. Between runs the others wait in native code (llvm/crew.py)."""

    def __init__(self, context: int, threads: int) -> None:
        """`context`: the address of what the program's threads share."""
        machine = best_machine()
        if machine is None:
            raise InternalError("no machine of this host's to run on")
        self._native, self._process = crew_function(machine), os.getpid()
        raw = np.zeros((threads + 1) * SLOT_BYTES, np.uint8)
        self._slots = raw[-raw.ctypes.data % SLOT_BYTES :]
        self._slots_address = self._slots.ctypes.data
        self._context, self._threads = context, threads
        self._others: list[threading.Thread] = []
        for number in range(1, threads):
            life = (self._native, self._slots, (SERVE, *self._operands(None), number, threads))
            self._others.append(threading.Thread(target=_serve, args=life, name=f"repro-crew-{number}", daemon=True))
            self._others[-1].start()
        self._processors, self._here = os.sched_getaffinity(0), -1

    def _operands(self, code: int | None) -> tuple[int, int | None, int]:
        """Slots, the address of the code to be run, and what its threads share."""
        return self._slots_address, code, self._context

    def run(self, code: Code) -> None:
        """One run of a program's code. Raises ReproError in a forked process."""
        if os.getpid() != self._process:
            raise other_process()
        if len(self._processors) == self._threads:
            self._keep_apart()
        self._native.call(LEAD, *self._operands(code.address), 0, self._threads)

    def _keep_apart(self) -> None:
        """Each thread has a processor of its own beside the caller's: one that wakes on the caller's would wait for it
        and it for that one, as on hosts where other libraries' threads spin on the rest."""
        here = _C.sched_getcpu()
        if here != self._here and here in self._processors:
            for other, processor in zip(self._others, sorted(self._processors - {here}), strict=True):
                if other.native_id is not None:
                    with contextlib.suppress(OSError):  # processors may have been taken away since
                        os.sched_setaffinity(other.native_id, {processor})
            self._here = here

    def close(self) -> None:
        """The others leave; the crew does not run again."""
        if os.getpid() == self._process:
            self._native.call(END, *self._operands(None), 0, self._threads)

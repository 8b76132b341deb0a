"""Threads that run a short program together with their caller, who is one of them."""

from __future__ import annotations

import os
import threading

import numpy as np

from repro.errors import InternalError
from repro.ir.types import Array
from repro.runtime.threads import other_process
from repro.targets.cpu import Code, CrewFunction, best_machine, crew_function
from repro.targets.llvm.crew import END, LEAD, SERVE, SLOT_BYTES


def _serve(native: CrewFunction, slots: Array, words: tuple[int, ...]) -> None:
    """A thread's life; it holds the slots, at which it looks until the very end."""
    native.call(*words)


class Crew:
    """`threads` of them with the caller. A run cannot be interrupted: it is for programs that end before anybody could
    miss Ctrl-C. Between runs the others wait in native code (llvm/crew.py)."""

    def __init__(self, code: Code, context: int, threads: int) -> None:
        """`context`: the address of what the program's threads share."""
        machine = best_machine()
        if machine is None:
            raise InternalError("no machine of this host's to run on")
        self._native, self._process = crew_function(machine), os.getpid()
        raw = np.zeros((threads + 1) * SLOT_BYTES, np.uint8)
        self._slots = raw[-raw.ctypes.data % SLOT_BYTES :]
        self._program, self._threads = (self._slots.ctypes.data, code.address, context), threads
        for number in range(1, threads):
            words = (SERVE, *self._program, number, threads)
            life = (self._native, self._slots, words)
            threading.Thread(target=_serve, args=life, name=f"repro-crew-{number}", daemon=True).start()

    def run(self) -> None:
        """One run of the program. Raises ReproError in a forked process."""
        if os.getpid() != self._process:
            raise other_process()
        self._native.call(LEAD, *self._program, 0, self._threads)

    def close(self) -> None:
        """The others leave; the crew does not run again."""
        if os.getpid() == self._process:
            self._native.call(END, *self._program, 0, self._threads)

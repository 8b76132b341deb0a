"""Running a compiled program on this host's CPU, again and again, with state between runs."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence

import numpy as np

from repro.errors import InternalError
from repro.ir.program import Program
from repro.ir.types import Array
from repro.ir.work import program_operations
from repro.machines.machine import whole_lines
from repro.runtime.buffers import Buffers, aligned
from repro.runtime.crew import Crew
from repro.runtime.threads import Pool
from repro.targets.cpu import Code
from repro.targets.llvm.context import (
    BUFFERS,
    CONTEXT_BYTES,
    FEATURES,
    ONCE,
    PROFILE,
    SCRATCH,
    SCRATCH_STRIDE,
    STOP,
)
from repro.targets.llvm.pieces import TAKEN_BYTES
from repro.targets.llvm.steps import OPERATIONS_BETWEEN_STOPS


class CpuExecutable:
    """A program with its code, buffers and threads. `run` takes and gives flat storage arrays."""

    def __init__(
        self,
        program: Program,
        code: Code,
        threads: int,
        profile: Array | None = None,
        instructions: int | None = None,
        features: int = 0,
    ) -> None:
        """`profile` is where the code of a profiled program counts its nanoseconds, u64 [calls + 1, threads];
        `instructions` what a run comes to at most (ir/work.py), its scalar operations where that is not given;
        `features` what the host has beyond the machine that the code is for (targets/llvm/context.py)."""
        if threads < 1:
            raise InternalError(f"{threads} threads")
        self.program, self.code, self.threads = program, code, threads
        self.buffers = Buffers(program)
        stride = max(whole_lines(code.scratch), TAKEN_BYTES)
        self._scratch = aligned(stride * threads)
        self._scratch.reshape(threads, -1)[:, :TAKEN_BYTES] = 0
        self._context = aligned(CONTEXT_BYTES)
        self._context[:] = 0
        self._told = self._context[:BUFFERS]
        """What threads tell each other in one run."""
        self._alone = ctypes.c_void_p(self._context.ctypes.data), ctypes.c_int64(0), ctypes.c_int64(threads)
        """What the code is given where nobody but the caller runs it."""
        for offset, value in ((BUFFERS, self.buffers.addresses.ctypes.data), (SCRATCH, self._scratch.ctypes.data)):
            self._context[offset : offset + 8].view(np.uint64)[0] = value
        self._context[SCRATCH_STRIDE : SCRATCH_STRIDE + 8].view(np.int64)[0] = stride
        self._context[FEATURES : FEATURES + 8].view(np.int64)[0] = features
        self._profile = profile
        if profile is not None:
            self._context[PROFILE : PROFILE + 8].view(np.uint64)[0] = profile.ctypes.data
        work = program_operations(program) if instructions is None else instructions
        self._inline = work <= threads * OPERATIONS_BETWEEN_STOPS
        """Such a run ends before anybody could miss Ctrl-C: the caller's thread is one of those that run it."""
        self._crew = Crew(self._context.ctypes.data, threads) if self._inline and threads > 1 else None
        self._pool = Pool(0 if self._inline else threads)
        for others in (self._crew, self._pool):
            if others is not None:
                weakref.finalize(self, others.close).atexit = False  # a forgotten executable ends its threads

    def bind_parameter(self, position: int, value: Array) -> None:
        """Read a parameter from an array that nobody will change; it is not copied if it lies as code needs it."""
        self.buffers.bind_parameter(position, value)

    def set_parameter(self, position: int, value: Array) -> None:
        self.buffers.set_parameter(position, value)

    def parameter(self, position: int) -> Array | None:
        """A parameter as it lies in memory: a view, to be read before the next run."""
        return self.buffers.parameter(position)

    def prepare(self) -> None:
        """Make what is made of parameters and constants alone, where that is not done or one of them was given a value
        since; a run does it too."""
        if not self.buffers.stale:
            return
        number = self._context[ONCE : ONCE + 8].view(np.int64)
        try:
            for position in range(len(self.program.once)):
                number[0] = position + 1
                self.buffers.begin(position)
                self._enter()
                self.buffers.end(position)
        finally:
            number[0] = 0
        self.buffers.stale = False

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """One run: inputs by position, outputs in arrays of their own; the commit changes state where it lies."""
        self.prepare()
        for position, value in enumerate(inputs):
            self.buffers.bind_input(position, value)
        outputs = self.buffers.fresh_outputs()
        self.buffers.check()
        try:
            self._enter()
        finally:
            self.buffers.let_go()
        return outputs

    def _enter(self) -> None:
        self._told.fill(0)
        if self._crew is not None:
            self._crew.run(self.code)
        elif self._inline:
            self.code.enter(*self._alone)
        else:
            self._pool.run(self._thread, self._stop)

    def _thread(self, thread: int) -> None:
        self.code.enter(self._alone[0], thread, self.threads)

    def _stop(self) -> None:
        self._context[STOP : STOP + 4].view(np.int32)[0] = 1

    def close(self) -> None:
        for others in (self._crew, self._pool):
            if others is not None:
                others.close()

"""A session: one program's buffers and state, and the runs on them."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

import numpy as np

from repro.errors import InternalError, ReproError
from repro.ir import program as ir
from repro.ir.program import INPUT, OUTPUT, PARAMETER, Branch, Buffer, Call, CountedLoop, Program, Step, While
from repro.ir.types import Array, to_face, to_storage
from repro.runtime.memory import aligned, aligned_array, aligned_bytes
from repro.runtime.threads import ThreadPool
from repro.targets.base import Code
from repro.targets.llvm import context
from repro.targets.llvm.work import operations

_SHORT = 1 << 28
"""Operations up to which a run may stay in the caller's thread: it ends before anybody could miss Ctrl-C."""


class Session:
    """Runs a loaded program on NumPy arrays, given and returned by position.

    `parameters` are the initial values, one per parameter position. A program with `updates` changes them
    after each run; `state` reads and `set_parameter` writes them. `scratch_bytes` is what `cpu.scratch` says.
    Runs of one session follow one another; sessions are independent of each other.
    """

    def __init__(
        self, program: Program, code: Code, scratch_bytes: int, parameters: Sequence[Array] = (), threads: int = 1
    ) -> None:
        if threads < 1:
            raise ReproError("a session needs a thread", found=f"threads={threads}", expected="1 or more")
        self.program, self.code, self.threads = program, code, threads
        self._roles = {role: _by_position(program, role) for role in (INPUT, OUTPUT, PARAMETER)}
        self._arena = aligned_bytes(program.arena_bytes)
        self._constants = [aligned(np.frombuffer(data, np.uint8)) for data in program.constants]
        self._parameters: dict[int, Array] = {}
        for position in self._roles[PARAMETER]:
            if position >= len(parameters):
                raise ReproError(f"parameter {position} has no value", found=f"{len(parameters)} values")
            self.set_parameter(position, parameters[position])
        self._scratch = [aligned_bytes(scratch_bytes) for _ in range(threads)]
        self._scratch_table = np.array([one.ctypes.data for one in self._scratch], np.uint64)
        self._context = aligned_bytes(context.CONTEXT_BYTES)
        self._lock = threading.Lock()
        self._pool: ThreadPool | None = None
        self._inline = threads == 1 and _operations(program) <= _SHORT

    # state ──────────────────────────────────────────────────────────────────────────────────────────

    @property
    def state(self) -> list[Array]:
        """Copies of the parameters, flat, by position."""
        pairs = sorted(self._parameters.items())
        return [to_face(array.copy(), self._roles[PARAMETER][position].dtype) for position, array in pairs]

    def set_parameter(self, position: int, value: Array) -> None:
        """Copies the value in."""
        buffer = self._roles[PARAMETER][position]
        mine = aligned_array(buffer.dtype, buffer.elements)
        mine[...] = _stored(value, buffer)
        self._parameters[position] = mine

    # runs ───────────────────────────────────────────────────────────────────────────────────────────

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """The outputs, flat, by position; parameters with updates have their new values afterwards.

        Raises ReproError where an input's element type or size is another than the program's, and
        KeyboardInterrupt once all threads have left.
        """
        wanted = self._roles[INPUT]
        if len(inputs) < len(wanted):
            raise ReproError("inputs are missing", found=str(len(inputs)), expected=str(len(wanted)))
        given = {position: aligned(_stored(inputs[position], buffer)) for position, buffer in wanted.items()}
        outputs = {position: aligned_array(b.dtype, b.elements) for position, b in self._roles[OUTPUT].items()}
        with self._lock:
            self._enter(given, outputs)
            for parameter, output in self.program.updates:
                self._parameters[parameter][...] = outputs[output]
        return [to_face(array, self._roles[OUTPUT][position].dtype) for position, array in sorted(outputs.items())]

    def _enter(self, inputs: Mapping[int, Array], outputs: Mapping[int, Array]) -> None:
        table = np.array([self._address(buffer, inputs, outputs) for buffer in self.program.buffers], np.uint64)
        self._context[...] = 0
        pointers = self._context.view(np.uint64)
        pointers[context.BUFFERS // 8] = table.ctypes.data
        pointers[context.SCRATCH // 8] = self._scratch_table.ctypes.data
        address, threads = self._context.ctypes.data, self.threads
        if self._inline:
            statuses = [self.code.enter(address, 0, 1)]
        else:
            self._pool = self._pool or ThreadPool(threads)
            statuses = self._pool.run(lambda thread: self.code.enter(address, thread, threads), self._stop)
        if any(status != context.FINISHED for status in statuses):
            raise InternalError(f"a run ended with status {statuses}")

    def _stop(self) -> None:
        self._context[context.STOP] = 1

    def _address(self, buffer: Buffer, inputs: Mapping[int, Array], outputs: Mapping[int, Array]) -> int:
        match buffer.role:
            case ir.TEMPORARY:
                return self._arena.ctypes.data + buffer.position
            case ir.CONSTANT:
                return self._constants[buffer.position].ctypes.data
            case ir.PARAMETER:
                return self._parameters[buffer.position].ctypes.data
            case ir.INPUT:
                return inputs[buffer.position].ctypes.data
            case ir.OUTPUT:
                return outputs[buffer.position].ctypes.data
            case other:
                raise InternalError(f"a buffer in the role '{other}'")

    def close(self) -> None:
        """Ends the session's threads."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def __del__(self) -> None:
        if getattr(self, "_pool", None) is not None:
            self.close()


def _by_position(program: Program, role: str) -> dict[int, Buffer]:
    return {buffer.position: buffer for buffer in program.buffers if buffer.role == role}


def _stored(array: Array, buffer: Buffer) -> Array:
    """Flat storage of a user's array, of the buffer's type and size."""
    dtype = buffer.dtype
    if array.dtype not in (dtype.face, dtype.storage) or array.size != buffer.elements:
        found, expected = f"{array.size} of {array.dtype}", f"{buffer.elements} of {dtype}"
        raise ReproError(f"{buffer.role} {buffer.position} does not fit", found=found, expected=expected)
    stored = array if array.dtype == dtype.storage else to_storage(array, dtype)
    return np.ascontiguousarray(stored).reshape(-1)


def _operations(program: Program) -> int:
    """Scalar operations of a whole run, loops at their limits."""
    costs = [operations(kernel) for kernel in program.kernels]

    def total(steps: Sequence[Step]) -> int:
        return sum(cost(step) for step in steps)

    def cost(step: Step) -> int:
        match step:
            case Call():
                return costs[step.kernel]
            case CountedLoop():
                return step.count * total(step.body)
            case While():
                return step.limit * total(step.body)
            case Branch():
                return max(total(step.then), total(step.otherwise))

    return total(program.steps)

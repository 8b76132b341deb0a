"""A program whose kernels are PTX, run by the interpreter: what the device's runtime does, without a device."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from repro.errors import InternalError
from repro.ir.program import (
    INPUT,
    OUTPUT,
    PARAMETER,
    PREPARED,
    Branch,
    Buffer,
    Call,
    Commit,
    CountedLoop,
    Program,
    RowBlocks,
    Step,
    While,
)
from repro.ir.types import Array
from repro.numerics.host_mode import exact_arithmetic
from repro.targets.gpu.interpreter.grid import launch
from repro.targets.gpu.interpreter.memory import FaultError, Window
from repro.targets.gpu.launch import GpuKernel
from repro.targets.gpu.steps import calls_of

_PATTERN = 0xA5
"""What memory holds before anything is written to it."""


class InterpretedExecutable:
    """A program with its kernels' code and its parameters. What a run writes nobody else holds."""

    def __init__(self, program: Program, kernels: Sequence[GpuKernel], parameters: Sequence[Array]) -> None:
        self.program, self.kernels = program, tuple(kernels)
        self._parameters: dict[int, Array] = {}
        for position, value in enumerate(parameters):
            self._parameters[position] = value.copy() if position in program.written else value
        self._prepared: dict[int, Window] = {}
        """What is made of parameters and constants alone, by its buffer, since it was last made."""

    def set_parameter(self, position: int, value: Array) -> None:
        self._parameters[position] = value.reshape(-1).copy()
        self._prepared = {}

    def parameter(self, position: int) -> Array | None:
        return self._parameters.get(position)

    def close(self) -> None:
        """Nothing is held."""

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        with exact_arithmetic():
            this = _Pass(self.program, self.kernels, inputs, self._parameters, self._prepared)
            self._prepared = this.prepared()
            return this.outputs()


class _Pass:
    """One run: a window for each buffer, and the walk through the program's steps."""

    def __init__(
        self,
        program: Program,
        kernels: Sequence[GpuKernel],
        inputs: Sequence[Array],
        parameters: dict[int, Array],
        prepared: dict[int, Window],
    ) -> None:
        self.program, self.kernels, self._prepared = program, kernels, prepared
        self._blocks = calls_of(program)
        self._arena = np.full(program.arena_bytes, _PATTERN, np.uint8)
        self._known = np.zeros(program.arena_bytes, np.uint8)
        self._given = {INPUT: dict(enumerate(inputs)), PARAMETER: parameters}
        self._windows = [self._window(number, buffer) for number, buffer in enumerate(program.buffers)]
        most = max((kernel.workspace_bytes for kernel in kernels), default=0)
        self._workspace = np.full(most, _PATTERN, np.uint8)

    def _window(self, number: int, buffer: Buffer) -> Window:
        name = f"b{number}"
        match buffer.role:
            case "input" | "parameter":
                array = self._given[buffer.role].get(buffer.position)
                if array is None:
                    raise InternalError(f"{buffer.role} {buffer.position} has no value")
                data = np.ascontiguousarray(array.reshape(-1))
                if data.nbytes != buffer.nbytes:
                    raise InternalError(f"{buffer.role} {buffer.position} has {data.nbytes} bytes, not {buffer.nbytes}")
                writable = buffer.role == PARAMETER and buffer.position in self.program.written
                return Window(name, data.view(np.uint8), writable=writable)
            case "constant":
                return Window(name, np.frombuffer(self.program.constants[buffer.position], np.uint8), writable=False)
            case "prepared" if number in self._prepared:
                return self._prepared[number]
            case "temporary":
                place = slice(buffer.position, buffer.position + buffer.nbytes)
                return Window(name, self._arena[place], self._known[place])
            case _:
                return Window(name, np.full(buffer.nbytes, _PATTERN, np.uint8), np.zeros(buffer.nbytes, np.uint8))

    def prepared(self) -> dict[int, Window]:
        """What is made of parameters and constants alone: made, if it was not given, and not to be written again."""
        if self._prepared:
            return self._prepared
        self._steps(self.program.once, [])
        for number, buffer in enumerate(self.program.buffers):
            if buffer.role == PREPARED:
                made = self._windows[number]
                self._windows[number] = Window(made.name, made.data, made.known, writable=False)
        return {n: self._windows[n] for n, buffer in enumerate(self.program.buffers) if buffer.role == PREPARED}

    def outputs(self) -> list[Array]:
        """The outputs, flat. Raises FaultError where one has an element that nothing wrote."""
        self._steps(self.program.steps, [])
        found: dict[int, Array] = {}
        for window, buffer in zip(self._windows, self.program.buffers, strict=True):
            if buffer.role != OUTPUT:
                continue
            if window.known is not None and not window.known.all():
                raise FaultError(f"byte {int(window.known.argmin())} of output {buffer.position} was never written")
            found[buffer.position] = window.data.view(buffer.dtype.storage)
        return [found[position] for position in range(len(found))]

    def _steps(self, steps: Sequence[Step], counters: list[int]) -> None:
        for step in steps:
            match step:
                case Call():
                    self._call(step, counters)
                case CountedLoop():
                    for at in range(step.count):
                        self._steps(step.body, [*counters, at])
                case While():
                    at = 0
                    while at < step.limit and self._true(step.condition):
                        self._steps(step.body, [*counters, at])
                        at += 1
                case Branch():
                    self._steps(step.then if self._true(step.condition) else step.otherwise, counters)
                case RowBlocks():
                    self._call(self._blocks[step], counters)
                case Commit():
                    if step.refused is None or not self._true(step.refused):
                        self._steps(step.body, counters)

    def _true(self, number: int) -> bool:
        """Element 0 of a bool buffer."""
        window = self._windows[number]
        if window.known is not None and not window.known[0]:
            raise FaultError(f"the condition {window.name} was never written")
        return bool(window.data[0])

    def _call(self, call: Call, counters: Sequence[int]) -> None:
        kernel = self.kernels[call.kernel]
        arguments: list[Window | int] = [self._windows[number] for number in call.buffers]
        arguments += [counters[depth] for depth in call.scalars]
        if kernel.workspace_bytes:
            space = self._workspace[: kernel.workspace_bytes]
            arguments.append(Window("workspace", space, np.zeros(space.size, np.uint8)))
        for each in kernel.launches:
            launch(kernel.ptx, each, arguments)

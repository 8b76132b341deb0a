"""Programs that take their own time: what each kernel takes where it stands, by one or several sets of schedules."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np

from repro.ir.parse_program import parse_schedule
from repro.ir.program import Branch, Call, Commit, Program, RowBlocks, Step, While, walk
from repro.ir.program import CountedLoop as Loop
from repro.ir.types import Array
from repro.ir.work import program_instructions
from repro.machines import Machine
from repro.runtime.session import CpuExecutable
from repro.targets.cpu import code, host


@dataclass(frozen=True)
class Variant:
    """A schedule for each kernel of a program, and the kernels' code by them."""

    schedules: tuple[str, ...]
    kernel_objects: tuple[bytes, ...]


@dataclass(frozen=True)
class Run:
    """What a run took: seconds in all, and by kernel, of all its calls, the time of its own that the slowest thread
    spent in each."""

    seconds: float
    kernels: tuple[float, ...]
    outputs: tuple[Array, ...]


class Counted:
    """A program by several variants over one set of buffers; every run starts from the same state."""

    def __init__(
        self, program: Program, variants: Sequence[Variant], parameters: Sequence[Array], machine: Machine, threads: int
    ) -> None:
        self.program = program
        self._calls = [step.kernel for step in walk(program.steps) if isinstance(step, Call)]
        self._times = np.zeros((len(self._calls) + 1, threads), np.uint64)
        self._codes: list[code.Code] = []
        work = 0
        for each in variants:
            schedules = [parse_schedule(text) for text in each.schedules]
            counting = code.compile_program(program, schedules, machine, profile=True)
            self._codes.append(code.Code((*each.kernel_objects, counting)))
            work = max(work, program_instructions(program, schedules))
        largest = max(self._codes, key=lambda each: each.scratch)
        self._executable = CpuExecutable(program, largest, threads, self._times, work, host.features(machine))
        for position, value in enumerate(parameters):
            self._executable.bind_parameter(position, value)
        self._initial = [(position, parameters[position]) for position in sorted(program.written)]

    @property
    def counts(self) -> list[int]:
        """How often each kernel is called (both sides of a branch; a while loop's body once, since nobody knows)."""
        found = [0] * len(self.program.kernels)
        for kernel, times in _repeats(self.program.steps, 1):
            found[kernel] += times
        return found

    def run(self, variant: int, inputs: Sequence[Array]) -> Run:
        for position, value in self._initial:
            current = self._executable.parameter(position)
            if current is not None:
                np.copyto(current, value.reshape(-1))
        self._times[:] = 0
        self._executable.code = self._codes[variant]
        start = time.perf_counter()
        outputs = tuple(self._executable.run(inputs))
        seconds = time.perf_counter() - start
        spent = [0.0] * len(self.program.kernels)
        for kernel, slowest in zip(self._calls, self._times.max(axis=1).tolist(), strict=False):
            spent[kernel] += slowest * 1e-9
        return Run(seconds, tuple(spent), outputs)

    def state(self) -> tuple[Array, ...]:
        """The parameters that the last run changed, as it left them: not to be kept."""
        found = (self._executable.parameter(position) for position, _ in self._initial)
        return tuple(each for each in found if each is not None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._executable.close()


def _repeats(steps: Sequence[Step], times: int) -> Iterator[tuple[int, int]]:
    for step in steps:
        match step:
            case Call():
                yield step.kernel, times
            case Loop() | RowBlocks():
                yield from _repeats(step.body, times * step.count)
            case Branch():
                yield from _repeats((*step.then, *step.otherwise), times)
            case While() | Commit():
                yield from _repeats(step.body, times)

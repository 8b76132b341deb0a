"""Programs on simulated chips: buffers in HBM, a routine for each kernel, the tree of steps."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from repro.errors import InternalError
from repro.ir.program import (
    CONSTANT,
    INPUT,
    OUTPUT,
    PARAMETER,
    TEMPORARY,
    Branch,
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
from repro.targets.tpu_sim import loading
from repro.targets.tpu_sim.chips import Chip
from repro.targets.tpu_sim.execution import Execution
from repro.targets.tpu_sim.faults import FaultError
from repro.targets.tpu_sim.memory import JUNK
from repro.targets.tpu_sim.profile import Profile, profile
from repro.targets.tpu_sim.program import Routine
from repro.targets.tpu_sim.timing import Timing, time_routine


class Simulator:
    """A program on one chip. `routines` stand in the order of `program.kernels`."""

    def __init__(self, program: Program, routines: Sequence[Routine], chip: Chip) -> None:
        """Raises FaultError where a routine does not fit the chip or the program does not fit its HBM."""
        self.program, self.chip = program, chip
        for routine, kernel in zip(routines, program.kernels, strict=True):
            loading.check(routine, kernel, chip)
        self._executions = [Execution(routine, chip) for routine in routines]
        self._trace: list[tuple[int, tuple[int, ...]]] = []
        """Calls of the last run: kernel, and how many iterations went into each of its `when_any`."""
        held = sum(buffer.nbytes for buffer in program.buffers if buffer.role != TEMPORARY) + program.arena_bytes
        if held > chip.hbm_bytes:
            raise FaultError(
                "hbm overflow", "the program's buffers do not fit", chip.name, str(held), str(chip.hbm_bytes)
            )
        self._parameters: dict[int, Array] = {}

    def beside(self) -> Simulator:
        """The same program on another chip of the kind: parameters of its own, routines decoded once for both."""
        made = object.__new__(Simulator)
        made.program, made.chip, made._executions = self.program, self.chip, self._executions
        made._trace, made._parameters = [], {}
        return made

    def profile(self) -> Profile:
        """What the last run took."""
        routines = [execution.routine for execution in self._executions]
        return profile(self.chip, routines, self._timings, self._trace)

    @cached_property
    def _timings(self) -> list[Timing]:
        return [time_routine(execution.routine, self.chip) for execution in self._executions]

    def set_parameter(self, position: int, value: Array) -> None:
        """Give a parameter (flat storage array) a value of its own."""
        self._parameters[position] = value.reshape(-1).copy()

    def parameter(self, position: int) -> Array | None:
        """A parameter's array, not to be written."""
        return self._parameters.get(position)

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """One run on flat storage arrays, inputs by position; outputs in arrays of their own, state where it lies.

        Raises FaultError.
        """
        arrays = [self._array(number, inputs) for number in range(len(self.program.buffers))]
        self._trace.clear()
        with exact_arithmetic():
            self._steps(self.program.steps, arrays, [])
        places = {b.position: n for n, b in enumerate(self.program.buffers) if b.role == OUTPUT}
        return [arrays[places[position]] for position in range(len(places))]

    def _array(self, number: int, inputs: Sequence[Array]) -> Array:
        buffer = self.program.buffers[number]
        if buffer.role == INPUT:
            return np.ascontiguousarray(inputs[buffer.position]).reshape(-1)
        if buffer.role == PARAMETER:
            return self._parameters[buffer.position]
        if buffer.role == CONSTANT:
            return np.frombuffer(self.program.constants[buffer.position], buffer.dtype.storage)
        junk = np.full(buffer.nbytes, 1 if buffer.dtype.name == "bool" else JUNK, np.uint8)
        return junk.view(buffer.dtype.storage)

    def _steps(self, steps: Sequence[Step], arrays: list[Array], counters: list[int]) -> None:
        for step in steps:
            match step:
                case Call():
                    self._call(step, arrays, counters)
                case CountedLoop():
                    for at in range(step.count):
                        self._steps(step.body, arrays, [*counters, at])
                case While():
                    at = 0
                    while at < step.limit and bool(arrays[step.condition][0]):
                        self._steps(step.body, arrays, [*counters, at])
                        at += 1
                case Branch():
                    side = step.then if bool(arrays[step.condition][0]) else step.otherwise
                    self._steps(side, arrays, counters)
                case RowBlocks():
                    raise InternalError("this target did not ask for blocks of rows")
                case Commit():
                    if step.refused is None or not arrays[step.refused][0]:
                        self._steps(step.body, arrays, counters)

    def _call(self, step: Call, arrays: list[Array], counters: list[int]) -> None:
        execution, scalars = self._executions[step.kernel], [counters[depth] for depth in step.scalars]
        before = tuple(execution.taken.values())
        execution.run([arrays[number] for number in step.buffers], scalars)
        taken = (now - then for now, then in zip(execution.taken.values(), before, strict=True))
        self._trace.append((step.kernel, tuple(taken)))

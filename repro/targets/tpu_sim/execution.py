"""Running a routine for its bits.

Iterations of a `parallel` loop run side by side: a register then holds a row of 1024 lanes for each iteration, or one
row where all have the same. Otherwise statements run one after another, as the routine says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from repro.ir.types import BOOL, Array
from repro.targets.tpu_sim import actions
from repro.targets.tpu_sim.chips import Chip
from repro.targets.tpu_sim.frame import Frame, evaluator
from repro.targets.tpu_sim.independence import Independence
from repro.targets.tpu_sim.isa import Instruction, instruction_text
from repro.targets.tpu_sim.memory import Memory
from repro.targets.tpu_sim.program import Bundle, Loop, Routine, Statement, WhenAny
from repro.targets.tpu_sim.registers import exposed, left, written

SIDE_BY_SIDE = 64
"""Iterations at a time: their registers should stay in a cache."""

Step = Callable[[Frame], None]


class Execution:
    """A routine decoded once; each `run` is a call of it."""

    def __init__(self, routine: Routine, chip: Chip) -> None:
        self.routine, self.chip = routine, chip
        self.independence = Independence(routine)
        self.taken: dict[int, int] = {}
        """How many iterations went into each `when_any` (numbered as they stand in the text), over all runs."""
        self._when_anys = 0
        self.steps = self._body(routine.body)

    def run(self, arguments: Sequence[Array], counters: Sequence[int] = ()) -> None:
        """One call, on flat storage arrays, in place. Raises FaultError."""
        frame = self.begin(arguments, counters)
        for step in self.steps:
            step(frame)
        frame.memory.finish(self.routine.name)

    def begin(self, arguments: Sequence[Array], counters: Sequence[int]) -> Frame:
        """The state before the first step."""
        memory = Memory(self.routine, arguments)
        return Frame({f"s{number}": value for number, value in enumerate(counters)}, 1, {}, memory, {})

    def _body(self, body: Sequence[Statement]) -> list[Step]:
        steps = list[Step]()
        for statement in body:
            match statement:
                case Bundle():
                    steps += [self._instruction(each) for each in statement.instructions]
                case Loop():
                    steps.append(self._parallel(statement) if statement.parallel else self._loop(statement))
                case WhenAny():
                    steps.append(self._when_any(statement))
        return steps

    def _instruction(self, instruction: Instruction) -> Step:
        where = f"{self.routine.name}: {instruction_text(instruction)}"
        action = actions.decode(instruction, self.routine, self.chip, where)
        if instruction.predicate is None:
            return action
        predicate = evaluator(instruction.predicate)
        reads = [reg.number for reg in instruction.reads]
        target = [] if instruction.writes is None else [instruction.writes.number]

        def predicated(frame: Frame) -> None:
            holds = predicate(frame.counters)
            if isinstance(holds, int):
                if holds >= 0:
                    action(frame)
                return
            _among(frame, np.flatnonzero(holds >= 0), reads, target, [action])

        return predicated

    def _loop(self, loop: Loop) -> Step:
        steps, name, count = self._body(loop.body), loop.counter, loop.count

        def run(frame: Frame) -> None:
            for at in range(count):
                frame.counters[name] = at
                for step in steps:
                    step(frame)
            frame.counters.pop(name, None)

        return run

    def _parallel(self, loop: Loop) -> Step:
        self.independence.registers(loop)
        steps, name, count = self._body(loop.body), loop.counter, loop.count
        live, made = sorted(exposed(loop.body)), written(loop.body)

        def run(frame: Frame) -> None:
            self.independence.memory(loop, frame.counters)
            at_once = max(1, SIDE_BY_SIDE // frame.width)
            for start in range(0, count, at_once):
                times = min(at_once, count - start)
                inner = frame.spread(times, live)
                numbers = np.arange(start, start + times, dtype=np.int64)
                inner.counters[name] = start if times == 1 else np.tile(numbers, frame.width)
                for step in steps:
                    step(inner)
            for number in made:
                frame.forget(number)

        return run

    def _when_any(self, branch: WhenAny) -> Step:
        number = self._when_anys
        self._when_anys += 1
        self.taken[number] = 0
        steps = self._body(branch.body)
        live, types = exposed(branch.body), left(branch.body)
        where = f"{self.routine.name}: when_any {branch.mask}"

        def run(frame: Frame) -> None:
            mask = frame.full(branch.mask, BOOL, where)
            iterations = np.flatnonzero(mask.any(axis=1))
            self.taken[number] += len(iterations)
            if not len(iterations):
                frame.ensure(types)
            _among(frame, iterations, sorted({*live, *types}), sorted(types), steps)

        return run


def _among(frame: Frame, iterations: Array, live: Sequence[int], results: Sequence[int], steps: Sequence[Step]) -> None:
    """Run steps for the chosen iterations alone."""
    if len(iterations) == frame.width:
        for step in steps:
            step(frame)
    elif len(iterations):
        part = frame.chosen(iterations, live)
        for step in steps:
            step(part)
        frame.merge(part, iterations, results)

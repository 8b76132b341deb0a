"""Several chips that run one routine together and send to each other.

Each chip runs until it waits for something that has not come; then another one goes on. Which one is next is nothing to
the result, or the routine has a race: tests draw the order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from repro.ir.types import Array
from repro.targets.tpu_sim.chips import Chip
from repro.targets.tpu_sim.execution import Execution
from repro.targets.tpu_sim.faults import FaultError
from repro.targets.tpu_sim.frame import Frame
from repro.targets.tpu_sim.isa import Wait
from repro.targets.tpu_sim.loading import check
from repro.targets.tpu_sim.program import Bundle, Routine, Statement

Choose = Callable[[Sequence[int]], int]
"""One of the chips that can go on."""


def first(able: Sequence[int]) -> int:
    """The lowest number."""
    return able[0]


class Pod:
    """`chips` chips and the routine that they run; the chip's number is its last counter."""

    def __init__(self, routine: Routine, chips: int, chip: Chip) -> None:
        """Raises FaultError where the routine does not fit the chip, or has sends or waits of others inside loops."""
        check(routine, None, chip)
        self.routine, self.chips = routine, chips
        self._execution = Execution(routine, chip)
        self._waits = [_wait(each) for each in _flat(routine.body)]

    def run(self, arguments: Sequence[Sequence[Array]], choose: Choose = first) -> None:
        """One call on each chip's flat storage arrays, in place. Raises FaultError."""
        frames = [self._execution.begin(own, (number,)) for number, own in enumerate(arguments)]
        for frame in frames:
            frame.memory.peers = [each.memory for each in frames]
        at = [0] * len(frames)
        steps = self._execution.steps
        while any(position < len(steps) for position in at):
            able = [n for n, position in enumerate(at) if position < len(steps) and self._ready(frames[n], position)]
            if not able:
                stuck = min(position for position in at if position < len(steps))
                raise FaultError("semaphore", "every chip waits for another", f"{self.routine.name}, step {stuck}")
            number = choose(able)
            steps[at[number]](frames[number])
            at[number] += 1
        for frame in frames:
            frame.memory.finish(self.routine.name)

    def _ready(self, frame: Frame, position: int) -> bool:
        wait = self._waits[position]
        if wait is None or (wait.when is not None and wait.when.value(frame.counters) < 0):
            return True
        number = wait.semaphore.value(frame.counters)
        return len(frame.memory.semaphore(number, self.routine.name)) >= wait.count


def _flat(body: Sequence[Statement]) -> list[object]:
    """One entry for each step of an `Execution`: an instruction, or a block."""
    found = list[object]()
    for statement in body:
        found += list(statement.instructions) if isinstance(statement, Bundle) else [statement]
    return found


def _wait(step: object) -> Wait | None:
    return step if isinstance(step, Wait) else None

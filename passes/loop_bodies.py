"""Loop bodies made shorter: what each iteration would compute again is computed once before the loop, and calls that
compute element by element over the same elements run as one.

A body of small calls costs what its threads wait for each other: one meeting for each call. Values live longer for it,
so loops of few iterations, such as those over microbatches, are left alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from passes.merge import Elementwise, as_call, elementwise, kept, merge
from passes.plan import with_steps
from passes.sequences import bodies, touched_itself, touches, with_bodies
from repro.ir.loops import Kernel
from repro.ir.program import TEMPORARY, Call, CountedLoop, Program, Step, While, touched, walk

MANY = 16
"""Iterations from which on a loop's body is made shorter."""


def shorten_loops(program: Program) -> Program:
    """The program with shorter loop bodies, its memory planned anew; the program itself where it has no loop."""
    if not any(isinstance(step, CountedLoop | While) for step in walk(program.steps)):
        return program
    made = _Shortened(program)
    steps = made.sequence(program.steps, False)
    return with_steps(program, steps, made.kernels)


class _Shortened:
    def __init__(self, program: Program) -> None:
        self.program, self.kernels = program, list(program.kernels)
        self.uses = Counter(buffer for step in walk(program.steps) for buffer, _ in touched_itself(program, step))
        """How many calls, loops and branches of the whole program touch each buffer."""

    def kernel(self, kernel: Kernel) -> int:
        self.kernels.append(kernel)
        return len(self.kernels) - 1

    def sequence(self, steps: Sequence[Step], repeated: bool) -> tuple[Step, ...]:
        """A sequence's steps, those before each loop that need not be in it; merged if the sequence is a loop's."""
        found: list[Step] = []
        for step in steps:
            if isinstance(step, CountedLoop | While) and bodies(step)[0][1] >= MANY:
                ahead, left = self._apart(step)
                found += ahead
                found.append(replace(step, body=self.sequence(left, True)))
            else:
                found.append(with_bodies(step, [self.sequence(body, repeated) for body, _ in bodies(step)]))
        return tuple(self._merged(found)) if repeated else tuple(found)

    def _apart(self, loop: CountedLoop | While) -> tuple[list[Step], list[Step]]:
        """Calls of a body that compute the same in each iteration, and the rest.

        Such a call reads nothing that the body writes, no counter, and fills a temporary that only it and what stands
        behind it in the body touch: no value that the loop carries, and none that it leaves.
        """
        written = [buffer for step in loop.body for buffer, writes in touched(self.program, step) if writes]
        inside = Counter(buffer for step in walk(loop.body) for buffer, _ in touched_itself(self.program, step))
        seen: set[int] = set()
        ahead, left = list[Step](), list[Step]()
        fixed: set[int] = set()
        for step in loop.body:
            mine = touches(self.program, step)
            own = all(
                self.program.buffers[b].role == TEMPORARY
                and written.count(b) == 1
                and inside[b] == self.uses[b]
                and b not in seen
                for b in mine.written
            )
            seen |= mine.read | mine.written
            known = all(buffer in fixed or buffer not in written for buffer in mine.read)
            if isinstance(step, Call) and not step.scalars and own and known:
                ahead.append(step)
                fixed |= mine.written
            else:
                left.append(step)
        return ahead, left

    def _merged(self, steps: Sequence[Step]) -> list[Step]:
        """Runs of calls that compute element by element, merged; a temporary that only they touch is gone."""
        found, run = list[Step](), list[Elementwise]()

        def end() -> None:
            groups = [kept(group, self.program.buffers, self.uses) for group in merge(run)]
            found.extend(as_call(group, self.program.buffers, self.kernel) for group in groups if group.stores)
            run.clear()

        for step in steps:
            body = self._elementwise(step)
            if body is not None:
                run.append(body)
                continue
            end()
            found.append(step)
        end()
        return found

    def _elementwise(self, step: Step) -> Elementwise | None:
        return elementwise(self.kernels[step.kernel], step.buffers, step.scalars) if isinstance(step, Call) else None

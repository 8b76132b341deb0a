"""Elementwise calls one behind the other as one call, where the first one's result is stored in any case: what the
second reads of it, it has in a register.

Fusion computes a value where its only reader is. One that is wanted again far behind (the standardized values of a
norm, a slope of GELU, for their gradients) is stored, and what is computed from it at once would read it from there: of
memory, each element is then written once and not read.

The bits are those of the two calls: each operation is made on the same values.
"""

from __future__ import annotations

from collections import Counter

from passes.merge import Elementwise, as_call, elementwise, joined, kept
from passes.plan import with_steps
from passes.sequences import bodies, touched_itself, touches, with_bodies
from repro.ir.loops import Kernel
from repro.ir.program import Call, Commit, Program, Step, walk

LEAST = 1 << 10
"""Elements of a value that is worth it: fewer stay in the nearest cache."""


def joined_elements(program: Program) -> Program:
    """The program with such calls made one; itself where there are none. What two calls need lives at once now."""
    made = _Joined(program)
    steps = made.sequence(program.steps)
    return program if steps == program.steps else with_steps(program, steps, made.kernels)


class _Joined:
    def __init__(self, program: Program) -> None:
        self.program, self.kernels = program, list(program.kernels)
        self.uses = Counter(buffer for step in walk(program.steps) for buffer, _ in touched_itself(program, step))

    def sequence(self, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        made: list[Step | None] = [self._inside(step) for step in steps]
        touching = [touches(self.program, step) for step in steps]
        found = dict[int, Elementwise]()
        """What can be joined with a later call, by its place."""
        writers: dict[int, int] = {}
        for position, step in enumerate(steps):
            body, place = self._elementwise(step), position
            if body is not None:
                for before in sorted({writers[b] for b in body.read if b in writers} & found.keys(), reverse=True):
                    behind = range(before + 1, position)
                    waits = any(touching[at].before(touching[position]) for at in behind if made[at] is not None)
                    both = None if waits else joined(found[before], body)
                    if both is not None:
                        stored = kept(both, self.program.buffers, self.uses)
                        made[before], made[position] = as_call(stored, self.program.buffers, self._number), None
                        touching[before] |= touching[position]
                        body, place = both, before
                        break
                found[place] = body
            writers |= dict.fromkeys(touching[position].written, place)
        return tuple(step for step in made if step is not None)

    def _inside(self, step: Step) -> Step:
        if isinstance(step, Commit):  # in_place.py has joined what can be
            return step
        return with_bodies(step, [self.sequence(body) for body, _ in bodies(step)])

    def _elementwise(self, step: Step) -> Elementwise | None:
        """A call of one store of many elements; windows and the like go their own ways."""
        if not isinstance(step, Call) or len(self.kernels[step.kernel].stores) > 1:
            return None
        body = elementwise(self.kernels[step.kernel], step.buffers, step.scalars)
        large = body is not None and all(self.program.buffers[each].elements >= LEAST for each in body.written)
        return body if large else None

    def _number(self, kernel: Kernel) -> int:
        self.kernels.append(kernel)
        return len(self.kernels) - 1

"""Less memory for more operations: temporaries with long gaps between uses are computed again before the next use.

A value that a budget has no room for is dropped after a use, and the call that made it is repeated, into a fresh
temporary, right before the next use. A repeated call runs the same kernel on the same bits, so no bit changes.

The choice is greedy on the excess: the bytes alive above the limit, summed over the program's time. The repetition
that lowers it most per scalar operation comes first. Everything is integers; a tie goes to the first candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise

import numpy as np

from passes.plan import ALIGNMENT, Uses, plan, round_up
from repro.errors import ReproError
from repro.ir.program import OUTPUT, TEMPORARY, Branch, Buffer, Call, CountedLoop, Program, Step, While, walk
from repro.ir.types import Array
from repro.ir.work import operations

MOST_STEPS = 3
"""A program grows at most to this many times its top-level steps."""
STRIDES = (4, 16)
"""Ways down that no budget has a say in: by this part of the peak at a time."""
DEPTHS = (0, 1, 2, 4)
"""How far back a chain of repeated calls may reach: inputs of its earliest calls are kept alive instead."""


class MemoryBudgetError(ReproError):
    """No choice of repeated calls brings a program's temporaries down to the budget."""


@dataclass(frozen=True)
class _Draft:
    """A program being changed. `origins` says, for each buffer, which first buffer has the same value."""

    buffers: tuple[Buffer, ...]
    steps: tuple[Step, ...]
    origins: tuple[int, ...]


@dataclass(frozen=True)
class _Repetition:
    """`buffer` is made anew before the step at `position`, by the calls that wrote `repeated` (in their order)."""

    buffer: int
    position: int
    repeated: tuple[int, ...]
    extended: tuple[int, ...]
    """Temporaries that must live on until then, as a repeated call reads them."""


def recompute(program: Program, budget: int) -> Program:
    """The program with an arena of at most `budget` bytes, or the program itself if that fits.

    Raises MemoryBudgetError if no repetition of calls gets there.
    """
    if program.arena_bytes <= budget:
        return program
    if budget >= _largest_call(program):
        found = _descend(program, budget, lambda peak, arena: peak - max(ALIGNMENT, arena - budget))
        if found.arena_bytes <= budget:
            return found
    # Straight down did not get there. Strides that no budget has a say in may go further, and the least arena on their
    # ways can be promised: whoever asks for as much gets it.
    least = program
    for stride in STRIDES:
        found = _descend(program, budget, lambda peak, _, stride=stride: peak - max(ALIGNMENT, peak // stride))
        if found.arena_bytes <= budget:
            return found
        least = min(least, found, key=lambda each: each.arena_bytes)
    raise MemoryBudgetError(
        "the memory budget cannot be met",
        found=f"{least.arena_bytes} bytes of temporaries were reached, {program.arena_bytes} with nothing repeated",
        expected=f"at most {budget} bytes",
        next=f"give a budget of {least.arena_bytes} or more, or smaller batches",
    )


def _largest_call(program: Program) -> int:
    """Bytes of the temporaries of one call, at most: no arena is smaller."""
    sizes = [round_up(max(b.nbytes, 1)) if b.role == TEMPORARY else 0 for b in program.buffers]
    calls = (step for step in walk(program.steps) if isinstance(step, Call))
    return max((sum(sizes[buffer] for buffer in set(call.buffers)) for call in calls), default=0)


def _descend(program: Program, budget: int, lower: Callable[[int, int], int]) -> Program:
    """Repeat calls until the arena fits, or no call helps: the program with the least arena on the way.

    A limit on the bytes alive at once leads the way. The plan leaves gaps between lives, so the limit may have to come
    down further than the arena: `lower` gives the next one, from the peak of what is alive and the arena.
    """
    least, draft = program, _Draft(program.buffers, program.steps, tuple(range(len(program.buffers))))
    costs = [operations(kernel) for kernel in program.kernels]
    state = _State(program, draft, costs)
    limit = lower(state.peak, program.arena_bytes)
    while least.arena_bytes > budget and len(draft.steps) <= MOST_STEPS * len(program.steps):
        chosen = state.best(limit) if state.peak > limit else None
        if chosen is not None:
            draft = state.apply(chosen)
            state = _State(program, draft, costs)
            continue
        buffers, arena = plan(draft.buffers, draft.steps)
        if arena < least.arena_bytes:
            least = replace(program, buffers=buffers, steps=draft.steps, arena_bytes=arena)
        if state.peak > limit:
            break
        limit = lower(state.peak, arena)
    return least


class _State:
    """Lives and uses of a draft's buffers.

    Time has two slots per step of the plan, the odd ones for the steps; a call inserted before a step takes the even
    slot before it.
    """

    def __init__(self, program: Program, draft: _Draft, costs: Sequence[int]) -> None:
        self.program, self.draft, self.costs = program, draft, costs
        self.reads: dict[int, list[int]] = {}
        self.writes: dict[int, list[int]] = {}
        self.begins: list[int] = []
        self.lives = Uses()
        for position, step in enumerate(draft.steps):
            self.begins.append(self.lives.time + 1)
            self.lives.visit((step,))
            for buffer, written in _touched(program, step):
                found = (self.writes if written else self.reads).setdefault(buffer, [])
                if position not in found[-1:]:
                    found.append(position)
        self.lives.keep_results()
        self.families: dict[int, list[int]] = {}
        for buffer, origin in enumerate(draft.origins):
            self.families.setdefault(origin, []).append(buffer)
        self.live = self._live()
        self.repeatable = {buffer for buffer in self.writes if self._is_repeatable(buffer)}

    def _live(self) -> Array:
        changes = np.zeros(2 * self.lives.time + 4, np.int64)
        for buffer, first in self.lives.first.items():
            if self.draft.buffers[buffer].role == TEMPORARY:
                size = self.size(buffer)
                changes[2 * first + 1] += size
                changes[2 * self.lives.last[buffer] + 2] -= size
        return np.cumsum(changes)

    @property
    def peak(self) -> int:
        """Bytes of temporaries alive at once, at most."""
        return int(self.live.max())

    def size(self, buffer: int) -> int:
        return round_up(max(self.draft.buffers[buffer].nbytes, 1))

    def call(self, buffer: int) -> Call:
        """The call that writes a repeatable buffer."""
        step = self.draft.steps[self.writes[buffer][0]]
        assert isinstance(step, Call)
        return step

    def inputs(self, buffer: int) -> list[int]:
        """What the call that writes a buffer reads, besides it."""
        return [other for other in self.call(buffer).buffers if other != buffer]

    def _is_repeatable(self, buffer: int) -> bool:
        """Whether one call outside of loops wrote it whole, from what nothing has changed since."""
        if self.draft.buffers[buffer].role != TEMPORARY or len(self.writes[buffer]) > 1:
            return False
        position = self.writes[buffer][0]
        step = self.draft.steps[position]
        if not isinstance(step, Call) or step.scalars or position in self.reads.get(buffer, ()):
            return False
        if any(store.when is not None for store in self.program.kernels[step.kernel].stores):
            return False
        return all(self._settled(other, position) for other in self.inputs(buffer))

    def _settled(self, buffer: int, position: int) -> bool:
        """Whether a buffer's value is final when the step at a position reads it."""
        if self.draft.buffers[buffer].role not in (TEMPORARY, OUTPUT):
            return True
        return all(write < position for write in self.writes.get(buffer, ()))

    def latest(self, buffer: int, time: int) -> int:
        """Of the buffers with a value, the one that lives longest and is made before a time."""
        family = self.families[self.draft.origins[buffer]]
        made = [other for other in family if other in self.lives.first and self.lives.first[other] < time]
        return max(made, key=lambda other: (self.lives.last[other], -other))

    # candidates ─────────────────────────────────────────────────────────────────────────────────────

    def best(self, limit: int) -> _Repetition | None:
        """The repetition that lowers the excess over the limit most per operation."""
        excess = int(np.maximum(self.live - limit, 0).sum())
        over = np.cumsum(self.live > limit)
        chosen, chosen_rate = None, Fraction(0)
        for candidate in self._candidates(over):
            gain = excess - int(np.maximum(self._live_with(candidate) - limit, 0).sum())
            if gain <= 0:
                continue
            rate = Fraction(gain, sum(self.costs[self.call(each).kernel] for each in candidate.repeated) or 1)
            if rate > chosen_rate:
                chosen, chosen_rate = candidate, rate
        return chosen

    def _candidates(self, over: Array) -> Iterator[_Repetition]:
        """Every gap between uses in which the limit is passed (`over` counts the slots so far), at every depth."""
        for buffer in sorted(self.repeatable):
            uses = [self.writes[buffer][0], *self.reads.get(buffer, ())]
            for before, after in pairwise(uses):
                start, stop = 2 * self.begins[before + 1] - 1, 2 * self.begins[after] - 1
                if over[stop] == over[start]:
                    continue
                known: set[_Repetition] = set()
                for depth in DEPTHS:
                    candidate = self._repetition(buffer, after, depth)
                    if candidate not in known:
                        known.add(candidate)
                        yield candidate

    def _repetition(self, buffer: int, position: int, depth: int) -> _Repetition:
        """The calls to repeat, with what they read repeated too where it is dead, `depth` levels back."""
        time = self.begins[position]
        repeated, level = {buffer}, [buffer]
        extended: set[int] = set()
        for remaining in range(depth, -1, -1):
            dead = {
                self.latest(other, time) for each in level for other in self.inputs(each) if self._dead(other, time)
            }
            again = {each for each in dead if remaining and each in self.repeatable}
            extended |= dead - again
            level = sorted(again - repeated)
            repeated |= again
        order = sorted(repeated, key=lambda each: self.writes[self.draft.origins[each]][0])
        return _Repetition(buffer, position, tuple(order), tuple(sorted(extended - repeated)))

    def _dead(self, buffer: int, time: int) -> bool:
        if self.draft.buffers[buffer].role != TEMPORARY:
            return False
        return self.lives.last[self.latest(buffer, time)] < time

    def _live_with(self, candidate: _Repetition) -> Array:
        """Bytes alive in each slot if the candidate were taken."""
        live = self.live.copy()
        slot = 2 * self.begins[candidate.position]
        size = self.size(candidate.buffer)
        uses = [self.writes[candidate.buffer][0], *self.reads[candidate.buffer]]
        before = max(use for use in uses if use < candidate.position)
        live[2 * self.begins[before + 1] : slot] -= size
        for each in candidate.repeated:
            if each != candidate.buffer:
                live[slot] += self.size(each)
        for each in candidate.extended:
            live[2 * self.lives.last[each] + 2 : slot + 1] += self.size(each)
        return live

    def apply(self, candidate: _Repetition) -> _Draft:
        """The draft with the calls repeated, and every use from there on led to the new buffer."""
        time = self.begins[candidate.position]
        buffers, origins = list(self.draft.buffers), list(self.draft.origins)
        fresh: dict[int, int] = {}
        calls: list[Step] = []
        for each in candidate.repeated:
            fresh[each] = len(buffers)
            buffers.append(replace(buffers[each], position=0))
            origins.append(origins[each])
            read = {other: self._source(other, time, fresh) for other in self.inputs(each)}
            calls.append(_renamed(self.call(each), {**read, each: fresh[each]}))
        names = {candidate.buffer: fresh[candidate.buffer]}
        behind = (_renamed(step, names) for step in self.draft.steps[candidate.position :])
        steps = (*self.draft.steps[: candidate.position], *calls, *behind)
        return _Draft(tuple(buffers), steps, tuple(origins))

    def _source(self, buffer: int, time: int, fresh: dict[int, int]) -> int:
        if self.draft.buffers[buffer].role != TEMPORARY:
            return buffer
        found = self.latest(buffer, time)
        return fresh.get(found, found)


def _touched(program: Program, step: Step) -> Iterator[tuple[int, bool]]:
    """The buffers of a step, and of the steps inside it: (buffer, whether it is written)."""
    for each in walk((step,)):
        match each:
            case Call():
                for buffer, parameter in zip(each.buffers, program.kernels[each.kernel].buffers, strict=True):
                    yield buffer, parameter.writable
            case While() | Branch():
                yield each.condition, False
            case CountedLoop():
                pass


def _renamed(step: Step, names: dict[int, int]) -> Step:
    """A step with buffers renamed, in its body too."""

    def inner(steps: tuple[Step, ...]) -> tuple[Step, ...]:
        return tuple(_renamed(each, names) for each in steps)

    match step:
        case Call():
            return replace(step, buffers=tuple(names.get(buffer, buffer) for buffer in step.buffers))
        case CountedLoop():
            return replace(step, body=inner(step.body))
        case While():
            return replace(step, condition=names.get(step.condition, step.condition), body=inner(step.body))
        case Branch():
            condition = names.get(step.condition, step.condition)
            return Branch(condition, inner(step.then), inner(step.otherwise))

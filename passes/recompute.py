"""Less memory for more operations: temporaries with long gaps between uses are computed again before the next use.

Calls that can end lives earlier are moved up first (`earlier`), which costs nothing. Then a value that a budget has no
room for is dropped after a use, and the call that made it is repeated, into a fresh temporary, right before the next
use. A repeated call runs the same kernel on the same bits, so no bit changes. A body of a loop or a side of a branch is
a sequence of its own: what is made and used in it alone is repeated in it.

The choice is greedy on the excess: the bytes alive above the limit, summed over the program's time. The repetition
that lowers it most per scalar operation comes first. Everything is integers; a tie goes to the first candidate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise

import numpy as np

from passes.earlier import Times, earlier
from passes.plan import ALIGNMENT, plan, round_up
from passes.sequences import Path, renamed, replaced, sequences
from repro.errors import ReproError
from repro.ir.expressions import Scalar, topological
from repro.ir.loops import Store
from repro.ir.program import TEMPORARY, Buffer, Call, Commit, Program, Step, touched, walk
from repro.ir.types import Array
from repro.ir.work import operations

MOST_STEPS = 3
"""A program grows at most to this many times its steps."""
STRIDES = (4, 16)
"""Ways down that no budget has a say in: by this part of the peak at a time."""
DEPTHS = (0, 1, 2, 4)
"""How far back a chain of repeated calls may reach: inputs of its earliest calls are kept alive instead."""


class MemoryBudgetError(ReproError):
    """No choice of repeated calls brings a program's temporaries down to the budget."""


@dataclass(frozen=True)
class Draft:
    """A program being changed. `origins` says, for each buffer, which first buffer has the same value."""

    buffers: tuple[Buffer, ...]
    steps: tuple[Step, ...]
    origins: tuple[int, ...]

    @staticmethod
    def of(program: Program) -> Draft:
        return Draft(program.buffers, program.steps, tuple(range(len(program.buffers))))


@dataclass(frozen=True)
class Repetition:
    """`buffer` is made anew before the step at `position` of its sequence, by the calls that wrote `repeated` (in their
    order)."""

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
    least = start = min(earlier(program), program, key=lambda each: each.arena_bytes)
    if start.arena_bytes <= budget:
        return start
    if budget >= _largest_call(program):
        found = _descend(start, budget, lambda peak, arena: peak - max(ALIGNMENT, arena - budget))
        if found.arena_bytes <= budget:
            return found
    # Straight down did not get there. Strides that no budget has a say in may go further, and the least arena on their
    # ways can be promised: whoever asks for as much gets it.
    for stride in STRIDES:
        found = _descend(start, budget, lambda peak, _, stride=stride: peak - max(ALIGNMENT, peak // stride))
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
    least, draft = program, Draft.of(program)
    costs = [operations(kernel) for kernel in program.kernels]
    state = State(program, draft, costs)
    limit = lower(state.peak, program.arena_bytes)
    most = MOST_STEPS * sum(1 for _ in walk(program.steps))
    while least.arena_bytes > budget and sum(1 for _ in walk(draft.steps)) <= most:
        chosen = state.best(limit) if state.peak > limit else None
        if chosen is not None:
            draft = state.apply(chosen)
            state = State(program, draft, costs)
            continue
        buffers, arena = plan(draft.buffers, draft.steps)
        if arena < least.arena_bytes:
            least = replace(program, buffers=buffers, steps=draft.steps, arena_bytes=arena)
        if state.peak > limit:
            break
        limit = lower(state.peak, arena)
    return least


class _Sequence:
    """Steps that run one after another: a program's own, a loop's body, or a side of a branch."""

    def __init__(self, program: Program, path: Path, steps: tuple[Step, ...], runs: int, begins: list[int]) -> None:
        self.path, self.steps, self.runs, self.begins = path, steps, runs, begins
        self.reads: dict[int, list[int]] = {}
        self.writes: dict[int, list[int]] = {}
        """Positions of the steps that read and write each buffer, in their bodies too."""
        self.touches: Counter[int] = Counter()
        for position, step in enumerate(steps):
            for buffer, written in touched(program, step):
                self.touches[buffer] += 1
                found = (self.writes if written else self.reads).setdefault(buffer, [])
                if position not in found[-1:]:
                    found.append(position)


class State:
    """Lives and uses of a draft's buffers.

    Time has two slots per step of the plan, the odd ones for the steps; a call inserted before a step takes the even
    slot before it.
    """

    def __init__(self, program: Program, draft: Draft, costs: Sequence[int]) -> None:
        self.program, self.draft, self.costs = program, draft, costs
        self.lives = Times()
        self.lives.visit(draft.steps)
        self.lives.keep_results()
        self.homes: dict[int, _Sequence] = {}
        """The innermost sequence that holds all uses of a buffer."""
        found = [
            _Sequence(program, path, steps, runs, begins)
            for (path, steps, runs), begins in zip(sequences(draft.steps), self.lives.begins, strict=True)
        ]
        everything = found[0].touches
        for each in found:
            self.homes |= {buffer: each for buffer, count in each.touches.items() if count == everything[buffer]}
        self.families: dict[int, list[int]] = {}
        for buffer, origin in enumerate(draft.origins):
            self.families.setdefault(origin, []).append(buffer)
        self.live = self._live()
        self.repeatable = {buffer for buffer in self.homes if self._is_repeatable(buffer)}

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

    def made(self, buffer: int) -> int:
        """The position of the step that writes a repeatable buffer."""
        return self.homes[buffer].writes[buffer][0]

    def call(self, buffer: int) -> Call:
        """The call that writes a repeatable buffer."""
        step = self.homes[buffer].steps[self.made(buffer)]
        assert isinstance(step, Call)
        return step

    def inputs(self, buffer: int) -> list[int]:
        """What the call that writes a buffer reads, besides it."""
        return [other for other in self.call(buffer).buffers if other != buffer]

    def cost(self, buffer: int) -> int:
        """Scalar operations of repeating the call that writes a buffer, in all runs of its sequence."""
        return self.costs[self.call(buffer).kernel] * self.homes[buffer].runs

    def _is_repeatable(self, buffer: int) -> bool:
        """Whether one call of its sequence wrote it whole, from what nothing in the sequence has changed since."""
        home = self.homes[buffer]
        writes, reads = home.writes.get(buffer, ()), home.reads.get(buffer, ())
        if self.draft.buffers[buffer].role != TEMPORARY or len(writes) != 1:
            return False
        position = writes[0]
        step = home.steps[position]
        if not isinstance(step, Call) or any(read <= position for read in reads):
            return False
        if not all(_is_whole(store) for store in self.program.kernels[step.kernel].stores):
            return False
        return all(self._settled(other, home, position) for other in step.buffers if other != buffer)

    def _settled(self, buffer: int, sequence: _Sequence, position: int) -> bool:
        """Whether a buffer's value, when the step at a position reads it, is that until the sequence ends."""
        writes = sequence.writes.get(buffer, ())
        return all(write < position or isinstance(sequence.steps[write], Commit) for write in writes)

    def latest(self, buffer: int, time: int) -> int:
        """Of the buffers with a value, the one that lives longest and is made before a time."""
        family = self.families[self.draft.origins[buffer]]
        made = [other for other in family if other in self.lives.first and self.lives.first[other] < time]
        return max(made, key=lambda other: (self.lives.last[other], -other))

    # candidates ─────────────────────────────────────────────────────────────────────────────────────

    def best(self, limit: int) -> Repetition | None:
        """The repetition that lowers the excess over the limit most per operation."""
        excess = int(np.maximum(self.live - limit, 0).sum())
        over = np.cumsum(self.live > limit)
        chosen, chosen_rate = None, Fraction(0)
        for candidate in self.candidates(over):
            gain = excess - int(np.maximum(self._live_with(candidate) - limit, 0).sum())
            if gain <= 0:
                continue
            rate = Fraction(gain, sum(self.cost(each) for each in candidate.repeated) or 1)
            if rate > chosen_rate:
                chosen, chosen_rate = candidate, rate
        return chosen

    def candidates(self, over: Array) -> Iterator[Repetition]:
        """Every gap between uses in which the limit is passed (`over` counts the slots so far), at every depth."""
        for buffer in sorted(self.repeatable):
            begins = self.homes[buffer].begins
            for before, after in pairwise(self._uses(buffer)):
                start, stop = 2 * begins[before + 1] - 1, 2 * begins[after] - 1
                if over[stop] == over[start]:
                    continue
                known: set[Repetition] = set()
                for depth in DEPTHS:
                    candidate = self._repetition(buffer, after, depth)
                    if candidate not in known:
                        known.add(candidate)
                        yield candidate

    def _uses(self, buffer: int) -> list[int]:
        return [self.made(buffer), *self.homes[buffer].reads.get(buffer, ())]

    def _repetition(self, buffer: int, position: int, depth: int) -> Repetition:
        """The calls to repeat, with what they read repeated too where it is dead, `depth` levels back."""
        home = self.homes[buffer]
        time = home.begins[position]
        repeated, level = {buffer}, [buffer]
        extended: set[int] = set()
        for remaining in range(depth, -1, -1):
            dead = {
                self.latest(other, time) for each in level for other in self.inputs(each) if self._dead(other, time)
            }
            again = {each for each in dead if remaining and each in self.repeatable and self.homes[each] is home}
            extended |= dead - again
            level = sorted(again - repeated)
            repeated |= again
        order = sorted(repeated, key=lambda each: self.made(self.draft.origins[each]))
        return Repetition(buffer, position, tuple(order), tuple(sorted(extended - repeated)))

    def _dead(self, buffer: int, time: int) -> bool:
        if self.draft.buffers[buffer].role != TEMPORARY:
            return False
        return self.lives.last[self.latest(buffer, time)] < time

    def _live_with(self, candidate: Repetition) -> Array:
        """Bytes alive in each slot if the candidate were taken."""
        live = self.live.copy()
        begins = self.homes[candidate.buffer].begins
        slot = 2 * begins[candidate.position]
        size = self.size(candidate.buffer)
        before = max(use for use in self._uses(candidate.buffer) if use < candidate.position)
        live[2 * begins[before + 1] : slot] -= size
        for each in candidate.repeated:
            if each != candidate.buffer:
                live[slot] += self.size(each)
        for each in candidate.extended:
            live[2 * self.lives.last[each] + 2 : slot + 1] += self.size(each)
        return live

    def apply(self, candidate: Repetition) -> Draft:
        """The draft with the calls repeated, and every use from there on led to the new buffer."""
        home = self.homes[candidate.buffer]
        time = home.begins[candidate.position]
        buffers, origins = list(self.draft.buffers), list(self.draft.origins)
        fresh: dict[int, int] = {}
        calls: list[Step] = []
        for each in candidate.repeated:
            fresh[each] = len(buffers)
            buffers.append(replace(buffers[each], position=0))
            origins.append(origins[each])
            read = {other: self._source(other, time, fresh) for other in self.inputs(each)}
            calls.append(renamed(self.call(each), {**read, each: fresh[each]}))
        names = {candidate.buffer: fresh[candidate.buffer]}
        behind = (renamed(step, names) for step in home.steps[candidate.position :])
        steps = (*home.steps[: candidate.position], *calls, *behind)
        return Draft(tuple(buffers), replaced(self.draft.steps, home.path, steps), tuple(origins))

    def _source(self, buffer: int, time: int, fresh: dict[int, int]) -> int:
        if self.draft.buffers[buffer].role != TEMPORARY:
            return buffer
        found = self.latest(buffer, time)
        return fresh.get(found, found)


def _is_whole(store: Store) -> bool:
    """Whether a store fills its buffer: not under a condition, and not a row that a loop's counter picks."""
    return store.when is None and not any(isinstance(each, Scalar) for each in topological((store.offset,)))

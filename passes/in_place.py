"""State written where it lies: each next value over the old one, at the end, where nothing reads that any more.

Up to its commit a run reads the old state and writes none of it, so it can be stopped, and refused by the report of
indices. What is computed element by element from the old value at the same place is computed in the commit, over the
old value, one kernel for each weight; what takes more work is computed before, into a temporary, and copied.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush

from passes.merge import Elementwise, as_call, copy, elementwise, merge
from passes.plan import plan
from passes.sequences import by_first_use, renamed, touches
from repro.ir import index as ix
from repro.ir.expressions import Exact, apply, const, load, reduce
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.program import OUTPUT, PARAMETER, TEMPORARY, Buffer, Call, Commit, Program, Step
from repro.ir.types import BOOL, I64


@dataclass(frozen=True)
class Update:
    """A parameter's buffer, and the buffer of its next value."""

    parameter: int
    output: int


class _Draft:
    """The program with its own buffers and kernels to add to, and what each of its steps touches."""

    def __init__(self, program: Program, updates: Sequence[tuple[int, int]], reported: bool) -> None:
        self.program, self.steps = program, program.steps
        self.buffers, self.kernels = list(program.buffers), list(program.kernels)
        places = {(buffer.role, buffer.position): number for number, buffer in enumerate(program.buffers)}
        outputs = max((buffer.position for buffer in program.buffers if buffer.role == OUTPUT), default=-1)
        self.report = places[OUTPUT, outputs] if reported else None
        self.updates = [
            Update(self._parameter(places.get((PARAMETER, slot)), slot, places[OUTPUT, output]), places[OUTPUT, output])
            for slot, output in updates
        ]
        self.touched = [touches(program, step) for step in program.steps]
        self.readers: dict[int, list[int]] = {}
        self.writers: dict[int, list[int]] = {}
        """The steps that read and that write each buffer."""
        self.bodies: dict[int, Elementwise | None] = {}
        """What `elementwise` said of each step that it was asked of, over the old values."""
        for at, touched in enumerate(self.touched):
            for buffer in touched.read:
                self.readers.setdefault(buffer, []).append(at)
            for buffer in touched.written:
                self.writers.setdefault(buffer, []).append(at)

    def _parameter(self, known: int | None, slot: int, output: int) -> int:
        """The buffer of a parameter; one that no kernel reads had none."""
        if known is not None:
            return known
        return self.buffer(replace(self.buffers[output], role=PARAMETER, position=slot))

    def buffer(self, buffer: Buffer) -> int:
        self.buffers.append(buffer)
        return len(self.buffers) - 1

    def kernel(self, kernel: Kernel) -> int:
        self.kernels.append(kernel)
        return len(self.kernels) - 1

    # what can be computed in place ──────────────────────────────────────────────────────────────────

    def elementwise(self, position: int) -> Elementwise | None:
        """A step as a call that computes element by element and is no part of the report, if it is one."""
        if position not in self.bodies:
            self.bodies[position] = self.elementwise_over(position, {})
        return self.bodies[position]

    def elementwise_over(self, position: int, over: Mapping[int, int]) -> Elementwise | None:
        """`elementwise` with buffers of next values in place of the old ones."""
        step = self.steps[position]
        if not isinstance(step, Call) or self.report in self.touched[position].written:
            return None
        return elementwise(self.kernels[step.kernel], [over.get(buffer, buffer) for buffer in step.buffers])

    def moved(self, update: Update) -> frozenset[int] | None:
        """The call that writes the next value and all that read it, if they can go into the commit."""
        writers = self.writers.get(update.output, [])
        if len(writers) != 1 or self.elementwise_over(writers[0], {update.output: update.parameter}) is None:
            return None
        found, fresh, held = set[int](), set[int](), set[int]()
        coming = [writers[0]]
        while coming:  # only steps that touch what is touched so far, in the program's order
            at = heappop(coming)
            step = self.touched[at]
            if at == writers[0] or step.read & fresh:
                found.add(at)
                fresh |= step.written
                held |= step.read | step.written
                reached = [*(self.readers.get(b, ()) for b in step.written), *(self.writers.get(b, ()) for b in held)]
                for later in {later for each in reached for later in each[bisect_right(each, at) :]} - set(coming):
                    heappush(coming, later)
            elif step.written & held:
                return None
        return frozenset(found) if all(self.elementwise(at) for at in found) else None

    def feeding(self, moved: frozenset[int]) -> frozenset[int]:
        """The steps, and those that compute temporaries for them alone, if they read no more than these hold."""
        found = set(moved)
        known = set[int]().union(*(self.touched[at].read for at in moved))
        for at in range(len(self.steps) - 1, -1, -1):
            body = None if at in found else self.elementwise(at)
            if body is None or any(self.buffers[buffer].role != TEMPORARY for buffer in body.written):
                continue
            readers = {other for buffer in body.written for other in self.readers.get(buffer, ())}
            writers = {other for buffer in body.written for other in self.writers.get(buffer, ())}
            if writers == {at} and readers and readers <= found and self._no_larger(body, known):
                found.add(at)
                known |= self.touched[at].read
        return frozenset(found)

    def _no_larger(self, body: Elementwise, known: set[int]) -> bool:
        longer = [b for b in body.read - known if self.buffers[b].role == TEMPORARY]
        return sum(self.buffers[b].nbytes for b in longer) <= sum(self.buffers[b].nbytes for b in body.written)

    # the commit ─────────────────────────────────────────────────────────────────────────────────────

    def settle(self) -> tuple[dict[int, int], list[int]]:
        """The calls that write in place (position to parameter), and all that go into the commit, in order."""
        candidates = {update: moved for update in self.updates if (moved := self.moved(update)) is not None}
        while True:
            writers = {min(moved): update.parameter for update, moved in candidates.items()}
            everything = self.feeding(frozenset[int]().union(*candidates.values()))
            order, stuck = self._order(everything, writers)
            if not stuck:
                return writers, order
            first = min(at for at in stuck if at in writers)
            candidates = {update: moved for update, moved in candidates.items() if min(moved) != first}

    def _order(self, moved: frozenset[int], writers: dict[int, int]) -> tuple[list[int], list[int]]:
        """The steps in an order in which each reads what it read before, and those for which there is none."""
        ahead = {at: self._ahead(at, moved, writers) for at in moved}
        behind: dict[int, list[int]] = {}
        for at, firsts in ahead.items():
            for first in firsts:
                behind.setdefault(first, []).append(at)
        ready, done = sorted(at for at in moved if not ahead[at]), list[int]()
        while ready:
            done.append(heappop(ready))
            for at in behind.get(done[-1], ()):
                ahead[at].discard(done[-1])
                if not ahead[at]:
                    heappush(ready, at)
        return done, sorted(moved.difference(done))

    def _ahead(self, at: int, moved: frozenset[int], writers: dict[int, int]) -> set[int]:
        """Of the steps those that must run before one: that read what it writes over, and that it had to follow."""
        mine = self.touched[at]
        firsts = {first for b in mine.written for first in (*self.readers.get(b, ()), *self.writers.get(b, ()))}
        firsts |= {first for b in mine.read for first in self.writers.get(b, ())}
        over = self.readers.get(writers[at], ()) if at in writers else ()
        return ({first for first in firsts if first < at} | {first for first in over if first != at}) & moved

    def body(self, writers: dict[int, int], order: Sequence[int]) -> list[Call]:
        """The calls of the commit, merged; next values that were computed before are copied."""
        over = {update.output: update.parameter for update in self.updates if update.parameter in writers.values()}
        found = [body for at in order if (body := self.elementwise_over(at, over)) is not None]
        for update in self.updates:
            if update.output not in over:
                old = self.buffers[update.output]
                self.buffers[update.output] = replace(old, role=TEMPORARY, position=0)
                if old.elements:
                    found.append(copy(old, update.output, update.parameter))
        groups = merge(found)
        reads = Counter(buffer for group in groups for buffer in group.read)
        return [as_call(self._wanted(group, reads), self.buffers, self.kernel) for group in groups]

    def _wanted(self, group: Elementwise, reads: Counter[int]) -> Elementwise:
        """A group without the temporaries that only its own calls read. `reads`: how many groups read each buffer."""
        others = {store.buffer for store in group.stores if reads[store.buffer] > (store.buffer in group.read)}
        kept = (s for s in group.stores if self.buffers[s.buffer].role != TEMPORARY or s.buffer in others)
        return replace(group, stores=tuple(kept))

    def refused(self) -> tuple[list[Step], int | None]:
        """The call that reads the report, and the buffer that says whether it holds anything."""
        if self.report is None:
            return [], None
        report = self.buffers[self.report]
        found = self.buffer(Buffer(BOOL, 1, TEMPORARY, 0))
        return [Call(self.kernel(_any_row(report.elements // 3)), (self.report, found))], found


def in_place(program: Program, updates: Sequence[tuple[int, int]], reported: bool) -> Program:
    """The program with its state updated in place.

    `updates` pairs (parameter, output): the output is the parameter's next value, and no output of the new program.
    `reported`: the last output is the report of indices; a run in which it holds anything changes no state.
    """
    if not updates:
        return program
    draft = _Draft(program, updates, reported)
    writers, order = draft.settle()
    body = draft.body(writers, order)
    asked, refused = draft.refused()
    behind = frozenset(order)
    ahead = [step for at, step in enumerate(program.steps) if at not in behind]
    steps: list[Step] = [*ahead, *asked, Commit(refused, tuple(body))]
    gone = {update.output for update in draft.updates if draft.buffers[update.output].role == OUTPUT}
    return _rebuilt(program, draft, gone, steps)


def _rebuilt(program: Program, draft: _Draft, gone: set[int], steps: Sequence[Step]) -> Program:
    """Kernels by first use, buffers and outputs numbered without gaps, memory planned anew."""
    names, buffers, outputs = dict[int, int](), list[Buffer](), 0
    for number, buffer in enumerate(draft.buffers):
        if number in gone:
            continue
        names[number] = len(buffers)
        buffers.append(replace(buffer, position=outputs) if buffer.role == OUTPUT else buffer)
        outputs += buffer.role == OUTPUT
    kernels, used = by_first_use(draft.kernels, steps)
    final = tuple(renamed(step, names, used) for step in steps)
    planned, arena = plan(tuple(buffers), final)
    return replace(program, kernels=kernels, buffers=planned, steps=final, arena_bytes=arena)


def _any_row(rows: int) -> Kernel:
    """Whether a report of three numbers a row says of any that an index was out of range."""
    row = ix.axis(0, rows)
    found = apply("ne", load(I64, 0, ix.scale(row, 3)), const(I64, 0))
    value = reduce("or", Exact(), (row,), (found,))
    parameters = (BufferParameter(I64, 3 * rows, False), BufferParameter(BOOL, 1, True))
    return Kernel(parameters, (), (), 0, (Store(1, const(I64, 0), value),))

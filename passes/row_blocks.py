"""Calls that work row by row on each other's results, run together for one block of rows after another.

What such a call writes and the next reads is then still in a near cache, and where nothing else reads it, it is never
stored as a whole: the scores of attention, the exponentials of a softmax, the rows of a norm between its two kernels.

A call is cut at a count of blocks: its leading axes are divided so that a block is a run of its iterations. Calls
belong together at a count if all that one of them writes and another touches lies, for each block, in its own slice.

The bits are those of the whole calls: no reduction is cut. How much is near is a machine's affair, so a target that has
such memory runs this pass for itself.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from passes.plan import if_no_larger
from passes.row_cuts import boundaries, cut, extents_of, sliced
from passes.sequences import Touched, bodies, touched_itself, touches, with_bodies
from passes.squares import across
from repro.ir.contraction import find
from repro.ir.expressions import Axis, Load, Reduce
from repro.ir.loops import Kernel
from repro.ir.program import LOCAL, TEMPORARY, Call, Commit, Program, RowBlocks, Step, walk

FAR = 1024
"""The part of a very large value that a block may hold."""
PACKED = 4
"""What of a contraction's columns a block may pack for itself, in sizes of what is near."""


@dataclass(frozen=True)
class Limits:
    """When calls are worth running in blocks; any limits have the same bits."""

    near_bytes: int
    """What calls leave each other in one block, at most; or one part in `FAR` of it in all, where that is more:
    not to store it counts too."""
    worth_bytes: int
    """What they leave each other in all, at least: less stays in a cache anyhow."""
    fewest_blocks: int = 8
    """Fewer are no work for several threads."""
    even_blocks: int = 32
    """Fewer than these are to be a multiple of four, so that two and four threads have equal shares."""
    fewest_rows: int = 32
    """Rows of a contraction that are worth packing its columns for."""
    least_bytes: int | None = None
    """Of calls without a contraction: blocks are as many as leave each other so much, so that a block is written to
    memory while the next is computed; None: as few as fit."""


@dataclass(frozen=True)
class Candidate:
    """Calls that may run in blocks, at one count of them. Buffers are numbered by first use in the calls."""

    kernels: tuple[Kernel, ...]
    """Of the calls, whole."""
    calls: tuple[tuple[int, ...], ...]
    """The buffers of each."""
    local: frozenset[int]
    extents: tuple[int, ...]

    def positions(self, call: int) -> frozenset[int]:
        """Those of a call's buffers that are local."""
        return frozenset(place for place, buffer in enumerate(self.calls[call]) if buffer in self.local)

    def cut(self) -> tuple[Kernel, ...]:
        """The kernels for one block."""
        return tuple(cut(kernel, self.extents, self.positions(at)) for at, kernel in enumerate(self.kernels))


Gain = Callable[[Candidate], int]
"""What is gained by a candidate, in any unit; 0: it cannot be had, or is not worth it."""


# ── where one kernel may be cut ─────────────────────────────────────────────────────────────────────


@lru_cache(maxsize=2048)
def counts(kernel: Kernel, limits: Limits) -> tuple[int, ...]:
    """The counts of blocks at which a kernel may be cut without doing work twice, ascending."""
    if kernel.serial or any(store.when is not None for store in kernel.stores):
        return ()
    written = {store.buffer for store in kernel.stores}
    if any(isinstance(expr, Load) and expr.buffer in written for expr in kernel.expressions):
        return ()
    reduces = [expr for expr in kernel.expressions if isinstance(expr, Reduce)]
    crossing = across(kernel, kernel.axes[-1]) if kernel.axes else None
    product, found = 1, list[int]()
    for axis in kernel.axes:
        if axis.extent == 0 or any(axis not in reduce.free for reduce in reduces):
            break
        rows = crossing.run if crossing is not None and axis is crossing.axis else 1  # what is read comes by lines
        most = axis.extent // rows
        parts = [part for part in _divisors(axis.extent) if part <= most and _divides(kernel, axis, part, limits)]
        found += [product * part for part in parts]
        product *= axis.extent
        if axis.extent > 1 and axis.extent not in parts:
            break
    return tuple(found)


def _divisors(number: int) -> list[int]:
    """Those above one, ascending."""
    small = [part for part in range(1, math.isqrt(number) + 1) if number % part == 0]
    return sorted({*small, *(number // part for part in small)} - {1})


def _divides(kernel: Kernel, axis: Axis, parts: int, limits: Limits) -> bool:
    """Whether an axis may be cut in that many parts: of a contraction, rows that leave enough for what is packed, where
    each of a batch packs its own columns; those that all rows share are packed for as many rows as can be.
    """
    contraction = find(kernel)
    if contraction is None or axis in contraction.batch:
        return True
    batch, rows, columns, terms = contraction.extents
    packed = columns * terms * contraction.reduce.dtype.bytes
    return (
        batch > 1
        and axis in contraction.rows
        and rows // parts >= limits.fewest_rows
        and packed <= PACKED * limits.near_bytes
    )


# ── calls that belong together ──────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class _Group:
    """Calls by position in their sequence, and the counts of blocks at which all of them may be cut together."""

    members: tuple[int, ...]
    counts: tuple[int, ...]


def row_blocks(program: Program, limits: Limits, gain: Gain | None = None) -> Program:
    """The program with calls run in blocks of rows where that pays; itself where none does, or where it would take more
    memory: calls that wait for others keep what they read alive, and a budget may have been met.

    Calls are run in as few blocks as limits allow, or in as many as gain most where a machine has a measure of that.
    """
    made = _Blocks(program, limits, gain)
    return if_no_larger(program, made.sequence(program.steps, 0), made.kernels, made.buffers)


class _Blocks:
    def __init__(self, program: Program, limits: Limits, gain: Gain | None) -> None:
        self.program, self.limits, self.gain = program, limits, gain
        self.kernels, self.buffers = list(program.kernels), list(program.buffers)
        steps = list(walk(program.steps))
        self.uses = Counter(buffer for step in steps for buffer, _ in touched_itself(program, step))
        self.writers = Counter(buffer for step in steps for buffer, writes in touched_itself(program, step) if writes)

    def sequence(self, steps: tuple[Step, ...], depth: int) -> tuple[Step, ...]:
        """`depth`: how many loops stand around the sequence."""
        touching = [touches(self.program, step) for step in steps]
        groups: list[_Group] = []
        for position, step in enumerate(steps):
            if isinstance(step, Call) and self.counts(step) and self._sole_writer(touching[position]):
                self._add(groups, steps, touching, position)
        chosen = {group.members[-1]: group for each in groups for group in self._worthwhile(each, steps)}
        inside = {member for group in chosen.values() for member in group.members}
        found: list[Step] = []
        for position, step in enumerate(steps):
            if position in chosen:
                group = chosen[position]
                found.append(self._formed(group, [_call(steps[member]) for member in group.members], depth))
            elif position not in inside:
                found.append(self._inner(step, depth))
        return tuple(found)

    def _inner(self, step: Step, depth: int) -> Step:
        if isinstance(step, Call | Commit):
            return step
        loops = depth + (len(bodies(step)) == 1)
        return with_bodies(step, [self.sequence(body, loops) for body, _ in bodies(step)])

    def kernel(self, call: Call) -> Kernel:
        return self.program.kernels[call.kernel]

    def counts(self, call: Call) -> tuple[int, ...]:
        return counts(self.kernel(call), self.limits)

    def _sole_writer(self, mine: Touched) -> bool:
        return all(self.writers[buffer] == 1 for buffer in mine.written)

    def _add(self, groups: list[_Group], steps: Sequence[Step], touching: Sequence[Touched], position: int) -> None:
        """Put a call into the last group whose results it reads, or into one of its own."""
        mine = touching[position]
        for place in range(len(groups) - 1, -1, -1):
            group = groups[place]
            if any(touching[member].written & mine.read for member in group.members):
                members = (*group.members, position)
                call = _call(steps[position])
                common = tuple(sorted(set(group.counts) & set(self.counts(call))))
                fitting = self._fitting(common, [_call(steps[member]) for member in members])
                if fitting and self._may_wait(group, touching, position):
                    groups[place] = _Group(members, fitting)
                    return
        groups.append(_Group((position,), self.counts(_call(steps[position]))))

    def _may_wait(self, group: _Group, touching: Sequence[Touched], position: int) -> bool:
        """Whether the calls of a group may run as late as a position: nothing in between must follow them."""
        others = [at for at in range(group.members[0] + 1, position) if at not in group.members]
        return not any(touching[m].before(touching[at]) for m in group.members for at in others if m < at)

    def _fitting(self, common: Sequence[int], calls: Sequence[Call]) -> tuple[int, ...]:
        """The counts at which calls keep to slices of what they leave each other, and these are near."""
        carried = self._carried(calls)
        size = self._most(carried | self._shared(calls), calls)
        near_bytes = max(self.limits.near_bytes, size // FAR)
        found: list[int] = []
        for count in common:
            near = -(-size // count) <= near_bytes
            even = count >= self.limits.even_blocks or (count >= self.limits.fewest_blocks and count % 4 == 0)
            together = near and even and self._extents(calls, count) is not None
            if together and all(self._keeps(call, count, carried) for call in calls):
                found.append(count)
        return tuple(found)

    def _most(self, carried: frozenset[int], calls: Sequence[Call]) -> int:
        """The most bytes of what calls leave each other that live at once, over all blocks."""
        places = {b: [at for at, call in enumerate(calls) if b in call.buffers] for b in carried}
        alive = ([b for b, at in places.items() if at[0] <= now <= at[-1]] for now in range(len(calls)))
        return max((sum(self.buffers[buffer].nbytes for buffer in each) for each in alive), default=0)

    def _extents(self, calls: Sequence[Call], count: int) -> tuple[int, ...] | None:
        ends = [boundaries(self.kernel(call), count) or () for call in calls]
        return extents_of([end for each in ends for end in each])

    def _keeps(self, call: Call, count: int, carried: frozenset[int]) -> bool:
        apart = sliced(self.kernel(call), count)
        return all(position in apart for position, buffer in enumerate(call.buffers) if buffer in carried)

    def _carried(self, calls: Sequence[Call]) -> frozenset[int]:
        """What one of the calls writes and another reads."""
        written = {buffer for call in calls for buffer in touches(self.program, call).written}
        read = {buffer for call in calls for buffer in touches(self.program, call).read}
        return frozenset(written & read)

    def _shared(self, calls: Sequence[Call]) -> frozenset[int]:
        """What several of the calls read by rows, and none writes."""
        read = Counter(b for call in calls for b in touches(self.program, call).read if self._by_rows(b, call))
        return frozenset(buffer for buffer, times in read.items() if times > 1) - self._carried(calls)

    def _by_rows(self, buffer: int, call: Call) -> bool:
        """Whether a call that is cut into few blocks touches a buffer in slices."""
        few = next((count for count in self.counts(call) if count >= self.limits.fewest_blocks), None)
        return few is not None and call.buffers.index(buffer) in sliced(self.kernel(call), few)

    def _worthwhile(self, group: _Group, steps: Sequence[Step]) -> list[_Group]:
        """What of a group pays, with the counts that it is to have: the group, or where a machine measures gains, so
        many of its first calls as need not store most of all that gain at least half of the most (memory counts too),
        and of those that gain most; and so on with the rest."""
        calls = [_call(steps[member]) for member in group.members]
        if not self._pays(calls):
            return []
        if self.gain is None:
            return [replace(group, counts=(self._count(group, calls),))]
        found: list[tuple[int, int, int, int]] = []
        for size in range(2, len(calls) + 1):
            common = set(self.counts(calls[0])).intersection(*map(self.counts, calls[1:size]))
            spared = sum(self.buffers[buffer].nbytes for buffer in self._locals(calls[:size]))
            for count in self._fitting(sorted(common), calls[:size]) if self._pays(calls[:size]) else ():
                gain = self.gain(self._candidate(calls[:size], count))
                found += [(spared, gain, size, -count)] if gain > 0 else []
        most = max((gain for _, gain, _, _ in found), default=0)
        _, _, size, count = max((each for each in found if 2 * each[1] >= most), default=(0, 0, 1, 0))
        rest = self._worthwhile(replace(group, members=group.members[size:]), steps)
        return [*([_Group(group.members[:size], (-count,))] if found else []), *rest]

    def _count(self, group: _Group, calls: Sequence[Call]) -> int:
        """As few blocks as fit, or as many as leave enough to each other."""
        least = self.limits.least_bytes
        if least is None or any(find(self.kernel(call)) is not None for call in calls):
            return group.counts[0]
        size = self._most(self._carried(calls), calls)
        return max((count for count in group.counts if size // count >= least), default=group.counts[0])

    def _pays(self, calls: Sequence[Call]) -> bool:
        carried = (self._carried(calls) | self._shared(calls)) if len(calls) > 1 else frozenset[int]()
        return sum(self.buffers[buffer].nbytes for buffer in carried) >= self.limits.worth_bytes

    def _candidate(self, calls: Sequence[Call], count: int) -> Candidate:
        extents = self._extents(calls, count)
        assert extents is not None
        numbers = {b: n for n, b in enumerate(dict.fromkeys(buffer for call in calls for buffer in call.buffers))}
        local = frozenset(numbers[buffer] for buffer in self._locals(calls))
        own = tuple(tuple(numbers[buffer] for buffer in call.buffers) for call in calls)
        return Candidate(tuple(map(self.kernel, calls)), own, local, extents)

    # forming ────────────────────────────────────────────────────────────────────────────────────────

    def _formed(self, group: _Group, calls: Sequence[Call], depth: int) -> RowBlocks:
        """The calls at the count of their group."""
        (count,) = group.counts
        candidate, local = self._candidate(calls, count), self._locals(calls)
        extents, kernels = candidate.extents, candidate.cut()
        body: list[Call] = []
        for call, kernel in zip(calls, kernels, strict=True):
            self.kernels.append(kernel)
            digits = tuple(range(depth, depth + len(extents)))
            body.append(Call(len(self.kernels) - 1, call.buffers, (*call.scalars, *digits)))
        for buffer in local:
            held = self.buffers[buffer]
            self.buffers[buffer] = replace(held, elements=held.elements // count, role=LOCAL, position=0)
        return RowBlocks(extents, tuple(body))

    def _locals(self, calls: Sequence[Call]) -> frozenset[int]:
        mine = Counter(buffer for call in calls for buffer in call.buffers)
        return frozenset(buffer for buffer in self._carried(calls) if self._local(buffer, mine, calls))

    def _local(self, buffer: int, mine: Counter[int], calls: Sequence[Call]) -> bool:
        """Whether a value is a block's own affair: a temporary that these calls alone touch, the first filling it."""
        held = self.buffers[buffer]
        first = next(call for call in calls if buffer in call.buffers)
        fills = math.prod(axis.extent for axis in self.kernel(first).axes) == held.elements
        alone = held.role == TEMPORARY and self.uses[buffer] == mine[buffer]
        return alone and fills and buffer in touches(self.program, first).written


def _call(step: Step) -> Call:
    assert isinstance(step, Call)
    return step

"""Where threads need not meet: between calls that leave each other alone, or in which each thread goes on with what it
has made itself.

Two calls leave each other alone if neither touches what the other writes. Where they do not, they may still be *tied*:
the items of both are the parts of as many rows, threads have the same rows in both, and an item touches, of whatever
one of them writes and the other touches, its own row alone. Then no thread reads or overwrites what another one writes,
in whatever order they come by. A loop of such calls runs from its first iteration to its last without a meeting: rows
of a batch through the steps of a recurrence.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from repro.ir.dependence import is_digit
from repro.ir.expressions import Axis, Load
from repro.ir.index import coefficient
from repro.ir.loops import Kernel
from repro.ir.program import TEMPORARY, Buffer, Call, CountedLoop, Program, Step
from repro.ir.schedule import Schedule
from repro.targets.llvm import kernel as kernels
from repro.targets.llvm.tiling import shape_of


@dataclass(frozen=True)
class Rows:
    """How a kernel's items are parts of so many rows, in order; of each buffer (position) that every item touches in
    its own row alone, the elements of a row."""

    count: int
    elements: Mapping[int, int]


@lru_cache(maxsize=2048)
def rows_of(kernel: Kernel, schedule: Schedule) -> Rows | None:
    """The rows of a kernel by its outermost axis, or None where its items are something else."""
    found = _outermost(kernel, schedule)
    if found is None:
        return None
    axis, block = found
    loads = [(e.buffer, e.offset) for e in kernel.expressions if isinstance(e, Load)]
    strides: dict[int, set[int]] = {}
    for buffer, offset in [*loads, *((store.buffer, store.offset) for store in kernel.stores)]:
        stride = coefficient(offset, axis) or 0
        own = stride > 0 and is_digit(offset, axis, stride)
        strides.setdefault(buffer, set()).add(stride if own else 0)
    same = {buffer: block * max(each) for buffer, each in strides.items() if len(each) == 1}
    return Rows(axis.extent // block, {buffer: size for buffer, size in same.items() if size})


def _outermost(kernel: Kernel, schedule: Schedule) -> tuple[Axis, int] | None:
    """The outermost axis of the items, and how many of its iterations an item has, or several items together."""
    if schedule.tile is not None:
        shape = shape_of(kernel, schedule)
        rows = [axis for axis in shape.contraction.rows if axis.extent > 1]
        return (rows[0], 1) if shape.row_items and len(rows) == 1 else None
    grid = kernels.Grid(kernel, schedule)
    outer = [axis for axis in grid.outer if axis.extent > 1]
    if outer:
        return outer[0], 1
    vector, width = grid.vector, schedule.vector_width
    if vector is None or grid.across is not None or schedule.sweep or vector.extent % grid.block or grid.block % width:
        return None  # squares lie across rows; a block's last vector may reach into the next one
    return vector, grid.block


@dataclass(frozen=True)
class Place:
    """Where a call stands: `goes_on`, whether threads come to it without having met; `meets`, whether they meet behind
    it; `rows`, where it is tied to others, how many rows are shared out."""

    goes_on: bool = False
    meets: bool = True
    rows: int | None = None


@dataclass(frozen=True)
class _Group:
    """Calls between which nobody waits; `ties` are pairs of them, by position."""

    calls: tuple[_Call, ...]
    ties: tuple[tuple[int, int], ...] = ()

    def with_call(self, call: _Call) -> _Group | None:
        """The group and one more call; None where that one has to wait."""
        ties, new = list(self.ties), len(self.calls)
        for position, other in enumerate(self.calls):
            if not other.alone(call):
                ties.append((position, new))
        grown = _Group((*self.calls, call), tuple(ties))
        return grown if grown.is_sound else None

    @cached_property
    def tied(self) -> frozenset[int]:
        return frozenset(position for tie in self.ties for position in tie)

    @cached_property
    def rows(self) -> int:
        """How many rows the tied calls share out: those of one of them."""
        return math.gcd(*(rows.count for p in self.tied if (rows := self.calls[p].rows) is not None))

    @cached_property
    def is_sound(self) -> bool:
        counts = [rows.count for p in self.tied if (rows := self.calls[p].rows) is not None]
        if len(counts) != len(self.tied) or (counts and (self.rows != min(counts) or self.rows < 2)):
            return False
        return all(self.calls[a].same_rows(self.calls[b], self.rows) for a, b in self.ties)

    def places(self) -> Iterator[Place]:
        for position in range(len(self.calls)):
            rows = self.rows if position in self.tied else None
            yield Place(position > 0, position == len(self.calls) - 1, rows)


@dataclass(frozen=True)
class _Call:
    """A call with all that is asked of it."""

    buffers: tuple[tuple[int, Buffer], ...]
    written: frozenset[int]
    items: int
    rows: Rows | None

    def alone(self, other: _Call) -> bool:
        """Whether the two leave each other alone, or fall to the same thread anyhow (one item is the last thread's)."""
        return self.items == other.items == 1 or not any(True for _ in self._common(other))

    def _common(self, other: _Call) -> Iterator[tuple[int, int]]:
        """Positions of their buffers that share memory of which one of the two writes."""
        for a, (mine, held) in enumerate(self.buffers):
            for b, (theirs, of_other) in enumerate(other.buffers):
                writes = mine in self.written or theirs in other.written
                if writes and (mine == theirs or _overlap(held, of_other)):
                    yield a, b

    def same_rows(self, other: _Call, rows: int) -> bool:
        """Whether so many rows of what is common to both have the same elements in both."""
        return all(
            self.buffers[a][0] == other.buffers[b][0] and (size := self.row_elements(a, rows)) is not None
            and size == other.row_elements(b, rows)
            for a, b in self._common(other)
        )  # fmt: skip

    def row_elements(self, position: int, rows: int) -> int | None:
        if self.rows is None or position not in self.rows.elements or self.rows.count % rows:
            return None
        return self.rows.elements[position] * (self.rows.count // rows)


def _overlap(a: Buffer, b: Buffer) -> bool:
    if a.role != TEMPORARY or b.role != TEMPORARY:
        return False
    return a.position < b.position + b.nbytes and b.position < a.position + a.nbytes


class Meetings:
    """Where the threads of a program meet."""

    def __init__(self, program: Program, schedules: Sequence[Schedule]) -> None:
        self.program, self.schedules = program, schedules

    def places(self, steps: Sequence[Step]) -> list[Place]:
        """Of each step; all threads come to one that is no call."""
        groups: list[_Group | None] = []
        for step in steps:
            call = self._call(step) if isinstance(step, Call) else None
            last = groups[-1] if groups else None
            grown = last.with_call(call) if last is not None and call is not None else None
            if grown is not None:
                groups[-1] = grown
            else:
                groups.append(None if call is None else _Group((call,)))
        return [place for group in groups for place in ([Place()] if group is None else group.places())]

    def alone(self, loop: CountedLoop) -> list[Place]:
        """Of each call of a loop that threads run from end to end without meeting; empty where they cannot."""
        if not all(isinstance(step, Call) for step in loop.body):
            return []
        calls = tuple(self._call(step) for step in loop.body if isinstance(step, Call))
        pairs = [(a, b) for b in range(len(calls)) for a in range(b + 1)]
        group = _Group(calls, tuple((a, b) for a, b in pairs if not calls[a].alone(calls[b])))
        return [replace(place, goes_on=True) for place in group.places()] if group.is_sound else []

    def _call(self, call: Call) -> _Call:
        kernel, schedule = self.program.kernels[call.kernel], self.schedules[call.kernel]
        buffers = tuple((number, self.program.buffers[number]) for number in call.buffers)
        pairs = zip(call.buffers, kernel.buffers, strict=True)
        written = frozenset(number for number, held in pairs if held.writable)
        return _Call(buffers, written, kernels.work_items(kernel, schedule), rows_of(kernel, schedule))

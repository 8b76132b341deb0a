"""Memory: every temporary gets an offset in one arena, and what is local to blocks of rows one in memory of a thread's
own; lifetimes that overlap never share bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from repro.ir.program import LOCAL, TEMPORARY, Branch, Buffer, Call, Commit, CountedLoop, RowBlocks, Step, While, walk

ALIGNMENT = 64
"""Bytes: a cache line, and the widest vector."""


class Uses:
    """First and last step of each buffer, in program order; a loop body is one unit for what it shares."""

    def __init__(self) -> None:
        self.time = 0
        self.first: dict[int, int] = {}
        self.last: dict[int, int] = {}
        self.loops: list[tuple[int, int]] = []
        """Times at which each loop starts and ends, inner loops first."""

    def touch(self, buffer: int) -> None:
        self.first.setdefault(buffer, self.time)
        self.last[buffer] = self.time

    def visit(self, steps: tuple[Step, ...]) -> None:
        for step in steps:
            self.time += 1
            match step:
                case Call():
                    for buffer in step.buffers:
                        self.touch(buffer)
                case CountedLoop():
                    self.repeated(step.body)
                case While():
                    self.touch(step.condition)
                    self.repeated(step.body)
                    self.touch(step.condition)
                case Branch():
                    self.touch(step.condition)
                    self.visit(step.then)
                    self.visit(step.otherwise)
                case RowBlocks():  # threads are at different calls of it: for what they share it is one step
                    for call in step.body:
                        for buffer in call.buffers:
                            self.touch(buffer)
                case Commit():
                    if step.refused is not None:
                        self.touch(step.refused)
                    self.visit(step.body)

    def repeated(self, body: tuple[Step, ...]) -> None:
        """What lives before the loop and is used in it must live until the loop ends."""
        start = self.time
        self.visit(body)
        self.time += 1
        for buffer, first in self.first.items():
            if first <= start and self.last[buffer] > start:
                self.last[buffer] = self.time
        self.loops.append((start, self.time))

    def keep_results(self) -> None:
        """What a loop writes and something behind it reads is filled row by row: it must live from the loop's start."""
        for start, end in self.loops:
            for buffer, first in self.first.items():
                if start < first <= end < self.last[buffer]:
                    self.first[buffer] = start


def round_up(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def plan(buffers: tuple[Buffer, ...], steps: tuple[Step, ...]) -> tuple[tuple[Buffer, ...], int]:
    """The buffers with arena offsets for temporaries, and the arena's size in bytes."""
    uses = Uses()
    uses.visit(steps)
    uses.keep_results()
    offsets, arena = _offsets(buffers, TEMPORARY, uses)
    return _placed(buffers, TEMPORARY, offsets), arena


def plan_local(buffers: tuple[Buffer, ...], steps: tuple[Step, ...]) -> tuple[tuple[Buffer, ...], int]:
    """The buffers with offsets for what is local to blocks of rows, and the bytes of that which each thread needs."""
    offsets: dict[int, int] = {}
    local_bytes = 0
    for step in walk(steps):
        if isinstance(step, RowBlocks):
            uses = Uses()
            uses.visit(step.body)
            found, needed = _offsets(buffers, LOCAL, uses)
            offsets |= found
            local_bytes = max(local_bytes, needed)
    return _placed(buffers, LOCAL, offsets), local_bytes


def _placed(buffers: tuple[Buffer, ...], role: str, offsets: Mapping[int, int]) -> tuple[Buffer, ...]:
    placed = (replace(b, position=offsets.get(n, 0)) if b.role == role else b for n, b in enumerate(buffers))
    return tuple(placed)


def _offsets(buffers: tuple[Buffer, ...], role: str, uses: Uses) -> tuple[dict[int, int], int]:
    """Offsets of the buffers of a role that are used, and how many bytes these take together.

    Larger buffers are placed first, each at the lowest offset free over its whole life.
    """
    temporaries = [n for n, buffer in enumerate(buffers) if buffer.role == role and n in uses.first]
    temporaries.sort(key=lambda n: (-buffers[n].nbytes, n))
    placed = np.zeros((4, len(temporaries)), np.int64)  # offset, end, first, last
    offsets: dict[int, int] = {}
    for count, number in enumerate(temporaries):
        first, last = uses.first[number], uses.last[number]
        size = round_up(max(buffers[number].nbytes, 1))
        alive = placed[:2, :count][:, (placed[2, :count] <= last) & (placed[3, :count] >= first)]
        offset = 0
        for other, end in alive[:, np.argsort(alive[0])].T.tolist():
            if offset + size <= other:
                break
            offset = max(offset, end)
        offsets[number] = offset
        placed[:, count] = (offset, offset + size, first, last)
    return offsets, int(placed[1].max(initial=0))

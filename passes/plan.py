"""Memory: every temporary gets an offset in one arena; lifetimes that overlap never share bytes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from repro.ir.program import TEMPORARY, Branch, Buffer, Call, Commit, CountedLoop, Step, While

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
    """The buffers with arena offsets for temporaries, and the arena's size in bytes.

    Larger buffers are placed first, each at the lowest offset free over its whole life.
    """
    uses = Uses()
    uses.visit(steps)
    uses.keep_results()
    temporaries = [n for n, buffer in enumerate(buffers) if buffer.role == TEMPORARY and n in uses.first]
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
    arena = int(placed[1].max(initial=0))
    planned = (replace(b, position=offsets.get(n, 0)) if b.role == TEMPORARY else b for n, b in enumerate(buffers))
    return tuple(planned), arena

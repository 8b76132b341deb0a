"""Memory: every temporary gets an offset in one arena, and what is local to blocks of rows one in memory of a thread's
own; lifetimes that overlap never share bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from passes.sequences import by_first_use, renamed
from repro.ir.loops import Kernel
from repro.ir.program import (
    LOCAL,
    TEMPORARY,
    Branch,
    Buffer,
    Call,
    Commit,
    CountedLoop,
    Program,
    RowBlocks,
    Step,
    While,
    walk,
)

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


def with_steps(
    program: Program, steps: tuple[Step, ...], kernels: Sequence[Kernel], buffers: Sequence[Buffer] | None = None
) -> Program:
    """The program with other steps, of so many kernels (and buffers): the kernels that are called, each once, by first
    use, and memory planned anew."""
    used, numbers = by_first_use(kernels, (*program.once, *steps))
    once, final = (tuple(renamed(step, {}, numbers) for step in each) for each in (program.once, steps))
    placed, arena = plan(program.buffers if buffers is None else tuple(buffers), final)
    placed, local = plan_local(placed, final)
    calls = tuple(step for step in once if isinstance(step, Call))
    return replace(program, kernels=used, buffers=placed, steps=final, once=calls, arena_bytes=arena, local_bytes=local)


def if_no_larger(
    program: Program, steps: tuple[Step, ...], kernels: Sequence[Kernel], buffers: Sequence[Buffer] | None = None
) -> Program:
    """The same; the program itself where the steps are its own, or where memory would grow."""
    if steps == program.steps:
        return program
    found = with_steps(program, steps, kernels, buffers)
    return found if found.arena_bytes <= program.arena_bytes else program


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
    arena = _Arena(len(temporaries))
    offsets = {
        number: arena.place(round_up(max(buffers[number].nbytes, 1)), uses.first[number], uses.last[number])
        for number in temporaries
    }
    return offsets, arena.bytes


class _Arena:
    """What has its bytes, by offset: a search takes a few operations over arrays, whatever lives at the time."""

    def __init__(self, most: int) -> None:
        self.count = self.bytes = 0
        self.held = np.zeros((4, most), np.int64)
        """Offset, end, first and last step of each."""

    def place(self, size: int, first: int, last: int) -> int:
        """Take `size` bytes at the lowest offset that is free in all steps from `first` to `last`."""
        starts, ends, firsts, lasts = self.held[:, : self.count]
        alive = np.flatnonzero((firsts <= last) & (lasts >= first))
        free = np.zeros(alive.size + 1, np.int64)  # ahead of each that lives: the end of all before it
        np.maximum.accumulate(ends[alive], out=free[1:])
        gaps = starts[alive] - free[:-1] >= size
        offset = int(free[gaps.argmax() if gaps.any() else -1])
        self._keep((offset, offset + size, first, last))
        return offset

    def _keep(self, placed: tuple[int, int, int, int]) -> None:
        at = int(np.searchsorted(self.held[0, : self.count], placed[0]))
        self.held[:, at + 1 : self.count + 1] = self.held[:, at : self.count]
        self.held[:, at] = placed
        self.count += 1
        self.bytes = max(self.bytes, placed[1])

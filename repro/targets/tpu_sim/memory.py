"""What a running routine can touch: HBM arguments, VMEM areas, and the copies that are in flight."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from repro.ir.types import Array
from repro.targets.tpu_sim.faults import FaultError
from repro.targets.tpu_sim.isa import Dma, Send
from repro.targets.tpu_sim.operands import Ref
from repro.targets.tpu_sim.program import Area, Routine

JUNK = 0x5A
"""What VMEM holds before it is written: a byte that makes no zero."""
_JUNK_BOOLS = (np.arange(4099, dtype=np.uint32) * np.uint32(0x9E3779B1) >> np.uint32(16) & np.uint32(1)).astype(bool)
"""Bools are true and false in no regular order, so that neither stands in for one that was never written."""


@dataclass(frozen=True)
class Box:
    """Elements of one array: `start` plus a step of each stride, counts times."""

    start: int
    counts: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def low(self) -> int:
        return self.start + sum(min(0, (c - 1) * s) for c, s in zip(self.counts, self.strides, strict=True))

    @property
    def high(self) -> int:
        return self.start + sum(max(0, (c - 1) * s) for c, s in zip(self.counts, self.strides, strict=True))

    def elements(self) -> Array:
        total = np.array([self.start], np.int64)
        for count, stride in zip(self.counts, self.strides, strict=True):
            total = (total[:, None] + np.arange(count, dtype=np.int64) * stride).reshape(-1)
        return total

    def meets(self, other: Box) -> bool:
        if self.high < other.low or other.high < self.low:
            return False
        return bool(np.intersect1d(self.elements(), other.elements()).size)


@dataclass(frozen=True, eq=False)
class Flight:
    """A copy that no wait has taken yet, and the arrays here that it reads or writes.

    What came from another chip has left that one: its reading there ends with the wait here.
    """

    text: str
    names: frozenset[str]
    sent: tuple[Memory, Flight] | None = None


class Memory:
    """Arrays by name (`b0`, `v1`), flights by semaphore."""

    def __init__(self, routine: Routine, arguments: Sequence[Array]) -> None:
        self.routine = routine
        self.arrays: dict[str, Array] = {f"b{n}": array for n, array in enumerate(arguments)}
        for number, area in enumerate(routine.areas):
            self.arrays[f"v{number}"] = _junk(area)
        self.peers: Sequence[Memory] = ()
        """Memories of the chips that run the routine together, by number; this one among them."""
        self.waiting: list[deque[Flight]] = [deque() for _ in range(routine.semaphores)]
        self.flying: dict[str, list[tuple[Box, bool, Flight]]] = {}
        """Boxes in flight by array; true where the copy writes them."""

    def view(self, name: str, box: Box, where: str) -> Array:
        """A strided view of the elements of a box."""
        array = self.arrays[name]
        if 0 in box.counts:
            return np.empty(box.counts, array.dtype)
        if box.low < 0 or box.high >= array.size:
            raise _outside(name, box.low, box.high, array.size, where)
        strides = tuple(stride * array.itemsize for stride in box.strides)
        return as_strided(array[box.start :], box.counts, strides)

    def check(self, name: str, low: int, high: int, where: str) -> None:
        """Faults where elements low..high are not all inside the array."""
        size = self.arrays[name].size
        if low < 0 or high >= size:
            raise _outside(name, low, high, size, where)

    def touch(self, name: str, box: Box, writes: bool, where: str) -> None:
        """Faults where a copy in flight makes the access a race."""
        for other, written, flight in self.flying.get(name, ()):
            if (writes or written) and box.meets(other):
                own, others = ("writes" if each else "reads" for each in (writes, written))
                what = f"{own} {name} while a copy in flight {others} it"
                raise FaultError("transfer race", what, where, found=flight.text, expected="a wait before")

    def start(self, dma: Dma, counters: Mapping[str, int], text: str, where: str) -> int:
        """Copies at once, and keeps the copy in flight until a wait takes it. Returns the elements copied."""
        counts = tuple(dim.steps(counters) for dim in dma.dims)
        source = Box(dma.source.offset.value(counters), counts, tuple(dim.source for dim in dma.dims))
        target = Box(dma.target.offset.value(counters), counts, tuple(dim.target for dim in dma.dims))
        self._typed(dma, where)
        flight = Flight(text, frozenset({dma.source.name, dma.target.name}))
        self.semaphore(dma.semaphore.value(counters), where).append(flight)
        if 0 in counts:
            return 0
        read, written = self.view(dma.source.name, source, where), self.view(dma.target.name, target, where)
        self.touch(dma.source.name, source, False, where)
        self.touch(dma.target.name, target, True, where)
        np.copyto(written, read)
        self.flying.setdefault(dma.source.name, []).append((source, False, flight))
        self.flying.setdefault(dma.target.name, []).append((target, True, flight))
        return read.size

    def send(self, send: Send, counters: Mapping[str, int], text: str, where: str) -> None:
        """Copies to another chip's VMEM at once; in flight here and there until waits take it."""
        number = send.chip.value(counters)
        if not 0 <= number < len(self.peers) or self.peers[number] is self:
            raise FaultError("out of range", f"sends to chip {number} of {len(self.peers)}", where)
        peer = self.peers[number]
        source = Box(send.source.offset.value(counters), (send.count,), (1,))
        target = Box(send.target.offset.value(counters), (send.count,), (1,))
        for memory, ref, box, writes in ((self, send.source, source, False), (peer, send.target, target, True)):
            memory.typed(ref, send.dtype.storage, where)
            memory.touch(ref.name, box, writes, where)
        read = self.view(send.source.name, source, where)
        np.copyto(peer.view(send.target.name, target, where), read)
        number = send.semaphore.value(counters)
        leaving = Flight(text, frozenset({send.source.name}))
        arriving = Flight(text, frozenset({send.target.name}), (self, leaving))
        self.semaphore(number, where).append(leaving)
        peer.semaphore(number, where).append(arriving)
        self.flying.setdefault(send.source.name, []).append((source, False, leaving))
        peer.flying.setdefault(send.target.name, []).append((target, True, arriving))

    def _typed(self, dma: Dma, where: str) -> None:
        for ref in (dma.source, dma.target):
            self.typed(ref, dma.dtype.storage, where)
        target = dma.target
        if target.space == "b" and not self.routine.arguments[target.number].writable:
            raise FaultError("out of range", f"writes {target.name}, which is read only", where)

    def typed(self, ref: Ref, storage: np.dtype[Any], where: str) -> None:
        """Faults where the array is missing or of another type."""
        array = self.arrays.get(ref.name)
        if array is None:
            raise FaultError("out of range", f"there is no {ref.name}", where)
        if array.dtype != storage:
            raise FaultError("register type", f"{ref.name} holds another type", where, str(array.dtype), str(storage))

    def semaphore(self, number: int, where: str) -> deque[Flight]:
        if not 0 <= number < len(self.waiting):
            raise FaultError(
                "semaphore", f"there is no semaphore {number}", where, expected=f"below {len(self.waiting)}"
            )
        return self.waiting[number]

    def wait(self, number: int, count: int, where: str) -> None:
        queue = self.semaphore(number, where)
        if len(queue) < count:
            what = f"waits for {count} copies on semaphore {number}, which gets {len(queue)}"
            raise FaultError("semaphore", what, where, expected="as many copies as are waited for")
        for _ in range(count):
            flight = queue.popleft()
            self._land(flight)
            if flight.sent is not None:
                sender, leaving = flight.sent
                sender._land(leaving)

    def _land(self, flight: Flight) -> None:
        for name in flight.names:
            left = [entry for entry in self.flying.get(name, ()) if entry[2] is not flight]
            if left:
                self.flying[name] = left
            else:
                self.flying.pop(name, None)

    def finish(self, where: str) -> None:
        """Faults where the routine ends with copies that nobody waited for."""
        for number, queue in enumerate(self.waiting):
            if queue:
                raise FaultError(
                    "semaphore", f"ends with copies on semaphore {number} not waited for", where, queue[0].text
                )


def _outside(name: str, low: int, high: int, size: int, where: str) -> FaultError:
    return FaultError(
        "out of range", f"touches {name} outside its {size} elements", where, f"{low}..{high}", f"0..{size - 1}"
    )


def _junk(area: Area) -> Array:
    if area.dtype.name == "bool":
        return np.resize(_JUNK_BOOLS, area.elements)
    return np.full(area.elements * area.dtype.bytes, JUNK, np.uint8).view(area.dtype.storage)

"""Threads that are at the same place, and the blocks that are run at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from repro.ir.types import Array
from repro.targets.gpu.interpreter.memory import (
    LOCAL_BASE,
    SHARED_BASE,
    FaultError,
    GlobalMemory,
    LocalMemory,
    SharedMemory,
    Threads,
    for_each,
)
from repro.targets.gpu.interpreter.races import Clock, who


class Run:
    """Some consecutive blocks of a launch: their memories, and by lane each thread's number and block."""

    def __init__(
        self, first: int, count: int, block_size: int, grid: int, memory: GlobalMemory, globals_at: int, shared: int,
        shared_granule: int, local: int, local_granule: int,
    ) -> None:  # fmt: skip
        self.block_size, self.grid = block_size, grid
        lanes = count * block_size
        self.lanes = lanes
        self.blocks = np.arange(first, first + count)
        self.tids = np.tile(np.arange(block_size), count)
        self.slots = np.repeat(np.arange(count), block_size)
        self.numbers = who(self.blocks[self.slots], self.tids)
        self.clock = Clock(count, -(-block_size // 32))
        self.memory, self.globals_at = memory, globals_at
        self.shared = SharedMemory(count, shared, shared_granule, lanes)
        self.local = LocalMemory(lanes if local else 0, local, local_granule)

    def global_address(self, number: int) -> int:
        """Of a variable of the module."""
        return self.memory.address(self.globals_at + number)

    def load(self, space: str, addresses: Array, size: int, count: int, threads: Threads, cached: bool) -> list[Array]:
        match space:
            case "global" | "const":
                return self.memory.load(addresses, size, count, threads, cached)
            case "local":
                return self.local.load(addresses, size, count, threads)
            case "shared":
                return self.shared.load(addresses, size, count, threads)
            case _:
                found, inside = _space(addresses)
                return self.load(found, inside, size, count, threads, cached)

    def store(self, space: str, addresses: Array, values: Sequence[Array], size: int, threads: Threads) -> None:
        match space:
            case "global":
                self.memory.store(addresses, values, size, threads)
            case "local":
                self.local.store(addresses, values, size, threads)
            case "shared":
                broadcast = [for_each(value, threads.count) for value in values]
                self.shared.store(addresses, broadcast, size, threads)
            case _:
                found, inside = _space(addresses)
                self.store(found, inside, values, size, threads)

    def begin_copy(self, to: Array, source: Array, count: int, given: Array | None, threads: Threads) -> None:
        """cp.async of `count` words, of which the first `given` bytes are read and the others are zero. The address is
        aligned to all of them, read or not."""
        if count > 1 and (source & np.uint64(4 * count - 1)).any():
            position = int(np.flatnonzero(source & np.uint64(4 * count - 1))[0])
            raise FaultError(f"a cp.async of {4 * count} bytes by {threads.name(position)} is not aligned")
        if given is None or (given == 4 * count).all():
            values = self.memory.load(source, 4, count, threads, cached=True)
        else:
            values = [np.zeros(threads.count, np.uint32) for _ in range(count)]
            for k, value in enumerate(values):
                there = given >= 4 * (k + 1)
                if (~there & (given > 4 * k)).any():
                    raise FaultError("a cp.async reads a part of a word")
                if there.any():
                    some = Threads(threads.lanes[there], threads.slots[there], threads.numbers[there], threads.clock)
                    value[there] = self.memory.load(source[there] + np.uint64(4 * k), 4, 1, some, cached=True)[0]
        self.shared.copy(for_each(to, threads.count), values, threads)


def _space(addresses: Array) -> tuple[str, Array]:
    """The memory that generic addresses are of, and the addresses in it."""
    low, high = int(addresses.min()), int(addresses.max())
    if low >= LOCAL_BASE:
        return "local", addresses - np.uint64(LOCAL_BASE)
    if low >= SHARED_BASE and high < LOCAL_BASE:
        return "shared", addresses - np.uint64(SHARED_BASE)
    if high < SHARED_BASE:
        return "global", addresses
    raise FaultError("one access to several memories")


class Group:
    """Threads at the same place, in order of their lanes. `r` are their registers; unset ones are None."""

    def __init__(self, run: Run, lanes: Array, registers: list[Any]) -> None:
        self.run, self.lanes, self.r = run, lanes, registers

    @property
    def count(self) -> int:
        return self.lanes.size

    @property
    def whole(self) -> bool:
        """Whether these are all threads of the run."""
        return self.lanes.size == self.run.lanes

    @cached_property
    def slots(self) -> Array:
        """Each thread's block, counted from the first of the run."""
        return self.run.slots[self.lanes]

    @cached_property
    def threads(self) -> Threads:
        return Threads(self.lanes, self.slots, self.run.numbers[self.lanes], self.run.clock)

    def set(self, slot: int, value: Array) -> None:
        self.r[slot] = value

    def address(self, register: int, offset: np.uint64, variable: int) -> Array:
        value = self.r[register]
        if value.dtype.itemsize != 8:
            value = value.astype(np.uint64)
        elif value.dtype.kind != "u":
            value = value.view(np.uint64)
        if variable >= 0:
            value = value + np.uint64(self.run.global_address(variable))
        return value + offset if offset else value

    def part(self, chosen: Array, carried: Sequence[int], constants: Sequence[int]) -> Group:
        """Some of the threads, with the registers that they will read."""
        registers: list[Any] = [None] * len(self.r)
        places = chosen.nonzero()[0]
        for slot in (*carried, *constants):
            value = self.r[slot]
            registers[slot] = value if value is None or value.size == 1 else value.take(places)
        return Group(self.run, self.lanes.take(places), registers)

    def warps_meet(self) -> None:
        self.run.clock.warps_meet(self.slots, self.run.tids[self.lanes] >> 5)

    def shuffle(self, mode: str, value: Array, by: Array, bounds: Array) -> tuple[Array, Array]:
        """(values of other lanes of the warp, whether they lie inside of the segment); whole warps are here."""
        lane = (self.run.tids[self.lanes] & 31).astype(np.int64)
        limits, shift = bounds.view(np.uint32).astype(np.int64), by.view(np.uint32).astype(np.int64) & 31
        clamp, segment = limits & 31, (limits >> 8) & 31
        top = (lane & segment) | (clamp & ~segment)
        bottom = lane & segment
        if mode == "up":
            other = lane - shift
            inside = other >= top
        elif mode == "down":
            other = lane + shift
            inside = other <= top
        elif mode == "bfly":
            other = lane ^ shift
            inside = other <= top
        else:
            other = bottom | (shift & ~segment)
            inside = other <= top
        other = np.where(inside, other, lane)
        here = np.full(self.run.lanes, -1, np.int64)
        here[self.lanes] = np.arange(self.count)
        position = here[self.lanes - lane + other]
        if (position < 0).any():
            raise FaultError("a shuffle reads from a thread that does not take part")
        return np.broadcast_to(value, (self.count,))[position], np.broadcast_to(inside, (self.count,)).copy()


def merged(groups: Sequence[Group], carried: Sequence[int], constants: Sequence[int]) -> Group:
    """Groups that have come to one place, as one, in order of lanes."""
    if len(groups) == 1:
        return groups[0]
    lanes = np.concatenate([group.lanes for group in groups])
    order = np.argsort(lanes)
    first = groups[0]
    registers: list[Any] = [None] * len(first.r)
    for slot in constants:
        registers[slot] = first.r[slot]
    for slot in carried:
        registers[slot] = _joined([group.r[slot] for group in groups], [group.count for group in groups], order)
    return Group(first.run, lanes[order], registers)


def _joined(values: Sequence[Array], counts: Sequence[int], order: Array) -> Array:
    first = values[0]
    raw = _BITS[first.dtype.itemsize] if first.dtype.kind != "b" else first.dtype
    bits = [value.view(raw) for value in values]
    if all(value.size == 1 for value in bits) and all(value[0] == bits[0][0] for value in bits):
        return bits[0]
    return np.concatenate([for_each(v, n) for v, n in zip(bits, counts, strict=True)]).take(order)


_BITS = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}

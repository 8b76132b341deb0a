"""Who touched what since when: two threads may meet in memory only with a barrier between them.

A stamp is a time (barriers passed so far), a block and a thread of it. An access conflicts with an earlier one by
another thread, one of them a write, unless a barrier of their block, or one of their warp, lies between.
"""

from __future__ import annotations

import numpy as np

from repro.ir.types import Array

_THREAD_BITS, _BLOCK_BITS = 12, 28
_WHO = np.int64((1 << (_THREAD_BITS + _BLOCK_BITS)) - 1)
_SOME_THREAD = np.int64((1 << _THREAD_BITS) - 1)
_SEVERAL = np.int64(1 << (_THREAD_BITS - 1))
"""Above every thread's number: with this bit it stands for several threads of its warp."""
_THREADS = np.int64(_THREAD_BITS)
_TIME = np.int64(_THREAD_BITS + _BLOCK_BITS)
_WARP = np.int64(5)
_LANES = np.int64((1 << 5) - 1)
NOBODY = -1
LARGEST_GRID = (1 << _BLOCK_BITS) - 2
"""The number that several blocks together have is kept free."""


def who(blocks: Array, threads: Array) -> Array:
    """The number of each thread."""
    return (blocks.astype(np.int64) << _THREADS) | threads.astype(np.int64)


def describe(number: int) -> str:
    block, thread = number >> _THREAD_BITS, number & int(_SOME_THREAD)
    if block > LARGEST_GRID:
        return "threads of several blocks"
    return f"block {block} " + (f"thread {thread}" if thread < int(_SEVERAL) else "several threads")


class Clock:
    """Barriers so far, and when each block and each warp of a set of blocks met last."""

    def __init__(self, blocks: int, warps: int) -> None:
        self.now = 0
        self.block = np.zeros(blocks, np.int64)
        self.warp = np.zeros((blocks, warps), np.int64)

    def blocks_meet(self, slots: Array) -> None:
        self.now += 1
        self.block[slots] = self.now

    def warps_meet(self, slots: Array, warps: Array) -> None:
        self.now += 1
        self.warp[slots, warps] = self.now


class Ledger:
    """The last writer and the readers of each granule of a memory; `private`: each granule is one block's alone."""

    def __init__(self, granules: int, private: bool = False) -> None:
        self.private = private
        self.writer = np.full(granules, NOBODY, np.int64)
        self.reader = np.full(granules, NOBODY, np.int64)

    def read(self, at: Array, me: Array, slots: Array, clock: Clock) -> tuple[int, int] | None:
        """Note reads of granules by threads; a (position, other) that conflicts, or None."""
        found = self._conflict(self.writer[at], me, slots, clock)
        if found is not None:
            return found
        before = self.reader[at]
        stamp = (np.int64(clock.now) << _TIME) | me
        unordered = self._unordered(before, me, slots, clock)
        if unordered is not None:
            stamp = np.where(unordered, _together(before, stamp), stamp)
        self.reader[at] = stamp
        self._agree(at, stamp)
        return None

    def _agree(self, at: Array, stamp: Array) -> None:
        """Where several threads of one access read a granule, one stamp was kept: it becomes that of them all."""
        while True:
            kept = self.reader[at]
            lost = (kept != stamp).nonzero()[0]
            if not lost.size:
                return
            at, stamp = at[lost], _together(kept[lost], stamp[lost])
            self.reader[at] = stamp

    def write(self, at: Array, me: Array, slots: Array, clock: Clock) -> tuple[int, int] | None:
        """Note writes; a (position, other) that conflicts, or None."""
        found = self._conflict(self.writer[at], me, slots, clock) or self._conflict(self.reader[at], me, slots, clock)
        if found is not None:
            return found
        stamp = (np.int64(clock.now) << _TIME) | me
        self.writer[at] = stamp
        kept = self.writer[at]
        if np.array_equal(kept, stamp):
            return None
        position = int(np.flatnonzero(kept != stamp)[0])
        return position, int(kept[position] & _WHO)

    def _conflict(self, stamps: Array, me: Array, slots: Array, clock: Clock) -> tuple[int, int] | None:
        bad = self._unordered(stamps, me, slots, clock)
        if bad is None:
            return None
        position = int(np.flatnonzero(bad)[0])
        return position, int(stamps[position] & _WHO)

    def _unordered(self, stamps: Array, me: Array, slots: Array, clock: Clock) -> Array | None:
        """Where another thread's stamp has no barrier between it and now; None: nowhere."""
        if self.private and int(stamps.max()) < int(clock.block.min()) << int(_TIME):
            return None  # all blocks have met since
        bad = _unordered(stamps, me, slots, clock)
        return bad if np.count_nonzero(bad) else None


def _unordered(stamps: Array, me: Array, slots: Array, clock: Clock) -> Array:
    others = stamps & _WHO
    different = (stamps >= 0) & (others != me)
    if not np.count_nonzero(different):
        return different
    times = stamps >> _TIME
    same_block = (others >> _THREADS) == (me >> _THREADS)
    same_warp = _warp(others) == _warp(me)
    warps = (me & _SOME_THREAD) >> _WARP
    ordered = (same_block & (times < clock.block[slots])) | (same_warp & (times < clock.warp[slots, warps]))
    return different & ~ordered


def _warp(who: Array) -> Array:
    """Block and warp; that of several warps is nobody's."""
    return (who & ~_SEVERAL) >> _WARP


def _together(a: Array, b: Array) -> Array:
    """The stamp of both: of several threads of one warp, of one block, or of several blocks; the later time."""
    apart = a ^ b
    if int(np.bitwise_or.reduce(apart)) >> _THREAD_BITS == 0:  # as a rule: one time and one block
        warp = a & (_SOME_THREAD ^ _SEVERAL ^ _LANES)
        several = np.where(apart & (_SOME_THREAD ^ _SEVERAL ^ _LANES), _SOME_THREAD, warp | _SEVERAL)
        return (a & ~_SOME_THREAD) | several
    time = np.maximum(a >> _TIME, b >> _TIME) << _TIME
    warp = _warp(a & _WHO)
    blocks_a, blocks_b = (a & _WHO) >> _THREADS, (b & _WHO) >> _THREADS
    block = np.where(blocks_a == blocks_b, blocks_a, np.int64(LARGEST_GRID + 1))
    several = np.where(warp == _warp(b & _WHO), (warp << _WARP) | _SEVERAL, (block << _THREADS) | _SOME_THREAD)
    return time | several

"""The memories of a grid, checked at each access: bounds, alignment, values never written, races.

Addresses are numbers of our own. Each buffer is a window of global memory with room around it, so that an access that
leaves one never finds another. But loads may end behind it, as LLVM has them do where it joins neighbours: buffers
begin at multiples of 256 and nothing else lies there (placement.py). They find ones. Shared memory is one array for all
blocks of a run, local memory one for all threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from repro.errors import InternalError
from repro.ir.types import Array
from repro.targets.gpu.interpreter.races import Clock, Ledger, describe

MOST_LOADED = 16
"""Bytes of the widest load. Each is aligned to what it brings, so that one that begins in a buffer touches no page but
the buffer's own."""
WINDOW_BITS = 36
"""A window's first address is its number, from 1 on, shifted by this."""
LOCAL_BASE, SHARED_BASE = 1 << 62, 1 << 61
"""Where local and shared memory stand among generic addresses."""
_UNSIGNED = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}


class FaultError(InternalError):
    """Code did what hardware would not, or might not, do as meant."""


@dataclass(frozen=True, eq=False)
class Threads:
    """Those that make an access: their places among the threads of the run, their blocks' slots, their numbers."""

    lanes: Array
    slots: Array
    numbers: Array
    clock: Clock
    _repeated: dict[int, tuple[Array, Array]] = field(default_factory=dict[int, tuple[Array, Array]], init=False)

    @property
    def count(self) -> int:
        return self.lanes.size

    def name(self, position: int) -> str:
        return describe(int(self.numbers[position]))

    def repeated(self, count: int) -> tuple[Array, Array]:
        """Numbers and slots of so many accesses by each thread, one access of all after another."""
        if count == 1:
            return self.numbers, self.slots
        if count not in self._repeated:
            self._repeated[count] = np.tile(self.numbers, count), np.tile(self.slots, count)
        return self._repeated[count]


@dataclass(eq=False)
class Window:
    """A buffer in global memory. `known` says by byte what has a value; None: all of it."""

    name: str
    data: Array
    known: Array | None = None
    writable: bool = True
    ledger: Ledger | None = field(default=None, init=False)
    cached: bool = field(default=False, init=False)
    """Whether this launch read it by a road that takes it to be constant."""
    written: bool = field(default=False, init=False)

    def contents(self, end: int) -> tuple[Array, Array | None]:
        """Its bytes and which of them are known, for loads up to `end`; ones behind its own end."""
        over = end - self.data.size
        if over <= 0:
            return self.data, self.known
        known = None if self.known is None else np.append(self.known, np.ones(over, np.uint8))
        return np.append(self.data, np.full(over, 0xFF, np.uint8)), known


class GlobalMemory:
    """Windows by number; `granule` is the least size of an access, for the ledger of who wrote what."""

    def __init__(self, windows: Sequence[Window], granule: int) -> None:
        self.windows = tuple(windows)
        self.granule = granule
        for window in self.windows:
            window.ledger, window.cached, window.written = None, False, False
            if window.known is not None and window.known.all():
                window.known = None

    def address(self, number: int) -> int:
        """Of the first byte of a window."""
        return (number + 1) << WINDOW_BITS

    def load(self, addresses: Array, size: int, count: int, threads: Threads, cached: bool) -> list[Array]:
        """`count` elements of `size` bytes for each thread; `cached`: the code says that nobody writes there."""
        found = [np.empty(addresses.shape, _UNSIGNED[size]) for _ in range(count)]
        for window, offsets, chosen in self._places(addresses, size * count, threads, loads=True):
            values = self._read(window, offsets, size, count, _some(threads, chosen), cached)
            if chosen is None:
                return values
            for whole, part in zip(found, values, strict=True):
                whole[chosen] = part
        return found

    def _read(
        self, window: Window, offsets: Array, size: int, count: int, threads: Threads, cached: bool
    ) -> list[Array]:
        first = offsets // np.uint64(size)
        data, known = window.contents(int(offsets.max()) + size * count)
        if known is not None:
            _check_known(known, first, size, count, window.name, threads)
        if cached:
            window.cached = True
            if window.written:
                raise FaultError(f"{window.name} is read as a constant, and written in the same launch")
        else:
            self._note(window, offsets, size * count, threads, write=False)
        elements = _elements(data, size)
        return [elements.take(first + np.uint64(k) if k else first) for k in range(count)]

    def store(self, addresses: Array, values: Sequence[Array], size: int, threads: Threads) -> None:
        addresses = for_each(addresses, threads.count)
        values = [for_each(value, threads.count) for value in values]
        for window, offsets, chosen in self._places(addresses, size * len(values), threads):
            some = _some(threads, chosen)
            if not window.writable:
                raise FaultError(f"{window.name} is written by {some.name(0)}, and is not to be")
            if window.cached:
                raise FaultError(f"{window.name} is written, and was read as a constant in the same launch")
            window.written = True
            self._note(window, offsets, size * len(values), some, write=True)
            first = offsets // np.uint64(size)
            for k, value in enumerate(values):
                at = first + np.uint64(k) if k else first
                _elements(window.data, size)[at] = value if chosen is None else value[chosen]
                if window.known is not None:
                    _elements(window.known, size)[at] = _ALL_KNOWN[size]

    def _places(
        self, addresses: Array, nbytes: int, threads: Threads, loads: bool = False
    ) -> Iterator[tuple[Window, Array, Array | None]]:
        """(window, offsets in it, which threads): one window as a rule."""

        def end(window: Window) -> int:
            return -(-window.data.size // nbytes) * nbytes if loads else window.data.size

        def outside() -> FaultError:
            return self._outside(addresses, nbytes, threads, end)

        if int(np.bitwise_or.reduce(addresses)) & (nbytes - 1):
            position = int(np.flatnonzero(addresses & np.uint64(nbytes - 1))[0])
            raise FaultError(f"an access of {nbytes} bytes by {threads.name(position)} is not aligned")
        number = int(addresses[0]) >> WINDOW_BITS
        offsets = addresses - np.uint64(number << WINDOW_BITS)
        if 1 <= number <= len(self.windows):
            window = self.windows[number - 1]
            if int(offsets.max()) + nbytes <= end(window):
                yield window, offsets, None
                return
        numbers = addresses >> np.uint64(WINDOW_BITS)
        for each in np.unique(numbers).tolist():
            chosen = numbers == each
            inside = addresses[chosen] - np.uint64(each << WINDOW_BITS)
            window = self.windows[each - 1] if 1 <= each <= len(self.windows) else None
            if window is None or int(inside.max()) + nbytes > end(window):
                raise outside()
            yield window, inside, chosen

    def _outside(self, addresses: Array, nbytes: int, threads: Threads, end: Callable[[Window], int]) -> FaultError:
        for position, address in enumerate(addresses.tolist()):
            number, offset = address >> WINDOW_BITS, address & ((1 << WINDOW_BITS) - 1)
            known = 1 <= number <= len(self.windows)
            if not known or offset + nbytes > end(self.windows[number - 1]):
                near = self.windows[number - 1] if known else None
                where = "no buffer" if near is None else f"{near.name} of {near.data.size} bytes"
                return FaultError(
                    f"an access of {nbytes} bytes by {threads.name(position)} at byte {offset} of {where}"
                )
        return FaultError("an access outside of all buffers")

    def _note(self, window: Window, offsets: Array, nbytes: int, threads: Threads, write: bool) -> None:
        if not window.writable:
            return
        if window.ledger is None:
            window.ledger = Ledger(-(-(window.data.size + MOST_LOADED) // self.granule))
        offsets = for_each(offsets, threads.count)
        _note(window.ledger, offsets, nbytes, self.granule, threads, write, window.name)


def for_each(value: Array, count: int) -> Array:
    """One value for each of so many threads."""
    return value if value.size == count else np.broadcast_to(value, (count,))


_ALL_KNOWN = {size: int.from_bytes(b"\1" * size, "little") for size in _UNSIGNED}


def _some(threads: Threads, chosen: Array | None) -> Threads:
    if chosen is None:
        return threads
    return Threads(threads.lanes[chosen], threads.slots[chosen], threads.numbers[chosen], threads.clock)


def _elements(data: Array, size: int) -> Array:
    return data if size == 1 else data[: data.size // size * size].view(_UNSIGNED[size])


def _check_known(known: Array, first: Array, size: int, count: int, name: str, threads: Threads) -> None:
    flags = _elements(known, size)
    for k in range(count):
        missing = flags.take(first + np.uint64(k)) != _ALL_KNOWN[size]
        if np.count_nonzero(missing):
            position = int(np.flatnonzero(missing)[0])
            at = (int(np.broadcast_to(first, missing.shape)[position]) + k) * size
            raise FaultError(f"{threads.name(position)} reads byte {at} of {name}, which nothing has written")


def _granules(offsets: Array, nbytes: int, granule: int) -> Array:
    """Those that an access touches: the first of each thread, then the second of each, and so on."""
    first = (offsets // np.uint64(granule)).astype(np.int64)
    if nbytes <= granule:
        return first
    return (first + np.arange(nbytes // granule)[:, None]).reshape(-1)


def _note(ledger: Ledger, offsets: Array, nbytes: int, granule: int, threads: Threads, write: bool, name: str) -> None:
    at = _granules(offsets, nbytes, granule)
    numbers, slots = threads.repeated(at.size // threads.count)
    found = (ledger.write if write else ledger.read)(at, numbers, slots, threads.clock)
    if found is not None:
        position, other = found
        raise FaultError(
            f"a race at byte {int(at[position]) * granule} of {name}: {threads.name(position % threads.count)} "
            f"{'writes' if write else 'reads'} what {describe(other)} touched without a barrier between them"
        )


# ── shared memory ───────────────────────────────────────────────────────────────────────────────────


@dataclass(eq=False)
class _Copy:
    """A cp.async under way: where to, what, and the number of its group for each thread."""

    threads: Threads
    addresses: Array
    values: list[Array]
    group: Array


class SharedMemory:
    """Shared memory of some blocks, `nbytes` each, in granules of the least size of an access."""

    def __init__(self, blocks: int, nbytes: int, granule: int, lanes: int) -> None:
        self.nbytes, self.granule = nbytes, granule
        self._stride = -(-nbytes // 16) * 16
        size = blocks * self._stride
        self._data = np.empty(size, np.uint8)
        self._known = np.zeros(size, np.uint8)
        self._ledger = Ledger(size // granule, private=True)
        self._pending = np.zeros(size // granule, np.uint8)
        self._copies: list[_Copy] = []
        self._groups = np.zeros(lanes, np.int64)
        """Groups of copies that each thread has closed."""

    def load(self, addresses: Array, size: int, count: int, threads: Threads) -> list[Array]:
        offsets = self._offsets(addresses, size * count, threads)
        first = offsets // np.uint64(size)
        self._check_pending(offsets, size * count, threads, "reads")
        _check_known(self._known, first, size, count, "shared memory", threads)
        _note(self._ledger, offsets, size * count, self.granule, threads, False, "shared memory")
        elements = _elements(self._data, size)
        return [elements.take(first + np.uint64(k) if k else first) for k in range(count)]

    def store(self, addresses: Array, values: Sequence[Array], size: int, threads: Threads) -> None:
        offsets = self._offsets(addresses, size * len(values), threads)
        self._check_pending(offsets, size * len(values), threads, "writes")
        self._write(offsets, values, size, threads)

    def _write(self, offsets: Array, values: Sequence[Array], size: int, threads: Threads) -> None:
        _note(self._ledger, offsets, size * len(values), self.granule, threads, True, "shared memory")
        first = offsets // np.uint64(size)
        for k, value in enumerate(values):
            at = first + np.uint64(k)
            _elements(self._data, size)[at] = value
            _elements(self._known, size)[at] = _ALL_KNOWN[size]

    def _offsets(self, addresses: Array, nbytes: int, threads: Threads) -> Array:
        addresses = for_each(addresses, threads.count)
        if int(np.bitwise_or.reduce(addresses)) & (nbytes - 1):
            position = int(np.flatnonzero(addresses & np.uint64(nbytes - 1))[0])
            raise FaultError(f"an access of {nbytes} bytes to shared memory by {threads.name(position)} is not aligned")
        if int(addresses.max()) + nbytes > self.nbytes:
            position = int(addresses.argmax())
            raise FaultError(
                f"an access of {nbytes} bytes by {threads.name(position)} at byte {int(addresses[position])} of shared "
                f"memory of {self.nbytes} bytes"
            )
        return addresses + threads.slots.astype(np.uint64) * np.uint64(self._stride)

    def _granules(self, offsets: Array, nbytes: int) -> Array:
        return _granules(offsets, nbytes, self.granule)

    def _check_pending(self, offsets: Array, nbytes: int, threads: Threads, verb: str) -> None:
        if not self._copies:
            return
        waiting = self._pending[self._granules(offsets, nbytes)]
        if np.count_nonzero(waiting):
            position = int(waiting.nonzero()[0][0]) % threads.count
            raise FaultError(
                f"{threads.name(position)} {verb} byte {int(offsets[position]) % self._stride} of shared memory, "
                "to which a cp.async is under way"
            )

    def copy(self, addresses: Array, values: list[Array], threads: Threads) -> None:
        """Begin a cp.async of 4-byte words: they are there when their thread has waited for their group, and may be
        written from now on."""
        offsets = self._offsets(addresses, 4 * len(values), threads)
        self._check_pending(offsets, 4 * len(values), threads, "copies to")
        _note(self._ledger, offsets, 4 * len(values), self.granule, threads, True, "shared memory")
        self._pending[self._granules(offsets, 4 * len(values))] = 1
        self._copies.append(_Copy(threads, offsets, values, self._groups[threads.lanes]))

    def commit(self, threads: Threads) -> None:
        self._groups[threads.lanes] += 1

    def wait(self, threads: Threads, newest: int, everything: bool = False) -> None:
        """Until at most the `newest` groups of each thread are under way; `everything`: copies in no group too."""
        here = np.zeros(self._groups.size, np.bool_)
        here[threads.lanes] = True
        kept: list[_Copy] = []
        for copy in self._copies:
            limit = self._groups[copy.threads.lanes] - newest
            done = here[copy.threads.lanes] & ((copy.group < limit) | everything)
            if done.any():
                some = _some(copy.threads, done)
                offsets = copy.addresses[done]
                self._pending[self._granules(offsets, 4 * len(copy.values))] = 0
                self._write(offsets, [np.broadcast_to(v, done.shape)[done] for v in copy.values], 4, some)
            if not done.all():
                left = ~done
                values = [np.broadcast_to(value, done.shape)[left] for value in copy.values]
                kept.append(_Copy(_some(copy.threads, left), copy.addresses[left], values, copy.group[left]))
        self._copies = kept


# ── local memory ────────────────────────────────────────────────────────────────────────────────────


class LocalMemory:
    """Local memory of each thread, a row of granules for all threads at each place."""

    def __init__(self, lanes: int, nbytes: int, granule: int) -> None:
        self.nbytes, self.granule = nbytes, granule
        self._data = np.empty((-(-nbytes // granule), lanes), _UNSIGNED[granule])
        self._known = np.zeros(self._data.shape, np.bool_)

    def _rows(self, addresses: Array, nbytes: int, threads: Threads) -> Array:
        if int(np.bitwise_or.reduce(addresses)) & (nbytes - 1):
            position = int(np.flatnonzero(addresses & np.uint64(nbytes - 1))[0])
            raise FaultError(f"an access of {nbytes} bytes to local memory by {threads.name(position)} is not aligned")
        if int(addresses.max()) + nbytes > self.nbytes:
            position = int(addresses.argmax())
            raise FaultError(
                f"an access of {nbytes} bytes by {threads.name(position)} at byte {int(addresses[position])} of local "
                f"memory of {self.nbytes} bytes"
            )
        return (addresses // np.uint64(self.granule)).astype(np.int64)

    def load(self, addresses: Array, size: int, count: int, threads: Threads) -> list[Array]:
        rows = self._rows(addresses, size * count, threads)
        pieces = size // self.granule
        return [self._piece(rows + k * pieces, pieces, size, threads) for k in range(count)]

    def _piece(self, rows: Array, pieces: int, size: int, threads: Threads) -> Array:
        result: Array | None = None
        for piece in range(pieces):
            at = _where(rows + piece, threads, self._data.shape[1])
            known = self._known[at]
            if not known.all():
                position = int(np.flatnonzero(~known)[0])
                byte = int(np.broadcast_to(rows, known.shape)[position]) * self.granule
                raise FaultError(
                    f"{threads.name(position)} reads byte {byte} of local memory, which it has not written"
                )
            part = self._data[at]
            if pieces == 1:
                return part.copy()
            shifted = part.astype(_UNSIGNED[size]) << _UNSIGNED[size].type(8 * self.granule * piece)
            result = shifted if result is None else result | shifted
        assert result is not None
        return result

    def store(self, addresses: Array, values: Sequence[Array], size: int, threads: Threads) -> None:
        rows = self._rows(addresses, size * len(values), threads)
        pieces = size // self.granule
        for k, value in enumerate(values):
            for piece in range(pieces):
                at = _where(rows + (k * pieces + piece), threads, self._data.shape[1])
                shift = value.dtype.type(8 * self.granule * piece)
                self._data[at] = value if pieces == 1 else (value >> shift).astype(self._data.dtype)
                self._known[at] = True


def _where(rows: Array, threads: Threads, lanes: int) -> tuple[Any, Any]:
    """An index of one row as a rule: every thread's own element at the same place."""
    row: Any = int(rows[0]) if rows.size == 1 else rows
    if isinstance(row, int) and threads.count == lanes:
        return row, slice(None)
    return row, threads.lanes

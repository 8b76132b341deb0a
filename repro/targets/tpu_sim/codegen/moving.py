"""Copies under way in a routine: those made once, and those of each chunk, two of which are in VMEM at a time."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from repro.ir.loops import Kernel
from repro.targets.tpu_sim import isa
from repro.targets.tpu_sim.codegen import overlap
from repro.targets.tpu_sim.codegen.overlap import Part
from repro.targets.tpu_sim.codegen.transfers import Copy
from repro.targets.tpu_sim.codegen.writer import Writer
from repro.targets.tpu_sim.operands import Index, Ref, Term, hbm, vmem
from repro.targets.tpu_sim.program import Statement


@dataclass(frozen=True)
class _Each:
    """A copy of each chunk: to one half of the area, from `step` elements further each time. Its copies take two
    semaphores in turn, from `semaphore` on."""

    area: int
    room: int
    copy: Copy
    step: int
    semaphore: int
    parts: tuple[tuple[int, Copy], ...] = ()
    """The first chunk's copy in pieces, which are waited for one by one."""


class Moving:
    """Writes the transfers of a routine."""

    def __init__(self, writer: Writer, kernel: Kernel, count: int) -> None:
        self.writer, self.kernel = writer, kernel
        self.flying: dict[int, int] = {}
        """Areas into which a copy made once is on its way, and its semaphore."""
        self.coming: list[_Each] = []
        self.going: dict[int, int] = {}
        """Areas from which each chunk's result leaves, and the first of its two semaphores."""
        self.outside: list[Statement] = writer.sink
        self.pieces: list[tuple[int, Statement]] = []
        """Copies made once that follow those of the first chunk, by their turn."""
        self.index, self.count = Index(), count

    def _copy(self, semaphore: Index, place: Ref, copy: Copy, outwards: bool, when: Index | None = None) -> None:
        dtype, far = self.kernel.buffers[copy.buffer].dtype, hbm(copy.buffer, copy.start)
        ends = (far, place) if outwards else (place, far)
        dims = copy.outwards() if outwards else copy.dims
        self.writer.put(isa.Dma(semaphore, dtype, *ends, dims, when))

    # once ───────────────────────────────────────────────────────────────────────────────────────────

    def start(self, area: int, copy: Copy) -> None:
        """Bring something in before the first chunk."""
        if 0 in (dim.count for dim in copy.dims):
            return
        self.flying[area] = self.writer.semaphore()
        self._first(Index(self.flying[area]), vmem(area), copy)

    def start_pieces(self, area: int, parts: Sequence[tuple[int, Copy]]) -> int:
        """The same in pieces. Returns the semaphore of the first; each has the one after that of the last. The first
        pieces of all areas come first."""
        first = self.writer.semaphore(len(parts))
        for number, (place, copy) in enumerate(parts):
            self._first(Index(first + number), vmem(area, place), copy, number)
        return first

    def wait_for_piece(self, semaphore: Index) -> None:
        """In the first chunk: later ones find it there."""
        self.writer.put(isa.Wait(semaphore, 1, self.index * -1))

    def _first(self, semaphore: Index, place: Ref, copy: Copy, turn: int = 0) -> None:
        sink, self.writer.sink = self.writer.sink, list[Statement]()
        start = _without(copy.start, self.index) if self.index.terms else copy.start
        self._copy(semaphore, place, Copy(copy.buffer, start, copy.dims), outwards=False)
        self.pieces += [(turn, statement) for statement in self.writer.sink]
        self.writer.sink = sink
        if self.count == 1:
            self.all_started()

    def all_started(self) -> None:
        self.outside += [statement for _, statement in sorted(self.pieces, key=lambda piece: piece[0])]
        self.pieces.clear()

    def wait_for(self, areas: Iterable[int]) -> None:
        for area in sorted(set(areas)):
            semaphore = self.flying.pop(area, None)
            if semaphore is not None:
                self.writer.put(isa.Wait(Index(semaphore)))

    def wait_for_all(self) -> None:
        self.wait_for(list(self.flying))

    def send(self, area: int, copy: Copy) -> None:
        """Take a result out, and wait until it has arrived."""
        if 0 in (dim.count for dim in copy.dims):
            return
        semaphore = Index(self.writer.semaphore())
        self._copy(semaphore, vmem(area), copy, outwards=True)
        self.writer.put(isa.Wait(semaphore))

    # in chunks ──────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def part(self) -> Generator[Part]:
        """What is done for each chunk, or a part of it; its index is the chunk's number."""
        made = Part(self.writer.counter())
        self.writer.sink, self.index, self.coming = made.body, made.index, []
        yield made
        self.writer.sink = self.outside

    def all_chunks(self, front: Part, back: Part) -> None:
        """Both parts for every chunk."""
        self.outside += overlap.chunks(self.writer, front, back, self.count)
        for semaphore in self.going.values():
            for chunk in range(max(self.count - 2, 0), self.count):
                self.writer.put(isa.Wait(Index(semaphore + chunk % 2)))

    def half(self, room: int) -> Index:
        """Where this chunk's half of an area begins."""
        return _parity(self.index) * room

    def start_each(
        self, area: int, room: int, copy: Copy, step: int, parts: Sequence[tuple[int, Copy]] = ()
    ) -> int | None:
        """Bring in each chunk's elements; `copy` is written for the chunk that is worked on. The first chunk's may come
        in `parts`, which `wait_for_piece` waits for: returns the semaphore of the first of them."""
        self.coming.append(_Each(area, room, copy, step, self.writer.semaphore(2), tuple(parts)))
        return self.start_pieces(area, parts) if parts else None

    def next_chunk(self) -> None:
        """Before the loop the first chunk's copies, in it the next one's; then the wait for this one's."""
        sink, self.writer.sink = self.writer.sink, self.outside
        for each in self.coming:
            if not each.parts:
                first = _from(each, _without(each.copy.start, self.index))
                self._copy(Index(each.semaphore), vmem(each.area), first, outwards=False)
        self.all_started()
        self.writer.sink = sink
        more, after = self.index * -1 + (self.count - 2), self.index + 1
        for each in self.coming:
            place = vmem(each.area, _parity(after) * each.room)
            self._copy(_parity(after) + each.semaphore, place, _from(each, each.copy.start + each.step), False, more)
        for each in self.coming:
            later = self.index + -1 if each.parts else None
            self.writer.put(isa.Wait(_parity(self.index) + each.semaphore, 1, later))

    def send_each(self, area: int, room: int, copy: Copy) -> None:
        """Take this chunk's result out of its half of an area."""
        self._copy(_parity(self.index) + self.going[area], vmem(area, self.half(room)), copy, outwards=True)

    def wait_sent(self, area: int) -> None:
        """Until the result of the last chunk but one has left: its half is written again."""
        self.going[area] = self.writer.semaphore(2)
        self.writer.put(isa.Wait(_parity(self.index) + self.going[area], 1, self.index + -2))


def _parity(index: Index) -> Index:
    """The counter mod 2, or of the counter after it."""
    (term,) = index.terms
    even = Index(0, (Term(term.counter, 1, 1, 2),))
    return even if index.constant % 2 == 0 else even * -1 + 1


def _without(start: Index, index: Index) -> Index:
    """The start for chunk 0."""
    names = {term.counter for term in index.terms}
    return Index(start.constant, tuple(term for term in start.terms if term.counter not in names))


def _from(each: _Each, start: Index) -> Copy:
    return Copy(each.copy.buffer, start, each.copy.dims)

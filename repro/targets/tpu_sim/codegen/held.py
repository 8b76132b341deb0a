"""What a routine has in VMEM: where each buffer lies, and what of it changes from chunk to chunk."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager

from repro.ir import index as ix
from repro.ir.expressions import Axis, Expr
from repro.ir.types import DType
from repro.targets.tpu_sim.codegen import chunks
from repro.targets.tpu_sim.codegen.chunks import Chunked
from repro.targets.tpu_sim.codegen.moving import Moving
from repro.targets.tpu_sim.codegen.stages import loads
from repro.targets.tpu_sim.codegen.writer import Writer
from repro.targets.tpu_sim.operands import Index, Ref, vmem


class Held:
    """Buffers beyond the kernel's own are what stages make; `areas` says where each buffer lies in VMEM."""

    def __init__(self, chunked: Chunked, writer: Writer) -> None:
        self.kernel, self.number, self.writer = chunked.kernel, chunked.number, writer
        self.moving = Moving(writer, chunked.kernel, chunked.count)
        self.outside = writer.sink
        self.areas: dict[int, int] = {}
        self.windows: dict[int, chunks.Window] = {}
        self.varying: set[int] = set()
        """Buffers that hold something else in each chunk."""
        self.halves: dict[int, Expr] = {}
        """Buffers two chunks' elements of which are in VMEM: where this chunk's half begins."""
        self.known: dict[Axis, Index] = {}
        self.ahead = False
        """Whether a contraction's sums are read after the next chunk's were begun."""

    @property
    def index(self) -> Index:
        return Index() if self.number is None else self.known[self.number]

    def area(self, dtype: DType, elements: int) -> int:
        """A new buffer that lies in VMEM alone."""
        number = self.unused()
        self.areas[number] = self.writer.area(dtype, elements)
        return number

    def unused(self) -> int:
        """A number for a buffer that lies in VMEM alone."""
        return max((*self.areas, len(self.kernel.buffers) - 1)) + 1

    def varies(self, roots: Sequence[Expr]) -> bool:
        found = self.number is not None and any(self.number in root.free for root in roots)
        return found or any(each.buffer in self.varying for each in loads(roots))

    @contextmanager
    def once_if(self, steady: bool) -> Generator[None]:
        """What is the same in every chunk is done before the first."""
        sink = self.writer.sink
        if steady:
            self.writer.sink = self.outside
        yield
        self.writer.sink = sink

    def wait_for(self, numbers: Iterable[int]) -> None:
        with self.once_if(True):
            self.moving.wait_for({self.areas[number] for number in numbers})

    def half_of(self, result: int, elements: int) -> Ref:
        """Where a unit's results go: to one half of their area, if the other one's are still to be read."""
        if not self.ahead or self.number is None or result not in self.varying:
            return vmem(self.areas[result])
        window = chunks.Window(0, 0, elements)
        self.windows[result] = window
        self.halves[result] = ix.scale(ix.mod(self.number, 2), window.room)
        self.writer.widen(self.areas[result], 2 * window.room)
        return vmem(self.areas[result], self.moving.half(window.room))

    def room(self, dtype: DType, elements: int, varies: bool) -> tuple[Ref, Expr]:
        """A new area for an operand of the matrix unit, and where it begins: one of two halves where the array may
        still read those of the chunk before."""
        if not varies or not self.ahead or self.number is None:
            return vmem(self.writer.area(dtype, elements)), ix.number(0)
        room = chunks.room(elements)
        area = self.writer.area(dtype, 2 * room)
        return vmem(area, self.moving.half(room)), ix.scale(ix.mod(self.number, 2), room)

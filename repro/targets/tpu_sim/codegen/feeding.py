"""Copies that bring in what stages read; operands of the matrix unit are laid out on the way."""

from __future__ import annotations

from collections.abc import Sequence

from repro.ir import index as ix
from repro.ir.expressions import Expr
from repro.ir.types import F32
from repro.targets.tpu_sim.chips import Chip
from repro.targets.tpu_sim.codegen import chunks, transfers
from repro.targets.tpu_sim.codegen.contractions import Contraction, Matrix, extent_of, layouts
from repro.targets.tpu_sim.codegen.held import Held
from repro.targets.tpu_sim.codegen.stages import Stage, loads
from repro.targets.tpu_sim.codegen.transfers import Copy, direct
from repro.targets.tpu_sim.codegen.writer import whole
from repro.targets.tpu_sim.operands import Dim, Index, Ref, vmem


class Feeding:
    """Writes the copies into VMEM, and keeps what they laid out for the matrix unit."""

    def __init__(self, held: Held, chip: Chip) -> None:
        self.held, self.writer, self.moving, self.chip = held, held.writer, held.moving, chip
        self.copied: dict[tuple[Expr, Matrix], Ref] = {}
        """Operands of the matrix unit that a copy lays out."""
        self.pieces: dict[int, int] = {}
        """Areas of them that come tile by tile, and the semaphore of the first."""

    def bring_in(self, part: Sequence[Stage]) -> None:
        """All copies start at once; what needs one waits. Operands of the matrix unit are laid out on the way."""
        needed: dict[int, list[Expr]] = {}
        for stage in part:
            for each in loads(self._copy_operands(stage)):
                if each.buffer < len(self.held.kernel.buffers):
                    needed.setdefault(each.buffer, []).append(each.offset)
        if self.held.number is not None:
            sizes = {number: self.held.kernel.buffers[number].elements for number in needed}
            self.held.windows |= chunks.windows(needed, sizes, self.held.number)
        for number in sorted((needed.keys() | self._partly_written()) - self.held.areas.keys()):
            buffer = self.held.kernel.buffers[number]
            window = self.held.windows.get(number)
            if window is None or self.held.number is None:
                self.held.areas[number] = self.writer.area(buffer.dtype, buffer.elements)
                self.moving.start(self.held.areas[number], Copy(number, Index(), (Dim(buffer.elements, 1, 1),)))
                continue
            self.held.areas[number] = self.writer.area(buffer.dtype, 2 * window.room)
            self.held.varying.add(number)
            self.held.halves[number] = ix.scale(ix.mod(self.held.number, 2), window.room)
            first = self.held.index * window.step + window.first
            self.moving.start_each(self.held.areas[number], window.room, Copy(number, first, window.dims), window.step)
        if self.held.number is not None:
            self.moving.next_chunk()

    def _copy_operands(self, stage: Stage) -> list[Expr]:
        """The stage's expressions but for those operands of the matrix unit that are copied into their places."""
        if stage.contraction is None:
            return stage.roots
        present = stage.contraction.reduce.present
        roots = [] if present is None else [present]
        for term, laid in layouts(stage.contraction):
            if (term, laid) in self.copied:
                continue
            copy = direct(term, laid, self.held.known)
            if copy is None:
                roots.append(term)
                continue
            room = whole(laid.elements)
            if self.held.number is None or self.held.number not in term.free:
                area = self.writer.area(F32, room)
                self.copied[term, laid] = vmem(area)
                parts = self._tiles(stage.contraction, term, laid)
                if parts:
                    self.pieces[area] = self.moving.start_pieces(area, parts)
                else:
                    self.moving.start(area, copy)
            else:
                area = self.writer.area(F32, 2 * room)
                step = ix.coefficient(loads([term])[-1].offset, self.held.number) or 0
                first = self.moving.start_each(area, room, copy, step, self._tiles(stage.contraction, term, laid))
                if first is not None:
                    self.pieces[area] = first
                self.copied[term, laid] = vmem(area, self.moving.half(room))
        return roots

    def _tiles(self, c: Contraction, term: Expr, laid: Matrix) -> list[tuple[int, Copy]]:
        """Copies of a tile of the contraction's terms each: the first chunk need not wait for all of them."""
        ready = term is c.weights or laid.places == c.terms
        if len(c.terms) != 1 or not ready or not self.held.varies([c.reduce]):
            return []
        (axis,) = c.terms
        return (
            transfers.pieces(term, laid, axis, self.chip.array, self.held.known)
            if axis.extent > self.chip.array
            else []
        )

    def _partly_written(self) -> set[int]:
        """Buffers of which the kernel leaves elements as they are."""
        if self.held.number is not None:
            return set()
        whole_ones = {
            store.buffer
            for store in self.held.kernel.stores
            if store.when is None and not self.held.kernel.serial
            if extent_of(self.held.kernel.axes) == self.held.kernel.buffers[store.buffer].elements
        }
        return {store.buffer for store in self.held.kernel.stores} - whole_ones

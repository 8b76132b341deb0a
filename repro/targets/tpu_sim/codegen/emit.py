"""A kernel as a routine of the machine: transfers in, the kernel's stages, transfers out."""

from __future__ import annotations

from collections.abc import Iterable

from repro.ir.loops import Expr, Kernel, Lanes, Reduce, Store, load, reduce
from repro.ir.types import F32
from repro.targets.tpu_sim import isa
from repro.targets.tpu_sim.chips import Chip
from repro.targets.tpu_sim.codegen import matrix, plain, rows, stages
from repro.targets.tpu_sim.codegen.contractions import Contraction, Matrix, extent_of, flat, runs_along
from repro.targets.tpu_sim.codegen.orders import shorten
from repro.targets.tpu_sim.codegen.stages import Stage, loads
from repro.targets.tpu_sim.codegen.transfers import Copy, direct
from repro.targets.tpu_sim.codegen.values import Values
from repro.targets.tpu_sim.codegen.writer import Writer
from repro.targets.tpu_sim.finishing import finish
from repro.targets.tpu_sim.operands import Dim, Index, hbm, vmem
from repro.targets.tpu_sim.program import Routine


def routine_name(kernel: Kernel) -> str:
    return f"k_{kernel.digest[:16]}"


def emit(kernel: Kernel, chip: Chip) -> Routine:
    """The routine of a kernel for a chip."""
    return finish(_Emitter(kernel, chip).routine(), chip)


class _Emitter:
    def __init__(self, kernel: Kernel, chip: Chip) -> None:
        self.kernel, self.chip = kernel, chip
        self.writer = Writer(kernel)
        self.cut = stages.cut(kernel)
        self.areas: dict[int, int] = {}
        """The area of VMEM in which each buffer lies; beyond the kernel's own buffers, what stages make."""
        self.flying: dict[int, int] = {}
        """Areas into which a copy is on its way, and its semaphore."""
        self.copied: dict[tuple[Expr, Matrix], int] = {}
        """Operands of the matrix unit that a copy lays out."""

    def routine(self) -> Routine:
        if self.cut.stages:
            for area in self.cut.areas:
                self._area(area.dtype, area.elements)
            self._bring_in()
            for stage in self.cut.stages:
                self._stage(stage)
            self._take_out({store.buffer for store in self.kernel.stores})
        return self.writer.routine(routine_name(self.kernel))

    def _area(self, dtype: isa.DType, elements: int) -> int:
        """A new buffer that lies in VMEM alone."""
        number = max((*self.areas, len(self.kernel.buffers) - 1)) + 1
        self.areas[number] = self.writer.area(dtype, elements)
        return number

    # transfers ──────────────────────────────────────────────────────────────────────────────────────

    def _bring_in(self) -> None:
        """All copies start at once; what needs one waits. Operands of the matrix unit are laid out on the way."""
        needed, copies = set[int](), list[tuple[Expr, Matrix, Copy]]()
        for stage in self.cut.stages:
            roots = stage.roots
            if stage.contraction is not None:
                mine = [(term, laid, direct(term, laid)) for term, laid in self._layouts(stage.contraction)]
                copies += [(term, laid, copy) for term, laid, copy in mine if copy is not None]
                roots = [term for term, _, copy in mine if copy is None]
                roots += [] if stage.contraction.reduce.present is None else [stage.contraction.reduce.present]
            needed |= {each.buffer for each in loads(roots) if each.buffer < len(self.kernel.buffers)}
        for number in sorted(needed | {store.buffer for store in self.kernel.stores}):
            buffer = self.kernel.buffers[number]
            self.areas[number] = self.writer.area(buffer.dtype, buffer.elements)
            if buffer.elements and (number in needed or not self._written_whole(number)):
                self._start(self.areas[number], number, Copy(number, Index(), (Dim(buffer.elements, 1, 1),)))
        for term, laid, copy in copies:
            if (term, laid) not in self.copied:
                self.copied[term, laid] = number = self._area(F32, laid.elements)
                self._start(self.areas[number], copy.buffer, copy)

    def _start(self, area: int, number: int, copy: Copy) -> None:
        semaphore, dtype = self.writer.semaphore(), self.kernel.buffers[number].dtype
        self.flying[area] = semaphore
        self.writer.put(isa.Dma(Index(semaphore), dtype, vmem(area), hbm(number, copy.start), copy.dims))

    def _await(self, numbers: Iterable[int]) -> None:
        for number in sorted(set(numbers)):
            semaphore = self.flying.pop(self.areas[number], None)
            if semaphore is not None:
                self.writer.put(isa.Wait(Index(semaphore)))

    def _written_whole(self, number: int) -> bool:
        stores = [store for store in self.kernel.stores if store.buffer == number]
        whole = len(stores) == 1 and stores[0].when is None and not self.kernel.serial
        return whole and extent_of(self.kernel.axes) == self.kernel.buffers[number].elements

    def _take_out(self, numbers: set[int]) -> None:
        self._await(sorted(self.areas))
        semaphores = list[int]()
        for number in sorted(numbers):
            buffer = self.kernel.buffers[number]
            if buffer.elements:
                semaphores.append(self.writer.semaphore())
                dims = (Dim(buffer.elements, 1, 1),)
                place = vmem(self.areas[number])
                self.writer.put(isa.Dma(Index(semaphores[-1]), buffer.dtype, hbm(number), place, dims))
        for semaphore in semaphores:
            self.writer.put(isa.Wait(Index(semaphore)))

    # stages ─────────────────────────────────────────────────────────────────────────────────────────

    def _stage(self, stage: Stage) -> None:
        if stage.contraction is not None:
            self._contract(stage.contraction, stage.stores[0].buffer)
            return
        stage = self._leaves(_shortened(stage))
        written = frozenset(store.buffer for store in stage.stores)
        self._await({each.buffer for each in loads(stage.roots)} | written)
        values = Values(self.writer, self.areas, [*stage.roots, *stage.axes], written)
        if rows.runs_along(stage):
            rows.Rows(values, stage).emit()
        else:
            plain.emit(values, stage, self.kernel)

    def _leaves(self, stage: Stage) -> Stage:
        """Sums of leaves are taken by a stage of their own; what is left sums those."""
        expr = stage.reduce
        if expr is None or not isinstance(expr.order, Lanes) or not isinstance(expr.terms[0], Reduce):
            return stage
        inner, axes = expr.terms[0], (*stage.axes, *expr.axes)
        number = self._area(inner.dtype, extent_of(axes))
        self._stage(Stage(axes, 0, (Store(number, flat(axes), inner),)))
        value = reduce(expr.combiner, expr.order, expr.axes, [load(inner.dtype, number, flat(axes))])
        return self._leaves(Stage(stage.axes, 0, (Store(stage.stores[0].buffer, stage.stores[0].offset, value),)))

    # contractions ───────────────────────────────────────────────────────────────────────────────────

    def _layouts(self, c: Contraction) -> list[tuple[Expr, Matrix]]:
        """Data and weights, and how each is first laid out: along what lies side by side in memory."""
        data, held = Matrix(c.batch, c.rows, c.terms), Matrix(c.batch, c.terms, c.columns)
        if runs_along(c.data, c.rows) and not runs_along(c.data, c.terms):
            data = Matrix(c.batch, c.terms, c.rows)
        if runs_along(c.weights, c.terms):
            held = Matrix(c.batch, c.columns, c.terms)
        return [(c.data, data), (c.weights, held)]

    def _contract(self, c: Contraction, result: int) -> None:
        (_, given), (_, held) = self._layouts(c)
        data, weights = self._laid(c.data, given), self._laid(c.weights, held)
        valid = None if c.reduce.present is None else self._laid(c.reduce.present, Matrix(c.batch, c.rows, c.terms))
        wanted = Matrix(c.batch, c.rows, c.terms)
        self._await([data, weights])
        if given != wanted:
            data = self._turned(data, given, wanted)
        sums = self._area(F32, c.sums.elements) if c.turned else result
        areas = (self.areas[sums], self.areas[data], self.areas[weights])
        bits = None if valid is None else self.areas[valid]
        matrix.Chains(self.writer, self.chip, c).emit(*areas, held.places == c.terms, bits)
        if c.turned:
            matrix.turn(self.writer, F32, self.areas[sums], self.areas[result], c.sums, c.result)

    def _laid(self, term: Expr, laid: Matrix) -> int:
        """The term's values as a matrix in VMEM."""
        known = self.copied.get((term, laid))
        if known is not None:
            return known
        number = self._area(term.dtype, laid.elements)
        self._stage(Stage((*laid.batch, *laid.lines, *laid.places), 0, (Store(number, laid.offset, term),)))
        return number

    def _turned(self, source: int, given: Matrix, wanted: Matrix) -> int:
        number = self._area(F32, wanted.elements)
        matrix.turn(self.writer, F32, self.areas[source], self.areas[number], given, wanted)
        return number


def _shortened(stage: Stage) -> Stage:
    """The stage with reductions of at most a panel or a leaf."""
    made = list[Store]()
    for store in stage.stores:
        offset, value, *when = shorten(store.expressions)
        made.append(Store(store.buffer, offset, value, when[0] if when else None))
    return Stage(stage.axes, stage.serial, tuple(made))

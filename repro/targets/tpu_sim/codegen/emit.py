"""A kernel as a routine of the machine: transfers in, the kernel's stages, transfers out."""

from __future__ import annotations

import math

from repro.ir import index as ix
from repro.ir.dependence import independent_axes
from repro.ir.loops import Kernel, Lanes, Reduce, Store, load, reduce
from repro.targets.tpu_sim import isa
from repro.targets.tpu_sim.chips import Chip
from repro.targets.tpu_sim.codegen import grid as grids
from repro.targets.tpu_sim.codegen import rows, stages
from repro.targets.tpu_sim.codegen.orders import shorten
from repro.targets.tpu_sim.codegen.stages import Stage, loads, substitute
from repro.targets.tpu_sim.codegen.values import Values
from repro.targets.tpu_sim.codegen.writer import Writer
from repro.targets.tpu_sim.finishing import finish
from repro.targets.tpu_sim.operands import LANES, Dim, Index, hbm, vmem
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
        """The area of VMEM in which each buffer lies while the kernel runs."""

    def routine(self) -> Routine:
        used = self._read() | {store.buffer for store in self.kernel.stores if self.cut.stages}
        for number in sorted(used):
            buffer = self.kernel.buffers[number]
            self.areas[number] = self.writer.area(buffer.dtype, buffer.elements)
        for number, area in enumerate(self.cut.areas, len(self.kernel.buffers)):
            self.areas[number] = self.writer.area(area.dtype, area.elements)
        self._transfers(sorted(self._read()), into=True)
        for stage in self.cut.stages:
            self._stage(stage)
        self._transfers(sorted(used - self._read_only()), into=False)
        return self.writer.routine(routine_name(self.kernel))

    def _read_only(self) -> frozenset[int]:
        return frozenset(number for number, buffer in enumerate(self.kernel.buffers) if not buffer.writable)

    def _read(self) -> set[int]:
        """Buffers that must be in VMEM from the start: those that are loaded from, and those not written whole."""
        found = {
            each.buffer
            for stage in self.cut.stages
            for each in loads([expr for store in stage.stores for expr in store.expressions])
            if each.buffer < len(self.kernel.buffers)
        }
        iterations = math.prod(axis.extent for axis in self.kernel.axes)
        for store in self.kernel.stores:
            whole = store.when is None and not self.kernel.serial and len(self.kernel.stores) == 1
            if self.cut.stages and not (whole and iterations == self.kernel.buffers[store.buffer].elements):
                found.add(store.buffer)
        return found

    def _transfers(self, numbers: list[int], into: bool) -> None:
        """Whole buffers, all at once."""
        semaphores = list[int]()
        for number in numbers:
            buffer, place = self.kernel.buffers[number], vmem(self.areas[number])
            if not buffer.elements:
                continue
            ends = (place, hbm(number)) if into else (hbm(number), place)
            semaphores.append(self.writer.semaphore())
            dims = (Dim(buffer.elements, 1, 1),)
            self.writer.put(isa.Dma(Index(semaphores[-1]), buffer.dtype, *ends, dims))
        for semaphore in semaphores:
            self.writer.put(isa.Wait(Index(semaphore)))

    # stages ─────────────────────────────────────────────────────────────────────────────────────────

    def _stage(self, stage: Stage) -> None:
        stage = self._leaves(shortened(stage))
        roots = [*(expr for store in stage.stores for expr in store.expressions), *stage.axes]
        written = frozenset(store.buffer for store in stage.stores)
        values = Values(self.writer, self.areas, roots, written)
        if rows.runs_along(stage):
            rows.Rows(values, stage).emit()
        else:
            self._plain(values, stage)

    def _leaves(self, stage: Stage) -> Stage:
        """Sums of leaves are taken by a stage of their own; what is left sums those."""
        expr = stage.reduce
        if expr is None or not isinstance(expr.order, Lanes) or not isinstance(expr.terms[0], Reduce):
            return stage
        inner, axes = expr.terms[0], (*stage.axes, *expr.axes)
        extents = [axis.extent for axis in axes]
        place, number = ix.linear(axes, extents), max((*self.areas, len(self.kernel.buffers) - 1)) + 1
        self.areas[number] = self.writer.area(inner.dtype, math.prod(extents))
        self._stage(Stage(axes, 0, (Store(number, place, inner),)))
        value = reduce(expr.combiner, expr.order, expr.axes, [load(inner.dtype, number, place)])
        return self._leaves(Stage(stage.axes, 0, (Store(stage.stores[0].buffer, stage.stores[0].offset, value),)))

    def _plain(self, values: Values, stage: Stage) -> None:
        """Every lane an iteration of its own."""
        parallel = stage.axes[stage.serial :]
        bound = grids.bind(grids.make(parallel, LANES, values.fresh(1)), values.fresh(2 * len(parallel) + 2))
        width = 1
        for cut, digit in zip(reversed(bound.grid.cuts), reversed(bound.digits), strict=True):
            values.digit(digit, width)
            width *= cut.count
        values.inside = bound.inside
        roots = substitute([expr for store in stage.stores for expr in store.expressions], bound.values)
        made = list[Store]()
        for store in stage.stores:
            when = None if store.when is None else roots[2]
            made.append(Store(store.buffer, roots[0], roots[1], when))
            roots = roots[len(store.expressions) :]
        serial = stage.axes[: stage.serial]
        apart = not serial or independent_axes(self.kernel) >= frozenset(parallel)
        if apart:
            with values.loop(bound.grid.blocks, bound.grid.apart) as index:
                rows.bind_blocks(values, bound, index)
                with values.loops(serial):
                    _stores(values, made)
        else:
            with values.loops(serial), values.loop(bound.grid.blocks, bound.grid.apart) as index:
                rows.bind_blocks(values, bound, index)
                _stores(values, made)


def _stores(values: Values, stores: list[Store]) -> None:
    values.pin = len(values.levels) - 1
    for store in stores:
        values.store(store)


def shortened(stage: Stage) -> Stage:
    """The stage with reductions of at most a panel or a leaf."""
    made = list[Store]()
    for store in stage.stores:
        offset, value, *when = shorten(store.expressions)
        made.append(Store(store.buffer, offset, value, when[0] if when else None))
    return Stage(stage.axes, stage.serial, tuple(made))

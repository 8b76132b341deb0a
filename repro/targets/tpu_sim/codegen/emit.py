"""A kernel as a routine of the machine: transfers in, the kernel's stages, transfers out."""

from __future__ import annotations

from collections.abc import Sequence

from repro.errors import ReproError
from repro.ir import index as ix
from repro.ir.expressions import Axis, Lanes, Reduce, load, reduce
from repro.ir.loops import Kernel, Store
from repro.targets.tpu_sim.chips import Chip
from repro.targets.tpu_sim.codegen import chunks, columns, plain, rows, stages, turning
from repro.targets.tpu_sim.codegen.chunks import Chunked
from repro.targets.tpu_sim.codegen.contractions import extent_of, flat
from repro.targets.tpu_sim.codegen.decided import decide
from repro.targets.tpu_sim.codegen.feeding import Feeding
from repro.targets.tpu_sim.codegen.held import Held
from repro.targets.tpu_sim.codegen.orders import shorten
from repro.targets.tpu_sim.codegen.places import Places
from repro.targets.tpu_sim.codegen.products import Products
from repro.targets.tpu_sim.codegen.stages import Stage, loads
from repro.targets.tpu_sim.codegen.transfers import Copy, between
from repro.targets.tpu_sim.codegen.turning import Turn
from repro.targets.tpu_sim.codegen.unrolling import unroll
from repro.targets.tpu_sim.codegen.values import Values
from repro.targets.tpu_sim.codegen.writer import Writer
from repro.targets.tpu_sim.finishing import finish
from repro.targets.tpu_sim.operands import Dim, Index, vmem
from repro.targets.tpu_sim.program import Routine


def routine_name(kernel: Kernel) -> str:
    return f"k_{kernel.digest[:16]}"


def emit(kernel: Kernel, chip: Chip, worth: int = chunks.WORTH) -> Routine:
    """The routine of a kernel for a chip; kernels of `worth` bytes and more run in chunks. Raises ReproError where no
    way of running it fits the chip's VMEM."""
    least = 0
    for chunked in chunks.candidates(kernel, chip, worth):
        made = finish(decide(unroll(_Emitter(kernel, chunked, chip).routine())), chip)
        if made.vmem_bytes <= chip.vmem_bytes:
            return made
        least = min(least or made.vmem_bytes, made.vmem_bytes)
    raise ReproError(
        f"a kernel does not fit the VMEM of {chip.name}",
        found=f"{least} bytes for {routine_name(kernel)}",
        expected=f"at most {chip.vmem_bytes} bytes",
        next="choose a chip with more VMEM, or a smaller batch",
    )


class _Emitter:
    def __init__(self, kernel: Kernel, chunked: Chunked, chip: Chip) -> None:
        self.name, self.kernel, self.number = routine_name(kernel), chunked.kernel, chunked.number
        self.cut = stages.cut(self.kernel, frozenset(() if self.number is None else (self.number,)))
        self.writer = Writer(kernel)
        self.held = Held(chunked, self.writer)
        self.moving = self.held.moving
        self.feeding = Feeding(self.held, chip)
        self.products = Products(self.held, self.feeding, chip, self._stage)
        self.positions: set[int] = set()
        """Buffers that hold where an extreme was found: never negative."""
        self.results: dict[int, int] = {}
        """What a chunk makes of each buffer that is written."""

    def routine(self) -> Routine:
        if self.cut.stages:
            for area in self.cut.areas:
                self.held.area(area.dtype, area.elements)
            if self.number is None:
                self._stages(self.cut.stages)
                self.moving.wait_for_all()
                self._take_out()
            else:
                self._in_chunks(self.number)
        return self.writer.routine(self.name)

    def _in_chunks(self, number: Axis) -> None:
        """The next chunk's copies start before this one's are waited for; results leave beside the next one's work. A
        contraction of the next chunk is started before this one's sums are read."""
        first = self._front()
        self.held.ahead = first > 0
        with self.moving.part() as front:
            self.held.known[number] = front.index
            self._stages(self.cut.stages[:first])
        with self.moving.part() as back:
            self.held.known[number] = back.index
            self._stages(self.cut.stages[first:])
            self._take_out()
        self.moving.all_chunks(front, back)

    def _front(self) -> int:
        """How many stages may run a chunk ahead of the others: those up to the only contraction, or to the last
        transpose where there is none, if the rest reads nothing else that changes from chunk to chunk."""
        found = [n for n, stage in enumerate(self.cut.stages) if stage.contraction is not None]
        if not found:
            found = [n for n, stage in enumerate(self.cut.stages) if stage.turn is not None][-1:]
        if len(found) != 1 or not self.held.varies(self.cut.stages[found[0]].roots):
            return 0
        front, back = self.cut.stages[: found[0] + 1], self.cut.stages[found[0] + 1 :]
        result = front[-1].stores[0].buffer
        before, after = ({load.buffer for stage in part for load in loads(stage.roots)} for part in (front, back))
        made = {store.buffer for stage in front for store in stage.stores} - {result}
        return 0 if (before | made) & after else len(front)

    def _stages(self, part: Sequence[Stage]) -> None:
        self.feeding.bring_in(part)
        for stage in part:
            self._stage(stage)

    def _take_out(self) -> None:
        axes = self.kernel.axes
        for store in sorted(self.kernel.stores, key=lambda store: store.buffer):
            if self.number is None:
                whole_buffer = (Dim(self.kernel.buffers[store.buffer].elements, 1, 1),)
                self.moving.send(self.held.areas[store.buffer], Copy(store.buffer, Index(), whole_buffer))
                continue
            copy = between(store.buffer, store.offset, flat(axes), axes, self.held.known)
            assert copy is not None
            self.moving.send_each(self.held.areas[self.results[store.buffer]], chunks.room(extent_of(axes)), copy)

    # stages ─────────────────────────────────────────────────────────────────────────────────────────

    def _stage(self, stage: Stage) -> None:
        if stage.contraction is not None:
            self.products.emit(stage.contraction, stage.stores[0].buffer)
            return
        if stage.turn is not None and self._turn(stage, stage.turn):
            return
        stage = self._leaves(_shortened(stage))
        if stage.reduce is not None and stage.reduce.combiner.startswith("arg"):
            self.positions.add(stage.stores[0].buffer)
        varies = self.held.varies(stage.roots)
        final = {store.buffer for store in stage.stores if store.buffer < len(self.kernel.buffers)}
        if varies or (final and self.number is not None):
            self.held.varying |= {store.buffer for store in stage.stores}
        self.held.wait_for(each.buffer for each in loads(stage.roots))
        if final and self.number is not None:
            stage = self._to_window(stage, self.number)
        elif final:
            self._whole_result(final)
        with self.held.once_if(not varies and not final):
            self._vector(stages.merged(self._from_windows(stage)))

    def _turn(self, stage: Stage, turn: Turn) -> bool:
        """Whether the transpose unit does the stage: not if what is in VMEM of the buffer has no strides."""
        (load,), result = loads(stage.roots), stage.stores[0].buffer
        self.held.wait_for([load.buffer])
        (inside,) = loads(self._from_windows(stage).roots)
        strides = {axis: ix.coefficient(inside.offset, axis) for axis in turn.axes}
        begin = ix.add(inside.offset, *(ix.scale(axis, -(stride or 0)) for axis, stride in strides.items()))
        start = Places(self.held.known, {}).scalar(begin)
        if start is None or None in strides.values() or strides[turn.places] != 1:
            return False
        varies = self.held.varies([load])
        if varies:
            self.held.varying.add(result)
        with self.held.once_if(not varies):
            target = self.held.half_of(result, extent_of(turn.axes))
            source = vmem(self.held.areas[load.buffer], start)
            known = {axis: stride or 0 for axis, stride in strides.items()}
            turning.emit(self.writer, turn, load.dtype, source, target, known)
        return True

    def _vector(self, stage: Stage) -> None:
        written = frozenset(store.buffer for store in stage.stores)
        roots = [*stage.roots, *stage.axes, *self.held.known]
        values = Values(self.writer, self.held.areas, roots, written, self.held.known, self.held.halves, self.positions)
        if rows.runs_along(stage):
            rows.Rows(values, stage).emit()
        elif columns.groups(stage) > 1:
            columns.Columns(values, stage).emit()
        else:
            plain.emit(values, stage, self.kernel)

    def _from_windows(self, stage: Stage) -> Stage:
        if not self.held.windows or self.number is None:
            return stage
        made = list[Store]()
        for store in stage.stores:
            offset, value, *when = chunks.inside_windows(list(store.expressions), self.held.windows, self.number)
            made.append(Store(store.buffer, offset, value, when[0] if when else None))
        return Stage(stage.axes, stage.serial, tuple(made))

    def _whole_result(self, numbers: set[int]) -> None:
        """The areas in which results lie: whole buffers, some of which were brought in."""
        for number in numbers:
            if number not in self.held.areas:
                buffer = self.kernel.buffers[number]
                self.held.areas[number] = self.writer.area(buffer.dtype, buffer.elements)
        self.held.wait_for(numbers)

    def _to_window(self, stage: Stage, number: Axis) -> Stage:
        """A chunk's results lie side by side, in one half of their area; the half must have been sent off."""
        room, made = chunks.room(extent_of(stage.axes)), list[Store]()
        half = ix.scale(ix.mod(number, 2), room)
        for store in stage.stores:
            result = self.held.area(self.kernel.buffers[store.buffer].dtype, 2 * room)
            self.results[store.buffer], self.held.halves[result] = result, half
            self.moving.wait_sent(self.held.areas[result])
            made.append(Store(result, ix.add(flat(stage.axes), half), store.value))
        return Stage(stage.axes, 0, tuple(made))

    def _leaves(self, stage: Stage) -> Stage:
        """Sums of leaves are taken by a stage of their own; what is left sums those."""
        expr = stage.reduce
        if expr is None or not isinstance(expr.order, Lanes) or not isinstance(expr.terms[0], Reduce):
            return stage
        inner, axes = expr.terms[0], (*expr.axes, *stage.axes)
        number = self.held.area(inner.dtype, extent_of(axes))
        self._stage(Stage(axes, 0, (Store(number, flat(axes), inner),)))
        value = reduce(expr.combiner, expr.order, expr.axes, [load(inner.dtype, number, flat(axes))])
        return self._leaves(Stage(stage.axes, 0, (Store(stage.stores[0].buffer, stage.stores[0].offset, value),)))


def _shortened(stage: Stage) -> Stage:
    """The stage with reductions of at most a panel or a leaf."""
    made = list[Store]()
    for store in stage.stores:
        offset, value, *when = shorten(store.expressions)
        made.append(Store(store.buffer, offset, value, when[0] if when else None))
    return Stage(stage.axes, stage.serial, tuple(made))

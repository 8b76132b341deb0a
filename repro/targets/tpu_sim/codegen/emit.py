"""A kernel as a routine of the machine: transfers in, the kernel's stages, transfers out."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager

from repro.errors import ReproError
from repro.ir import index as ix
from repro.ir.expressions import Axis, Expr, Lanes, Reduce, load, reduce
from repro.ir.loops import Kernel, Store
from repro.ir.types import F32, DType
from repro.targets.tpu_sim.chips import Chip
from repro.targets.tpu_sim.codegen import chunks, columns, matrix, plain, rows, stages, transfers, turning
from repro.targets.tpu_sim.codegen.chunks import Chunked
from repro.targets.tpu_sim.codegen.contractions import Contraction, Matrix, extent_of, flat, run
from repro.targets.tpu_sim.codegen.decided import decide
from repro.targets.tpu_sim.codegen.moving import Moving
from repro.targets.tpu_sim.codegen.orders import shorten
from repro.targets.tpu_sim.codegen.places import Places
from repro.targets.tpu_sim.codegen.stages import Stage, loads
from repro.targets.tpu_sim.codegen.transfers import Copy, between, direct
from repro.targets.tpu_sim.codegen.turning import Turn
from repro.targets.tpu_sim.codegen.unrolling import unroll
from repro.targets.tpu_sim.codegen.values import Values
from repro.targets.tpu_sim.codegen.writer import Writer, whole
from repro.targets.tpu_sim.finishing import finish
from repro.targets.tpu_sim.operands import Dim, Index, Ref, vmem
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
    """Buffers beyond the kernel's own are what stages make; `areas` says where each buffer lies in VMEM."""

    def __init__(self, kernel: Kernel, chunked: Chunked, chip: Chip) -> None:
        self.name, self.kernel, self.chip, self.number = routine_name(kernel), chunked.kernel, chip, chunked.number
        self.count = chunked.count
        self.writer = Writer(kernel)
        self.cut = stages.cut(self.kernel, frozenset(() if self.number is None else (self.number,)))
        self.areas: dict[int, int] = {}
        self.copied: dict[tuple[Expr, Matrix], Ref] = {}
        """Operands of the matrix unit that a copy lays out."""
        self.pieces: dict[int, int] = {}
        """Areas of them that come tile by tile, and the semaphore of the first."""
        self.ahead = False
        """Whether a contraction's sums are read after the next chunk's were begun."""
        self.windows: dict[int, chunks.Window] = {}
        self.varying: set[int] = set()
        """Buffers that hold something else in each chunk."""
        self.halves: dict[int, Expr] = {}
        """Buffers two chunks' elements of which are in VMEM: where this chunk's half begins."""
        self.known: dict[Axis, Index] = {}
        self.positions: set[int] = set()
        """Buffers that hold where an extreme was found: never negative."""
        self.results: dict[int, int] = {}
        """What a chunk makes of each buffer that is written."""
        self.outside = self.writer.sink
        self.moving = Moving(self.writer, self.kernel, self.count)

    def routine(self) -> Routine:
        if self.cut.stages:
            for area in self.cut.areas:
                self._area(area.dtype, area.elements)
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
        self.ahead = first > 0
        with self.moving.part() as front:
            self.known[number] = front.index
            self._stages(self.cut.stages[:first])
        with self.moving.part() as back:
            self.known[number] = back.index
            self._stages(self.cut.stages[first:])
            self._take_out()
        self.moving.all_chunks(front, back)

    def _front(self) -> int:
        """How many stages may run a chunk ahead of the others: those up to the only contraction, or to the last
        transpose where there is none, if the rest reads nothing else that changes from chunk to chunk."""
        found = [n for n, stage in enumerate(self.cut.stages) if stage.contraction is not None]
        if not found:
            found = [n for n, stage in enumerate(self.cut.stages) if stage.turn is not None][-1:]
        if len(found) != 1 or not self._varies(self.cut.stages[found[0]].roots):
            return 0
        front, back = self.cut.stages[: found[0] + 1], self.cut.stages[found[0] + 1 :]
        result = front[-1].stores[0].buffer
        before, after = ({load.buffer for stage in part for load in loads(stage.roots)} for part in (front, back))
        made = {store.buffer for stage in front for store in stage.stores} - {result}
        return 0 if (before | made) & after else len(front)

    def _stages(self, part: Sequence[Stage]) -> None:
        self._bring_in(part)
        for stage in part:
            self._stage(stage)

    def _area(self, dtype: DType, elements: int) -> int:
        """A new buffer that lies in VMEM alone."""
        number = self._number()
        self.areas[number] = self.writer.area(dtype, elements)
        return number

    def _number(self) -> int:
        """Of a buffer that lies in VMEM alone."""
        return max((*self.areas, len(self.kernel.buffers) - 1)) + 1

    # transfers ──────────────────────────────────────────────────────────────────────────────────────

    def _bring_in(self, part: Sequence[Stage]) -> None:
        """All copies start at once; what needs one waits. Operands of the matrix unit are laid out on the way."""
        needed: dict[int, list[Expr]] = {}
        for stage in part:
            for each in loads(self._copy_operands(stage)):
                if each.buffer < len(self.kernel.buffers):
                    needed.setdefault(each.buffer, []).append(each.offset)
        if self.number is not None:
            sizes = {number: self.kernel.buffers[number].elements for number in needed}
            self.windows |= chunks.windows(needed, sizes, self.number)
        for number in sorted((needed.keys() | self._partly_written()) - self.areas.keys()):
            buffer = self.kernel.buffers[number]
            window = self.windows.get(number)
            if window is None or self.number is None:
                self.areas[number] = self.writer.area(buffer.dtype, buffer.elements)
                self.moving.start(self.areas[number], Copy(number, Index(), (Dim(buffer.elements, 1, 1),)))
                continue
            self.areas[number] = self.writer.area(buffer.dtype, 2 * window.room)
            self.varying.add(number)
            self.halves[number] = ix.scale(ix.mod(self.number, 2), window.room)
            first = self._index() * window.step + window.first
            self.moving.start_each(self.areas[number], window.room, Copy(number, first, window.dims), window.step)
        if self.number is not None:
            self.moving.next_chunk()

    def _copy_operands(self, stage: Stage) -> list[Expr]:
        """The stage's expressions but for those operands of the matrix unit that are copied into their places."""
        if stage.contraction is None:
            return stage.roots
        present = stage.contraction.reduce.present
        roots = [] if present is None else [present]
        for term, laid in _layouts(stage.contraction):
            if (term, laid) in self.copied:
                continue
            copy = direct(term, laid, self.known)
            if copy is None:
                roots.append(term)
                continue
            room = whole(laid.elements)
            if self.number is None or self.number not in term.free:
                area = self.writer.area(F32, room)
                self.copied[term, laid] = vmem(area)
                parts = self._tiles(stage.contraction, term, laid)
                if parts:
                    self.pieces[area] = self.moving.start_pieces(area, parts)
                else:
                    self.moving.start(area, copy)
            else:
                area = self.writer.area(F32, 2 * room)
                step = ix.coefficient(loads([term])[-1].offset, self.number) or 0
                first = self.moving.start_each(area, room, copy, step, self._tiles(stage.contraction, term, laid))
                if first is not None:
                    self.pieces[area] = first
                self.copied[term, laid] = vmem(area, self.moving.half(room))
        return roots

    def _tiles(self, c: Contraction, term: Expr, laid: Matrix) -> list[tuple[int, Copy]]:
        """Copies of a tile of the contraction's terms each: the first chunk need not wait for all of them."""
        ready = term is c.weights or laid.places == c.terms
        if len(c.terms) != 1 or not ready or not self._varies([c.reduce]):
            return []
        (axis,) = c.terms
        return transfers.pieces(term, laid, axis, self.chip.array, self.known) if axis.extent > self.chip.array else []

    def _index(self) -> Index:
        return Index() if self.number is None else self.known[self.number]

    def _partly_written(self) -> set[int]:
        """Buffers of which the kernel leaves elements as they are."""
        if self.number is not None:
            return set()
        whole_ones = {
            store.buffer
            for store in self.kernel.stores
            if store.when is None and not self.kernel.serial
            if extent_of(self.kernel.axes) == self.kernel.buffers[store.buffer].elements
        }
        return {store.buffer for store in self.kernel.stores} - whole_ones

    def _take_out(self) -> None:
        axes = self.kernel.axes
        for store in sorted(self.kernel.stores, key=lambda store: store.buffer):
            if self.number is None:
                whole_buffer = (Dim(self.kernel.buffers[store.buffer].elements, 1, 1),)
                self.moving.send(self.areas[store.buffer], Copy(store.buffer, Index(), whole_buffer))
                continue
            copy = between(store.buffer, store.offset, flat(axes), axes, self.known)
            assert copy is not None
            self.moving.send_each(self.areas[self.results[store.buffer]], chunks.room(extent_of(axes)), copy)

    # stages ─────────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def _once_if(self, steady: bool) -> Generator[None]:
        """What is the same in every chunk is done before the first."""
        sink = self.writer.sink
        if steady:
            self.writer.sink = self.outside
        yield
        self.writer.sink = sink

    def _varies(self, roots: Sequence[Expr]) -> bool:
        found = self.number is not None and any(self.number in root.free for root in roots)
        return found or any(each.buffer in self.varying for each in loads(roots))

    def _stage(self, stage: Stage) -> None:
        if stage.contraction is not None:
            self._contract(stage.contraction, stage.stores[0].buffer)
            return
        if stage.turn is not None and self._turn(stage, stage.turn):
            return
        stage = self._leaves(_shortened(stage))
        if stage.reduce is not None and stage.reduce.combiner.startswith("arg"):
            self.positions.add(stage.stores[0].buffer)
        varies = self._varies(stage.roots)
        final = {store.buffer for store in stage.stores if store.buffer < len(self.kernel.buffers)}
        if varies or (final and self.number is not None):
            self.varying |= {store.buffer for store in stage.stores}
        self._wait_for(each.buffer for each in loads(stage.roots))
        if final and self.number is not None:
            stage = self._to_window(stage, self.number)
        elif final:
            self._whole_result(final)
        with self._once_if(not varies and not final):
            self._vector(stages.merged(self._from_windows(stage)))

    def _turn(self, stage: Stage, turn: Turn) -> bool:
        """Whether the transpose unit does the stage: not if what is in VMEM of the buffer has no strides."""
        (load,), result = loads(stage.roots), stage.stores[0].buffer
        self._wait_for([load.buffer])
        (inside,) = loads(self._from_windows(stage).roots)
        strides = {axis: ix.coefficient(inside.offset, axis) for axis in turn.axes}
        begin = ix.add(inside.offset, *(ix.scale(axis, -(stride or 0)) for axis, stride in strides.items()))
        start = Places(self.known, {}).scalar(begin)
        if start is None or None in strides.values() or strides[turn.places] != 1:
            return False
        varies = self._varies([load])
        if varies:
            self.varying.add(result)
        with self._once_if(not varies):
            target = self._halved(result, extent_of(turn.axes))
            source = vmem(self.areas[load.buffer], start)
            known = {axis: stride or 0 for axis, stride in strides.items()}
            turning.emit(self.writer, turn, load.dtype, source, target, known)
        return True

    def _vector(self, stage: Stage) -> None:
        written = frozenset(store.buffer for store in stage.stores)
        roots = [*stage.roots, *stage.axes, *self.known]
        values = Values(self.writer, self.areas, roots, written, self.known, self.halves, self.positions)
        if rows.runs_along(stage):
            rows.Rows(values, stage).emit()
        elif columns.groups(stage) > 1:
            columns.Columns(values, stage).emit()
        else:
            plain.emit(values, stage, self.kernel)

    def _wait_for(self, numbers: Iterable[int]) -> None:
        with self._once_if(True):
            self.moving.wait_for({self.areas[number] for number in numbers})

    def _from_windows(self, stage: Stage) -> Stage:
        if not self.windows or self.number is None:
            return stage
        made = list[Store]()
        for store in stage.stores:
            offset, value, *when = chunks.inside_windows(list(store.expressions), self.windows, self.number)
            made.append(Store(store.buffer, offset, value, when[0] if when else None))
        return Stage(stage.axes, stage.serial, tuple(made))

    def _whole_result(self, numbers: set[int]) -> None:
        """The areas in which results lie: whole buffers, some of which were brought in."""
        for number in numbers:
            if number not in self.areas:
                buffer = self.kernel.buffers[number]
                self.areas[number] = self.writer.area(buffer.dtype, buffer.elements)
        self._wait_for(numbers)

    def _to_window(self, stage: Stage, number: Axis) -> Stage:
        """A chunk's results lie side by side, in one half of their area; the half must have been sent off."""
        room, made = chunks.room(extent_of(stage.axes)), list[Store]()
        half = ix.scale(ix.mod(number, 2), room)
        for store in stage.stores:
            result = self._area(self.kernel.buffers[store.buffer].dtype, 2 * room)
            self.results[store.buffer], self.halves[result] = result, half
            self.moving.wait_sent(self.areas[result])
            made.append(Store(result, ix.add(flat(stage.axes), half), store.value))
        return Stage(stage.axes, 0, tuple(made))

    def _leaves(self, stage: Stage) -> Stage:
        """Sums of leaves are taken by a stage of their own; what is left sums those."""
        expr = stage.reduce
        if expr is None or not isinstance(expr.order, Lanes) or not isinstance(expr.terms[0], Reduce):
            return stage
        inner, axes = expr.terms[0], (*expr.axes, *stage.axes)
        number = self._area(inner.dtype, extent_of(axes))
        self._stage(Stage(axes, 0, (Store(number, flat(axes), inner),)))
        value = reduce(expr.combiner, expr.order, expr.axes, [load(inner.dtype, number, flat(axes))])
        return self._leaves(Stage(stage.axes, 0, (Store(stage.stores[0].buffer, stage.stores[0].offset, value),)))

    # contractions ───────────────────────────────────────────────────────────────────────────────────

    def _contract(self, c: Contraction, result: int) -> None:
        (_, given), (_, held) = _layouts(c)
        wanted = Matrix(c.batch, c.rows, c.terms)
        valid, data = self._with_valid_bits(c, given)
        weights = self._laid(c.weights, held)
        varies = self._varies([c.reduce])
        if varies:
            self.varying.add(result)
        if given != wanted:
            data = self._turned(c.data, data, given, wanted)
            if valid is not None and c.reduce.present is not None:
                valid = self._turned(c.reduce.present, valid, given, wanted)
        with self._once_if(not varies):
            total = self._halved(result, c.result.elements)
            sums = self._room(F32, c.sums.elements, varies)[0] if c.turned else total
            arriving = [self.pieces[each.number] for each in (data, weights) if each.number in self.pieces]

            def arrived(start: Index) -> None:
                for semaphore in arriving:
                    self.moving.wait_for_piece(matrix.divided(start, self.chip.array) + semaphore)

            chains = matrix.Chains(self.writer, self.chip, c, arrived)
            chains.emit(sums, data, weights, held.places == c.terms, valid)
            if c.turned:
                matrix.turn(self.writer, F32, sums, total, c.sums, c.result)

    def _halved(self, result: int, elements: int) -> Ref:
        """Where a unit's results go: to one half of their area, if the other one's are still to be read."""
        if not self.ahead or self.number is None or result not in self.varying:
            return vmem(self.areas[result])
        window = chunks.Window(0, 0, elements)
        self.windows[result] = window
        self.halves[result] = ix.scale(ix.mod(self.number, 2), window.room)
        self.writer.widen(self.areas[result], 2 * window.room)
        return vmem(self.areas[result], self.moving.half(window.room))

    def _room(self, dtype: DType, elements: int, varies: bool) -> tuple[Ref, Expr]:
        """A new area for an operand of the matrix unit, and where it begins: one of two halves where the array may
        still read those of the chunk before."""
        if not varies or not self.ahead or self.number is None:
            return vmem(self.writer.area(dtype, elements)), ix.number(0)
        room = chunks.room(elements)
        area = self.writer.area(dtype, 2 * room)
        return vmem(area, self.moving.half(room)), ix.scale(ix.mod(self.number, 2), room)

    def _turned(self, term: Expr, source: Ref, given: Matrix, wanted: Matrix) -> Ref:
        with self._once_if(not self._varies([term])):
            turned = self._room(term.dtype, wanted.elements, self._varies([term]))[0]
            matrix.turn(self.writer, term.dtype, source, turned, given, wanted)
        return turned

    def _with_valid_bits(self, c: Contraction, given: Matrix) -> tuple[Ref | None, Ref]:
        """Valid bits, where some terms are absent, and the data: computed side by side, they share their conditions."""
        present = c.reduce.present
        if present is None:
            return None, self._laid(c.data, given)
        if (c.data, given) in self.copied or self._varies([c.data]) != self._varies([present]):
            return self._laid(present, given), self._laid(c.data, given)
        bits, data = self._made([present, c.data], given)
        return bits, data

    def _laid(self, term: Expr, laid: Matrix) -> Ref:
        """The term's values as a matrix in VMEM."""
        known = self.copied.get((term, laid))
        if known is not None:
            with self._once_if(True):
                self.moving.wait_for({known.number})
            return known
        return self._made([term], laid)[0]

    def _made(self, terms: Sequence[Expr], laid: Matrix) -> list[Ref]:
        """The terms' values, computed by a stage."""
        places, stores = list[Ref](), list[Store]()
        for term in terms:
            place, begin = self._room(term.dtype, laid.elements, self._varies([term]))
            number = self._number()
            self.areas[number] = place.number
            if begin.free:
                self.halves[number] = begin
            places.append(place)
            stores.append(Store(number, ix.add(laid.offset, begin), term))
        self._stage(Stage((*laid.batch, *laid.lines, *laid.places), 0, tuple(stores)))
        return places


def _layouts(c: Contraction) -> list[tuple[Expr, Matrix]]:
    """Data and weights, and how each is first laid out: along what lies side by side in memory."""
    data, held = Matrix(c.batch, c.rows, c.terms), Matrix(c.batch, c.terms, c.columns)
    if run(c.data, c.rows) > run(c.data, c.terms):
        data = Matrix(c.batch, c.terms, c.rows)
    if run(c.weights, c.terms) >= run(c.weights, c.columns):
        held = Matrix(c.batch, c.columns, c.terms)
    return [(c.data, data), (c.weights, held)]


def _shortened(stage: Stage) -> Stage:
    """The stage with reductions of at most a panel or a leaf."""
    made = list[Store]()
    for store in stage.stores:
        offset, value, *when = shorten(store.expressions)
        made.append(Store(store.buffer, offset, value, when[0] if when else None))
    return Stage(stage.axes, stage.serial, tuple(made))

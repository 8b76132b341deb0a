"""A contraction in register tiles: packed operands, fma chains in registers, running totals (rules 7 and 8).

For a kernel whose value holds one Chain reduction of a(batch, m, k) and b(batch, n, k). A work item is a
block of m by a block of n. For each panel it evaluates both terms into private memory (so that whatever
fused into them, a transpose or the patches of a convolution, costs once per item), runs each register tile
through the panel as one ascending chain, and adds the result to the item's totals. At the end the rest of
the store's expression is evaluated on the totals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from repro.errors import InternalError
from repro.ir import index as ix
from repro.ir.contraction import Contraction, find
from repro.ir.loops import Axis, Expr, Kernel, Load, topological
from repro.ir.schedule import ContractionTile, Schedule
from repro.ir.types import BOOL, I64, DType
from repro.machines import Machine
from repro.targets.llvm import reductions, scalars
from repro.targets.llvm.body import Body, Scope
from repro.targets.llvm.text import Function, Val, element, integer, vector

ROW_PADDING = 16
"""Elements between packed rows, so that rows a power of two apart do not share a cache set."""


@dataclass(frozen=True)
class Shape:
    """Sizes of a scheduled contraction."""

    contraction: Contraction
    tile: ContractionTile
    width: int

    @property
    def columns_per_tile(self) -> int:
        return self.tile.vectors * self.width

    @property
    def blocks(self) -> tuple[int, int, int]:
        """Blocks along batch, rows, columns."""
        batch, rows, columns, _ = self.contraction.extents
        return batch, -(-rows // self.tile.block_m), -(-columns // self.tile.block_n)

    @property
    def items(self) -> int:
        return math.prod(self.blocks)

    @property
    def panel(self) -> int:
        return min(self.contraction.chain.panel, self.contraction.extents[3])

    @property
    def panels(self) -> int:
        return -(-self.contraction.extents[3] // self.panel)

    @property
    def row_stride(self) -> int:
        return self.panel + ROW_PADDING

    @property
    def padded_columns(self) -> int:
        return -(-self.tile.block_n // self.columns_per_tile) * self.columns_per_tile

    @property
    def nested(self) -> bool:
        """Whether blocks of panels are summed apart."""
        return self.panels > self.contraction.chain.panels_per_block

    @property
    def areas(self) -> tuple[int, int, int, int]:
        """Elements: packed a, packed b, totals, totals of the current block of panels."""
        totals = self.tile.block_m * self.padded_columns
        return self.tile.block_m * self.row_stride, self.padded_columns * self.panel, totals, totals * self.nested

    @property
    def scratch_bytes(self) -> int:
        size = self.contraction.reduce.dtype.bytes
        return sum(-(-area * size // 64) * 64 for area in self.areas)


def shape_of(kernel: Kernel, schedule: Schedule) -> Shape:
    """The schedule's sizes, fitted: blocks are whole tiles, and no larger than the contraction."""
    contraction = find(kernel)
    if contraction is None or schedule.tile is None:
        raise InternalError("a tile for a kernel that is no contraction")
    if schedule.vector_width < 2:
        raise InternalError(f"register tiles of width {schedule.vector_width}")
    _, rows, columns, _ = contraction.extents
    tile = schedule.tile
    per_tile = tile.vectors * schedule.vector_width
    tile_rows = min(tile.rows, rows)
    block_m = min(-(-tile.block_m // tile_rows) * tile_rows, rows)
    block_n = min(-(-tile.block_n // per_tile) * per_tile, columns)
    fitted = ContractionTile(tile_rows, tile.vectors, block_m, block_n, tile.unroll)
    return Shape(contraction, fitted, schedule.vector_width)


def emit(f: Function, kernel: Kernel, schedule: Schedule, machine: Machine) -> None:
    """The loop over work items, into the function's body."""
    body = Body(f, kernel, reductions.emit, machine.reduction_lanes)
    shape = shape_of(kernel, schedule)

    def item(number: Val, _: list[Val]) -> Sequence[Val]:
        _Item(body, kernel, shape, number).emit()
        return ()

    f.loop(Val("%begin", I64), Val("%end", I64), 1, (), item)


class _Item:
    """The code of one work item."""

    def __init__(self, body: Body, kernel: Kernel, shape: Shape, number: Val) -> None:
        self.body, self.f, self.kernel, self.shape, self.tile = body, body.f, kernel, shape, shape.tile
        self.contraction, self.reduce = shape.contraction, shape.contraction.reduce
        self.dtype: DType = self.reduce.dtype
        f, (_, row_blocks, column_blocks) = self.f, shape.blocks
        column_block = self._rem(number, column_blocks)
        rest = self._quotient(number, column_blocks)
        row_block, batch = self._rem(rest, row_blocks), self._quotient(rest, row_blocks)
        _, rows, columns, _ = self.contraction.extents
        self.row0, self.column0 = f.scaled(row_block, self.tile.block_m), f.scaled(column_block, self.tile.block_n)
        self.rows = self._remaining(self.row0, self.tile.block_m, rows)
        self.columns = self._remaining(self.column0, self.tile.block_n, columns)
        bound = (
            dict(zip(self.contraction.batch, body.split(batch, self.contraction.batch), strict=True))
            if (self.contraction.batch)
            else {}
        )
        self.scope = Scope(None, bound)
        self.a, self.b, self.totals, self.sums = self._areas()

    # sizes and places ───────────────────────────────────────────────────────────────────────────────

    def _rem(self, number: Val, extent: int) -> Val:
        return integer(0) if extent == 1 else self.f.let(f"urem i64 {number.text}, {extent}", I64)

    def _quotient(self, number: Val, extent: int) -> Val:
        return number if extent == 1 else self.f.let(f"udiv i64 {number.text}, {extent}", I64)

    def _remaining(self, start: Val, block: int, extent: int) -> Val:
        if extent <= block:
            return integer(extent)
        if extent % block == 0:
            return integer(block)
        left = self.f.let(f"sub i64 {extent}, {start.text}", I64)
        return scalars.select(self.f, scalars.compare(self.f, "lt", left, integer(block)), left, integer(block))

    def _areas(self) -> list[str]:
        starts, offset = list[str](), 0
        for area in self.shape.areas:
            starts.append(self.f.let(f"getelementptr inbounds i8, ptr %scratch, i64 {offset}", I64).text)
            offset += -(-area * self.dtype.bytes // 64) * 64
        return starts

    def _address(self, area: str, offset: Val) -> str:
        return self.f.let(f"getelementptr inbounds {element(self.dtype)}, ptr {area}, {offset.typed}", I64).text

    def _read(self, area: str, offset: Val, width: int) -> Val:
        address, kind = self._address(area, offset), vector(element(self.dtype), width)
        return self.f.let(f"load {kind}, ptr {address}, align {self.dtype.bytes}", self.dtype, width)

    def _write(self, area: str, offset: Val, value: Val) -> None:
        self.f.line(f"store {value.typed}, ptr {self._address(area, offset)}, align {self.dtype.bytes}")

    # the item ───────────────────────────────────────────────────────────────────────────────────────

    def emit(self) -> None:
        shape, f = self.shape, self.f
        self.body.hoist([*self.reduce.children, self.kernel.stores[0].value], self.scope)
        terms = self.contraction.extents[3]
        clean = Val("true", BOOL)

        def panel(number: Val, state: list[Val]) -> Sequence[Val]:
            start = f.scaled(number, shape.panel)
            size = self._remaining(start, shape.panel, terms)
            found = self._pack(0, start, size, state[0])
            found = self._pack(1, start, size, found)
            self._tiles(number, size)
            return [found]

        finite = f.loop(integer(0), integer(shape.panels), 1, [clean], panel)[0]
        if self.contraction.absent_in is None:
            self._finish()
            return

        def fast() -> Sequence[Val]:
            self._finish()
            return ()

        def exact() -> Sequence[Val]:
            self._exact_road()
            return ()

        f.either(finite, fast, exact)

    # packing ────────────────────────────────────────────────────────────────────────────────────────

    def _pack(self, side: int, start: Val, size: Val, finite: Val) -> Val:
        """Evaluate one operand's terms of the panel; along k where it lies so, else along its own axes."""
        lines = self.rows if side == 0 else self.columns
        along_k = side == 0 and not self._contiguous(side)
        if side == 0 and (along_k or self._contiguous_in_k()):
            return self._pack_along_k(start, size, finite)
        return self._pack_across(side, start, size, lines, finite)

    def _strides(self, side: int, axis: Axis) -> list[int | None]:
        return [ix.coefficient(e.offset, axis) for e in topological([self.reduce.terms[side]]) if isinstance(e, Load)]

    def _contiguous(self, side: int) -> bool:
        axes = self.contraction.rows if side == 0 else self.contraction.columns
        return bool(axes) and any(stride == 1 for stride in self._strides(side, axes[-1]))

    def _contiguous_in_k(self) -> bool:
        return any(stride == 1 for stride in self._strides(0, self.reduce.axes[-1]))

    def _term(self, side: int, scope: Scope, finite: Val) -> tuple[Val, Val]:
        """The operand's terms in the lanes of a scope, blanked where absent; and whether all so far are finite."""
        f, width = self.f, scope.vector.width if scope.vector is not None else 1
        value = f.splat(self.body.value(self.reduce.terms[side], scope), width)
        keep = scope.vector.mask if scope.vector is not None else None
        if self.contraction.absent_in == side and self.reduce.present is not None:
            present = f.splat(self.body.value(self.reduce.present, scope), width)
            keep = present if keep is None else scalars.binary(f, "and", keep, present)
        if keep is not None:
            value = scalars.select(f, keep, value, scalars.constant(f, self.dtype, 0, width))
        if self.contraction.absent_in is None or self.contraction.absent_in == side:
            return value, finite
        return value, scalars.binary(f, "and", finite, self._all_finite(value))

    def _all_finite(self, value: Val) -> Val:
        f = self.f
        infinity = 0x7F800000 if self.dtype.bits == 32 else 0x7FF0000000000000
        bound = scalars.constant(f, self.dtype, infinity, value.width)
        lanes = scalars.compare(f, "lt", scalars.intrinsic(f, "fabs", value), bound)
        if value.width == 1:
            return lanes
        return f.call(f"llvm.vector.reduce.and.v{value.width}i1", (BOOL, 1), [lanes])

    def _chunks(self, count: Val, width: int, finite: Val, body: Callable[[Val, Val | None, Val], Val]) -> Val:
        """Runs of `width` over a count, the last one masked."""
        f = self.f
        whole = f.let(f"and i64 {count.text}, {-width}", I64)
        state = f.loop(integer(0), whole, width, [finite], lambda at, s: [body(at, None, s[0])])

        def tail(at: Val, s: list[Val]) -> Sequence[Val]:
            lanes = f.add(f.splat(at, width), f.lanes(width))
            mask = scalars.compare(f, "lt", lanes, f.splat(count, width))
            return [body(at, mask, s[0])]

        return f.loop(whole, count, width, state, tail)[0]

    def _pack_along_k(self, start: Val, size: Val, finite: Val) -> Val:
        """a as [row][k]: each row a copy of consecutive terms."""
        f, width = self.f, self.shape.width
        count = self.contraction.rows

        def row(number: Val, state: list[Val]) -> Sequence[Val]:
            place = f.add(self.row0, number)
            bound = dict(zip(count, self.body.split(place, count), strict=True)) if count else {}
            scope = Scope(self.scope, bound)
            self.body.hoist([self.reduce.terms[0]], scope)
            line = f.scaled(number, self.shape.row_stride)

            def chunk(at: Val, mask: Val | None, ok: Val) -> Val:
                lanes = self.body.lane_scope(scope, self.reduce.axes, f.add(start, at), width, mask)
                value, ok = self._term(0, lanes, ok)
                self._write(self.a, f.add(line, at), value)
                return ok

            return [self._chunks(size, width, state[0], chunk)]

        return f.loop(integer(0), self.rows, 1, [finite], row)[0]

    def _pack_across(self, side: int, start: Val, size: Val, lines: Val, finite: Val) -> Val:
        """For each k, consecutive rows or columns: b as [tile][k][column], a as [row][k] by lane stores."""
        f, width = self.f, self.shape.width
        axes = self.contraction.rows if side == 0 else self.contraction.columns
        first = self.row0 if side == 0 else self.column0

        def term(number: Val, state: list[Val]) -> Sequence[Val]:
            bound = dict(zip(self.reduce.axes, self.body.split(f.add(start, number), self.reduce.axes), strict=True))
            scope = Scope(self.scope, bound)
            self.body.hoist([self.reduce.terms[side]], scope)

            def chunk(at: Val, mask: Val | None, ok: Val) -> Val:
                lanes = self.body.lane_scope(scope, axes, f.add(first, at), width, mask)
                value, ok = self._term(side, lanes, ok)
                if side == 1:
                    self._write(self.b, self._column_place(at, number), value)
                else:
                    self._write_rows(at, number, value, mask)
                return ok

            return [self._chunks(lines, width, state[0], chunk)]

        return f.loop(integer(0), size, 1, [finite], term)[0]

    def _column_place(self, column: Val, term: Val) -> Val:
        """Offset in packed b: tiles of columns one after another, in each a row per term."""
        f, per_tile = self.f, self.shape.columns_per_tile
        tile, inside = self._quotient(column, per_tile), self._rem(column, per_tile)
        place = f.add(f.scaled(tile, per_tile * self.shape.panel), f.scaled(term, per_tile))
        return f.add(place, inside)

    def _write_rows(self, row: Val, term: Val, value: Val, mask: Val | None) -> None:
        f, width = self.f, value.width
        lanes = f.add(f.splat(row, width), f.lanes(width))
        places = f.add(f.scaled(lanes, self.shape.row_stride), f.splat(term, width))
        address = self.f.let(f"getelementptr inbounds {element(self.dtype)}, ptr {self.a}, {places.typed}", I64).text
        kind, pointers = value.type, vector("ptr", width)
        short = f"v{width}f{self.dtype.bits}"
        full = mask or scalars.constant(f, BOOL, 1, width)
        arguments = [value.typed, f"{pointers} align {self.dtype.bytes} {address}", full.typed]
        f.effect(f"llvm.masked.scatter.{short}.v{width}p0", [kind, pointers, full.type], arguments)

    # register tiles ─────────────────────────────────────────────────────────────────────────────────

    def _tiles(self, panel: Val, size: Val) -> None:
        f, rows = self.f, self.tile.rows
        whole_tiles = f.let(f"udiv i64 {self.rows.text}, {rows}", I64)
        whole = f.scaled(whole_tiles, rows)
        f.loop(integer(0), whole, rows, (), lambda row, _: self._row_of_tiles(row, rows, panel, size))
        extent = self.contraction.extents[1]
        rest = extent % rows if extent <= self.tile.block_m else (extent % self.tile.block_m) % rows
        if rest:
            f.loop(whole, self.rows, rows, (), lambda row, _: self._row_of_tiles(row, rest, panel, size))

    def _row_of_tiles(self, row: Val, rows: int, panel: Val, size: Val) -> Sequence[Val]:
        step = self.shape.columns_per_tile
        self.f.loop(integer(0), self.columns, step, (), lambda column, _: self._tile(row, column, rows, panel, size))
        return ()

    def _tile(self, row: Val, column: Val, rows: int, panel: Val, size: Val) -> Sequence[Val]:
        f, shape, unroll = self.f, self.shape, self.tile.unroll
        width, vectors = shape.width, self.tile.vectors
        a = self._address(self.a, f.scaled(row, shape.row_stride))
        b = self._address(self.b, f.scaled(column, shape.panel))

        def turn(count: int) -> Callable[[Val, list[Val]], Sequence[Val]]:
            def terms(at: Val, acc: list[Val]) -> Sequence[Val]:
                for ahead in range(count):
                    acc = self._step(a, b, f.add(at, integer(ahead)), acc, rows)
                return acc

            return terms

        zero = scalars.constant(f, self.dtype, 0, width)
        whole = f.scaled(self._quotient(size, unroll), unroll)
        acc = f.loop(integer(0), whole, unroll, [zero] * (rows * vectors), turn(unroll))
        if unroll > 1:
            acc = f.loop(whole, size, 1, acc, turn(1))
        for position, value in enumerate(acc):
            line = f.add(row, integer(position // vectors))
            place = f.add(f.scaled(line, shape.padded_columns), f.add(column, integer(position % vectors * width)))
            self._accumulate(panel, place, value)
        return ()

    def _step(self, a: str, b: str, at: Val, acc: list[Val], rows: int) -> list[Val]:
        """One term of the chain for the whole register tile."""
        f, width, vectors = self.f, self.shape.width, self.tile.vectors
        line = f.scaled(at, self.shape.columns_per_tile)
        columns = [self._read(b, f.add(line, integer(v * width)), width) for v in range(vectors)]
        longer: list[Val] = []
        for row in range(rows):
            one = self._read(a, f.add(at, integer(row * self.shape.row_stride)), 1)
            left = f.splat(one, width)
            for v in range(vectors):
                longer.append(scalars.fma(f, left, columns[v], acc[row * vectors + v]))
        return longer

    def _accumulate(self, panel: Val, place: Val, value: Val) -> None:
        """totals += value, starting from the first of each sum (rule 7)."""
        f, shape = self.f, self.shape
        if shape.panels == 1:
            self._write(self.totals, place, value)
            return
        if not shape.nested:
            self._write(self.totals, place, self._joined(self.totals, place, value, self._is(panel, 0, None)))
            return
        per_block = shape.contraction.chain.panels_per_block
        summed = self._joined(self.sums, place, value, self._is(panel, 0, per_block))
        self._write(self.sums, place, summed)
        first_block = f.let(f"icmp ult i64 {panel.text}, {per_block}", BOOL)
        final = self._is(panel, shape.panels - 1, None)
        ends = scalars.binary(f, "or", self._is(panel, per_block - 1, per_block), final)
        old = self._read(self.totals, place, value.width)
        total = scalars.apply(f, "add", self.dtype, [old, summed])
        total = f.let(f"select {first_block.typed}, {summed.typed}, {total.typed}", self.dtype, value.width)
        kept = f.let(f"select {ends.typed}, {total.typed}, {old.typed}", self.dtype, value.width)
        self._write(self.totals, place, kept)

    def _is(self, panel: Val, number: int, modulus: int | None) -> Val:
        inside = panel if modulus is None else self._rem(panel, modulus)
        return self.f.let(f"icmp eq i64 {inside.text}, {number}", BOOL)

    def _joined(self, area: str, place: Val, value: Val, first: Val) -> Val:
        summed = scalars.apply(self.f, "add", self.dtype, [self._read(area, place, value.width), value])
        return self.f.let(f"select {first.typed}, {value.typed}, {summed.typed}", self.dtype, value.width)

    # what is stored ─────────────────────────────────────────────────────────────────────────────────

    def _finish(self) -> None:
        """total + 0.0, then the rest of the store's expression, along the columns."""
        f, width, rows = self.f, self.shape.width, self.contraction.rows

        def row(number: Val, _: list[Val]) -> Sequence[Val]:
            place = f.add(self.row0, number)
            bound = dict(zip(rows, self.body.split(place, rows), strict=True)) if rows else {}
            line = f.scaled(number, self.shape.padded_columns)

            def chunk(at: Val, mask: Val | None, ok: Val) -> Val:
                scope = Scope(self.scope, bound)
                columns, start = self.contraction.columns, f.add(self.column0, at)
                lanes = self.body.lane_scope(scope, columns, start, width, mask)
                total = self._read(self.totals, f.add(line, at), width)
                zero = scalars.constant(f, self.dtype, 0, width)
                lanes.known[self.reduce] = scalars.apply(f, "add", self.dtype, [total, zero])
                self._store(lanes)
                return ok

            self._chunks(self.columns, width, Val("true", BOOL), chunk)
            return ()

        f.loop(integer(0), self.rows, 1, (), row)

    def _store(self, scope: Scope) -> None:
        store = self.kernel.stores[0]
        self.body.store(store.buffer, store.offset, self.body.value(store.value, scope), store.when, scope)

    def _exact_road(self) -> None:
        """Where a blank would meet a value that is not finite: each output by the plain order."""
        f, rows, columns = self.f, self.contraction.rows, self.contraction.columns

        def output(row: Val, column: Val) -> Sequence[Val]:
            bound: dict[Axis, Val] = {}
            for axes, first, number in ((rows, self.row0, row), (columns, self.column0, column)):
                if axes:
                    bound.update(zip(axes, self.body.split(f.add(first, number), axes), strict=True))
            self._store(Scope(self.scope, bound))
            return ()

        f.loop(
            integer(0),
            self.rows,
            1,
            (),
            lambda row, _: (f.loop(integer(0), self.columns, 1, (), lambda column, __: output(row, column)), ())[1],
        )


def roots(kernel: Kernel) -> list[Expr]:
    return [expr for store in kernel.stores for expr in store.expressions]

"""A contraction in register tiles: packed operands, fma chains in registers, running totals (rules 7 and 8).

For a kernel whose value holds one Chain reduction of a(batch, m, k) and b(batch, n, k). A work item is a
block of m by a block of n. For each panel it evaluates the terms of the columns into private memory, then, tile by
tile, those of the rows (so that whatever fused into them, a transpose or the patches of a convolution, costs once per
item), runs each register tile through the panel as one ascending chain, and adds the result to the item's totals.
Behind the last panel's tiles of a few rows the rest of the store's expression is evaluated on their totals.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, partial

from repro.ir import index as ix
from repro.ir.expressions import Expr, Load, topological
from repro.ir.loops import Kernel
from repro.ir.types import BOOL, I64
from repro.machines import Machine
from repro.machines.machine import line_elements
from repro.targets.llvm import reductions, scalars
from repro.targets.llvm.body import Body
from repro.targets.llvm.chains import Asking
from repro.targets.llvm.outputs import Outputs
from repro.targets.llvm.scope import Scope
from repro.targets.llvm.text import Function, Val, integer
from repro.targets.llvm.tiling import Shape

NEAR = (1, 2)
"""Elements between neighbouring columns' outputs, where those of a tile lie in few lines."""


def emit(f: Function, kernel: Kernel, shape: Shape, machine: Machine, kind: type[Item]) -> None:
    """The loop over work items, into the function's body."""
    body = Body(f, kernel, reductions.emit, machine)

    def item(number: Val, _: list[Val]) -> Sequence[Val]:
        kind(body, kernel, shape, number).emit()
        return ()

    f.loop(Val("%begin", I64), Val("%end", I64), 1, (), item)


class Item(Outputs):
    """The code of one work item."""

    def emit(self) -> None:
        self.panels()

    def panels(self) -> Val:
        """All panels, one after another; whether every term that a blank might meet is finite."""
        shape, f = self.shape, self.f
        self.body.hoist([*self.reduce.children, *self.values], self.scope)
        terms = self.contraction.extents[3]
        beforehand = not (shape.direct or shape.made or self.copies_columns)
        if beforehand:
            self.blank_columns()

        def panel(number: Val, state: list[Val]) -> Sequence[Val]:
            start = f.scaled(number, shape.panel)
            size = self.remaining(start, shape.panel, terms)
            found = self.pack_columns(start, size, state[0]) if beforehand else state[0]
            return [self.tiles(number, start, size, found)]

        return f.loop(integer(0), integer(shape.panels), 1, [Val("true", BOOL)], panel)[0]

    # register tiles ─────────────────────────────────────────────────────────────────────────────────

    def tiles(self, panel: Val, start: Val, size: Val, finite: Val) -> Val:
        """The panel's tiles, those of a few rows at a time; behind the last panel's tiles their outputs."""
        if self.shape.tail is not None:
            self._evened(self.shape.tail, panel, start, size, finite)
            return finite
        f, most = self.f, self.tile.rows
        extent, packed = self.contraction.extents[1], self.shape.rows_packed
        rest = extent % most if extent <= self.tile.block_m else (extent % self.tile.block_m) % most
        last = self.is_last(panel)

        def group(first: Val, state: list[Val]) -> Sequence[Val]:
            found, end = state[0], self.least(f.add(first, integer(packed)), self.rows)
            if self.shape.rows_direct is None and not self.shape.rows_in_memory:
                found = self.pack_rows(first, f.let(f"sub i64 {end.text}, {first.text}", I64), start, size, found)

            def line(row: Val, _: list[Val]) -> Sequence[Val]:
                a = self.rows_at(first, row, start)
                count = self.least(f.let(f"sub i64 {end.text}, {row.text}", I64), integer(most)) if rest else None
                if count is None:
                    self._row_of_tiles(a, row, most, panel, start, size)
                else:
                    f.either(
                        scalars.compare(f, "eq", count, integer(most)),
                        lambda: self._row_of_tiles(a, row, most, panel, start, size),
                        lambda: self._row_of_tiles(a, row, rest, panel, start, size),
                    )
                if not self.at_once:
                    f.when(last, lambda: self.stored(row, count or integer(most), found))
                return ()

            f.loop(first, end, most, (), line)
            return [found]

        return f.loop(integer(0), self.rows, packed, [finite], group)[0]

    def _evened(self, tail: tuple[int, int], panel: Val, start: Val, size: Val, finite: Val) -> None:
        """The tiles of rows that are read in place; in the last block the last two are of about equal size."""
        f, most, held, (upper, lower) = self.f, self.tile.rows, self.shape.last_block, tail
        others, even = integer(self.tile.block_m // most), integer((held - upper - lower) // most)
        here = scalars.compare(f, "eq", self.rows, integer(held))
        whole = scalars.select(f, here, even, others)
        last = self.is_last(panel)

        def line(number: Val, _: list[Val]) -> Sequence[Val]:
            full, lowest = (scalars.compare(f, op, number, whole) for op in ("lt", "gt"))
            row = f.add(f.scaled(number, most), scalars.select(f, lowest, integer(upper - most), integer(0)))
            a = self.rows_at(row, row, start)

            def tiles(count: int) -> Sequence[Val]:
                return self._row_of_tiles(a, row, count, panel, start, size)

            def short() -> Sequence[Val]:
                if upper == lower:
                    return tiles(upper)
                return f.either(lowest, lambda: tiles(lower), lambda: tiles(upper))

            f.either(full, lambda: tiles(most), short)
            count = scalars.select(f, lowest, integer(lower), integer(upper))
            if not self.at_once:
                f.when(last, lambda: self.stored(row, scalars.select(f, full, integer(most), count), finite))
            return ()

        tiles = scalars.select(f, here, f.add(whole, integer(2)), whole)
        f.loop(integer(0), tiles, 1, (), line)

    def _row_of_tiles(self, a: str, row: Val, rows: int, panel: Val, start: Val, size: Val) -> Sequence[Val]:
        per_tile = self.shape.columns_per_tile
        parts, following = self.shape.padded_columns // per_tile, self.f.add(row, integer(self.tile.rows))

        def tile(column: Val, _: list[Val]) -> Sequence[Val]:
            self.fetch_rows(following, self.quotient(column, per_tile), parts, start, size)
            return self.one_tile(a, row, column, self.columns_at(column, start), rows, panel, start, size)

        self.f.loop(integer(0), self.columns, self.shape.columns_per_tile, (), tile)
        return ()

    def one_tile(
        self, a: str, row: Val, column: Val, b: str, rows: int, panel: Val, start: Val, size: Val
    ) -> Sequence[Val]:
        """A register tile of so many rows, of operands whose terms begin at `a` and `b`."""
        ask = self._meanwhile(row, column, panel, start, size)

        def used(acc: list[Val]) -> Sequence[Val]:
            if not self.at_once:
                return self._accumulate_all(row, column, panel, acc)
            if self.shape.panels == 1:
                return self._store_all(row, column, acc)
            return self.f.either(
                self.is_last(panel),
                lambda: self._store_all(row, column, acc),
                lambda: self._accumulate_all(row, column, panel, acc),
            )

        return self.chains(a, row, column, b, rows, start, size, ask, used)

    def _meanwhile(self, row: Val, column: Val, panel: Val, start: Val, size: Val) -> Asking | None:
        """What is done with each row of a tile while its terms are multiplied."""
        trails = partial(self._trail, row, column, panel) if self.trails else None
        asking = self._asks_for_outputs(row, column, panel), self.next_rows(row, column, start, size), trails
        found = [each for each in asking if each is not None]

        def of_row(number: Val) -> None:
            for each in found:
                each(number)

        return of_row if found else None

    def _trail(self, row: Val, column: Val, panel: Val, number: Val) -> None:
        """Store a row of the tile before."""
        f = self.f
        before = f.let(f"sub i64 {column.text}, {self.shape.columns_per_tile}", I64)
        there = scalars.compare(f, "ge", before, integer(0))
        if self.shape.panels > 1:
            there = scalars.binary(f, "and", there, self.is_last(panel))
        f.when(there, lambda: self.row_of_tile(row, number, before))

    def _asks_for_outputs(self, row: Val, column: Val, panel: Val) -> Asking | None:
        """Ask for what the outputs of a tile's row lie in, and what is read beside them; None where neither would be
        waited for."""
        near = self._beside_outputs
        if not near:
            return None

        def of_row(number: Val) -> None:
            for buffer, offset, write in near:
                self._ask_for_row(buffer, offset, write, self.f.add(row, number), column)

        if self.shape.panels == 1:
            return of_row
        return lambda number: self.f.when(self.is_last(panel), lambda: of_row(number))

    @cached_property
    def _beside_outputs(self) -> Sequence[tuple[int, Expr, int]]:
        """Buffers and offsets along the columns, of what is read for each output, and of the outputs (1: written)."""
        stores, columns = self.kernel.stores, self.contraction.columns
        apart, written = (frozenset(self.contraction.rows), frozenset(columns)), {store.buffer for store in stores}
        loads = [e for e in topological(self.values) if isinstance(e, Load) and all(e.free & each for each in apart)]
        if not columns or not (loads or self._outputs_are_far):
            return ()
        places = [(load.buffer, load.offset, 0) for load in loads if load.buffer not in written]
        places += [(store.buffer, store.offset, 1) for store in stores]
        near = (each for each in places if ix.coefficient(each[1], columns[-1]) in NEAR)
        return [each for each in near if not _looks_up(each[1])]

    @property
    def _outputs_are_far(self) -> bool:
        """Whether a store to the outputs waits for memory, and each tile has some: those of a single panel, which lie
        beyond the second-level cache."""
        return self.shape.panels == 1 and any(self.body.is_far(store.buffer) for store in self.kernel.stores)

    def _ask_for_row(self, buffer: int, offset: Expr, write: int, row: Val, column: Val) -> None:
        """Ask for what lies beside a row's outputs in a tile of columns."""
        columns, at_row = self.contraction.columns, self.at_line(0, row)
        line = line_elements(self.kernel.buffers[buffer].dtype.bytes)
        apart = ix.coefficient(offset, columns[-1]) or 1
        for ahead in range(0, self.shape.columns_per_tile, max(1, line // apart)):
            at = self.f.add(self.column0, self.f.add(column, integer(ahead)))
            scope = Scope(at_row, dict(zip(columns, self.body.split(at, columns), strict=True)))
            self.body.fetch(buffer, self.body.value(offset, scope), write=write)

    def columns_at(self, column: Val, start: Val) -> str:
        """Where the first term of a tile's columns lies: packed, or among the operand's own elements."""
        if not self.shape.direct:
            return self.address(self.b, self.f.scaled(column, self.shape.panel))
        return self.in_place(1, column, start)

    def rows_at(self, first: Val, row: Val, start: Val) -> str:
        """The same of a tile's rows, of those that were packed from a first one on."""
        if self.shape.rows_direct is not None:
            return self.in_place(0, row, start)
        tile = self.quotient(self.f.let(f"sub i64 {row.text}, {first.text}", I64), self.tile.rows)
        return self.address(self.a, self.f.scaled(tile, self.shape.strip))

    def _vectors(self, row: Val, column: Val, count: int) -> Iterator[tuple[Val, Val, Val]]:
        """For each vector of a tile's outputs: its row, its first column, and where its totals lie."""
        f, vectors = self.f, self.tile.vectors
        for position in range(count):
            number, first = integer(position // vectors), f.add(column, integer(position % vectors * self.shape.width))
            line = f.scaled(f.add(self.total_line(row), number), self.shape.padded_columns)
            yield f.add(row, number), first, f.add(line, first)

    def _accumulate_all(self, row: Val, column: Val, panel: Val, acc: list[Val]) -> Sequence[Val]:
        for value, (_, _, place) in zip(acc, self._vectors(row, column, len(acc)), strict=True):
            self.accumulate(panel, place, value)
        return ()

    def _store_all(self, row: Val, column: Val, acc: list[Val]) -> Sequence[Val]:
        """The outputs of a tile, behind the last panel, whose sums are still in registers."""
        f, width = self.f, self.shape.width
        for value, (of_row, first, place) in zip(acc, self._vectors(row, column, len(acc)), strict=True):
            total = value
            if self.shape.panels > 1:
                total = scalars.apply(f, "add", self.dtype, [self.read(self.totals, place, width), value])
            start = f.add(self.column0, first)
            columns = self.contraction.columns
            self._output(
                self.body.lane_scope(self.at_line(0, of_row), columns, start, width, None, aligned=True), total
            )
        return ()

    def accumulate(self, panel: Val, place: Val, value: Val) -> None:
        """totals += value, starting from the first of each sum (rule 7)."""
        f, shape = self.f, self.shape
        if shape.panels == 1:
            self.write(self.totals, place, value)
            return
        if not shape.nested:
            before = self._before(self.totals, place, value.width, self._is(panel, 0, None))
            self.write(self.totals, place, scalars.apply(f, "add", self.dtype, [before, value]))
            return
        per_block = shape.contraction.chain.panels_per_block
        before = self._before(self.sums, place, value.width, self._is(panel, 0, per_block))
        summed = scalars.apply(f, "add", self.dtype, [before, value])
        self.write(self.sums, place, summed)
        first_block = f.let(f"icmp ult i64 {panel.text}, {per_block}", BOOL)
        final = self.is_last(panel)
        ends = scalars.binary(f, "or", self._is(panel, per_block - 1, per_block), final)
        old = self._before(self.totals, place, value.width, first_block)
        total = scalars.apply(f, "add", self.dtype, [old, summed])
        kept = f.let(f"select {ends.typed}, {total.typed}, {old.typed}", self.dtype, value.width)
        self.write(self.totals, place, kept)

    def _before(self, area: str, place: Val, width: int, first: Val) -> Val:
        """What sums came to before, or for the first, what has not been written yet, -0: with it x comes to x, whatever
        x is."""
        nothing = scalars.constant(self.f, self.dtype, self.dtype.is_float << (self.dtype.bits - 1), width)
        old = self.read(area, place, width)
        return self.f.let(f"select {first.typed}, {nothing.typed}, {old.typed}", self.dtype, width)


def _looks_up(index: Expr) -> bool:
    return any(isinstance(part, Load) for part in topological([index]))

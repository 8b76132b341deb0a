"""A work item of a contraction: what packing, register tiles and the epilogue share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from repro.ir.loops import Kernel
from repro.ir.types import I64, DType
from repro.machines.machine import whole_lines
from repro.targets.llvm import quads, scalars
from repro.targets.llvm.body import Body
from repro.targets.llvm.scope import Scope
from repro.targets.llvm.text import Val, element, integer, vector
from repro.targets.llvm.tiling import Shape


class Block:
    """One work item of a contraction: its place among the outputs, its scopes, its private memory."""

    def __init__(self, body: Body, kernel: Kernel, shape: Shape, number: Val, end: Val | None = None) -> None:
        """Item `number`; where rows are items, those from there to `end`."""
        self.body, self.f, self.kernel, self.shape, self.tile = body, body.f, kernel, shape, shape.tile
        self.contraction, self.reduce = shape.contraction, shape.contraction.reduce
        self.dtype: DType = self.reduce.dtype
        f, (_, row_blocks, column_blocks) = self.f, shape.blocks
        column_block = self.rem(number, column_blocks)
        rest = self.quotient(number, column_blocks)
        row_block, batch = self.rem(rest, row_blocks), self.quotient(rest, row_blocks)
        _, rows, columns, _ = self.contraction.extents
        self.row0, self.column0 = f.scaled(row_block, self.tile.block_m), f.scaled(column_block, self.tile.block_n)
        self.rows = self.remaining(self.row0, self.tile.block_m, rows)
        self.columns = self.remaining(self.column0, self.tile.block_n, columns)
        if end is not None:
            self.row0, self.rows = number, f.let(f"sub i64 {end.text}, {number.text}", I64)
        bound = (
            dict(zip(self.contraction.batch, body.split(batch, self.contraction.batch), strict=True))
            if (self.contraction.batch)
            else {}
        )
        self.scope = Scope(None, bound)
        self.a, self.b, self.totals, self.sums = self._areas()

    # sizes and places ───────────────────────────────────────────────────────────────────────────────

    def rem(self, number: Val, extent: int) -> Val:
        return integer(0) if extent == 1 else self.f.let(f"urem i64 {number.text}, {extent}", I64)

    def quotient(self, number: Val, extent: int) -> Val:
        return number if extent == 1 else self.f.let(f"udiv i64 {number.text}, {extent}", I64)

    def remaining(self, start: Val, block: int, extent: int) -> Val:
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
            offset += whole_lines(area * self.dtype.bytes)
        return starts

    def address(self, area: str, offset: Val) -> str:
        return self.f.let(f"getelementptr inbounds {element(self.dtype)}, ptr {area}, {offset.typed}", I64).text

    def read(self, area: str, offset: Val, width: int) -> Val:
        address, kind = self.address(area, offset), vector(element(self.dtype), width)
        return self.f.let(f"load {kind}, ptr {address}, align {self.dtype.bytes}", self.dtype, width)

    def write(self, area: str, offset: Val, value: Val) -> None:
        self.f.line(f"store {value.typed}, ptr {self.address(area, offset)}, align {self.dtype.bytes}")

    def longer(self, left: Val, right: Val, total: Val, side: int = 0) -> Val:
        """total + a term of one side (0: a row's) times one of the other."""
        unsigned = self.contraction.unsigned
        if unsigned is None:
            return scalars.fma(self.f, left, right, total)
        return quads.add_dot(self.f, self.body.machine, *((left, right) if unsigned == side else (right, left)), total)

    def at_line(self, side: int, line: Val) -> Scope:
        """The scope of one row (side 0) or column (side 1) of the item."""
        axes = self.contraction.rows if side == 0 else self.contraction.columns
        first = self.row0 if side == 0 else self.column0
        places = self.body.split(self.f.add(first, line), axes)
        return Scope(self.scope, dict(zip(axes, places, strict=True)))

    def at_term(self, outer: Scope, term: Val) -> Scope:
        """The scope of one term of the chain."""
        places = self.body.split(term, self.reduce.axes)
        return Scope(outer, dict(zip(self.reduce.axes, places, strict=True)))

    def lanes_of_terms(self, outer: Scope, term: Val, mask: Val | None) -> Scope:
        """The scope of a vector of terms."""
        aligned = self.shape.panel % self.shape.width == 0
        return self.body.lane_scope(outer, self.reduce.axes, term, self.shape.width, mask, aligned)

    def lanes_of_lines(self, side: int, line: Val, mask: Val | None, outer: Scope | None = None) -> Scope:
        """The scope of a vector of rows or columns."""
        contraction, width = self.contraction, self.shape.width
        axes, first = (contraction.rows, self.row0) if side == 0 else (contraction.columns, self.column0)
        whole = first.text == "0" or self.tile.block_m % width == 0
        aligned = side == 1 or (whole and self.tile.rows % width == 0)
        return self.body.lane_scope(outer or self.scope, axes, self.f.add(first, line), width, mask, aligned)

    def chunks(self, count: Val, width: int, finite: Val, body: Callable[[Val, Val | None, Val], Val]) -> Val:
        """Runs of `width` over a count, the last one masked."""
        f = self.f
        whole = f.let(f"and i64 {count.text}, {-width}", I64)
        state = f.loop(integer(0), whole, width, [finite], lambda at, s: [body(at, None, s[0])])

        def tail(at: Val, s: list[Val]) -> Sequence[Val]:
            lanes = f.add(f.splat(at, width), f.lanes(width))
            mask = scalars.compare(f, "lt", lanes, f.splat(count, width))
            return [body(at, mask, s[0])]

        return f.loop(whole, count, width, state, tail)[0]

    def runs(
        self, count: Val, width: int, several: int, finite: Val, body: Callable[[Val, int, Val | None, Val], Val]
    ) -> Val:
        """Chunks over a count, several at a time as long as there are as many."""
        f, step = self.f, several * width
        if several < 2:
            return self.chunks(count, width, finite, lambda at, mask, ok: body(at, 1, mask, ok))
        whole = f.scaled(self.quotient(count, step), step)
        (finite,) = f.loop(integer(0), whole, step, [finite], lambda at, state: [body(at, several, None, state[0])])
        rest = f.let(f"sub i64 {count.text}, {whole.text}", I64)
        return self.chunks(rest, width, finite, lambda at, mask, ok: body(f.add(whole, at), 1, mask, ok))

    def least(self, value: Val, bound: Val) -> Val:
        return scalars.least(self.f, value, bound)

    def column_place(self, column: Val, term: Val) -> Val:
        """Offset in packed b: tiles of columns one after another, in each a row per term."""
        f, per_tile = self.f, self.shape.columns_per_tile
        tile, inside = self.quotient(column, per_tile), self.rem(column, per_tile)
        place = f.add(f.scaled(tile, per_tile * self.shape.panel), f.scaled(term, per_tile))
        return f.add(place, inside)

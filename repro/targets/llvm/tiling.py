"""Sizes of a scheduled contraction: tiles, blocks, panels, and the private memory that they take."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

from passes.group_lanes import GroupLanes, group_lanes, strip
from passes.pixels import Pixels, pixels, starts
from passes.tile_operands import scattered
from passes.windows import Window, any_window
from repro.errors import InternalError
from repro.ir import index as ix
from repro.ir.contraction import Contraction, find
from repro.ir.expressions import Load
from repro.ir.loops import Kernel
from repro.ir.schedule import GROUPS, PIXELS, ContractionTile, Schedule
from repro.machines.machine import BUSY, whole_lines

ROW_PADDING = 16
"""Elements between packed rows, so that rows a power of two apart do not share a cache set."""

PAGE_ROWS = 192
"""Rows that are packed together, at most, where those of a term lie side by side, and each term's on another page."""

COPYING_ROWS = 8
"""Rows of a tile from which on the first one that reads a line's terms waits for few of them: they come while as many
rows are multiplied, but for scattered ones. Tiles of fewer rows ask for terms of their own, and columns are copied
before (packing.py), but near ones of wide tiles."""


@dataclass(frozen=True)
class Shape:
    """Sizes of a scheduled contraction."""

    contraction: Contraction
    tile: ContractionTile
    width: int
    window: Window | None = None

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
        return self.contraction.extents[1] if self.row_items else math.prod(self.blocks)

    @property
    def row_items(self) -> bool:
        """Whether each row is an item: nothing is packed for it, so a thread's may be run together, however many."""
        direct = self.direct and self.rows_direct is not None
        return self.tile.row_items and direct and self.contraction.extents[0] == 1

    @property
    def panel(self) -> int:
        return min(self.contraction.chain.panel, self.contraction.extents[3])

    @cached_property
    def columns_apart(self) -> int | None:
        """Elements between the columns' terms, where they are read where they lie."""
        if self.tile.packs:
            return None
        if self.window is not None and self.contraction.laid_out(self.columns_per_tile):
            return self.columns_per_tile  # what blanks meet there is seen in the totals
        return self.contraction.in_place(self.columns_per_tile)

    @property
    def in_order(self) -> bool:
        """Whether columns lie in memory in the order in which tiles read them, one term right after another."""
        return self.columns_apart == self.columns_per_tile

    @property
    def direct(self) -> bool:
        """Whether register tiles read b where it lies: then it is not packed."""
        return self.columns_apart is not None

    @cached_property
    def made(self) -> bool:
        """Whether tiles make their columns' terms in registers."""
        wanted = self.tile.makes and self.window is None and not self.direct
        return wanted and self.contraction.makes(self.width)

    @property
    def whole_tiles(self) -> bool:
        """Whether the columns of each block are whole tiles."""
        return self.contraction.extents[2] % self.columns_per_tile == 0

    @property
    def rows_direct(self) -> int | None:
        """Elements between rows, where they are read where they lie."""
        return self.contraction.row_stride if self.tile.rows_in_place and self.window is None else None

    @cached_property
    def rows_apart(self) -> int:
        """Elements between the rows' terms where those of a term lie side by side in memory; 0 where they do not."""
        beside = self.window is None and not self.made and self.rows_beside
        return self.contraction.rows_side_by_side or 0 if beside else 0

    @property
    def rows_before(self) -> bool:
        """Whether such rows are packed before the tiles, many tiles' at once."""
        return self.tile.rows_before and self.rows_apart > 0

    @property
    def rows_in_memory(self) -> int:
        """Elements between the rows' terms where the first tile that reads them may pack them; 0 where it may not."""
        return 0 if self.rows_before else self.rows_apart

    @cached_property
    def columns_in_memory(self) -> int:
        """Elements between the columns' terms where tiles could read them; 0 where they could not."""
        return self.contraction.in_place(self.columns_per_tile) or 0

    @property
    def many_rows(self) -> bool:
        """Whether the products of a tile's term take so long that a line of the next tile's comes meanwhile."""
        return self.tile.rows >= COPYING_ROWS

    def can_copy_columns(self, near: bool) -> bool:
        """Whether the first row of tiles that reads columns may pack them; `near`: all lie in a near cache, so that the
        many products of a wide tile are enough to wait behind."""
        packs = self.window is None and self.tile.packs and self.columns_in_memory > 0
        waits = self.many_rows or (near and self.tile.rows * self.tile.vectors >= 2 * BUSY)
        return packs and waits and not scattered(self.contraction, self.columns_per_tile, self.columns_in_memory)

    @property
    def last_block(self) -> int:
        """Rows of the last block of rows."""
        rows = self.contraction.extents[1]
        return rows % self.tile.block_m or self.tile.block_m

    @property
    def tail(self) -> tuple[int, int] | None:
        """Rows of the last two tiles, where the last one alone would have too few chains to keep a core busy.

        Only of rows that are read in place: what is packed lies in whole tiles.
        """
        most, rest = self.tile.rows, self.last_block % self.tile.rows
        if self.rows_direct is None or self.last_block < most or not 0 < rest * self.tile.vectors < BUSY:
            return None
        return -(-(most + rest) // 2), (most + rest) // 2

    @property
    def term_stride(self) -> int:
        """Elements between a tile's terms."""
        return self.columns_per_tile if self.columns_apart is None else self.columns_apart

    @property
    def panels(self) -> int:
        return -(-self.contraction.extents[3] // self.panel)

    @cached_property
    def rows_beside(self) -> bool:
        """Whether a term's rows lie side by side, in memory and so where they are packed; else a row's terms do."""
        along_rows, along_terms = self.contraction.neighbours(0)
        return self.rows_direct is None and along_rows > along_terms

    @cached_property
    def tiles_packed(self) -> int:
        """Tiles whose rows are packed together: a block's in equal groups."""
        if not self.rows_beside or self.rows_in_memory:
            return 1
        tiles, most = -(-self.tile.block_m // self.tile.rows), max(1, PAGE_ROWS // self.tile.rows)
        return -(-tiles // -(-tiles // most))

    @property
    def rows_packed(self) -> int:
        """Rows that are packed together."""
        return self.tile.rows * self.tiles_packed

    @property
    def strip(self) -> int:
        """Elements of a tile's packed rows, with room for a last vector that hangs over."""
        elements = self.panel * self.row_strides[1] if self.rows_beside else self.tile.rows * self.row_strides[0]
        return elements + self.width

    @property
    def row_strides(self) -> tuple[int, int]:
        """Elements between a tile's rows, and between the terms of each."""
        if self.rows_direct is not None:
            return self.rows_direct, 1
        if not self.rows_beside:
            return self.panel + ROW_PADDING, 1
        rows = self.tile.rows
        return 1, rows if rows <= self.width else -(-rows // self.width) * self.width

    @property
    def padded_columns(self) -> int:
        return -(-self.tile.block_n // self.columns_per_tile) * self.columns_per_tile

    @property
    def nested(self) -> bool:
        """Whether blocks of panels are summed apart."""
        return self.panels > self.contraction.chain.panels_per_block

    @property
    def areas(self) -> tuple[int, int, int, int]:
        """Elements: packed a, packed b, totals, totals of the current block of panels.

        The packed ones have room for a last vector that hangs over the end, totals for a last square of rows.
        """
        if self.window is None:
            packed_a = 0 if self.rows_direct is not None else self.tiles_packed * self.strip
            kept = self.tile.rows if self.panels == 1 and not self.row_items else self.tile.block_m
        else:
            packed_a = 0 if self.window_direct else self.window_elements
            kept = self.tile.block_m + self.width
        totals = kept * self.padded_columns
        packed_b = (
            0 if self.direct or self.made else self.padded_columns * self.panel + self.width * self.columns_per_tile
        )
        return packed_a, packed_b, totals, totals * self.nested

    # windows: row units, term units and places, as nested axes of an array

    @property
    def row_units(self) -> int:
        """Units of rows in a block."""
        assert self.window is not None
        return self.tile.block_m // self.window.rows_per_unit

    @property
    def term_units(self) -> int:
        """Units of terms in a panel."""
        assert self.window is not None
        return self.panel // self.window.terms_per_unit

    @property
    def window_direct(self) -> bool:
        """Whether tiles read the window where it lies in memory."""
        return self.tile.rows_in_place and self.window is not None and self.window.in_place is not None

    @property
    def strides(self) -> tuple[int, ...]:
        """Elements between neighbours along row units, term units and each place."""
        assert self.window is not None
        if self.window_direct and self.window.in_place is not None:
            return self.window.in_place
        extents = [self.row_units, self.term_units, *(place.axis.extent for place in self.window.places)]
        return tuple(math.prod(extents[at + 1 :]) for at in range(len(extents)))

    @property
    def window_elements(self) -> int:
        return self.row_units * self.strides[0] + self.width

    @property
    def scratch_bytes(self) -> int:
        return sum(whole_lines(area * self.contraction.reduce.dtype.bytes) for area in self.areas)


@dataclass(frozen=True)
class PixelShape(Shape):
    """Sizes where vectors run along the pixels of a window (passes/pixels.py): an item has all columns."""

    pixels: Pixels | None = None

    @property
    def found(self) -> Pixels:
        assert self.pixels is not None
        return self.pixels

    @property
    def blocks(self) -> tuple[int, int, int]:
        batch, rows, _, _ = self.contraction.extents
        return batch, -(-rows // self.tile.block_m), 1

    @property
    def pitch(self) -> int:
        """Elements of a line's places of one remainder modulo the step: whole vectors."""
        return -(-self.found.lane.axis.extent // (self.found.step * self.width)) * self.width

    @property
    def strides(self) -> tuple[int, ...]:
        """Of the last place: between pixels."""
        found = self.found
        extents = [self.row_units, self.term_units, *(place.axis.extent for place in found.window.places[:-1])]
        line = found.step * self.pitch
        return (*(math.prod(extents[at + 1 :]) * line for at in range(len(extents))), 1)

    @cached_property
    def starts(self) -> list[int]:
        """Where a line's vectors begin."""
        return starts(self.found.length, self.width)

    @property
    def whole_vectors(self) -> bool:
        return self.found.length >= self.width

    @property
    def compact(self) -> bool:
        """Whether totals of lines shorter than a vector lie side by side: each line overwrites what the one before
        has too much."""
        return self.panels == 1 and not self.whole_vectors

    @property
    def lines_per_unit(self) -> int:
        return self.found.window.rows_per_unit // self.found.length

    @property
    def totals_line(self) -> int:
        """Elements between the totals of neighbouring lines."""
        return self.found.length if self.compact else len(self.starts) * self.width

    @property
    def totals_unit(self) -> int:
        """Elements between the totals of neighbouring row units."""
        return self.lines_per_unit * self.totals_line + self.width * self.compact

    @property
    def weights(self) -> int:
        """Elements between packed columns."""
        return -(-self.panel // self.width) * self.width

    @cached_property
    def in_place(self) -> Load | None:
        """The columns' load, where the distances between its terms are known: then it is read where it lies."""
        term = self.contraction.terms[1]
        if not isinstance(term, Load) or term.when is not None:
            return None
        known = all(ix.coefficient(term.offset, axis) is not None for axis in self.contraction.reduce.axes)
        return term if known else None

    @property
    def areas(self) -> tuple[int, int, int, int]:
        columns = self.contraction.extents[2]
        packed = 0 if self.in_place is not None else columns * self.weights
        totals = columns * self.row_units * self.totals_unit
        return self.row_units * self.strides[0] + self.width, packed, totals, totals * self.nested


@dataclass(frozen=True)
class GroupShape(Shape):
    """Sizes where vectors run along groups (passes/group_lanes.py): an item has all taps and columns of some groups,
    and some channels."""

    groups: GroupLanes | None = None

    @property
    def found(self) -> GroupLanes:
        assert self.groups is not None
        return self.groups

    @property
    def lanes(self) -> int:
        return self.tile.vectors * self.width

    @property
    def lane_blocks(self) -> int:
        return -(-self.found.group.extent // self.lanes)

    @property
    def blocks(self) -> tuple[int, int, int]:
        batch, rows, _, _ = self.contraction.extents
        return batch, -(-rows // self.tile.block_m), 1

    @property
    def items(self) -> int:
        return math.prod(self.blocks) * self.lane_blocks

    @property
    def outputs(self) -> int:
        """Of a block, in whole vectors of groups."""
        return self.tile.block_m * self.contraction.extents[2] * self.lanes

    @property
    def channels(self) -> int:
        """Of a block."""
        return self.tile.block_m // self.found.tap_count

    @cached_property
    def strip_lines(self) -> int:
        return strip(self.found, self.channels, self.lanes, self.contraction.reduce.dtype.bytes)

    @property
    def panel_lines(self) -> int:
        """Lines of the picture that a panel holds."""
        return self.panel // self.found.pixel.extent

    @property
    def window_strides(self) -> tuple[int, int, int]:
        """Elements between channels, lines of places and places."""
        line = self.found.along.axis.extent * self.lanes
        return self.found.places(self.strip_lines) * line, line, self.lanes

    @property
    def column_elements(self) -> int:
        """Elements of a strip between columns."""
        return self.strip_lines * self.found.pixel.extent * self.lanes

    @property
    def areas(self) -> tuple[int, int, int, int]:
        """The window, the columns, and twice the outputs: totals, and what the strips of a panel came to so far, with
        room for a last square of rows; the sums of blocks of panels behind."""
        columns, over, outputs = self.contraction.extents[2], self.width * self.lanes, self.outputs
        window = self.channels * self.window_strides[0] + over
        return window, columns * self.column_elements + over, 2 * outputs + columns * over, outputs * self.nested


def _group_shape(kernel: Kernel, schedule: Schedule, tile: ContractionTile) -> GroupShape:
    found = group_lanes(kernel)
    if found is None:
        raise InternalError(f"a tile that the kernel has not: {schedule.text}")
    _, rows, columns, _ = found.window.contraction.extents
    block_m = min(max(tile.block_m // found.tap_count, 1) * found.tap_count, rows)
    fitted = replace(tile, rows=min(tile.rows, found.tap_count), block_m=block_m, block_n=min(tile.block_n, columns))
    return GroupShape(found.window.contraction, fitted, schedule.vector_width, found.window, found)


def _pixel_shape(kernel: Kernel, schedule: Schedule, tile: ContractionTile) -> PixelShape:
    found = pixels(kernel, tile.block_m)
    if found is None:
        raise InternalError(f"a tile that the kernel has not: {schedule.text}")
    unit, (_, rows, columns, _) = found.window.rows_per_unit, found.window.contraction.extents
    block_m = min(max(tile.block_m // unit, 1) * unit, rows)
    vectors = min(tile.vectors, len(starts(found.length, schedule.vector_width)))
    fitted = replace(
        tile, rows=min(tile.rows, found.lines), vectors=vectors, block_m=block_m, block_n=min(tile.block_n, columns)
    )
    return PixelShape(found.window.contraction, fitted, schedule.vector_width, found.window, found)


def shape_of(kernel: Kernel, schedule: Schedule) -> Shape:
    """The schedule's sizes, fitted: blocks are whole tiles, and no larger than the contraction."""
    tile = schedule.tile
    if tile is None:
        raise InternalError("a tile for a kernel that is no contraction")
    if schedule.vector_width < 2:
        raise InternalError(f"register tiles of width {schedule.vector_width}")
    if tile.lanes == PIXELS:
        return _pixel_shape(kernel, schedule, tile)
    if tile.lanes == GROUPS:
        return _group_shape(kernel, schedule, tile)
    found = any_window(kernel, tile.block_m) if tile.window else None
    contraction = find(kernel) if found is None else found.contraction
    if contraction is None or (tile.window and found is None):
        raise InternalError(f"a tile that the kernel has not: {schedule.text}")
    _, rows, columns, _ = contraction.extents
    per_tile = tile.vectors * schedule.vector_width
    tile_rows = min(tile.rows, rows)
    step = tile_rows if found is None else found.rows_per_unit
    block_m = min(-(-tile.block_m // step) * step, rows)
    if found is not None:
        block_m = min(max(tile.block_m // step, 1) * step, rows)
    block_n = min(-(-tile.block_n // per_tile) * per_tile, columns)
    fitted = replace(tile, rows=tile_rows, block_m=block_m, block_n=block_n)
    shape = Shape(contraction, fitted, schedule.vector_width, found)
    return replace(shape, tile=replace(fitted, block_m=rows, block_n=columns)) if shape.row_items else shape

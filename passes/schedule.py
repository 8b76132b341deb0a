"""The cost model: from a kernel and a machine to a schedule. Integers only, the same on every build host."""

from __future__ import annotations

from dataclasses import replace

from passes.legality import can_tile
from passes.vectors import choose
from passes.windows import window
from repro.ir.contraction import Contraction, find
from repro.ir.loops import Kernel
from repro.ir.schedule import ContractionTile, Schedule
from repro.machines import Machine

BLOCK_ROWS, BLOCK_COLUMNS = 448, 256
"""Outputs of one work item of a contraction, about: packed operands stay in the second-level cache."""

WINDOW_ROWS, WINDOW_COLUMNS = 1024, 64
"""The same where rows are read through a window, which takes more of a block's memory than its columns."""

NEAR_TERMS = 1024
"""Bytes between a column's terms up to which tiles read them in place: further apart each is on a page of its own, and
those a power of two apart share a cache set, which costs more than packing them once for many rows."""
FEW_TILES = 8
"""Tiles of rows for which columns in the second-level cache are not worth packing, however they lie. What comes from
further away is worth it from a whole tile on: packing reads it row by row, as it is fetched ahead.
And tiles of columns for which rows are not worth packing, where they lie as packed ones would."""
SAME_SET = 4096
"""Rows that are a multiple of so many bytes apart share a set of the nearest cache, too small for a tile of them."""

SHARES = (1, 2, 4)
"""Numbers of threads that are to have equal shares of a contraction; any other number has the same bits."""


def schedule(kernel: Kernel, machine: Machine) -> Schedule:
    """How the machine runs the kernel."""
    return windowed(kernel, machine) or tiled(kernel, machine) or choose(kernel, machine)


def block(extent: int, most: int, tile: int, others: int) -> int:
    """Rows or columns of a block, whole tiles, about as many as `most`, so that 2 and 4 threads have equal shares.

    `others` is how many blocks there are for each of these. What a block costs beside its products is as one tile more.
    """

    def cost(size: int) -> tuple[int, int]:
        items = -(-extent // size) * others
        return sum(-(-items // threads) * threads * (size + tile) for threads in SHARES), -size

    counts = range(max(1, extent // (most + most // 4)), 2 * -(-extent // most) + 1)
    sizes = {min(-(-extent // (count * tile)) * tile, extent) for count in counts}
    return min((size for size in sizes if size <= most + most // 4), key=cost, default=extent)


def windowed(kernel: Kernel, machine: Machine) -> Schedule | None:
    """A contraction whose rows are read through a window."""
    found = window(kernel, WINDOW_ROWS)
    if found is None:
        return None
    batch, rows, columns, terms = found.contraction.extents
    width = machine.lanes(found.contraction.reduce.dtype.bits)
    if found.contraction.chain.panel > 4096 or columns < width or terms < 4:
        return None
    vectors = min(machine.tile_vectors, -(-columns // width))
    others = batch * -(-columns // WINDOW_COLUMNS)
    block_m = block(rows, WINDOW_ROWS, found.rows_per_unit, others)
    block_n = block(columns, WINDOW_COLUMNS, vectors * width, batch * -(-rows // block_m))
    return Schedule(None, width, 1, ContractionTile(machine.tile_rows, vectors, block_m, block_n, window=True))


def tiled(kernel: Kernel, machine: Machine) -> Schedule | None:
    contraction = find(kernel)
    if contraction is None or not can_tile(kernel):
        return None
    _, rows, columns, terms = contraction.extents
    if columns < 4 or terms < 4:
        return None
    width = machine.lanes(contraction.reduce.dtype.bits)
    while width > columns and width > 4:
        width //= 2
    vectors = min(machine.tile_vectors, -(-columns // width))
    tile_rows = min(machine.tile_rows, rows)
    batch = contraction.extents[0]
    block_m = block(rows, BLOCK_ROWS, tile_rows, batch * -(-columns // BLOCK_COLUMNS))
    block_n = block(columns, BLOCK_COLUMNS, vectors * width, batch * -(-rows // block_m))
    tile = ContractionTile(tile_rows, vectors, block_m, block_n)
    in_place = _rows_in_place(contraction, tile, width)
    return Schedule(
        None, width, 1, replace(tile, packs=_packs(contraction, tile, width, machine), rows_in_place=in_place)
    )


def _rows_in_place(contraction: Contraction, tile: ContractionTile, width: int) -> bool:
    """Whether rows are not worth a copy: it saves nothing but what few columns read again and again."""
    stride, dtype = contraction.row_stride, contraction.reduce.dtype
    few = tile.block_n <= FEW_TILES * tile.vectors * width
    return stride is not None and few and stride * dtype.bytes % SAME_SET != 0


def _packs(contraction: Contraction, tile: ContractionTile, width: int, machine: Machine) -> bool:
    """Whether columns that could be read in place are better packed."""
    if not contraction.in_place(tile.vectors * width):
        return False
    _, _, columns, terms = contraction.extents
    size = contraction.terms[1].dtype.bytes
    few = machine.tile_rows - 1 if columns * terms * size > machine.l2_bytes else FEW_TILES * tile.rows
    return contraction.columns[-1].extent * size > NEAR_TERMS and tile.block_m > few

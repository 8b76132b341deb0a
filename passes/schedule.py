"""The cost model: from a kernel and a machine to a schedule. Integers only, the same on every build host."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from passes.group_lanes import MOST_STRIP_BYTES, SHARED_ITEMS, STRIP_BYTES, group_lanes, line_elements
from passes.group_lanes import register_tile as groups_tile
from passes.legality import LONGEST_PANEL, can_tile
from passes.pixels import pixels
from passes.pixels import register_tile as pixels_tile
from passes.tile_operands import NEAR_TERMS, TWO_TILES, few_rows, with_operands
from passes.vectors import choose
from passes.window_tiles import IN_FLIGHT, register_tile
from passes.windows import any_window, pointwise, window
from repro.ir.contraction import Contraction, find
from repro.ir.loops import Kernel
from repro.ir.schedule import COLUMNS, GROUPS, PIXELS, ContractionTile, Schedule
from repro.machines import Machine
from repro.machines.machine import BUSY

BLOCK_ROWS, BLOCK_COLUMNS = 1024, 512
"""Outputs of one work item of a contraction, at most about: what is packed once is used for as many."""

PIXEL_ROWS = 512
"""Of a block whose vectors run along pixels, where a unit is smaller: what is packed stays in the nearest cache."""

WINDOW_ROWS, WINDOW_COLUMNS = 1024, 64
"""The same where rows are read through a window, which takes more of a block's memory than its columns."""

FEW_COLUMNS = 16
"""Columns below which vectors run along something else where a window has it: pixels, or groups."""
FEW_OUTPUTS = 4
"""Outputs of a group for each of its terms, up to which vectors run along groups: outputs are stored one by one."""

SHARES = (1, 2, 4)
"""Numbers of threads that are to have equal shares of a contraction; any other number has the same bits."""
BRINGING, BRINGING_APART = 32, 256
"""What it costs to bring a block's rows to where tiles read them, as so many columns of products; and its columns, as
so many rows. More where their elements lie apart in memory."""
READING = 16
"""The same of rows that tiles read where they lie, as they do the columns: nothing is copied, so that items may well be
smaller. (Forward passes on two threads 0.83 to 1.03 of the time, on one 0.95 to 1.03; where columns are packed once
more for every item of rows, 1.02 to 1.03; Sapphire Rapids.)"""

TURNING = 4
"""What it costs to store a vector of outputs whose rows lie side by side in memory, beyond one that lies as it is
computed, in products of a term."""
COPYING, GATHERING = 2, 20
"""What it costs to pack a vector of pixels, of one picture or of several, in products of a term."""

Pair = tuple[int, int]
"""Along rows and columns."""
TileOrder = tuple[Contraction, int]
"""A kernel's contraction, and how many columns stand side by side in a tile."""


def schedule(kernel: Kernel, machine: Machine) -> Schedule:
    """How the machine runs the kernel."""
    found = (form(kernel, machine) for form in FORMS)
    return next((each for each in found if each is not None), None) or choose(kernel, machine)


def tile_orders(kernel: Kernel, machine: Machine) -> Iterator[TileOrder]:
    """How a columns' operand would better lie for register tiles than it does, the best first."""
    found = schedule(kernel, machine)
    if found.tile is None or found.tile.lanes != COLUMNS:
        return
    several = [found] if found.tile.window else [_across(kernel, machine), _of_few_rows(kernel, found, machine), found]
    for each in several:
        tile = None if each is None else each.tile
        seen = None if tile is None or not tile.window else any_window(kernel, tile.block_m)
        contraction = find(kernel) if seen is None else seen.contraction
        if each is None or tile is None or contraction is None:
            continue
        columns_per_tile = tile.vectors * each.vector_width
        if contraction.laid_out(columns_per_tile) or contraction.in_place(columns_per_tile) == columns_per_tile:
            return
        yield contraction, columns_per_tile


def _of_few_rows(kernel: Kernel, found: Schedule, machine: Machine) -> Schedule | None:
    """The schedule of few rows, if the columns lay in the order of tiles."""
    contraction, tile = find(kernel), found.tile
    if contraction is None or tile is None or not few_rows(contraction, machine):
        return None
    return replace(found, tile=replace(tile, vectors=_long_run(contraction, found.vector_width, machine)))


def blocks(
    contraction: Contraction,
    rows: Sequence[int],
    columns: Sequence[int],
    in_place: tuple[bool, bool] = (False, False),
) -> Pair:
    """Rows and columns of a block, of these sizes, so that threads have equal shares; `in_place`: whether rows and
    columns are read where they lie."""
    batch, *extents, _ = contraction.extents
    of_rows, of_columns = (BRINGING if max(contraction.neighbours(s)) > 1 else BRINGING_APART for s in (0, 1))
    of_rows = READING if all(in_place) else of_rows
    of_columns = BRINGING if in_place[1] else of_columns

    def cost(block: tuple[int, ...]) -> tuple[int, int]:
        items = batch * math.prod(-(-extent // size) for extent, size in zip(extents, block, strict=True))
        turns = sum(_half_turns(items, threads, all(in_place)) for threads in SHARES)
        return turns * (block[0] + of_columns) * (block[1] + of_rows), -math.prod(block)

    block_m, block_n = min(itertools.product(rows, columns), key=cost)
    return block_m, block_n


def _half_turns(items: int, threads: int, fine: bool) -> int:
    """Half items until all threads have done so many items, times the threads. `fine`: items may be small, and threads
    that have more of their processors then take more of them, so that each thread waits for half an item at the end."""
    shared = 2 * threads * -(-items // threads)
    return max(shared, 2 * items + threads) if fine and threads > 1 else shared


def sizes(extent: int, most: int, tile: int, smaller: int = 4) -> list[int]:
    """Equal parts of an extent in whole tiles: at most about so large (a quarter more), and down to so many times
    smaller."""
    limit = most + most // 4
    counts = range(max(1, extent // limit), smaller * -(-extent // most) + 1)
    parts = {min(-(-extent // (count * tile)) * tile, extent) for count in counts}
    return sorted(size for size in parts if size <= limit) or [extent]


def windowed(kernel: Kernel, machine: Machine) -> Schedule | None:
    """A contraction whose rows are read through a window."""
    found = window(kernel, WINDOW_ROWS)
    if found is None:
        return None
    _, rows, columns, terms = found.contraction.extents
    width = machine.lanes(found.contraction.reduce.dtype.bits)
    if found.contraction.chain.panel > LONGEST_PANEL or columns < width or terms < 4:
        return None
    tile_rows, vectors = register_tile(found, math.prod(axis.extent for axis in found.row_units), machine)
    several = sizes(rows, WINDOW_ROWS, found.rows_per_unit, 2), sizes(columns, WINDOW_COLUMNS, vectors * width, 2)
    block_m, block_n = blocks(found.contraction, *several)
    return Schedule(None, width, 1, ContractionTile(tile_rows, vectors, block_m, block_n, window=True))


def along_pixels(kernel: Kernel, machine: Machine) -> Schedule | None:
    """A contraction whose rows are read through a window, with vectors along a line of them."""
    found = pixels(kernel, WINDOW_ROWS)
    if found is None:
        return None
    contraction = found.window.contraction
    _, rows, columns, terms = contraction.extents
    width = machine.lanes(contraction.reduce.dtype.bits)
    while width >= 2 * found.length:
        width //= 2
    if contraction.chain.panel > LONGEST_PANEL or columns >= FEW_COLUMNS or terms < 2 or width < 4:
        return None
    if width < machine.lanes(contraction.reduce.dtype.bits) and windowed(kernel, machine) is not None:
        return None
    lines, vectors, count = pixels_tile(found, width, machine)
    unit = found.window.rows_per_unit
    block_m, _ = blocks(contraction, sizes(rows, max(unit, PIXEL_ROWS), unit, 2), [columns])
    return Schedule(None, width, 1, ContractionTile(lines, vectors, block_m, count, window=True, lanes=PIXELS))


def along_groups(kernel: Kernel, machine: Machine) -> Schedule | None:
    """A contraction whose rows are read through a window, with vectors along the groups of both operands."""
    found = group_lanes(kernel)
    if found is None or found.window.contraction.chain.panel > LONGEST_PANEL:
        return None
    contraction = found.window.contraction
    _, rows, columns, terms = contraction.extents
    width = machine.lanes(contraction.reduce.dtype.bits)
    while width > found.group.extent:
        width //= 2
    if columns >= FEW_COLUMNS or rows * columns > FEW_OUTPUTS * terms or width < 4:
        return None
    taps, vectors, count = groups_tile(found, width, machine)
    while vectors > 1 and line_elements(found, 1, 1, vectors * width) * contraction.reduce.dtype.bytes > STRIP_BYTES:
        vectors -= 1
    lanes, channels = vectors * width, rows // found.tap_count
    if line_elements(found, 1, 1, lanes) * contraction.reduce.dtype.bytes > MOST_STRIP_BYTES:
        return None
    items = -(-found.group.extent // lanes)
    parts = next((n for n in range(1, channels + 1) if channels % n == 0 and n * items >= SHARED_ITEMS), channels)
    tile = ContractionTile(taps, vectors, rows // parts, count, window=True, lanes=GROUPS)
    return Schedule(None, width, 1, tile)


def across(kernel: Kernel, machine: Machine) -> Schedule | None:
    """A contraction of few pixels whose vectors run along the channels, which lie in the order of tiles."""
    found, seen = _across(kernel, machine), pointwise(kernel)
    if found is None or found.tile is None or seen is None:
        return None
    return found if seen.contraction.laid_out(found.tile.vectors * found.vector_width) else None


def _across(kernel: Kernel, machine: Machine) -> Schedule | None:
    """The same, if they lay so."""
    found = pointwise(kernel)
    if found is None or found.contraction.chain.panel > LONGEST_PANEL:
        return None
    width = machine.lanes(found.contraction.reduce.dtype.bits)
    _, rows, columns, terms = found.contraction.extents
    if columns < width or terms < 4 or found.rows_per_unit > WINDOW_ROWS:
        return None
    pixels, groups = -(-rows // width), len(found.contraction.rows)
    packing = COPYING if groups == 1 else GATHERING
    chains = machine.tile_rows * min(pixels, machine.tile_vectors)  # fewer than are in flight wait for themselves
    others = pixels * (columns * max(chains, IN_FLIGHT) + packing * chains) * terms
    if rows * -(-columns // width) * (terms + TURNING) * chains > others:
        return None
    tile_rows, vectors = register_tile(found, math.prod(axis.extent for axis in found.row_units), machine)
    several = sizes(rows, WINDOW_ROWS, found.rows_per_unit, 2), sizes(columns, BLOCK_COLUMNS, vectors * width)
    block_m, block_n = blocks(found.contraction, *several, in_place=(False, True))
    in_place = found.in_place is not None
    tile = ContractionTile(tile_rows, vectors, block_m, block_n, window=True, rows_in_place=in_place)
    return Schedule(None, width, 1, tile)


def tiled(kernel: Kernel, machine: Machine) -> Schedule | None:
    contraction = find(kernel)
    if contraction is None or not can_tile(kernel):
        return None
    _, rows, columns, terms = contraction.extents
    if columns < 4 or terms < 4:
        return None
    width = machine.lanes(contraction.reduce.dtype.bits)
    while width >= 2 * columns and width > 4:
        width //= 2
    tile_rows, vectors, in_place = _register_tile(contraction, width, machine)
    apart = contraction.in_place(vectors * width)
    makes = apart is None and _makes(contraction, width, (tile_rows, vectors), machine)
    tile_rows = -(-rows // -(-rows // tile_rows)) if makes else tile_rows
    most = max(_most_columns(contraction, machine), vectors * width)
    several = sizes(rows, BLOCK_ROWS, tile_rows), sizes(columns, most, vectors * width)
    block_m, block_n = blocks(contraction, *several, in_place=(in_place, apart == vectors * width))
    tile = ContractionTile(tile_rows, vectors, block_m, block_n, rows_in_place=in_place, makes=makes)
    tile = with_operands(contraction, tile, width, machine)
    if in_place and _by_rows(contraction, tile, width, machine):
        tile = replace(tile, block_m=rows, block_n=columns, row_items=True)
    return Schedule(None, width, 1, tile)


def _register_tile(contraction: Contraction, width: int, machine: Machine) -> tuple[int, int, bool]:
    """Rows and vectors of a register tile, and whether it reads its rows where they lie.

    Rows that share a cache set stay there while no more are read than it has ways, with one left for columns: so tiles
    have fewer of these rows, and more columns; and so have those of any rows in place, where columns are many whole
    tiles and much less is loaded for each product. Reading columns more often then costs less than packing rows, unless
    rows are few, or columns were laid out for other tiles."""
    _, rows, columns, _ = contraction.extents
    tile_rows = min(machine.tile_rows, rows)
    vectors = _vectors(contraction, width, machine)
    stride = contraction.row_stride
    if stride is None:
        return tile_rows, vectors, False
    shared = stride * contraction.reduce.dtype.bytes % machine.l1_set_bytes == 0
    shared = shared and tile_rows + vectors > machine.l1_ways
    own = (tile_rows, vectors) if shared else _wider(tile_rows, vectors, columns, width, machine)
    fewer = machine.l1_ways - 2
    wider = min((machine.registers - 1) // (fewer + 1), -(-columns // width))
    laid_out = contraction.in_place(vectors * width) == vectors * width
    suits = not laid_out and rows >= TWO_TILES * machine.tile_rows and fewer * wider >= 2 * BUSY
    if suits and (shared or _loads_less((fewer, wider), own, columns, width)):
        return fewer, wider, True
    return *own, not shared


def _loads_less(tile: Pair, other: Pair, columns: int, width: int) -> bool:
    """Whether a tile loads a quarter less for each product than another, and each thread's share of the columns is
    whole ones of it, two or more. (6 x 4 for 14 x 2: 0.98 to 1.02 of the time, and 0.9 to 0.99 where the core's other
    thread is busy; Sapphire Rapids.)"""
    shares = SHARES[-1] * tile[1] * width
    less = 4 * sum(tile) * math.prod(other) <= 3 * sum(other) * math.prod(tile)
    return less and columns >= 2 * shares and columns % shares == 0


def _vectors(contraction: Contraction, width: int, machine: Machine) -> int:
    """Vectors of a register tile: of few rows a long run of columns that are read where they lie, or computed; of one
    row at least as many as keep a core busy, but where tiles turn them."""
    _, rows, columns, _ = contraction.extents
    most = -(-columns // width)
    if not few_rows(contraction, machine) or contraction.turns(width):
        return min(machine.tile_vectors, most)
    long = _long_run(contraction, width, machine)
    if contraction.in_place(long * width) is not None or contraction.makes(width):
        return long
    return min(machine.tile_vectors if rows > 1 else BUSY, most)


def _makes(contraction: Contraction, width: int, tile: Pair, machine: Machine) -> bool:
    """Whether tiles of so many rows and vectors had better make the columns' terms than read copies of them: turned for
    few rows; computed for one row of tiles, each is made once (of 8 to 14 rows 0.77 to 0.93 of the time, from f16 and
    i8), or for two of wide ones (of 16 rows 0.79 and 0.91, of 20 rows 0.87 and 1.01; Zen 4)."""
    rows, vectors = tile
    if contraction.turns(width):
        most = machine.tile_rows // 2
    else:
        most = max(machine.tile_rows, 2 * rows if vectors > machine.tile_vectors else 0)
    return contraction.extents[1] <= most and contraction.makes(width)


def _long_run(contraction: Contraction, width: int, machine: Machine) -> int:
    """Vectors of a register tile of few rows that reads long runs of memory, and gives threads equal shares: as
    many as there are registers for its sums, its rows' elements and a vector of columns; one row has no use for more
    than half of them. (With 16 vectors for 8 one row took 0.8 of the time, with 12 and 6 for 2 two and four rows; Zen
    4.)"""
    _, rows, columns, _ = contraction.extents
    vectors, least = -(-columns // width), max(machine.tile_vectors, BUSY // rows)
    most = max(least, min(machine.registers // 2, (machine.registers - 2) // rows - 1))

    def cost(long: int) -> tuple[int, int]:
        tiles = -(-vectors // long)
        return long * sum(-(-tiles // threads) * threads for threads in SHARES), -long

    return min((min(long, vectors) for long in range(least, most + 1)), key=cost)


def _wider(tile_rows: int, vectors: int, columns: int, width: int, machine: Machine) -> tuple[int, int]:
    """A tile of one vector more, and of as many rows as registers are left for, where columns are whole tiles of it:
    each row's element, which is loaded from a line of its own, is multiplied more often. Not with few registers, where
    columns would be loaded for few rows."""
    more = vectors + 1
    rows = (machine.registers - 1 - more) // more
    worth = BUSY <= rows < tile_rows and columns % (more * width) == 0
    return (rows, more) if worth else (tile_rows, vectors)


def _by_rows(contraction: Contraction, tile: ContractionTile, width: int, machine: Machine) -> bool:
    """Whether threads had better share the rows out than the columns: these are read in place, and are near enough for
    all of them to read, and rows are few, but enough that four threads have tiles whose chains keep a core busy."""
    batch, rows, columns, terms = contraction.extents
    size, apart = contraction.reduce.dtype.bytes, contraction.in_place(tile.vectors * width)
    if apart is None or tile.packs or apart * size > NEAR_TERMS:
        return False
    near = columns * terms * size <= 2 * machine.l2_bytes
    few = rows * min(terms, contraction.chain.panel) * size <= 2 * machine.l1_bytes
    return batch == 1 and near and few and rows * tile.vectors >= SHARES[-1] * BUSY


def _most_columns(contraction: Contraction, machine: Machine) -> int:
    """Columns whose terms of a panel take half of the second-level cache, beside which rows come by."""
    size = min(contraction.chain.panel, contraction.extents[3]) * contraction.reduce.dtype.bytes
    return max(1, min(BLOCK_COLUMNS, machine.l2_bytes // (2 * size)))


FORMS = (along_groups, along_pixels, windowed, across, tiled)
"""Of contractions, in the order in which they are asked."""

"""The schedules that tuning tries: from one schedule, those that differ from it in one way.

A dimension is a function (kernel, machine, schedule) → schedules. Tuning walks the dimensions in order and holds what
it found in the ones before; every schedule that it can meet is made of such steps, and every one has the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from passes.legality import refusal
from passes.schedule import FORMS, blocks, sizes
from passes.streams import lying
from passes.vectors import along, axis_cost, choose
from passes.windows import any_window
from repro.ir.contraction import Contraction, find
from repro.ir.expressions import Load
from repro.ir.loops import Kernel
from repro.ir.schedule import COLUMNS, ContractionTile, Schedule
from repro.ir.work import operations
from repro.machines import Machine

BLOCK_ROWS = (56, 112, 224, 448, 1024, 2048)
BLOCK_COLUMNS = (32, 64, 128, 256, 512, 1024)
"""Sizes of a contraction's blocks, about: `passes.schedule.sizes` makes equal parts of whole tiles of them."""
TURNS = (1, 2, 4)
"""Terms of a turn of a register tile's loop."""
LANES = (1, 2, 4, 8, 16)
"""Registers side by side in what is computed at a time along a vector axis."""
SWEPT = (0, 1, 2, 4, 8, 16)
"""Rows of each lane that a sweep adds at a time."""
ITEMS = (512, 2048, 8192, 32768, 1 << 20)
"""Outputs of an item along the vector axis."""
SMALL = 1 << 20
"""Scalar operations up to which a contraction may do better without packing anything."""
HOPELESS = 4
"""Times the cost of the vector axis at hand: what the model thinks worse than this is not worth a run."""

Dimension = Callable[[Kernel, Machine, Schedule], Iterator[Schedule]]


def packing(kernel: Kernel, machine: Machine, schedule: Schedule) -> Iterator[Schedule]:
    """Rows read through a window, packed or in place, columns packed, in place or made; where both are in place, rows
    as items; vectors along something else; no tiles for a small contraction."""
    tile = schedule.tile
    if tile is None:
        return
    if tile.lanes == COLUMNS:
        contraction, _ = _tiles(kernel, tile)
        found = any_window(kernel, tile.block_m) if tile.window else None
        rows_in_place = contraction.row_stride if found is None else found.in_place
        columns_in_place = contraction.in_place(tile.vectors * schedule.vector_width) is not None
        if columns_in_place:
            yield replace(schedule, tile=replace(tile, packs=not tile.packs))
        if found is None and contraction.makes(schedule.vector_width):
            yield replace(schedule, tile=replace(tile, makes=not tile.makes))
        if rows_in_place is not None:
            yield replace(schedule, tile=replace(tile, rows_in_place=not tile.rows_in_place))
            if columns_in_place and found is None:
                items = replace(tile, packs=False, rows_in_place=True, row_items=not tile.row_items)
                yield replace(schedule, tile=items)
    for other in (form(kernel, machine) for form in FORMS):
        if other is not None and other.tile is not None and _form(other.tile) != _form(tile):
            yield other
    if operations(kernel) <= SMALL:
        yield choose(kernel, machine)


def _form(tile: ContractionTile) -> tuple[bool, str]:
    return tile.window, tile.lanes


def _along_columns(schedule: Schedule) -> ContractionTile | None:
    """The tile, where vectors run along columns: of the other forms only the form is tried."""
    return schedule.tile if schedule.tile is not None and schedule.tile.lanes == COLUMNS else None


def _tiles(kernel: Kernel, tile: ContractionTile) -> tuple[Contraction, int]:
    """What tiles run, and how many rows a block has whole multiples of."""
    found = any_window(kernel, tile.block_m) if tile.window else None
    if found is not None:
        return found.contraction, found.rows_per_unit
    contraction = find(kernel)
    assert contraction is not None, "tiles of a contraction"
    return contraction, tile.rows


def block_rows(kernel: Kernel, machine: Machine, schedule: Schedule) -> Iterator[Schedule]:
    tile = _along_columns(schedule)
    if tile is not None:
        contraction, step = _tiles(kernel, tile)
        rows = contraction.extents[1]
        for most in BLOCK_ROWS:
            size, _ = blocks(contraction, sizes(rows, most, step), [tile.block_n])
            yield replace(schedule, tile=replace(tile, block_m=size))


def block_columns(kernel: Kernel, machine: Machine, schedule: Schedule) -> Iterator[Schedule]:
    tile = _along_columns(schedule)
    if tile is not None:
        contraction, _ = _tiles(kernel, tile)
        columns, per_tile = contraction.extents[2], tile.vectors * schedule.vector_width
        for most in BLOCK_COLUMNS:
            _, size = blocks(contraction, [tile.block_m], sizes(columns, most, per_tile))
            yield replace(schedule, tile=replace(tile, block_n=size))


def register_tile(kernel: Kernel, machine: Machine, schedule: Schedule) -> Iterator[Schedule]:
    """As many accumulators as the registers hold beside a row of b and one of a; and such that tiles are equal."""
    tile = _along_columns(schedule)
    if tile is None:
        return
    _, rows, columns, _ = _tiles(kernel, tile)[0].extents
    for width in (schedule.vector_width, schedule.vector_width // 2):
        for vectors in range(1, 5):
            most = min(rows, (machine.registers - vectors - 1) // vectors)
            needed = width == schedule.vector_width or columns % (vectors * schedule.vector_width)
            if width < 2 or not needed or (vectors - 1) * width >= columns or most < 1:
                continue
            for count in sorted({most, -(-rows // -(-rows // most))}):
                yield replace(schedule, vector_width=width, tile=replace(tile, rows=count, vectors=vectors))


def packed_rows(kernel: Kernel, machine: Machine, schedule: Schedule) -> Iterator[Schedule]:
    """Rows of which those of a term lie together: packed before the tiles, or not."""
    tile = _along_columns(schedule)
    if tile is None or tile.window or tile.makes or _tiles(kernel, tile)[0].rows_side_by_side is None:
        return
    yield replace(schedule, tile=replace(tile, rows_before=not tile.rows_before))


def turn(kernel: Kernel, machine: Machine, schedule: Schedule) -> Iterator[Schedule]:
    tile = _along_columns(schedule)
    if tile is not None:
        for terms in TURNS:
            yield replace(schedule, tile=replace(tile, unroll=terms))


def vector_axis(kernel: Kernel, machine: Machine, schedule: Schedule) -> Iterator[Schedule]:
    """The axes that the cost model does not think hopeless."""
    if schedule.tile is not None:
        return
    most = HOPELESS * axis_cost(kernel, machine, schedule.vector_axis)
    places = range(kernel.serial, len(kernel.axes))
    for position in (None, *(place for place in places if kernel.axes[place].extent > 1)):
        if axis_cost(kernel, machine, position) <= most:
            yield along(kernel, machine, position)


def sweep(kernel: Kernel, machine: Machine, schedule: Schedule) -> Iterator[Schedule]:
    """Rows of sums read at a time, or one sum after another."""
    for rows in SWEPT if schedule.vector_axis is not None else ():
        yield replace(schedule, sweep=rows)


def lanes(kernel: Kernel, machine: Machine, schedule: Schedule) -> Iterator[Schedule]:
    if schedule.vector_axis is not None:
        for registers in LANES:
            width = machine.lanes(32) * registers
            if width <= kernel.axes[schedule.vector_axis].extent:
                yield replace(schedule, vector_width=width)


def item(kernel: Kernel, machine: Machine, schedule: Schedule) -> Iterator[Schedule]:
    """How much of the vector axis an item has."""
    if schedule.vector_axis is not None:
        for most in ITEMS:
            yield replace(schedule, block=max(1, min(most, kernel.axes[schedule.vector_axis].extent)))


def inner_axes(kernel: Kernel, machine: Machine, schedule: Schedule) -> Iterator[Schedule]:
    """How many of the last axes an item has whole."""
    if schedule.tile is None:
        others = [n for n in range(kernel.serial, len(kernel.axes)) if n != schedule.vector_axis]
        for first in range(len(others) + 1):
            yield replace(schedule, inner=tuple(others[first:]))


def order(kernel: Kernel, machine: Machine, schedule: Schedule) -> Iterator[Schedule]:
    """Items in the order of the kernel's axes, or in one in which something that is read lies in memory."""
    if schedule.tile is None and schedule.vector_axis is not None:
        yield replace(schedule, order=())
        for each in kernel.expressions:
            if isinstance(each, Load):
                yield replace(schedule, order=lying(each, kernel, schedule.vector_axis))


DIMENSIONS: dict[str, Dimension] = {
    each.__name__.replace("_", " "): each
    for each in (
        packing,
        block_rows,
        block_columns,
        register_tile,
        packed_rows,
        turn,
        vector_axis,
        lanes,
        item,
        inner_axes,
        order,
        sweep,
    )
}
"""In the order in which they are tried: what moves the most data first."""


def variants(dimension: str, kernel: Kernel, machine: Machine, schedule: Schedule) -> tuple[Schedule, ...]:
    """The other schedules along a dimension, each once."""
    found = dict.fromkeys(DIMENSIONS[dimension](kernel, machine, schedule))
    return tuple(each for each in found if each != schedule and refusal(kernel, each) is None)

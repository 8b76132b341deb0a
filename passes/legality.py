"""Which schedules a kernel can have: what a schedule from outside must pass before it meets an emitter.

Every schedule that passes gives the same bits. The limits on sizes only keep code and private memory small.
"""

from __future__ import annotations

from passes.group_lanes import group_lanes
from passes.pixels import pixels
from passes.sweeps import can_sweep
from passes.windows import any_window
from repro.ir.contraction import find
from repro.ir.loops import Kernel
from repro.ir.schedule import COLUMNS, LANES, PIXELS, ContractionTile, Schedule

MOST_LANES = 1024
MOST_ACCUMULATORS = 128
"""Vectors of a register tile: more would spill in any machine."""
MOST_TURNS = 16
MOST_BLOCK = 1 << 20
"""Rows or columns of a block."""
LONGEST_PANEL = 4096
MOST_ROWS = 32
"""Of a sweep, at a time."""


def refusal(kernel: Kernel, schedule: Schedule) -> str | None:
    """Why the kernel cannot have the schedule, or None."""
    if schedule.tile is not None:
        return _tile_refusal(kernel, schedule, schedule.tile)
    parallel = range(kernel.serial, len(kernel.axes))
    axis = schedule.vector_axis
    if axis is not None and axis not in parallel:
        return f"axis {axis} is none of the kernel's parallel axes"
    if not _is_width(schedule.vector_width) or (axis is None and schedule.vector_width != 1):
        return f"{schedule.vector_width} lanes"
    if schedule.block < 1:
        return f"a block of {schedule.block}"
    if any(place not in parallel or place == axis for place in schedule.inner):
        return f"inner axes {schedule.inner}"
    if list(schedule.inner) != sorted(set(schedule.inner)):
        return f"inner axes {schedule.inner}, not in ascending order"
    if schedule.order and sorted(schedule.order) != [place for place in parallel if place != axis]:
        return f"items in the order of the axes {schedule.order}"
    if not 0 <= schedule.sweep <= MOST_ROWS or (schedule.sweep and not can_sweep(kernel, schedule)):
        return f"a sweep of {schedule.sweep} rows"
    return None


def _is_width(lanes: int) -> bool:
    return 1 <= lanes <= MOST_LANES and lanes & (lanes - 1) == 0


def can_tile(kernel: Kernel) -> bool:
    """Whether register tiles can run the kernel."""
    contraction = find(kernel)
    if contraction is None or not contraction.columns or 0 in contraction.extents:
        return False
    return contraction.chain.panel <= LONGEST_PANEL


def _has_window(kernel: Kernel, tile: ContractionTile, width: int) -> bool:
    found = any_window(kernel, tile.block_m)
    if found is None or found.contraction.chain.panel > LONGEST_PANEL:
        return False
    return 0 not in found.contraction.extents and found.contraction.extents[2] >= width


def _has_form(kernel: Kernel, tile: ContractionTile) -> bool:
    """Whether vectors can run along pixels, or along groups."""
    found = pixels(kernel, tile.block_m) if tile.lanes == PIXELS else group_lanes(kernel)
    return found is not None and found.window.contraction.chain.panel <= LONGEST_PANEL


def _tile_refusal(kernel: Kernel, schedule: Schedule, tile: ContractionTile) -> str | None:
    if tile.lanes not in LANES:
        return f"vectors along {tile.lanes}"
    if tile.lanes != COLUMNS:
        options = (tile.packs, tile.rows_in_place, tile.rows_before, tile.makes, tile.unroll != 1)
        if not tile.window or any(options):
            return "a window's vectors along something else, and options that it has not"
        if not _has_form(kernel, tile):
            return f"vectors along {tile.lanes} for a kernel that has none"
        if tile.rows * tile.vectors * tile.block_n > MOST_ACCUMULATORS:
            return f"register tiles of {tile.rows}x{tile.vectors} vectors for {tile.block_n} columns"
    elif tile.window:
        if not _has_window(kernel, tile, schedule.vector_width):
            return "a window for a kernel that reads none"
        if tile.makes or tile.rows_before:
            return "a window beside columns that tiles make, or rows that are packed before"
    elif not can_tile(kernel):
        return "register tiles for a kernel that is no contraction"
    if (schedule.vector_axis, schedule.block, schedule.inner, schedule.sweep, schedule.order) != (None, 1, (), 0, ()):
        return "register tiles beside a vector axis, a block, inner axes, an order of axes or a sweep"
    if schedule.vector_width < 2 or not _is_width(schedule.vector_width):
        return f"register tiles of {schedule.vector_width} lanes"
    if min(tile.rows, tile.vectors) < 1 or tile.rows * tile.vectors > MOST_ACCUMULATORS:
        return f"register tiles of {tile.rows}x{tile.vectors} vectors"
    if not 1 <= tile.unroll <= MOST_TURNS:
        return f"{tile.unroll} terms a turn"
    if not (1 <= tile.block_m <= MOST_BLOCK and 1 <= tile.block_n <= MOST_BLOCK):
        return f"blocks of {tile.block_m}x{tile.block_n}"
    return None

"""Which tile a contraction is run in, and how many shares K is cut into: the plan with the least cost.

The cost is in cycles, by integers: the instructions that the busiest scheduler of the chip issues, counted from the
plan, and what it waits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from repro.ir.contraction import Contraction, find
from repro.ir.loops import Kernel
from repro.machines import GpuMachine
from repro.targets.gpu.access import Access, access
from repro.targets.gpu.tiles import DOUBLE, SINGLE, Plan, Tile

WORKSPACE = 256 << 20
"""Bytes of panel totals, at most."""
LEAST = 16
"""Rows and columns below which most of a tile would be waste."""
STALL = 100
"""Cycles that a step of K waits, about, at the barrier and for its first fragments."""
LAUNCH = 4000
"""Cycles from the end of one launch to the work of the next, about."""
STEP = 24
"""Instructions of a step for its loop and for where its terms begin."""
EVALUATED = 24
"""Instructions of an element that is computed on its way."""
FINISH = 32
"""Terms that cost as much as what is done with an output at the end."""


def plan(kernel: Kernel, machine: GpuMachine) -> Plan | None:
    """The cheapest plan; None where tiles would be mostly waste."""
    contraction = find(kernel)
    if contraction is None or 0 in contraction.extents:
        return None
    _, rows, columns, terms = contraction.extents
    if min(rows, columns) < LEAST or not 8 <= terms < 1 << 30 or contraction.chain.panel > 4096:
        return None
    tiles = SINGLE if contraction.reduce.dtype.bits == 32 else DOUBLE
    costs: list[tuple[int, int, Plan]] = []
    for tile in tiles:
        ways = [access(Plan(contraction, tile, 1), side) for side in (0, 1)]
        for made in _splits(contraction, tile):
            if made.workspace_bytes <= WORKSPACE and all(way.even(made, side) for side, way in enumerate(ways)):
                costs.append((_cost(made, ways, machine), len(costs), made))
    return min(costs)[2]


def _splits(contraction: Contraction, tile: Tile) -> list[Plan]:
    panels = Plan(contraction, tile, 1).panels
    counts = sorted({-(-panels // splits) for splits in (1, 2, 4, 8, 16, 32, 64) if splits <= panels}, reverse=True)
    return [Plan(contraction, tile, count) for count in counts]


def _cost(made: Plan, ways: Sequence[Access], machine: GpuMachine) -> int:
    tile, terms = made.tile, min(made.panels_per_block * made.panel, made.contraction.extents[3])
    steps = -(-terms // tile.depth)
    warp = steps * instructions(made, ways) + FINISH * tile.rows * tile.columns + 600
    blocks = -(-made.grid // machine.multiprocessors)
    warps = -(-blocks * math.prod(tile.warps) // machine.schedulers)
    joining = 0 if made.splits == 1 else LAUNCH + made.totals // 512
    return warps * warp + steps * STALL + joining


def instructions(made: Plan, ways: Sequence[Access]) -> int:
    """Of a thread in a step: fma, reads of shared memory, and bringing the next step."""
    tile = made.tile
    reads = sum(tile.own) * tile.depth // made.chunk
    brought = sum(_brought(made, side, way) for side, way in enumerate(ways))
    return math.prod(tile.own) * tile.depth + reads + brought + STEP


def _brought(made: Plan, side: int, way: Access) -> int:
    count = made.tile.block[side] * made.tile.depth // made.tile.threads // way.wide
    if way.separation is None:
        return EVALUATED * count
    if not way.separation.tabled:
        return count
    return count * (7 if way.separation.meeting is not None else 5) // 2

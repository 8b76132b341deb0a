"""Which tile a contraction is run in, and how many shares K is cut into: the plan with the least cost.

The cost is in cycles, by integers: the instructions that the busiest scheduler of the chip issues, counted from the
plan, at the pace that was measured of such tiles, or the bytes that the chip's second-level cache gives, whichever
takes longer, and what a scheduler waits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from repro.ir.contraction import Contraction, find
from repro.ir.expressions import Load
from repro.ir.loops import Kernel
from repro.machines import GpuMachine
from repro.targets.gpu.access import Access, access
from repro.targets.gpu.launch import PLAIN_SHARED
from repro.targets.gpu.presence import mask_bytes
from repro.targets.gpu.separation import separate
from repro.targets.gpu.share import dealt
from repro.targets.gpu.strips import strip
from repro.targets.gpu.term_table import table_words
from repro.targets.gpu.tiles import DOUBLE, SINGLE, STRIPS, Plan, Tile

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
TURNED, NARROWEST = 95, 8
"""Hundredths of its pace that a tile of so few columns has where terms of both operands are neighbours, so that each is
copied by itself: the first-level cache, which gives such tiles a float for each 4 fma, is busy in 80 % of the cycles
then."""
SETTLED = range(256, 1025)
"""Terms for which that was measured (docs/gpu.md). Of more, ptxas lets wider tiles wait for registers."""
MANY = 1024
"""Columns that fill blocks though those of the next batch follow in others."""
RESERVED = 1024
"""Bytes of shared memory that the system takes for each block."""
FINISH = 32
"""Terms that cost as much as what is done with an output at the end."""


def plan(kernel: Kernel, machine: GpuMachine) -> Plan | None:
    """The cheapest plan; None where tiles would be mostly waste, or several numbers are stored for each output."""
    found = find(kernel)
    if found is None or 0 in found.extents or len(kernel.stores) > 1:
        return None
    contraction = _parted(found)
    _, rows, columns, terms = contraction.extents
    if min(rows, columns) < LEAST or not 8 <= terms < 1 << 30 or contraction.chain.panel > 4096:
        return None
    tiles = _tiles(contraction)
    costs: list[tuple[int, Plan]] = []
    for tile in tiles:
        ways = [access(Plan(contraction, tile, 1), side) for side in (0, 1)]
        for made in _splits(contraction, tile, machine):
            even = all(way.even(made, side) for side, way in enumerate(ways))
            if even and made.workspace_bytes <= WORKSPACE and _fits(made, ways, machine):
                costs.append((_cost(made, ways, machine), made))
    return min(costs, key=lambda each: each[0])[1] if costs else None


def _tiles(contraction: Contraction) -> tuple[Tile, ...]:
    """Those that it may be run in; in strips where steps hold whole rows of pixels."""
    if contraction.reduce.dtype.bits != 32:
        return DOUBLE
    found = strip(contraction)
    return SINGLE if found is None else (*SINGLE, *(tile for tile in STRIPS if tile.depth % found.width == 0))


def _parted(contraction: Contraction) -> Contraction:
    """The same with the first of its column axes as batch, if then columns follow a stride, and are many all the same:
    those of a picture, say, where the next picture lies at another distance."""
    columns, term = contraction.columns, contraction.terms[1]
    if len(columns) < 2 or math.prod(axis.extent for axis in columns[1:]) < MANY or not isinstance(term, Load):
        return contraction
    terms, present = contraction.reduce.axes, contraction.reduce.present if contraction.absent_in == 1 else None
    whole, inner = (separate(term, present, each, terms) for each in (columns, columns[1:]))
    if whole is None or whole.line_stride is not None or inner is None or inner.line_stride is None:
        return contraction
    return replace(contraction, batch=(*contraction.batch, columns[0]), columns=columns[1:])


def _splits(contraction: Contraction, tile: Tile, machine: GpuMachine) -> list[Plan]:
    """K in one, two, four… shares, and in as many as fill the chip once, twice or three times."""
    whole = Plan(contraction, tile, 1)
    _, batch, rows, columns = whole.blocks
    full = [times * machine.multiprocessors // (batch * rows * columns) for times in (1, 2, 3)]
    wanted = {splits for splits in (1, 2, 4, 8, 16, 32, 64, *full) if 0 < splits <= whole.panels}
    counts = sorted({-(-whole.panels // splits) for splits in wanted}, reverse=True)
    return [Plan(contraction, tile, count) for count in counts]


def _fits(made: Plan, ways: Sequence[Access], machine: GpuMachine) -> bool:
    """Whether there is the shared memory, in a plan whose steps are shared out evenly."""
    return shared_bytes(made, ways) <= machine.shared_bytes and declared_bytes(made, ways) <= PLAIN_SHARED


def shared_bytes(made: Plan, ways: Sequence[Access]) -> int:
    """Two steps, tables of terms, and masks."""
    elements = sum(dealt(made, side, way).elements for side, way in enumerate(ways))
    return 2 * elements * made.contraction.reduce.dtype.bytes + declared_bytes(made, ways)


def declared_bytes(made: Plan, ways: Sequence[Access]) -> int:
    """Tables of terms, and masks: what is declared however large the steps are, and not given at the launch."""
    tables = sum(table_words(way.separation) * made.ring * 4 for way in ways if way.separation is not None)
    lines = (dealt(made, side, way).lines for side, way in enumerate(ways))
    return tables + sum(mask_bytes(made, way.separation, each) for way, each in zip(ways, lines, strict=True))


def _cost(made: Plan, ways: Sequence[Access], machine: GpuMachine) -> int:
    tile, share = made.tile, made.panels_per_block * made.panel
    steps = [-(-terms // tile.depth) for terms in (min(share, made.contraction.extents[3]), made.last_terms)]
    each, end = instructions(made, ways), FINISH * tile.rows * tile.columns + 600
    busy = max(
        issued(made, dealt_out, [count * each + end for count in steps], machine) for dealt_out in shares(made, machine)
    )
    joining = 0 if made.splits == 1 else LAUNCH + made.totals // 512
    lines = made.grid // made.splits
    far = lines * ((made.splits - 1) * steps[0] + steps[1]) * _step_bytes(made) // machine.cache_bytes
    return max(busy * 10000 // pace(made, ways, machine), far) + steps[0] * STALL + joining


def shares(made: Plan, machine: GpuMachine) -> set[tuple[int, int]]:
    """Blocks with a whole share of K, and with the last one, of multiprocessors of which one is the busiest. Those
    with the last share come last, and blocks are dealt out in their order."""
    of, last = machine.multiprocessors, made.grid // made.splits
    whole = made.grid - last
    places = {place % of for end in (whole, made.grid) for place in (end - 1, end)}
    dealt_out = [(-(-max(0, whole - place) // of), -(-max(0, made.grid - place) // of)) for place in places]
    return {(first, both - first) for first, both in dealt_out}


def issued(made: Plan, shares: tuple[int, int], cycles: Sequence[int], machine: GpuMachine) -> int:
    """By the busiest scheduler of a multiprocessor, where a warp issues so many of a whole share and of the last."""
    warps = math.prod(made.tile.warps)
    together, times = max(1, machine.schedulers // warps), -(-warps // machine.schedulers)
    whole = -(-shares[0] // together)
    rest = max(0, shares[1] - (whole * together - shares[0]))
    return times * (whole * cycles[0] + -(-rest // together) * cycles[1])


def pace(made: Plan, ways: Sequence[Access], machine: GpuMachine) -> int:
    """Parts of 10,000 of the cycles in which a scheduler issues, by the warps that it has at one time."""
    tile = made.tile
    registers = machine.register_file // (tile.registers * tile.threads)
    room = machine.resident_bytes // (shared_bytes(made, ways) + RESERVED)
    resident = min(registers, room, -(-made.grid // machine.multiprocessors))
    warps = resident * math.prod(tile.warps) // machine.schedulers
    turned = tile.columns <= NARROWEST and all(_turned(made, way) for way in ways)
    own = tile.pace * TURNED // 100 if turned else tile.pace
    return own * machine.paces[min(max(1, warps), len(machine.paces)) - 1]


def _turned(made: Plan, way: Access) -> bool:
    """Whether an operand's terms, in whole steps, are neighbours in memory, and a stride says where lines are."""
    strided = way.separation is not None and not way.separation.tabled
    turned = strided and way.by_term and not way.terms_beside
    return turned and made.contraction.extents[3] in SETTLED and not made.ragged


def _reads(made: Plan) -> int:
    """Of shared memory, 16 bytes each, of a thread in a step. A value that several threads of a warp read is given to
    each of them."""
    return sum(made.seen(side).tile.own[side] for side in (0, 1)) * made.tile.depth // made.chunk


def _step_bytes(made: Plan) -> int:
    """That a block brings in a step, from the second-level cache at most: memory gives the same bytes for any tile."""
    lines = sum(made.seen(side).tile.block[side] for side in (0, 1))
    return lines * made.tile.depth * made.contraction.reduce.dtype.bytes


def instructions(made: Plan, ways: Sequence[Access]) -> int:
    """Of a thread in a step: fma, reads of shared memory, and bringing the next step."""
    tile = made.tile
    brought = sum(_brought(made, side, way) for side, way in enumerate(ways))
    return math.prod(tile.own) * tile.depth + _reads(made) + brought + STEP


def _brought(made: Plan, side: int, way: Access) -> int:
    dealing = dealt(made, side, way)
    count = dealing.lines * dealing.terms
    if way.separation is None:
        return EVALUATED * count
    if not way.separation.tabled:
        return count
    lines = dealing.lines
    return count * 2 + 4 * count // lines if lines > 1 else count * 7 // 2

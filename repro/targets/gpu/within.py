"""How a block of threads runs several kernels, one after another, on one block of rows.

The roads are those of whole grids: tiles, rows, elementwise, plain. What would be blocks of a grid one block runs one
after another; a tile of fewer threads than the block has stands in it several times, side by side.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from repro.ir.contraction import Contraction, find
from repro.ir.dependence import reads_its_output
from repro.ir.expressions import Load, Reduce
from repro.ir.loops import Kernel
from repro.ir.program import RowBlocks
from repro.ir.types import F64
from repro.ir.work import operations_of
from repro.machines import GpuMachine
from repro.targets.gpu import choice, elementwise, rows
from repro.targets.gpu.access import Access, access
from repro.targets.gpu.floor import commonly
from repro.targets.gpu.presence import MOST_LINES
from repro.targets.gpu.roads import suited
from repro.targets.gpu.share import dealt
from repro.targets.gpu.tiles import WARP, Plan, Tile

THREADS = (128, 256)
"""That a block may have."""
OWN = ((8, 8), (8, 4), (4, 8), (4, 4))
DEPTHS = (8, 16, 32)
WARPS = ((1, 8), (2, 4), (4, 2), (1, 4), (2, 2), (1, 2), (2, 1))
FLAT = (2, 16)
"""Lanes of tiles of more rows a thread than a block has for four lanes."""
TILES = (
    *(Tile(*own, depth, warps) for own, depth, warps in itertools.product(OWN, DEPTHS, WARPS)),
    *(Tile(8, 8, depth, warps, lanes=FLAT) for depth, warps in itertools.product(DEPTHS, ((1, 8), (1, 4)))),
    *(Tile(8, 16, depth, (1, 4), lanes=FLAT) for depth in DEPTHS),
)
"""Wide, since a block has few rows; shallow, since rows take most of its memory."""
NEAR = 6
"""Instructions of an element that is read from shared memory and put where tiles read it."""
OUTPUT = 4
"""Instructions of an output that is stored."""
ROUND = 100
"""Instructions before and after a tile's run through its terms."""
PART = 1000
"""Cycles that a block waits at the beginning of each kernel, about."""
REGISTERS = ((128, 256), (1, 128), (0, 64))
"""Of a thread with tiles of so many outputs at least."""
RESIDENT = (1, 2, 3)
"""Blocks on a multiprocessor for which room is left."""


@dataclass(frozen=True)
class Tiled:
    """A contraction; `groups` of a tile's threads run side by side, each with steps of its own in shared memory."""

    plan: Plan
    groups: int
    steps_bytes: int
    """Of one group."""
    issued: int
    """Cycles in which the block's busiest scheduler issues."""
    waited: int
    """Cycles in which it waits for one block, and another may issue."""
    over: bool = False
    """Whether its steps lie where the block's local buffers do: nothing is there before it, and it stores what it
    computes when all of it is computed."""

    @functools.cached_property
    def once(self) -> bool:
        """Whether every thread has all of its outputs in registers before it stores one."""
        return self.plan.grid == self.groups and self.plan.splits == 1

    @property
    def totals_over(self) -> bool:
        """Whether totals of panels take the place of the steps: where every thread has its own before any is stored."""
        return self.plan.grid == self.groups and self.plan.splits > 1 == self.plan.panels_per_block

    @functools.cached_property
    def bytes(self) -> int:
        """Of shared memory: steps, and totals where panels are shared out."""
        steps, totals = self.groups * self.steps_bytes, self.plan.workspace_bytes
        return max(steps, totals) if self.totals_over else steps + totals

    @property
    def text(self) -> str:
        return f"{self.plan.text} groups={self.groups}"


@dataclass(frozen=True)
class Plain:
    """One work item after another."""

    text: str = "plain"


Road = Tiled | rows.Plan | elementwise.Plan | Plain


@dataclass(frozen=True)
class Part:
    """A kernel, cut for a block of rows, and its buffers (positions) that some kernel of the block writes."""

    kernel: Kernel
    carried: frozenset[int]


def parts_of(step: RowBlocks, kernels: Sequence[Kernel], machine: GpuMachine) -> tuple[Part, ...]:
    """The kernels of a step's body, which stand beside it, by the functions' roads that suit the machine."""
    written: set[int] = set()
    for call, kernel in zip(step.body, kernels, strict=True):
        written |= {b for b, parameter in zip(call.buffers, kernel.buffers, strict=True) if parameter.writable}
    return tuple(
        Part(suited(kernel, machine), frozenset(n for n, buffer in enumerate(call.buffers) if buffer in written))
        for call, kernel in zip(step.body, kernels, strict=True)
    )


@dataclass(frozen=True)
class Roads:
    """How a block of threads runs its kernels. `resident`: blocks on a multiprocessor at one time."""

    threads: int
    roads: tuple[Road, ...]
    shared_bytes: int
    """What is local, and behind it what the kernels need for themselves."""
    resident: int
    cycles: int
    """Of a multiprocessor, for as many blocks as it holds."""

    @property
    def text(self) -> str:
        return "; ".join(each.text for each in self.roads)


def chosen(parts: Sequence[Part], local_bytes: int, machine: GpuMachine) -> Roads | None:
    """The fastest way for a block with so many bytes of local buffers; None where some kernel has no road, or would be
    slow at it."""
    ways = itertools.product(THREADS, RESIDENT)
    made = [_together(parts, local_bytes, threads, resident, machine) for threads, resident in ways]
    found = [each for each in made if each is not None]
    return min(found, key=lambda each: Fraction(each.cycles, each.resident), default=None)


def _together(
    parts: Sequence[Part], local_bytes: int, threads: int, resident: int, machine: GpuMachine
) -> Roads | None:
    """By blocks of so many threads, of which a multiprocessor's shared memory holds so many at least."""
    room = min(machine.shared_bytes, machine.resident_bytes // resident - choice.RESERVED)
    if room < local_bytes:
        return None
    held = [(local_bytes, 0 if number == 0 else local_bytes) for number in range(len(parts))]
    roads = [
        road(part.kernel, part.carried, threads, (room - local, room - over), machine)
        for part, (local, over) in zip(parts, held, strict=True)
    ]
    known = [each for each in roads if each is not None]
    if len(known) < len(roads):
        return None
    tiles = [each for each in known if isinstance(each, Tiled)]
    shared = max((each.bytes + (0 if each.over else local_bytes) for each in tiles), default=0)
    shared = max(shared, local_bytes)
    most = max((math.prod(each.plan.tile.own) for each in tiles), default=0)
    registers = machine.register_file // (next(count for least, count in REGISTERS if most >= least) * threads)
    resident = max(1, min(machine.resident_bytes // (shared + choice.RESERVED), registers))
    pace = machine.blocks_pace if tiles else 100
    issued = sum(_issued(part.kernel, each, threads, machine) for part, each in zip(parts, known, strict=True))
    waited = sum(each.waited for each in tiles) + PART * len(known)
    return Roads(threads, tuple(known), shared, resident, max(resident * issued, issued + waited) * 100 // pace)


def road(
    kernel: Kernel, carried: frozenset[int], threads: int, room: tuple[int, int], machine: GpuMachine
) -> Road | None:
    """How a block of so many threads runs the kernel; None where it cannot, or would be slow at it. `room`: bytes of
    shared memory that it has for itself, and that it has if what it needs may lie where it stores its results."""
    kind = _kind(kernel)
    return _tiled(kind, carried, threads, room, machine) if isinstance(kind, Contraction) else kind


@functools.lru_cache(maxsize=4096)
def _kind(kernel: Kernel) -> Contraction | Road | None:
    """A contraction, which has many roads, or the one that there is."""
    if kernel.serial or any(axis.extent == 0 for axis in kernel.axes) or reads_its_output(kernel):
        return None
    contraction = find(kernel, floats=True)
    if contraction is not None:
        return contraction if len(kernel.stores) == 1 else None
    by_rows = rows.plan(kernel)
    if by_rows is not None:
        return replace(by_rows, warps=1) if by_rows.column is None else None
    if any(isinstance(expr, Reduce) for expr in kernel.expressions):
        return None
    return elementwise.plan(kernel) or Plain()


@functools.lru_cache(maxsize=1024)
def issued(kernel: Kernel, machine: GpuMachine) -> int:
    """Instructions of all threads, about: each operation is one, of each term of a reduction, and one in f64 as many as
    it takes times of f32. What is seldom is left out."""
    return sum(operations_of(expr) * (machine.f64_cost if expr.dtype is F64 else 1) for expr in commonly(kernel))


def _issued(kernel: Kernel, road: Road, threads: int, machine: GpuMachine) -> int:
    """Cycles of a block's busiest scheduler; where warps take a row each, those without one wait in the last round."""
    if isinstance(road, Tiled):
        return road.issued
    cycles = issued(kernel, machine) // (machine.schedulers * WARP)
    if not isinstance(road, rows.Plan):
        return cycles
    warps = threads // WARP
    return cycles * -(-road.count // warps) * warps // road.count


# contractions ───────────────────────────────────────────────────────────────────────────────────────


def _tiled(
    contraction: Contraction, carried: frozenset[int], threads: int, room: tuple[int, int], machine: GpuMachine
) -> Tiled | None:
    """The tile with the least cost that there is room for."""
    found = [each for each in _tilings(contraction, carried, threads, machine) if each.bytes <= room[each.once]]
    if not found:
        return None
    least = min(found, key=lambda each: each.issued + each.waited)
    return replace(least, over=least.bytes > room[0])


@functools.lru_cache(maxsize=4096)
def _tilings(contraction: Contraction, carried: frozenset[int], threads: int, machine: GpuMachine) -> tuple[Tiled, ...]:
    """All ways to run a contraction, whatever room they take."""
    terms, plain = contraction.extents[3], contraction.reduce.dtype.bits == 32 and contraction.absent_in is None
    if not plain or 0 in contraction.extents or not 8 <= terms < 1 << 30 or contraction.chain.panel > 4096:
        return ()
    plans = (
        Plan(contraction, tile, count, carried)
        for tile in TILES
        for count in sorted({Plan(contraction, tile, 1).panels, 1})
    )
    made = (_planned(plan, threads, machine) for plan in plans)
    return tuple(each for each in made if each is not None)


def _planned(made: Plan, threads: int, machine: GpuMachine) -> Tiled | None:
    """None where groups of threads would not have the same work, and come to the same barriers."""
    tile, terms = made.tile, made.contraction.extents[3]
    groups = threads // tile.threads
    if not groups or made.grid % groups or (made.splits > 1 and terms % (made.panels_per_block * made.panel)):
        return None
    ways = [access(made, side) for side in (0, 1)]
    tabled = any(way.separation is not None and way.separation.tabled for way in ways)
    if tabled or not all(way.even(made, side) for side, way in enumerate(ways)):
        return None
    dealings = [dealt(made, side, way) for side, way in enumerate(ways)]
    if any(each.lines > MOST_LINES and not made.whole(side) for side, each in enumerate(dealings)):
        return None
    rounds, steps = made.grid // groups, -(-min(made.panels_per_block * made.panel, terms) // tile.depth)
    tiles = steps * _step(made, ways) + OUTPUT * math.prod(tile.own) + ROUND
    joining = made.totals // threads * 8
    elements = sum(each.elements for each in dealings)
    shared = 2 * elements * made.contraction.reduce.dtype.bytes
    warps = threads // WARP // machine.schedulers
    return Tiled(made, groups, shared, warps * (rounds * tiles + joining), rounds * steps * choice.STALL)


def _step(made: Plan, ways: Sequence[Access]) -> int:
    """Instructions of a thread in a step."""
    near = 0
    for side, term in enumerate(made.contraction.terms):
        if isinstance(term, Load) and term.buffer in made.carried:
            near += made.tile.block[side] * made.tile.depth // made.tile.threads
    return choice.instructions(made, ways) - near * (choice.EVALUATED - NEAR)

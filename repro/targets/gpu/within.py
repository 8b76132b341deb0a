"""How a kernel runs within one block of threads, beside others that leave each other values in shared memory.

The roads are those of whole grids: tiles, rows, elementwise, plain. What would be blocks of a grid one block runs one
after another; a tile of fewer threads than the block has stands in it several times, side by side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from repro.ir.contraction import Contraction, find
from repro.ir.dependence import reads_its_output
from repro.ir.loops import Kernel, Load, Reduce
from repro.ir.types import F64
from repro.ir.work import iterations, operations
from repro.machines import GpuMachine
from repro.targets.gpu import choice, elementwise, rows
from repro.targets.gpu.access import Access, access
from repro.targets.gpu.floor import commonly
from repro.targets.gpu.tiles import WARP, Plan, Tile

THREADS = 256
"""Of a block that runs several kernels."""
NEAR = 6
"""Instructions of an element that is read from shared memory and put where tiles read it."""
TILES = (
    Tile(8, 8, 8, (1, 8)),
    Tile(8, 8, 8, (2, 4)),
    Tile(8, 4, 8, (1, 8)),
    Tile(8, 4, 8, (2, 4)),
    Tile(4, 8, 16, (1, 8)),
    Tile(4, 8, 8, (2, 4)),
    Tile(4, 4, 16, (1, 8)),
    Tile(4, 4, 8, (2, 4)),
    Tile(4, 4, 8, (4, 2)),
    Tile(8, 8, 8, (2, 2)),
    Tile(8, 4, 8, (1, 4)),
    Tile(8, 4, 8, (2, 2)),
    Tile(4, 4, 8, (1, 4)),
    Tile(4, 4, 8, (2, 2)),
    Tile(8, 4, 8, (1, 2)),
    Tile(4, 4, 8, (1, 2)),
)
"""Wide, since a block has few rows; shallow, since rows take most of its memory."""


@dataclass(frozen=True)
class Tiled:
    """A contraction; `groups` of a tile's threads run side by side, each with steps of its own in shared memory."""

    plan: Plan
    steps_bytes: int
    """Of one group."""
    cycles: int

    @property
    def groups(self) -> int:
        return THREADS // self.plan.tile.threads

    @property
    def bytes(self) -> int:
        """Of shared memory: steps, and totals where panels are shared out."""
        return self.groups * self.steps_bytes + self.plan.workspace_bytes

    @property
    def text(self) -> str:
        return f"{self.plan.text} groups={self.groups}"


@dataclass(frozen=True)
class Plain:
    """One work item after another."""

    text: str = "plain"


Road = Tiled | rows.Plan | elementwise.Plan | Plain


def road(kernel: Kernel, carried: frozenset[int], room: int, machine: GpuMachine) -> Road | None:
    """How a block runs the kernel, which has `room` bytes of shared memory for itself; None where it cannot, or would
    be slow at it. `carried`: its buffers (positions) that the block's other kernels touch too, and one of them writes."""
    if kernel.serial or any(axis.extent == 0 for axis in kernel.axes) or reads_its_output(kernel):
        return None
    contraction = find(kernel)
    if contraction is not None:
        return _tiled(contraction, carried, room, machine)
    by_rows = rows.plan(kernel)
    if by_rows is not None:
        return replace(by_rows, warps=1) if by_rows.column is None else None
    if any(isinstance(expr, Reduce) for expr in kernel.expressions):
        return None
    return elementwise.plan(kernel) or Plain()


def _tiled(contraction: Contraction, carried: frozenset[int], room: int, machine: GpuMachine) -> Tiled | None:
    """The tile with the least cost that there is room for."""
    fits = contraction.reduce.dtype.bits == 32 and contraction.absent_in is None
    if not fits or 0 in contraction.extents or not 8 <= contraction.extents[3] < 1 << 30 or contraction.chain.panel > 4096:
        return None
    found: list[tuple[int, int, Tiled]] = []
    for tile in TILES:
        whole = Plan(contraction, tile, 1)
        for count in sorted({whole.panels, 1}):
            made = Plan(contraction, tile, count, carried)
            ways = [access(made, side) for side in (0, 1)]
            if _alike(made) and all(_plain(way) and way.even(made, side) for side, way in enumerate(ways)):
                tiled = Tiled(made, 2 * sum(way.bytes(made, side) for side, way in enumerate(ways)), _cycles(made, ways, machine))
                if tiled.bytes <= room:
                    found.append((tiled.cycles, len(found), tiled))
    return min(found)[2] if found else None


def _alike(made: Plan) -> bool:
    """Whether groups of threads have the same work, so that all come to the same barriers."""
    groups, terms = THREADS // made.tile.threads, made.contraction.extents[3]
    return made.grid % groups == 0 and (made.splits == 1 or terms % (made.panels_per_block * made.panel) == 0)


def _plain(way: Access) -> bool:
    return way.separation is None or not way.separation.tabled


def _cycles(made: Plan, ways: list[Access], machine: GpuMachine) -> int:
    """Of the block: what its busiest scheduler issues, and what it waits."""
    tile, terms = made.tile, min(made.panels_per_block * made.panel, made.contraction.extents[3])
    rounds = made.grid * tile.threads // THREADS
    steps = -(-terms // tile.depth)
    near = sum(_near_elements(made, side) for side in (0, 1))
    step = choice.instructions(made, ways) - near * (choice.EVALUATED - NEAR)
    issued = steps * step + choice.FINISH * math.prod(tile.own) + 600
    warps = THREADS // WARP // machine.schedulers
    return rounds * (warps * issued + steps * choice.STALL) + made.totals // THREADS * 8


def _near_elements(made: Plan, side: int) -> int:
    """That a thread brings in a step of an operand that only lies nearer than copies reach."""
    term = made.contraction.terms[side]
    carried = isinstance(term, Load) and term.buffer in made.carried
    return made.tile.block[side] * made.tile.depth // made.tile.threads if carried else 0


def cycles(kernel: Kernel, chosen: Road, machine: GpuMachine) -> int:
    """Of a block that runs the kernel."""
    if isinstance(chosen, Tiled):
        return chosen.cycles
    return issued(kernel, machine) // machine.schedulers // WARP


def issued(kernel: Kernel, machine: GpuMachine) -> int:
    """Instructions of all threads, about: each operation is one, and one in f64 as many as it takes times of f32."""
    double = sum(iterations(expr) for expr in commonly(kernel) if expr.dtype is F64)
    return operations(kernel) + double * (machine.f64_cost - 1)

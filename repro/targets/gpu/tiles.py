"""Sizes of a contraction on a GPU: what a thread, a block and the grid compute, and how long K is shared out.

A block of 256 threads computes 16 x 16 thread tiles, its eight warps four along the rows and two along the columns,
a warp's lanes four and eight. K runs in steps of `depth` terms through shared memory. Where there are few blocks,
panels of K are parallel work too: each group of panels has its own blocks, which leave their totals in the workspace.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from repro.ir.contraction import Contraction, find
from repro.ir.loops import Kernel

THREADS = 256
WARPS = (4, 2)
"""Along rows and columns."""
LANES = (4, 8)
MULTIPROCESSORS = 108
"""Of the chip that the cost model has in mind (A100)."""
WORKSPACE = 256 << 20
"""Bytes of panel totals, at most."""
LEAST = 16
"""Rows and columns below which most of a tile would be waste."""


@dataclass(frozen=True)
class Tile:
    """Outputs of one thread, and the terms of one step."""

    rows: int
    columns: int
    depth: int
    efficiency: int
    """Fma in a hundred issued instructions, about: how the cost model tells tiles apart."""
    resident: int = 1
    """Blocks that a multiprocessor holds at a time, by their registers."""

    @property
    def block(self) -> tuple[int, int]:
        """Rows and columns of a block."""
        return 16 * self.rows, 16 * self.columns


SINGLE = (
    Tile(8, 16, 8, 92, 1),
    Tile(8, 8, 16, 90, 2),
    Tile(8, 4, 16, 80, 2),
    Tile(4, 8, 16, 80, 2),
    Tile(4, 4, 16, 68, 3),
)
DOUBLE = (Tile(4, 4, 8, 60, 2),)
"""Chips for graphics have few f64 units, and the others half as many as for f32: operands never are the limit."""


@dataclass(frozen=True)
class Plan:
    """A contraction's tile, and how many panels a block runs through."""

    contraction: Contraction
    tile: Tile
    panels_per_block: int

    @property
    def chunk(self) -> int:
        """Elements in 16 bytes."""
        return 16 // self.contraction.reduce.dtype.bytes

    @property
    def panel(self) -> int:
        return min(self.contraction.chain.panel, self.contraction.extents[3])

    @property
    def panels(self) -> int:
        return -(-self.contraction.extents[3] // self.panel)

    @property
    def splits(self) -> int:
        return -(-self.panels // self.panels_per_block)

    @property
    def blocks(self) -> tuple[int, int, int, int]:
        """Batch, splits of K, blocks of rows, blocks of columns."""
        batch, rows, columns, _ = self.contraction.extents
        block_m, block_n = self.tile.block
        return batch, self.splits, -(-rows // block_m), -(-columns // block_n)

    @property
    def grid(self) -> int:
        return math.prod(self.blocks)

    @property
    def padded(self) -> tuple[int, int]:
        """Rows and columns of a panel's totals in the workspace."""
        _, _, row_blocks, column_blocks = self.blocks
        return row_blocks * self.tile.block[0], column_blocks * self.tile.block[1]

    @property
    def totals(self) -> int:
        """Elements of all panel totals in the workspace; none where a block runs through all of K."""
        if self.splits == 1:
            return 0
        return self.contraction.extents[0] * self.panels * math.prod(self.padded)

    @property
    def flags(self) -> int:
        """Blocks that say whether what they read was finite, where absent terms make that matter."""
        return self.grid if self.splits > 1 and self.contraction.absent_in is not None else 0

    @property
    def workspace_bytes(self) -> int:
        return self.totals * self.contraction.reduce.dtype.bytes + 4 * self.flags

    @property
    def text(self) -> str:
        tile = self.tile
        block = "x".join(map(str, tile.block))
        return f"tile={tile.rows}x{tile.columns} block={block}x{tile.depth} splits={self.splits}"


def plan(kernel: Kernel) -> Plan | None:
    """The cheapest plan by an integer cost model over the shapes; None where tiles would be mostly waste."""
    contraction = find(kernel)
    if contraction is None or 0 in contraction.extents:
        return None
    _, rows, columns, terms = contraction.extents
    if min(rows, columns) < LEAST or not 8 <= terms < 1 << 30 or contraction.chain.panel > 4096:
        return None
    tiles = SINGLE if contraction.reduce.dtype.bits == 32 else DOUBLE
    every = [made for tile in tiles for made in _splits(contraction, tile)]
    candidates = [made for made in every if made.workspace_bytes <= WORKSPACE]
    costs = [(_cost(made), number) for number, made in enumerate(candidates)]
    return candidates[min(costs)[1]]


def _splits(contraction: Contraction, tile: Tile) -> list[Plan]:
    panels = Plan(contraction, tile, 1).panels
    counts = sorted({-(-panels // splits) for splits in (1, 2, 4, 8, 16, 32, 64) if splits <= panels}, reverse=True)
    return [Plan(contraction, tile, count) for count in counts]


def _cost(made: Plan) -> int:
    """Instructions issued on the busiest multiprocessor, over 256 threads' worth."""
    tile, terms = made.tile, min(made.panels_per_block * made.panel, made.contraction.extents[3])
    steps = -(-terms // tile.depth)
    work = tile.rows * tile.columns * (tile.depth * steps + 32) * 100 // tile.efficiency
    waves = -(-made.grid // MULTIPROCESSORS)
    joining = 0 if made.splits == 1 else 4000 + made.totals // 512
    return waves * (work + 600) + joining

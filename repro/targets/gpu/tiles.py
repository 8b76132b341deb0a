"""Sizes of a contraction on a GPU: what a thread, a block and the grid compute, and how long K is shared out.

A block's warps lie in a grid along rows and columns, a warp's lanes in one of four by eight (or two by sixteen), and
each thread computes a tile of outputs. K runs in steps of `depth` terms through shared memory. Where there are few
blocks, panels of K are parallel work too: each group of panels has its own blocks, which leave their totals in the
workspace.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from repro.errors import InternalError
from repro.ir.contraction import Contraction
from repro.ir.expressions import Axis
from repro.targets.gpu.strips import TAPS, strip

WARP = 32
MOST_REGISTERS = 255
"""That the chip gives a thread."""
LANES = (4, 8)
"""Of a warp, along rows and columns, if a tile says nothing else."""


@dataclass(frozen=True)
class Tile:
    """Outputs of one thread, and the terms of one step."""

    rows: int
    columns: int
    depth: int
    warps: tuple[int, int] = (4, 2)
    """Of a block, along rows and columns."""
    registers: int = MOST_REGISTERS
    """That a thread may have: fewer let a multiprocessor hold more blocks."""
    crowded: int = MOST_REGISTERS
    """The same, where operands need more than usual."""
    lanes: tuple[int, int] = LANES
    taps: int = 1
    """Columns beside each other that are taps of one row of a picture (repro.targets.gpu.strips)."""
    sweep: int = 4
    """Columns of a strip, in which the products of a term follow one another."""
    pace: int = 100
    """Hundredths of what a scheduler issues of 8 x 8 outputs a thread that it issues of these: measured on an H200."""

    @property
    def own(self) -> tuple[int, int]:
        """Rows and columns of a thread."""
        return self.rows, self.columns

    @property
    def products(self) -> Iterator[tuple[int, int]]:
        """A thread's outputs, row and column, in the order in which a term is multiplied to them: by strips of columns,
        down the rows of one and up those of the next, to and fro along each row. So what follows on another shares a
        factor with it, which the assembler then keeps from being read again: a scheduler reads one even and one odd
        register in a cycle, and fma has three operands (docs/gpu.md)."""
        for number, first in enumerate(range(0, self.columns, self.sweep)):
            rows = range(self.rows)[:: -1 if number % 2 else 1]
            columns = range(first, min(first + self.sweep, self.columns))
            for turn, row in enumerate(rows):
                yield from ((row, column) for column in columns[:: -1 if turn % 2 else 1])

    @property
    def threads(self) -> int:
        """Of a block."""
        return WARP * math.prod(self.warps)

    @property
    def block(self) -> tuple[int, int]:
        """Rows and columns of a block."""
        return self.warps[0] * self.lanes[0] * self.rows, self.warps[1] * self.lanes[1] * self.columns


SINGLE = (
    *(Tile(8, 12, 16, warps, registers=168, crowded=168, sweep=12, pace=96) for warps in ((4, 1), (2, 2), (2, 1))),
    Tile(8, 8, 16, (2, 2), registers=168, crowded=168),
    *(Tile(8, 8, 16, warps, registers=128, crowded=168) for warps in ((4, 1), (2, 1))),
    Tile(8, 4, 16, (2, 1), registers=96, crowded=128, pace=80),
    Tile(4, 4, 16, (2, 1), registers=80, crowded=128, pace=60),
)
"""Three or four warps for a scheduler: with the two that 8 x 16 outputs of a thread leave, an H200 issues a tenth less,
and steps of 32 terms, whose loop is 35 KB of machine code, take up to twice as long where warps are few."""
STRIPS = tuple(
    Tile(8, 6, depth, warps, taps=TAPS) for depth in (28, 32, 56) for warps in ((4, 2), (4, 1), (2, 2), (2, 1))
)
"""For operands in strips, whose steps hold whole rows of 4 to 56 pixels. With 9 or 12 columns a thread is 5 to 9 %
slower on an H200."""
DOUBLE = (Tile(4, 4, 8, registers=128),)
"""Chips for graphics have few f64 units, and the others half as many as for f32: operands never are the limit."""


@dataclass(frozen=True)
class Plan:
    """A contraction's tile, and how many panels a block runs through."""

    contraction: Contraction
    tile: Tile
    panels_per_block: int
    carried: frozenset[int] = frozenset()
    """Buffers (positions) that lie in shared memory, or were written in the same launch: they cannot be copied."""

    def seen(self, side: int) -> Plan:
        """The plan as what brings an operand sees it: where the columns' is in strips, columns are rows of pixels."""
        if side == 0 or self.tile.taps == 1:
            return self
        found, tile = strip(self.contraction), replace(self.tile, columns=self.tile.columns // self.tile.taps, taps=1)
        if found is None:
            raise InternalError(f"{self.text} is for strips")
        return replace(self, contraction=found.contraction, tile=tile)

    def axes(self, side: int) -> tuple[Axis, ...]:
        """Of rows (side 0) or columns (side 1)."""
        return self.contraction.rows if side == 0 else self.contraction.columns

    def whole(self, side: int) -> bool:
        """Whether all of a block's rows or columns exist."""
        return self.contraction.extents[1 + side] % self.tile.block[side] == 0 or self.reaches(side)

    def reaches(self, side: int) -> bool:
        """Whether the last block of rows or columns reaches back over its neighbour's, and leaves storing those to it:
        where there is a neighbour, and blocks store results, not totals of panels."""
        extent, block = self.contraction.extents[1 + side], self.tile.block[side]
        return self.splits == 1 and extent > block and extent % block != 0

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
    def last_panel(self) -> int:
        """Terms of the last panel."""
        return self.contraction.extents[3] - (self.panels - 1) * self.panel

    @property
    def last_terms(self) -> int:
        """Terms of the last share of K, of all where there is one."""
        return self.contraction.extents[3] - (self.splits - 1) * self.panels_per_block * self.panel

    @property
    def ragged(self) -> bool:
        """Whether some step holds fewer than `depth` terms."""
        return self.contraction.extents[3] % self.tile.depth != 0 or not self.in_steps

    @property
    def in_steps(self) -> bool:
        """Whether every panel but the last one is whole steps."""
        return self.panels == 1 or self.panel % self.tile.depth == 0

    @property
    def panel_steps(self) -> int:
        """Steps of a whole panel."""
        return -(-self.panel // self.tile.depth)

    @property
    def ring(self) -> int:
        """Entries of a table of terms: two panels, or the one that there is, in whole steps."""
        return min(self.panels_per_block, 2) * self.panel_steps * self.tile.depth

    @property
    def blocks(self) -> tuple[int, int, int, int]:
        """Splits of K, batch, blocks of rows, blocks of columns: those with the last share of K, which may be a short
        one, come last."""
        batch, rows, columns, _ = self.contraction.extents
        block_m, block_n = self.tile.block
        return self.splits, batch, -(-rows // block_m), -(-columns // block_n)

    @property
    def grid(self) -> int:
        return math.prod(self.blocks)

    @property
    def padded(self) -> tuple[int, int]:
        """Rows and columns of totals in the workspace."""
        _, _, row_blocks, column_blocks = self.blocks
        return row_blocks * self.tile.block[0], column_blocks * self.tile.block[1]

    @property
    def together(self) -> int:
        """Panels of one total in the workspace: where shares begin with a block of panels, all of it (rule 7)."""
        per_block = self.contraction.chain.panels_per_block
        return 1 if self.panels_per_block % per_block else per_block

    @property
    def sums(self) -> int:
        """Totals of an output in the workspace, where K is shared out."""
        return -(-self.panels // self.together)

    @property
    def totals(self) -> int:
        """Elements of all totals in the workspace; none where a block runs through all of K."""
        if self.splits == 1:
            return 0
        return self.contraction.extents[0] * self.sums * math.prod(self.padded)

    @property
    def workspace_bytes(self) -> int:
        return self.totals * self.contraction.reduce.dtype.bytes

    @property
    def text(self) -> str:
        tile = self.tile
        block = "x".join(map(str, tile.block))
        return f"tile={tile.rows}x{tile.columns} block={block}x{tile.depth} splits={self.splits}"

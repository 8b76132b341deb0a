"""How a kernel is run on a machine: a value beside the kernel, never part of what it computes.

A schedule realises the orders that the kernel states. Any schedule that `passes.legality` accepts gives the same
bits; so it may come from a cost model, a tuning file or a random generator.
"""

from __future__ import annotations

from dataclasses import dataclass

COLUMNS, PIXELS, GROUPS = LANES = ("columns", "pixels", "groups")
"""What the vectors of a contraction run along."""


@dataclass(frozen=True)
class ContractionTile:
    """Register and cache tiles of a kernel whose stores read one Chain reduction.

    A work item computes `block_m` x `block_n` outputs in register tiles of `rows` x (`vectors` times the
    vector width); it packs both operands a panel at a time, and takes `unroll` terms per turn of the loop.
    With `window`, rows are the operand that is read through a moving window (passes/windows.py), and what is packed of
    it is each of its places once. The columns' operand is read in place where it lies in memory as tiles read it,
    unless `packs` has it copied too; rows are copied, unless `rows_in_place` and the terms of each lie together, or the
    window lies there as it is. Where the rows of each term lie together instead, the first tile that reads them copies
    them, or, if tiles of columns are few, each reads them in place; with `rows_before` they are packed before, many
    tiles' at once. With `makes`, each tile makes what is not read in place of the columns in registers, and nothing of
    them is packed: it computes terms, or turns those that lie side by side in memory.
    With `row_items`, where both are read in place, each row is a work item instead, and those that a thread has are one
    block, which is run a tile of columns after another.

    `lanes` says what vectors run along: COLUMNS; PIXELS, the last axis of a window's rows, where a register tile is
    `rows` lines of `vectors` vectors for each of `block_n` columns (passes/pixels.py); or GROUPS, an axis that both
    operands have, where it is `rows` outputs for each of `vectors` vectors of groups (passes/group_lanes.py). A work
    item of these has all columns.
    """

    rows: int
    vectors: int
    block_m: int
    block_n: int
    unroll: int = 1
    window: bool = False
    packs: bool = False
    rows_in_place: bool = False
    row_items: bool = False
    makes: bool = False
    rows_before: bool = False
    lanes: str = COLUMNS


@dataclass(frozen=True)
class Schedule:
    """Loop order, vectors and the grain of parallel work.

    `vector_axis` (a position in the kernel's axes, or None) is run innermost, `vector_width` elements at
    a time; `block` of its iterations, all iterations of the `inner` axes (positions) and one iteration of
    every other parallel axis make one work item; items are what threads share out. Axes that the kernel's
    serial loops tie together are inner whatever a schedule says. `tile` is given for a contraction instead.
    With `sweep`, sums along rows are computed for all columns of a block together, so many rows of each lane of their
    order at a time (passes/sweeps.py). `order` has the parallel axes but the vector axis in the order in which items
    number them, the outermost first, where it is not the kernel's.
    """

    vector_axis: int | None
    vector_width: int
    block: int
    tile: ContractionTile | None = None
    inner: tuple[int, ...] = ()
    sweep: int = 0
    order: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        """One line, canonical: part of the key of compiled code."""
        axis = "-" if self.vector_axis is None else str(self.vector_axis)
        head = f"axis={axis} width={self.vector_width} block={self.block}"
        if self.inner:
            head += f" inner={','.join(map(str, self.inner))}"
        if self.sweep:
            head += f" sweep={self.sweep}"
        if self.order:
            head += f" order={','.join(map(str, self.order))}"
        if self.tile is None:
            return head
        t = self.tile
        tail = " window=1" * t.window + " pack=b" * t.packs + " rows=place" * t.rows_in_place
        tail += " items=rows" * t.row_items + " columns=made" * t.makes + " before=rows" * t.rows_before
        if t.lanes != COLUMNS:
            tail += f" lanes={t.lanes}"
        return f"{head} tile={t.rows}x{t.vectors} block={t.block_m}x{t.block_n} turn={t.unroll}{tail}"

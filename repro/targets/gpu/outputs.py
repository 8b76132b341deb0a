"""Which outputs a thread computes.

A block's number is its share of K, its batch and its place in the matrix; warps and lanes lie in a grid over the block.

Lines are dealt to lanes so that a warp's reads of shared memory meet no bank twice: chunk by chunk where lines lie side
by side there, else one by one.
"""

from __future__ import annotations

from repro.ir.types import I64, U32
from repro.targets.gpu.body import GpuBody, special
from repro.targets.gpu.tiles import WARP, Plan
from repro.targets.llvm import scalars
from repro.targets.llvm.scope import Scope
from repro.targets.llvm.text import Function, Val, integer


def constant_line(lanes: int, group: int, number: int) -> int:
    """How far a thread's line by number is from its first, where `group` of them lie side by side."""
    return number // group * lanes * group + number % group


class Outputs:
    """A thread's outputs. `groups`: along rows and columns, how many of them lie side by side. With `anew`, all is
    found from the thread's number once more, so that none of it takes a register in between."""

    def __init__(self, body: GpuBody, plan: Plan, groups: tuple[int, int], *, anew: bool = False) -> None:
        self.body, self.f, self.plan, self.groups = body, body.f, plan, groups
        read, seat = _read if anew else special, body.seat
        self.thread = read(self.f, "tid")
        if seat is not None:
            self.thread = scalars.binary(self.f, "urem", self.thread, integer(seat.threads))
        number = read(self.f, "ctaid") if seat is None else seat.number
        self.batch, self.split, row_block, column_block = self._block(number)
        axes = plan.contraction.batch
        self.scope = Scope(None, dict(zip(axes, body.split(self.batch, axes), strict=True)) if axes else {})
        blocks = (row_block, column_block)
        self.own = tuple(self.f.scaled(block, size) for block, size in zip(blocks, plan.tile.block, strict=True))
        """The block's first row and column of those that it stores."""
        self.first = (self._first(0), self._first(1))
        """The block's first row and column."""
        self.origins = (self._origin(0), self._origin(1))
        """The thread's first row and column in the block."""

    def _block(self, number: Val) -> tuple[Val, Val, Val, Val]:
        """Batch, split, block of rows, block of columns. Eight blocks of rows go together down the columns, so that
        blocks that run at one time share what they read."""
        f, (_, batches, rows, columns) = self.f, self.plan.blocks
        together = next(size for size in (8, 4, 2, 1) if rows % size == 0)
        rest, inside = self._divide(number, together)
        rest, column = self._divide(rest, columns)
        rest, row = self._divide(rest, rows // together)
        split, batch = self._divide(rest, batches)
        return batch, split, f.add(f.scaled(row, together), inside), column

    def _first(self, side: int) -> Val:
        own, plan = self.own[side], self.plan
        if not plan.reaches(side):
            return own
        last = integer(plan.contraction.extents[1 + side] - plan.tile.block[side])
        return scalars.select(self.f, scalars.compare(self.f, "lt", own, last), own, last)

    def _divide(self, value: Val, by: int) -> tuple[Val, Val]:
        if by == 1:
            return value, integer(0)
        quotient, rest = (scalars.binary(self.f, how, value, integer(by)) for how in ("udiv", "urem"))
        return quotient, rest

    def _origin(self, side: int) -> Val:
        f = self.f
        warp, lane = (scalars.binary(f, how, self.thread, integer(WARP)) for how in ("udiv", "urem"))
        how = "udiv" if side == 0 else "urem"
        tile = self.plan.tile
        warp = scalars.binary(f, how, warp, integer(tile.warps[1]))
        lane = scalars.binary(f, how, lane, integer(tile.lanes[1]))
        return f.add(f.scaled(warp, tile.lanes[side] * tile.own[side]), f.scaled(lane, self.groups[side]))

    def line(self, side: int, number: Val) -> Val:
        """The row (side 0) or column (side 1) of the matrix that is the thread's own by number."""
        f, group = self.f, self.groups[side]
        run, inside = (scalars.binary(f, how, number, integer(group)) for how in ("udiv", "urem"))
        place = f.add(f.scaled(run, self.plan.tile.lanes[side] * group), inside)
        return f.add(f.add(self.first[side], self.origins[side]), place)


def _read(f: Function, name: str) -> Val:
    """A thread's own number, as `special` gives it, but read where this stands."""
    value = f.let(f'call i32 asm sideeffect "mov.u32 $0, %{name}.x;", "=r"()', U32)
    return scalars.convert(f, value, I64)

"""How the iterations of a nest are laid over lanes and blocks.

Each axis is cut into a block number and a digit of the lane number: axis = block * count + digit, with counts that are
powers of two. So an offset that is affine in the axes is affine in the bits of the lane: an access pattern.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from repro.ir import index as ix
from repro.ir.expressions import Axis, Expr
from repro.targets.tpu_sim.operands import COLUMNS


@dataclass(frozen=True)
class Cut:
    """One axis: `blocks` blocks of `count` lanes; the last one's lanes may reach beyond the extent."""

    axis: Axis
    count: int
    blocks: int


@dataclass(frozen=True)
class Grid:
    """The cuts of a nest's axes, outermost first; their counts multiply to the lanes asked for."""

    cuts: tuple[Cut, ...]

    @property
    def blocks(self) -> int:
        return math.prod(cut.blocks for cut in self.cuts)

    def apart(self, offsets: Sequence[Expr]) -> bool:
        """Whether idle lanes point nowhere that another block's lanes do: each offset's idle lanes lie beyond the end
        of the axis with its longest stride."""
        idle = [cut.axis for cut in self.cuts if cut.count * cut.blocks != cut.axis.extent > 1]
        return all(self._longest(offset, axis) for offset in offsets for axis in idle)

    def _longest(self, offset: Expr, axis: Axis) -> bool:
        strides = [ix.coefficient(offset, cut.axis) for cut in self.cuts]
        own = ix.coefficient(offset, axis)
        known = [abs(stride) for stride in strides if stride is not None]
        return own is not None and len(known) == len(strides) and abs(own) == max(known)


def _power(extent: int) -> int:
    """The least power of two that is no less."""
    return 1 << max(extent - 1, 0).bit_length()


def _choices(extent: int, room: int, least: int) -> list[int]:
    return [1 << bit for bit in range(room.bit_length()) if least <= 1 << bit <= room]


def make(axes: Sequence[Axis], lanes: int, fresh: int) -> Grid:
    """A grid for the axes. Along the last axis, pieces as long as a register's row are kept together; else as few lanes
    as may be stay idle, and of equal cuts the one with more lanes is taken. Of several axes the first takes no more
    than it can fill: lanes that are left do what others do.

    `fresh` is a number that no axis has: for the axis of one iteration that stands in where there is none, or for those
    lanes.
    """
    cuts, room = list[Cut](), lanes
    axes = tuple(axes) or (ix.axis(fresh, 1),)
    for position, axis in reversed(list(enumerate(axes))):
        count = room
        if position:
            least = min(COLUMNS, _power(axis.extent), room) if position == len(axes) - 1 else 1
            count = min(_choices(axis.extent, room, least), key=lambda c: (-(-axis.extent // c) * c, -c))
        elif len(axes) > 1:
            count = min(room, _power(axis.extent))
        cuts.append(Cut(axis, count, max(1, -(-axis.extent // count))))
        room //= count
    if room > 1:
        cuts.append(Cut(ix.axis(fresh, 1), room, 1))
    return Grid(tuple(reversed(cuts)))


@dataclass(frozen=True)
class Bound:
    """A grid with fresh axes for its block numbers and lane digits."""

    grid: Grid
    blocks: tuple[Axis, ...]
    digits: tuple[Axis, ...]
    values: dict[Axis, Expr]
    """The index expression of each axis of the nest; an axis of one value has it in every lane."""
    inside: Expr
    """Whether a lane stands for an iteration."""


def bind(grid: Grid, fresh: int) -> Bound:
    """Axes numbered from `fresh` on, two for each cut."""
    blocks = tuple(ix.axis(fresh + 2 * n, cut.blocks) for n, cut in enumerate(grid.cuts))
    digits = tuple(ix.axis(fresh + 2 * n + 1, cut.count) for n, cut in enumerate(grid.cuts))
    values: dict[Axis, Expr] = {}
    for cut, block, digit in zip(grid.cuts, blocks, digits, strict=True):
        values[cut.axis] = ix.number(0) if cut.axis.extent == 1 else ix.add(ix.scale(block, cut.count), digit)
    inside = ix.both(*(ix.compare("lt", values[cut.axis], cut.axis.extent) for cut in grid.cuts))
    return Bound(grid, blocks, digits, values, inside)

"""Outputs that lie side by side along a contraction's rows, of totals that lie so along something else.

Totals are turned in registers, in squares, so that the rest of a store's expression is evaluated along what it reads
and writes. Where rows lie side by side only in runs (the pixels of a picture, of several that an item has), squares
begin with each run, and are as wide as a short one needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from repro.ir import index as ix
from repro.ir.types import BOOL, I64
from repro.targets.llvm.contraction import Item
from repro.targets.llvm.packing import FEWEST, turned
from repro.targets.llvm.scope import Scope
from repro.targets.llvm.text import Val, integer

Place = Callable[[Val, Val], Val]
"""Where among the totals that of a row and of what they lie along is."""
Output = Callable[[Scope, Val, Val], None]
"""Stores a vector of totals along rows, of a number of what they lie along."""


class TurnedItem(Item):
    """A work item whose outputs are stored along its rows."""

    def along_rows(self, rows: Val, others: Val, place: Place, output: Output) -> None:
        """All outputs, of so many rows and so many others, along which totals lie side by side."""
        f, axes, outside = self.f, self.contraction.rows, self._outside()
        run = math.prod(axis.extent for axis in axes[outside:])
        width = min(self.shape.width, max(FEWEST, 1 << (run - 1).bit_length())) if outside else self.shape.width
        aligned = bool(outside) or self.tile.block_m % width == 0 or self.shape.blocks[1] == 1

        def squares(first: Val, count: Val, start: Val, scope: Scope) -> None:
            def of_others(other: Val, _: list[Val]) -> Sequence[Val]:
                def square(at: Val, mask: Val | None, ok: Val) -> Val:
                    lanes = self.body.lane_scope(scope, axes[outside:], f.add(start, at), width, mask, aligned)
                    lines = [f.add(first, f.add(at, integer(n))) for n in range(width)]
                    if mask is not None:  # the last one stands for those behind it
                        last = f.let(f"sub i64 {f.add(first, count).text}, 1", I64)
                        lines = [self.least(line, last) for line in lines]
                    values = turned(f, [self.read(self.totals, place(line, other), width) for line in lines])
                    for number, value in enumerate(values):
                        output(lanes, f.add(other, integer(number)), value)
                    return ok

                self.chunks(count, width, Val("true", BOOL), square)
                return ()

            f.loop(integer(0), others, width, (), of_others)

        def of_run(number: Val, _: list[Val]) -> Sequence[Val]:
            places = self.body.split(f.add(self.quotient(self.row0, run), number), axes[:outside])
            scope = Scope(self.scope, dict(zip(axes[:outside], places, strict=True)))
            self.body.hoist(self.values, scope)
            squares(f.scaled(number, run), integer(run), integer(0), scope)
            return ()

        if outside:
            f.loop(integer(0), self.quotient(rows, run), 1, (), of_run)
        else:
            squares(integer(0), rows, self.row0, self.scope)

    def _outside(self) -> int:
        """How many leading row axes stand outside of runs; 0 where vectors of all rows serve as well, or where blocks
        hold other than whole runs."""
        axes, offset, run = self.contraction.rows, self.kernel.stores[0].offset, 1
        for position in reversed(range(len(axes))):
            if ix.coefficient(offset, axes[position]) != run:
                whole = run % self.shape.width == 0 or self.tile.block_m % run
                return 0 if whole or run < FEWEST else position + 1
            run *= axes[position].extent
        return 0

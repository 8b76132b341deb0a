"""A contraction whose operands are both read in place, for as many rows as a thread has.

Nothing is packed for an item, so each row is one, and those of a thread are run as one block: a tile of columns after
another, which stays in the nearest cache while the rows' tiles pass by. Where other calls have the same rows as items,
threads need not meet between them (`meetings.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from repro.ir.loops import Kernel
from repro.ir.types import I64
from repro.machines import Machine
from repro.targets.llvm import reductions, scalars
from repro.targets.llvm.body import Body
from repro.targets.llvm.contraction import Item
from repro.targets.llvm.text import Function, Val, integer
from repro.targets.llvm.tiling import Shape


def emit(f: Function, kernel: Kernel, shape: Shape, machine: Machine) -> None:
    """Rows `begin` to `end`, into the function's body."""
    body = Body(f, kernel, reductions.emit, machine)
    RowItems(body, kernel, shape, Val("%begin", I64), Val("%end", I64)).emit()


class RowItems(Item):
    """The code of a run of rows."""

    def tiles(self, panel: Val, start: Val, size: Val, finite: Val) -> Val:
        """The panel's tiles; of about equal size, however many rows there are."""
        f, most = self.f, self.tile.rows
        tiles = self.quotient(f.add(self.rows, integer(most - 1)), most)
        some = scalars.select(f, scalars.compare(f, "eq", tiles, integer(0)), integer(1), tiles)
        fewest = f.let(f"udiv i64 {self.rows.text}, {some.text}", I64)
        longer = f.let(f"urem i64 {self.rows.text}, {some.text}", I64)

        def beside(column: Val, _: list[Val]) -> Sequence[Val]:
            b = self.columns_at(column, start)

            def tile(number: Val, _: list[Val]) -> Sequence[Val]:
                row = f.add(f.let(f"mul i64 {number.text}, {fewest.text}", I64), self.least(number, longer))
                more = scalars.compare(f, "lt", number, longer)
                count = scalars.select(f, more, f.add(fewest, integer(1)), fewest)
                a = self.rows_at(row, row, start)
                return self._of_rows(
                    count, most, lambda rows: self.one_tile(a, row, column, b, rows, panel, start, size)
                )

            f.loop(integer(0), tiles, 1, (), tile)
            return ()

        f.loop(integer(0), self.columns, self.shape.columns_per_tile, (), beside)
        if not self.at_once:
            f.when(self.is_last(panel), lambda: self.finish(integer(0), self.rows))
        return finite

    def _of_rows(self, count: Val, most: int, tile: Callable[[int], Sequence[Val]]) -> Sequence[Val]:
        """The tile of so many rows, from one to `most`."""
        if most == 1:
            return tile(1)
        whole = scalars.compare(self.f, "eq", count, integer(most))
        return self.f.either(whole, lambda: tile(most), lambda: self._of_rows(count, most - 1, tile))

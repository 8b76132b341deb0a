"""The outputs of a contraction: what a store does with the totals, and when.

From a tile's registers where the code is short; a tile later, while the next one multiplies, where it is not much
longer; else those of a row of tiles behind it, while its totals are near.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

from passes.vectors import vectors_at_once
from repro.ir.expressions import Apply, Axis, Expr, Rarely, topological
from repro.ir.types import BOOL, I64
from repro.targets.llvm import scalars
from repro.targets.llvm.chains import Chains
from repro.targets.llvm.scope import Scope
from repro.targets.llvm.text import Val, integer

FEW, SEVERAL = 8, 48
"""Operations on a total that are few enough to be written for each vector of a tile, and for those of a row of it."""

Storing = Callable[[Val, int, Val | None], None]
"""Computes and stores the outputs of a row in a vector: its first column, its width, its mask."""


class Outputs(Chains):
    """The outputs of one work item."""

    @property
    def values(self) -> list[Expr]:
        """What is stored for each output."""
        return [store.value for store in self.kernel.stores]

    def is_last(self, panel: Val) -> Val:
        return self._is(panel, self.shape.panels - 1, None)

    def _is(self, panel: Val, number: int, modulus: int | None) -> Val:
        inside = panel if modulus is None else self.rem(panel, modulus)
        return self.f.let(f"icmp eq i64 {inside.text}, {number}", BOOL)

    def total_line(self, row: Val) -> Val:
        """Where the totals of a tile's first row lie: with one panel nobody reads those of the tile before, unless they
        wait for other columns."""
        return row if self.shape.panels > 1 or self.shape.row_items else integer(0)

    @cached_property
    def behind(self) -> list[Expr]:
        """What is computed from the sum, in order."""
        known = frozenset(topological([self.reduce]))
        return [e for e in topological(self.values) if isinstance(e, Apply | Rarely) and e not in known]

    def takes_at_most(self, most: int) -> bool:
        """Whether that is at most so many operations."""
        return len(self.behind) <= most and not any(isinstance(e, Rarely) for e in self.behind)

    @cached_property
    def at_once(self) -> bool:
        """Whether outputs are computed from a tile's registers, which spares its totals the way through memory: where
        tiles are whole, and the code short, which stands there for each of a tile's vectors."""
        usual = not self.contraction.guards and not self.shape.nested
        return self.takes_at_most(FEW) and self.shape.whole_tiles and usual

    @cached_property
    def trails(self) -> bool:
        """Whether outputs of a tile are computed while the next one's terms are multiplied, a row at a time: what is
        read beside them has come, and divisions and roots take place beside the products. Functions, which are computed
        in f64, would take the sums' registers."""
        shape, several = self.shape, self.tile.block_n > self.shape.columns_per_tile
        narrow = all(e.dtype.bits <= self.dtype.bits for e in self.behind)
        light = narrow and self.takes_at_most(SEVERAL) and not self.contraction.guards
        return light and several and not (self.at_once or shape.row_items or shape.made)

    @cached_property
    def at_a_time(self) -> int:
        """Vectors of a row's outputs that are computed step by step beside each other."""
        columns, machine = self.contraction.columns, self.body.machine
        return vectors_at_once(self.kernel, columns[-1], self.shape.width, machine) if columns else 1

    def stored(self, first: Val, count: Val, finite: Val) -> None:
        """The outputs of some of the item's rows."""
        if not self.contraction.guards:
            self.finish(first, count)
            return

        def fast() -> Sequence[Val]:
            self.finish(first, count)
            return ()

        def exact() -> Sequence[Val]:
            self._exact_road(first, count)
            return ()

        self.f.either(finite, fast, exact)

    def finish(self, first: Val, count: Val) -> None:
        """The outputs of rows of a tile, along the columns."""

        def row(number: Val, _: list[Val]) -> Sequence[Val]:
            self._along_columns(self._of_row(first, number))
            return ()

        self.f.loop(integer(0), count, 1, (), row)

    def row_of_tile(self, first: Val, number: Val, column: Val) -> None:
        """The outputs of a row of a whole tile that begins at a row and a column."""
        output = self._of_row(first, number)
        for place in range(0, self.shape.columns_per_tile, self.shape.width):
            output(self.f.add(column, integer(place)), self.shape.width, None)

    def _of_row(self, first: Val, number: Val) -> Storing:
        """total + 0.0, then the rest of the store's expression, in a row of the tiles that begin at a row."""
        f, at_row = self.f, self.at_line(0, self.f.add(first, number))
        line = f.scaled(f.add(self.total_line(first), number), self.shape.padded_columns)

        def output(at: Val, width: int, mask: Val | None) -> None:
            columns, start = self.contraction.columns, f.add(self.column0, at)
            aligned = width == self.shape.width or self.tile.block_n % width == 0
            lanes = self.body.lane_scope(at_row, columns, start, width, mask, aligned)
            self._output(lanes, self.read(self.totals, f.add(line, at), width))

        return output

    def _along_columns(self, output: Storing) -> None:
        """The item's columns, or those of its last tile: several vectors at a time where they hold functions, then one;
        the last one masked."""
        f, width, several = self.f, self.shape.width, self.shape.width * self.at_a_time
        done = self._last_tile() if self.trails else integer(0)

        def together(at: Val, _: list[Val]) -> Sequence[Val]:
            output(at, several, None)
            return ()

        def chunk(at: Val, mask: Val | None, ok: Val) -> Val:
            output(f.add(done, at), width, mask)
            return ok

        if several > width:
            done = f.let(f"and i64 {self.columns.text}, {-several}", I64)
            f.loop(integer(0), done, several, (), together)
            if self.contraction.extents[2] % several == 0 and self.tile.block_n % several == 0:
                return
        rest = self.columns if done.text == "0" else f.let(f"sub i64 {self.columns.text}, {done.text}", I64)
        self.chunks(rest, width, Val("true", BOOL), chunk)

    def _last_tile(self) -> Val:
        """Where the item's last tile of columns begins."""
        per_tile = self.shape.columns_per_tile
        return self.f.scaled(self.quotient(self.f.let(f"sub i64 {self.columns.text}, 1", I64), per_tile), per_tile)

    def _output(self, lanes: Scope, total: Val) -> None:
        zero = scalars.constant(self.f, self.dtype, 0, total.width)
        lanes.known[self.reduce] = scalars.apply(self.f, "add", self.dtype, [total, zero])
        self.store(lanes)

    def store(self, scope: Scope) -> None:
        """All outputs are computed before any is stored: they may lie over what they are computed from."""
        values = [self.body.value(value, scope) for value in self.values]
        for store, value in zip(self.kernel.stores, values, strict=True):
            self.body.store(store.buffer, store.offset, value, store.when, scope)

    def _exact_road(self, start: Val, count: Val) -> None:
        """Where a blank would meet a value that is not finite: each output by the plain order."""
        f, rows, columns = self.f, self.contraction.rows, self.contraction.columns

        def output(row: Val, column: Val) -> Sequence[Val]:
            bound: dict[Axis, Val] = {}
            for axes, first, number in ((rows, self.row0, row), (columns, self.column0, column)):
                if axes:
                    bound.update(zip(axes, self.body.split(f.add(first, number), axes), strict=True))
            self.store(Scope(self.scope, bound))
            return ()

        def line(number: Val, _: list[Val]) -> Sequence[Val]:
            row = f.add(start, number)
            f.loop(integer(0), self.columns, 1, (), lambda column, __: output(row, column))
            return ()

        f.loop(integer(0), count, 1, (), line)

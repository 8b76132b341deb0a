"""The chains of a register tile through a panel (rule 7), one term of all of them after another.

The first tile that reads a line's terms may find them not yet packed: where they lie side by side in memory, it takes
them from there, asks for the next tile's, which lie on the same page, and leaves a copy for the tiles that follow.
Packing is then a load and a store beside the many multiplications of a term, not a pass of its own that waits for
memory. A tile of few rows has no such time, unless it is wide and they are near, and shares a line with its neighbours:
it asks for its own later terms.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from passes.tile_operands import SHORT_RUN, UNFETCHED
from repro.ir.contraction import TERMS_TURNED
from repro.ir.expressions import Load
from repro.ir.types import I64
from repro.machines.machine import BUSY
from repro.targets.llvm import scalars
from repro.targets.llvm.packing import PAGES_AHEAD, Packing, turned
from repro.targets.llvm.scope import Scope
from repro.targets.llvm.text import Val, element, integer

AHEAD = 1024
"""Bytes between the columns that are read and those that are asked for, which come from the second-level cache."""

TERMS_AHEAD = 16
"""Terms between those that a tile of few rows reads and those that it asks for: the third-level cache answers in about
as long as that many take."""

FEW_COLUMN_TILES = 4
"""Tiles of columns for which rows are read in place, however far apart their terms lie: a copy costs more than it
spares."""

Asking = Callable[[Val], None]
"""Asks for what will be wanted with a row of a tile, given its number."""
Using = Callable[[list[Val]], Sequence[Val]]
"""Does what is done with the sums of a tile; returns nothing."""
Making = Callable[[int, Val], list[Val]]
"""Makes some terms, from one on, of a vector of a tile's columns, given its number."""


@dataclass(frozen=True)
class Side:
    """The terms of a tile's rows or columns: where the first lies, elements between neighbours and between terms;
    elements to those that are asked for, the next tile's or later ones (0: none are); and where a copy goes, neighbours
    side by side: an address, and elements between terms."""

    first: str
    apart: int
    terms: int
    following: int = 0
    copy: tuple[str, int] | None = None


class Chains(Packing):
    """The register tiles of one work item."""

    def chains(
        self, a: str, row: Val, column: Val, b: str, rows: int, start: Val, size: Val, ask: Asking | None, then: Using
    ) -> Sequence[Val]:
        """The sums of a panel's terms, of a tile of so many rows whose terms are packed, or to be packed, at `a` and
        `b`; a row's vectors side by side. What each row asks for is asked for meanwhile.

        What is done with them stands behind each of the loops that they may come from: where loops meet with all of a
        tile's sums in registers, those that copy, and want some for it, had the compiler keep sums in memory in all."""
        f, shape = self.f, self.shape

        def sums(left: Side, right: Side) -> Sequence[Val]:
            return then(self._panel_sums(left, right, rows, size, ask))

        def by_columns(left: Side) -> Sequence[Val]:
            packed = Side(b, 1, shape.term_stride)
            if not self.copies_columns:
                return sums(left, packed)
            place, size_of_tile = self.in_place(1, column, start), shape.columns_per_tile
            found = Side(place, 1, shape.columns_in_memory, size_of_tile, (b, shape.term_stride))
            return f.either(
                scalars.compare(f, "eq", row, integer(0)),
                lambda: sums(left, found),
                lambda: sums(left, packed),
            )

        packed = Side(a, *shape.row_strides)
        if shape.made:
            return self._made(packed, column, rows, start, size, then)
        if not shape.rows_in_memory:
            return by_columns(packed)
        place, later = self.in_place(0, row, start), not shape.many_rows and shape.panels > 1
        following = TERMS_AHEAD * shape.rows_in_memory if later else rows
        if shape.padded_columns <= FEW_COLUMN_TILES * shape.columns_per_tile:
            return by_columns(Side(place, 1, shape.rows_in_memory, following))
        found = Side(place, 1, shape.rows_in_memory, following, (a, shape.row_strides[1]))
        first = scalars.compare(f, "eq", column, integer(0))
        return f.either(first, lambda: by_columns(found), lambda: by_columns(packed))

    def _panel_sums(self, a: Side, b: Side, rows: int, size: Val, ask: Asking | None) -> list[Val]:
        f, unroll = self.f, self.tile.unroll
        stretch = -(-self.line_elements // unroll) * unroll  # of whole turns, so that the next one begins with one

        def turn(count: int) -> Callable[[Val, list[Val]], Sequence[Val]]:
            def terms(at: Val, acc: list[Val]) -> Sequence[Val]:
                for ahead in range(count):
                    acc = self._step(a, b, f.add(at, integer(ahead)), acc, rows)
                return acc

            return terms

        def part(begin: Val, end: Val, acc: list[Val]) -> list[Val]:
            if not self._asks_for_rows:
                return turns(begin, end, acc)

            def of_stretch(at: Val, acc: list[Val]) -> Sequence[Val]:
                for row in range(rows):
                    self._ask_line(a.first, f.add(at, integer(row * a.apart + stretch)))
                return turns(at, self.least(f.add(at, integer(stretch)), end), acc)

            return f.loop(begin, end, stretch, acc, of_stretch)

        def turns(begin: Val, end: Val, acc: list[Val]) -> list[Val]:
            whole = f.scaled(self.quotient(end, unroll), unroll)
            acc = f.loop(begin, whole, unroll, acc, turn(unroll))
            return f.loop(scalars.greatest(f, begin, whole), end, 1, acc, turn(1)) if unroll > 1 else acc

        zeros = [scalars.constant(f, self.dtype, 0, self.shape.width)] * (rows * self.tile.vectors)
        if ask is None:
            return part(integer(0), size, zeros)
        share = -(-self.shape.panel // (rows * unroll)) * unroll

        def of_row(number: Val, acc: list[Val]) -> Sequence[Val]:
            ask(number)
            begin = f.scaled(number, share)
            return part(begin, self.least(f.add(begin, integer(share)), size), acc)

        return f.loop(integer(0), integer(rows), 1, zeros, of_row)

    @cached_property
    def _asks_for_rows(self) -> bool:
        """Whether a tile asks for the line that follows in each of its rows: of those that are read in place, and that
        no tile before has asked for. Not where a term has few products, beside which it takes longer (of 12, on an
        Intel, 1.00 to 1.04 of the time), and not of row items, whose rows are near (1.01 to 1.02)."""
        shape, products = self.shape, self.tile.rows * self.tile.vectors
        in_place = shape.rows_direct is not None and not shape.row_items
        return in_place and shape.panel > self.line_elements and products >= 2 * BUSY and not self.rows_come_before

    def next_rows(self, row: Val, column: Val, start: Val, size: Val) -> Asking | None:
        """Asks, with each row of a tile, for a part of the rows of the next group, so that all of them have been asked
        for when they are packed. None where rows are not packed before, or a block has a single group."""
        f, shape, rows, term = self.f, self.shape, self.tile.rows, self.contraction.terms[0]
        if not shape.rows_before or self.tile.block_m <= shape.rows_packed or not isinstance(term, Load):
            return None
        share = -(-shape.panel * shape.columns_per_tile // (shape.padded_columns * rows))
        line = self.at_line(0, f.add(row, integer(shape.rows_packed)))
        place = self.body.value(term.offset, self.at_term(line, start))
        first = f.scaled(self.quotient(column, shape.columns_per_tile), share * rows)

        def of_row(number: Val) -> None:
            def of_term(at: Val, _: list[Val]) -> Sequence[Val]:
                beside = f.add(place, f.scaled(at, shape.rows_apart))
                for last in (0, rows - 1):
                    self.body.fetch(term.buffer, f.add(beside, integer(last)), 2)
                return ()

            begin = f.add(first, f.scaled(number, share))
            f.loop(begin, self.least(f.add(begin, integer(share)), size), 1, (), of_term)

        return of_row

    def _made(self, a: Side, column: Val, rows: int, start: Val, size: Val, then: Using) -> Sequence[Val]:
        """The same where the columns' terms are made in registers; those behind the last column are never used."""
        f, per_tile = self.f, self.shape.columns_per_tile

        def sums(ends: bool) -> Sequence[Val]:
            return then(self._made_sums(a, column, rows, start, size, ends))

        if self.shape.whole_tiles:
            return sums(False)
        whole = scalars.compare(f, "le", f.add(column, integer(per_tile)), self.columns)
        return f.either(whole, lambda: sums(False), lambda: sums(True))

    def _made_sums(self, a: Side, column: Val, rows: int, start: Val, size: Val, ends: bool) -> list[Val]:
        """Of a tile in which the columns end, or of another."""
        f, width, vectors = self.f, self.shape.width, self.tile.vectors
        turns = self.contraction.turns(width)
        make = (self._turning if turns else self._computing)(column, start, ends)

        def some(at: Val, acc: list[Val]) -> Sequence[Val]:
            longer = list(acc)
            for vector in range(vectors):
                for (number, value), row in itertools.product(enumerate(make(vector, at)), range(rows)):
                    place = f.add(f.scaled(f.add(at, integer(number)), a.terms), integer(row * a.apart))
                    total = row * vectors + vector
                    left = f.splat(self.read(a.first, place, 1), width)
                    longer[total] = self.longer(left, value, longer[total])
            return longer

        zeros = [scalars.constant(f, self.dtype, 0, width)] * (rows * vectors)
        return f.loop(integer(0), size, TERMS_TURNED if turns else 1, zeros, some)

    def _turning(self, column: Val, start: Val, ends: bool) -> Making:
        """Of columns whose terms lie side by side: some of each, turned. The last one stands for those behind it."""
        f, width = self.f, self.shape.width
        columns = [f.add(column, integer(place)) for place in range(self.shape.columns_per_tile)]
        if ends:
            last = f.let(f"sub i64 {self.columns.text}, 1", I64)
            columns = [self.least(each, last) for each in columns]
        scopes = [self.at_line(1, each) for each in columns]
        for scope in scopes:
            self.body.hoist(self.reduce.children, scope)

        def of_column(scope: Scope, at: Val) -> Val:
            axes, term = self.reduce.axes, f.add(start, at)
            lanes = self.body.lane_scope(scope, axes, term, TERMS_TURNED, None, aligned=True)
            return self.body.value(self.contraction.terms[1], lanes)

        return lambda vector, at: turned(f, [of_column(s, at) for s in scopes[vector * width : (vector + 1) * width]])

    def _computing(self, column: Val, start: Val, ends: bool) -> Making:
        """Along the columns, a term after another; what lies behind the last one is not read."""
        f, width = self.f, self.shape.width

        def scope(place: int) -> Scope:
            first, mask = f.add(column, integer(place)), None
            if ends:
                mask = scalars.compare(
                    f, "lt", f.add(f.splat(first, width), f.lanes(width)), f.splat(self.columns, width)
                )
            found = self.lanes_of_lines(1, first, mask)
            self.body.hoist(self.reduce.children, found)
            return found

        scopes = [scope(place) for place in range(0, self.shape.columns_per_tile, width)]

        def term(vector: int, at: Val) -> list[Val]:
            inside = self.at_term(scopes[vector], f.add(start, at))
            return [f.splat(self.body.value(self.contraction.terms[1], inside), width)]

        return term

    def _step(self, a: Side, b: Side, at: Val, acc: list[Val], rows: int) -> list[Val]:
        """One term of the chain for the whole register tile."""
        f, width, vectors = self.f, self.shape.width, self.tile.vectors
        line, first = f.scaled(at, b.terms), f.scaled(at, a.terms)
        columns = [self.read(b.first, f.add(line, integer(v * width)), width) for v in range(vectors)]
        if b.following:
            self._ask(b.first, line, b.following)
        elif self._asks_for_columns:
            # where terms follow each other in memory, the next tile's begin where this one's end
            self._ask(b.first, line, AHEAD // self.dtype.bytes)
        elif self._asks_for_terms:
            self._ask(b.first, line, PAGES_AHEAD * b.terms)
        for row in (0, rows - 1) if a.following else ():
            self._ask_line(a.first, f.add(first, integer(a.following + row)))
        if b.copy is not None:
            for v, value in enumerate(columns):
                self.write(b.copy[0], f.add(f.scaled(at, b.copy[1]), integer(v * width)), value)
        longer: list[Val] = []
        for row in range(rows):
            left = f.splat(self.read(a.first, f.add(first, integer(row * a.apart)), 1), width)
            for v in range(vectors):
                longer.append(self.longer(left, columns[v], acc[row * vectors + v]))
        if a.copy is not None:  # last, when the columns' registers are free for it
            self._copy_rows(a, a.copy, at, rows)
        return longer

    @property
    def _asks_for_columns(self) -> bool:
        """Whether later terms of columns that lie in the order of tiles are asked for, packed or where they lie. Of
        tiles of few rows only short runs are: longer ones, one behind another, the hardware fetches ahead in time, and
        asking as well made one row take 1.05 to 1.1 times as long, two rows 1.1 to 1.2 (Zen 4)."""
        shape = self.shape
        if not shape.in_order:
            return not (shape.direct or shape.many_rows)
        return shape.many_rows or shape.columns_per_tile * self.dtype.bytes <= SHORT_RUN

    @property
    def _asks_for_terms(self) -> bool:
        """Whether later terms of columns that are read in place are asked for: of a whole tile of rows or more (of 14
        to 27 rows 0.9 to 1.0 of the time, of 8 to 13 rows 1.0 to 1.1; Zen 5), with enough products beside it."""
        shape, rows = self.shape, self.contraction.extents[1]
        apart = shape.term_stride * self.dtype.bytes if shape.direct and not shape.in_order else 0
        many = rows >= self.body.machine.tile_rows and self.tile.rows * self.tile.vectors > 3 * BUSY
        return many and apart >= UNFETCHED

    def _copy_rows(self, a: Side, copy: tuple[str, int], at: Val, rows: int) -> None:
        """Copy a term of a tile's rows, in vectors as long as there are rows for."""
        f, first, place = self.f, self.f.scaled(at, a.terms), self.f.scaled(at, copy[1])
        row, width = 0, self.shape.width
        while row < rows:
            while row + width > rows:
                width //= 2
            self.write(copy[0], f.add(place, integer(row)), self.read(a.first, f.add(first, integer(row)), width))
            row += width

    def _ask(self, b: str, line: Val, ahead: int) -> None:
        """Ask for the columns of a later term, so many elements ahead."""
        for start in range(0, self.shape.columns_per_tile, self.line_elements):
            self._ask_line(b, self.f.add(line, integer(ahead + start)))

    def _ask_line(self, first: str, place: Val) -> None:
        """Ask for the line of an element, which may lie anywhere."""
        address = self.f.let(f"getelementptr {element(self.dtype)}, ptr {first}, {place.typed}", place.dtype)
        arguments = [f"ptr {address.text}", "i32 0", "i32 3", "i32 1"]
        self.f.effect("llvm.prefetch.p0", ["ptr", "i32", "i32", "i32"], arguments)

    def in_place(self, side: int, line: Val, start: Val) -> str:
        """Where an operand's own element of a row (side 0) or column lies."""
        term = self.contraction.terms[side]
        assert isinstance(term, Load)
        offset = self.body.value(term.offset, self.at_term(self.at_line(side, line), start))
        return self.body.pointer(term.buffer, offset).text

"""Contractions whose rows are read through a window: convolutions and their gradients (passes/windows.py).

Vectors run along the columns, that is along the channels. The window lies in private memory once for each place, with
blanks where terms are absent; a register tile reads one element of it for all lanes, at a distance from the tile's
first that is known when the code is written. So a stride costs nothing, and no patches are ever written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from passes import window_tiles
from repro.ir.expressions import Axis, Expr, Load
from repro.ir.loops import Kernel
from repro.ir.types import BOOL, I64
from repro.targets.llvm import scalars
from repro.targets.llvm.body import Body
from repro.targets.llvm.scope import Scope
from repro.targets.llvm.text import Val, integer
from repro.targets.llvm.tiling import Shape
from repro.targets.llvm.turned import TurnedItem

WRITTEN_OUT = 9
"""Terms that stand in the code one after another: up to those of a window of 3 by 3."""
AHEAD_ROWS = 64
"""Rows ahead of which what an epilogue reads is asked for."""
SPARE = 3
"""Registers that the compiler takes to read ahead."""
TURN = 4
"""Terms to a turn of a loop over more."""


Ranges = Mapping[Axis, tuple[Val, Val]]
"""From where to before where terms are there, along axes of which some are absent."""


@dataclass(frozen=True)
class Corner:
    """Where rows begin: an offset in the window, a row of the block, and which terms are there."""

    first: Val
    row: Val
    ranges: Ranges


@dataclass(frozen=True)
class Row:
    """A row of a register tile: how far it lies from the tile's first in the window, its number from it, and its
    places along row axes where the code knows them."""

    away: int
    number: int
    known: Mapping[Axis, int]


TileCode = Callable[[Corner, Sequence[Row]], None]


class WindowItem(TurnedItem):
    """The code of one work item whose rows are read through a window."""

    def __init__(self, body: Body, kernel: Kernel, shape: Shape, number: Val) -> None:
        super().__init__(body, kernel, shape, number)
        assert shape.window is not None
        self.window = shape.window
        self.row_unit0 = self.quotient(self.row0, self.window.rows_per_unit)
        self.row_units = self.quotient(self.rows, self.window.rows_per_unit)

    # the window ─────────────────────────────────────────────────────────────────────────────────────

    def _window_at(self, start: Val) -> str:
        """Where the window's first element of the panel lies in memory."""
        window, term = self.window, self.window.term
        assert isinstance(term, Load)
        unit = self.quotient(start, window.terms_per_unit)
        scope = self._at_unit(window.term_units, unit, self._at_unit(window.row_units, self.row_unit0, self.scope))
        first = Scope(scope, {place.axis: integer(0) for place in window.places})
        return self.body.pointer(term.buffer, self.body.value(term.offset, first)).text

    def _pack_window(self, start: Val, size: Val) -> None:
        """The rows' operand of the panel: each place once, in the order in which it lies."""
        f, window, strides = self.f, self.window, self.shape.strides
        unit0, units = (self.quotient(each, window.terms_per_unit) for each in (start, size))
        axes = [place.axis for place in window.places]

        def in_row_unit(row: Val, _: list[Val]) -> Sequence[Val]:
            outside = self._at_unit(window.row_units, f.add(self.row_unit0, row), self.scope)

            def in_term_unit(term: Val, _: list[Val]) -> Sequence[Val]:
                scope = self._at_unit(window.term_units, f.add(unit0, term), outside)
                line = f.add(f.scaled(row, strides[0]), f.scaled(term, strides[1]))
                self._places(axes, scope, line)
                return ()

            f.loop(integer(0), units, 1, (), in_term_unit)
            return ()

        further = self._further_axis()
        self.body.ahead, self.body.terms_ask = further and (further, 1), True
        f.loop(integer(0), self.row_units, 1, (), in_row_unit)
        self.body.ahead, self.body.terms_ask = None, False

    def _further_axis(self) -> Axis | None:
        """The axis along which the window lies that is packed next."""
        return self.window.term_units[-1] if self.window.term_units else None

    def _at_unit(self, axes: Sequence[Axis], unit: Val, outer: Scope) -> Scope:
        scope = Scope(outer, dict(zip(axes, self.body.split(unit, axes), strict=True)))
        self.body.hoist(self._roots(), scope)
        return scope

    def _roots(self) -> list[Expr]:
        present = self.window.present
        return [self.window.term] if present is None else [self.window.term, present]

    def _places(self, axes: Sequence[Axis], scope: Scope, line: Val) -> None:
        f, stride = self.f, self.shape.strides[len(self.shape.strides) - len(axes)]
        if len(axes) == 1:
            self.chunks(
                integer(axes[0].extent), self.shape.width, Val("true", BOOL),
                lambda at, mask, ok: self._vector(axes[0], scope, line, at, mask, ok),
            )  # fmt: skip
            return

        def inside(number: Val, _: list[Val]) -> Sequence[Val]:
            inner = Scope(scope, {axes[0]: number})
            self.body.hoist(self._roots(), inner)
            self._places(axes[1:], inner, f.add(line, f.scaled(number, stride)))
            return ()

        f.loop(integer(0), integer(axes[0].extent), 1, (), inside)

    def _vector(self, axis: Axis, scope: Scope, line: Val, at: Val, mask: Val | None, ok: Val) -> Val:
        """Places side by side; what hangs over the end is written anew by the next line."""
        f, width, term, present = self.f, self.shape.width, self.window.term, self.window.present
        lanes = self.body.lane_scope(scope, (axis,), at, width, mask, aligned=True)
        value = f.splat(self.body.value(term, lanes), width)
        blank = isinstance(term, Load) and term.when is present
        if present is not None and not blank:
            keep = f.splat(self.body.value(present, lanes), width)
            value = scalars.select(f, keep, value, scalars.constant(f, self.dtype, 0, width))
        self.write(self.a, f.add(line, at), value)
        return ok

    # register tiles ─────────────────────────────────────────────────────────────────────────────────

    def emit(self) -> None:
        finite = self.panels()
        if self.contraction.guards and self.shape.direct:
            f = self.f
            (finite,) = f.either(self._any_nan(), lambda: [self._finite_columns()], lambda: [finite], seldom=True)
        self.stored(integer(0), self.rows, finite)

    def _any_nan(self) -> Val:
        """Whether some total is a NaN: one where a value that is not finite met a blank is, for it stays so."""
        f, width = self.f, self.shape.width

        def line(row: Val, state: list[Val]) -> Sequence[Val]:
            first = f.scaled(row, self.shape.padded_columns)

            def vector(column: Val, state: list[Val]) -> Sequence[Val]:
                total = self.read(self.totals, f.add(first, column), width)
                return [scalars.binary(f, "or", state[0], f.let(f"fcmp uno {total.typed}, {total.text}", BOOL, width))]

            return f.loop(integer(0), self.columns, width, state, vector)

        none = scalars.constant(f, BOOL, 0, width)
        return scalars.any_lane(f, f.loop(integer(0), self.rows, 1, [none], line)[0])

    def _finite_columns(self) -> Val:
        """Whether all terms of the item's columns are finite, which lie in the order of tiles."""
        f, width, per_tile = self.f, self.shape.width, self.shape.columns_per_tile
        terms, first = self.contraction.extents[3], self.columns_at(integer(0), integer(0))
        tiles = self.quotient(f.add(self.columns, integer(per_tile - 1)), per_tile)

        def vector(at: Val, state: list[Val]) -> Sequence[Val]:
            return [scalars.binary(f, "and", state[0], self._all_finite(self.read(first, at, width)))]

        return f.loop(integer(0), f.scaled(tiles, per_tile * terms), width, [Val("true", BOOL)], vector)[0]

    def tiles(self, panel: Val, start: Val, size: Val, finite: Val) -> Val:
        if self.shape.window_direct:
            self.a = self._window_at(start)
        else:
            self._pack_window(start, size)
        f, strides = self.f, self.shape.strides
        least = sum(place.least * stride for place, stride in zip(self.window.places, strides[2:], strict=True))

        together = window_tiles.together(self.window, self.shape.row_units, self.tile.rows, self.tile.vectors)

        def column_tile(column: Val, _: list[Val]) -> Sequence[Val]:
            tile = self._tile_at(column, self.columns_at(column, start), panel, size)

            def unit(number: Val, _: list[Val]) -> Sequence[Val]:
                first = f.add(f.scaled(number, strides[0]), integer(-least))
                corner = Corner(first, f.scaled(number, self.window.rows_per_unit), {})
                if together > 1:
                    self._units(together, corner, tile)
                else:
                    self._unit(self.window.rows, corner, tile)
                return ()

            f.loop(integer(0), self.row_units, together, (), unit)
            return ()

        f.loop(integer(0), self.columns, self.shape.columns_per_tile, (), column_tile)
        return finite

    def _stride(self, axis: Axis) -> int:
        """Elements of the window between neighbours along a row or a term axis."""
        pairs = zip(self.window.places, self.shape.strides[2:], strict=True)
        steps = ((place, stride) for place, stride in pairs if axis in (place.row, place.term))
        return sum((place.row_step if place.row is axis else place.term_step) * stride for place, stride in steps)

    def _units(self, count: int, corner: Corner, tile: TileCode) -> None:
        """Tiles over the rows of several units, one after another."""
        rows: list[Row] = []
        extents = [range(axis.extent) for axis in self.window.rows]
        for unit, *places in product(range(count), *extents):
            known = dict(zip(self.window.rows, places, strict=True))
            away = unit * self.shape.strides[0] + sum(self._stride(axis) * place for axis, place in known.items())
            rows.append(Row(away, len(rows), known))
        for start, share in window_tiles.shares(len(rows), self.tile.rows):
            tile(corner, rows[start : start + share])

    def _unit(self, axes: Sequence[Axis], place: Corner, tile: TileCode) -> None:
        """Tiles over a unit's rows: parts of a line of the last axis, or several whole lines."""
        axis, inside = window_tiles.line_axes(self.window, self.tile.rows)
        if axes[0] is axis:
            self._lines(axis, inside, place, tile)
        else:
            inner = math.prod(axis.extent for axis in axes[1:])

            def line(number: Val, _: list[Val]) -> Sequence[Val]:
                self._unit(axes[1:], self._moved(place, axes[0], number, inner), tile)
                return ()

            self.f.loop(integer(0), integer(axes[0].extent), 1, (), line)

    def _moved(self, place: Corner, axis: Axis, number: Val, rows: int) -> Corner:
        """Further along a row axis, in steps of so many rows."""
        f = self.f
        first = f.add(place.first, f.scaled(number, self._stride(axis)))
        ranges = {**place.ranges, **self._range(axis, number)}
        return Corner(first, f.add(place.row, f.scaled(number, rows)), ranges)

    def _lines(self, axis: Axis, inside: Axis | None, corner: Corner, tile: TileCode) -> None:
        """Tiles along one axis, each with the whole of the one inside, in shares that differ by one at most: a tile of
        few rows waits for its own products."""
        f, long, per_line = self.f, axis.extent, 1 if inside is None else inside.extent
        stride, across = self._stride(axis), 0 if inside is None else self._stride(inside)
        shares = window_tiles.shares(long, self.tile.rows // per_line)

        def rows(count: int, start: int | None) -> list[Row]:
            found: list[Row] = []
            for n, m in product(range(count), range(per_line)):
                known = {} if inside is None else {inside: m}
                known |= {} if start is None else {axis: start + n}
                found.append(Row(stride * n + across * m, per_line * n + m, known))
            return found

        def group(number: Val, count: int, start: int | None) -> Sequence[Val]:
            here = self._moved(corner, axis, number, per_line)
            tile(replace(here, ranges=corner.ranges), rows(count, start))
            return ()

        if any(each.row is axis and window_tiles.written(each, len(shares)) for each in self.window.places):
            for start, count in shares:
                group(integer(start), count, start)
            return
        for count in sorted({count for _, count in shares}, reverse=True):
            starts = [start for start, each in shares if each == count]
            end = integer(starts[-1] + count)
            f.loop(integer(starts[0]), end, count, (), lambda number, _, n=count: group(number, n, None))

    def _range(self, axis: Axis, number: Val) -> Ranges:
        """From where to where the terms along the axis that shares places with a row axis are there."""
        f = self.f
        for place in self.window.places:
            if place.row is not axis or place.term is None or not place.trimmed or abs(place.term_step) != 1:
                continue
            at = f.add(f.scaled(number, place.row_step * place.term_step), integer(-place.least * place.term_step))
            ends = (place.first, place.last) if place.term_step == 1 else (-place.last, -place.first)
            low, high = (f.let(f"sub i64 {end}, {at.text}", I64) for end in (ends[0], ends[1] + 1))
            low = scalars.select(f, scalars.compare(f, "lt", low, integer(0)), integer(0), low)
            return {place.term: (low, self.least(high, integer(place.term.extent)))}
        return {}

    def _there(self, row: Row, taps: Mapping[Axis, int]) -> bool:
        """Whether a row's term may be there: not where what is known of both says that it is absent."""
        for place in self.window.places:
            if place.row is None or place.term is None or place.row not in row.known or place.term not in taps:
                continue
            if not place.there(row.known[place.row], taps[place.term]):
                return False
        return True

    def _tile_at(self, column: Val, b: str, panel: Val, size: Val) -> TileCode:
        """The code of a register tile from a corner of the window on."""
        f, shape, vectors = self.f, self.shape, self.tile.vectors
        terms, stride = self.window.terms, shape.strides[1]

        def tile(corner: Corner, rows: Sequence[Row]) -> None:
            zero = scalars.constant(f, self.dtype, 0, shape.width)

            def unit(number: Val, acc: list[Val]) -> Sequence[Val]:
                at, k = f.add(corner.first, f.scaled(number, stride)), f.scaled(number, self.window.terms_per_unit)
                return self._chain(terms, {}, at, k, b, acc, rows, corner.ranges)

            units = self.quotient(size, self.window.terms_per_unit)
            acc = f.loop(integer(0), units, 1, [zero] * (len(rows) * vectors), unit)
            for position, value in enumerate(acc):
                line = f.add(corner.row, integer(rows[position // vectors].number))
                inside = f.add(column, integer(position % vectors * shape.width))
                self.accumulate(panel, f.add(f.scaled(line, shape.padded_columns), inside), value)

        return tile

    def _chain(
        self,
        axes: Sequence[Axis],
        taps: Mapping[Axis, int],
        at: Val,
        k: Val,
        b: str,
        acc: list[Val],
        rows: Sequence[Row],
        ranges: Ranges,
    ) -> list[Val]:
        """The terms of a unit, ascending, from a place in the window and a term of the panel; `taps` are those axes
        along which the code knows where it stands."""
        if not axes:
            return self._link(at, k, b, acc, rows, [self._there(row, taps) for row in rows])
        f, axis, inner = self.f, axes[0], axes[1:]
        stride, per_step = self._stride(axis), math.prod(each.extent for each in inner)

        def step(number: Val, state: list[Val], known: Mapping[Axis, int]) -> list[Val]:
            here, term = f.add(at, f.scaled(number, stride)), f.add(k, f.scaled(number, per_step))
            return self._chain(inner, known, here, term, b, state, rows, ranges)

        if axis in ranges:
            return f.loop(*ranges[axis], 1, acc, lambda number, state: step(number, state, taps))
        if axis.extent * per_step <= WRITTEN_OUT:
            for number in range(axis.extent):
                acc = step(integer(number), acc, {**taps, axis: number})
            return acc
        turn = 1 if inner else _turn(axis)

        def turns(number: Val, state: list[Val]) -> Sequence[Val]:
            for ahead in range(turn):
                state = step(f.add(number, integer(ahead)), state, taps)
            return state

        return f.loop(integer(0), integer(axis.extent), turn, acc, turns)

    def _link(self, at: Val, k: Val, b: str, acc: list[Val], rows: Sequence[Row], there: Sequence[bool]) -> list[Val]:
        """One term of the chain for the rows of the register tile that have it."""
        f, width, vectors = self.f, self.shape.width, self.tile.vectors
        if not any(there):
            return acc
        line, longer = f.scaled(k, self.shape.term_stride), list(acc)
        window = self.anew(self.a, acc[-vectors:]) if self._crowded(rows) else self.a
        columns = [self.read(b, f.add(line, integer(v * width)), width) for v in range(vectors)]
        for position, row in enumerate(rows):
            if there[position]:
                left = f.splat(self.read(window, f.add(at, integer(row.away)), 1), width)
                for v in range(vectors):
                    longer[position * vectors + v] = self.longer(left, columns[v], acc[position * vectors + v])
        return longer

    def _crowded(self, rows: Sequence[Row]) -> bool:
        """Whether registers are too few to keep elements that later terms read again beside totals, columns and one
        element: the compiler would keep them nevertheless, and move totals to memory and back."""
        vectors, terms = self.tile.vectors, [{row.away + tap for row in rows} for tap in self._run()]
        before, kept = set[int](), 0
        for number, term in enumerate(terms):
            before |= term
            kept = max(kept, len(before & set[int]().union(*terms[number + 1 :])))
        return len(rows) * vectors + vectors + 1 + kept > self.body.machine.registers - SPARE

    def _run(self) -> list[int]:
        """Where in the window a row's terms lie that stand in the code one after another, from its first."""
        run, count = [0], 1
        for axis in reversed(self.window.terms):
            count *= axis.extent
            steps = axis.extent if count <= WRITTEN_OUT else _turn(axis) if count == axis.extent else 1
            run = [step * self._stride(axis) + away for step in range(steps) for away in run]
        return run

    def anew(self, area: str, behind: Sequence[Val]) -> str:
        """An area to be read again behind these vectors, however often the code before read it."""
        machine = self.body.machine
        known = [each for each in behind if machine.has_register_of(each.dtype.bits * each.width)]
        return self.f.anew(area, known, machine.vector_constraint)

    # what is stored ─────────────────────────────────────────────────────────────────────────────────

    def finish(self, first: Val, count: Val) -> None:
        """total + 0.0, then the rest of the store's expression, along the rows."""
        f = self.f

        def place(row: Val, column: Val) -> Val:
            return f.add(f.scaled(row, self.shape.padded_columns), column)

        self.body.ahead = (self.contraction.rows[-1], AHEAD_ROWS)
        self.along_rows(count, self.columns, place, self._column)
        self.body.ahead = None

    def _column(self, lanes: Scope, column: Val, total: Val) -> None:
        f, axes = self.f, self.contraction.columns

        def store() -> None:
            places = self.body.split(f.add(self.column0, column), axes)
            self._output(Scope(lanes, dict(zip(axes, places, strict=True))), total)

        extent = self.contraction.extents[2]
        if extent % self.shape.width == 0 and self.tile.block_n % self.shape.width == 0:
            store()
        else:
            f.when(scalars.compare(f, "lt", column, self.columns), store)


def _turn(axis: Axis) -> int:
    """Steps along a long axis of terms that stand in the code one after another."""
    return max(n for n in range(1, TURN + 1) if axis.extent % n == 0)

"""Contractions whose rows are read through a window: convolutions and their gradients (passes/windows.py).

Vectors run along the columns, that is along the channels. The window lies in private memory once for each place, with
blanks where terms are absent; a register tile reads one element of it for all lanes, at a distance from the tile's
first that is known when the code is written. So a stride costs nothing, and no patches are ever written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product

from repro.ir.loops import Axis, Expr, Kernel, Load
from repro.ir.types import BOOL
from repro.targets.llvm import scalars
from repro.targets.llvm.body import Body, Scope
from repro.targets.llvm.contraction import Item
from repro.targets.llvm.packing import turned
from repro.targets.llvm.text import Val, integer
from repro.targets.llvm.tiling import Shape

WRITTEN_OUT = 9
"""Terms that stand in the code one after another: up to those of a window of 3 by 3."""
TURN = 4
"""Terms to a turn of a loop over more."""


class WindowItem(Item):
    """The code of one work item whose rows are read through a window."""

    def __init__(self, body: Body, kernel: Kernel, shape: Shape, number: Val) -> None:
        super().__init__(body, kernel, shape, number)
        assert shape.window is not None
        self.window = shape.window
        self.row_unit0 = self.quotient(self.row0, self.window.rows_per_unit)
        self.row_units = self.quotient(self.rows, self.window.rows_per_unit)

    # the window ─────────────────────────────────────────────────────────────────────────────────────

    def pack(self, side: int, start: Val, size: Val, finite: Val) -> Val:
        """The rows' operand of the panel: each place once, in the order in which it lies."""
        if side == 1:
            return super().pack(side, start, size, finite)
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

        f.loop(integer(0), self.row_units, 1, (), in_row_unit)
        return finite

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

    def tiles(self, panel: Val, start: Val, size: Val) -> None:
        f, strides = self.f, self.shape.strides
        least = sum(place.least * stride for place, stride in zip(self.window.places, strides[2:], strict=True))

        def column_tile(column: Val, _: list[Val]) -> Sequence[Val]:
            b = self.columns_at(column, start)

            def unit(number: Val, _: list[Val]) -> Sequence[Val]:
                first = f.add(f.scaled(number, strides[0]), integer(-least))
                row = f.scaled(number, self.window.rows_per_unit)
                self._unit(self.window.rows, first, row, self._tile_at(column, b, panel, size))
                return ()

            f.loop(integer(0), self.row_units, 1, (), unit)
            return ()

        f.loop(integer(0), self.columns, self.shape.columns_per_tile, (), column_tile)

    def _stride(self, axis: Axis) -> int:
        """Elements of the window between neighbours along a row or a term axis."""
        pairs = zip(self.window.places, self.shape.strides[2:], strict=True)
        steps = ((place, stride) for place, stride in pairs if axis in (place.row, place.term))
        return sum((place.row_step if place.row is axis else place.term_step) * stride for place, stride in steps)

    def _unit(self, axes: Sequence[Axis], first: Val, row: Val, tile: Tile) -> None:
        """Tiles over a unit's rows: parts of a line of the last axis, or several whole lines."""
        f, most, last = self.f, self.tile.rows, axes[-1].extent
        if len(axes) > 1 and (len(axes) > 2 or 2 * last > most):
            inner, stride = math.prod(axis.extent for axis in axes[1:]), self._stride(axes[0])

            def line(number: Val, _: list[Val]) -> Sequence[Val]:
                here, below = f.add(first, f.scaled(number, stride)), f.add(row, f.scaled(number, inner))
                self._unit(axes[1:], here, below, tile)
                return ()

            f.loop(integer(0), integer(axes[0].extent), 1, (), line)
            return
        long = axes[0].extent
        inside = [(0, 0)] if len(axes) == 1 else [(self._stride(axes[1]) * n, n) for n in range(last)]
        per_line = len(inside)
        share = _share(long, most // per_line)
        stride = self._stride(axes[0])
        places = [(stride * n + away, per_line * n + below) for n in range(share) for away, below in inside]

        def group(number: Val, count: int) -> Sequence[Val]:
            here, below = f.add(first, f.scaled(number, stride)), f.add(row, f.scaled(number, per_line))
            tile(here, below, places[: count * per_line])
            return ()

        whole = long // share * share
        f.loop(integer(0), integer(whole), share, (), lambda number, _: group(number, share))
        if whole < long:
            group(integer(whole), long - whole)

    def _tile_at(self, column: Val, b: str, panel: Val, size: Val) -> Tile:
        """The code of a register tile at `first` in the window; its rows by distance in it and by number."""
        f, shape, vectors = self.f, self.shape, self.tile.vectors
        terms, stride = self.window.terms, shape.strides[1]

        def tile(first: Val, row: Val, rows: Sequence[tuple[int, int]]) -> None:
            zero = scalars.constant(f, self.dtype, 0, shape.width)
            away = [place for place, _ in rows]

            def unit(number: Val, acc: list[Val]) -> Sequence[Val]:
                at, k = f.add(first, f.scaled(number, stride)), f.scaled(number, self.window.terms_per_unit)
                return self._chain(terms, at, k, b, acc, away)

            units = self.quotient(size, self.window.terms_per_unit)
            acc = f.loop(integer(0), units, 1, [zero] * (len(rows) * vectors), unit)
            for position, value in enumerate(acc):
                line = f.add(row, integer(rows[position // vectors][1]))
                inside = f.add(column, integer(position % vectors * shape.width))
                self.accumulate(panel, f.add(f.scaled(line, shape.padded_columns), inside), value)

        return tile

    def _chain(self, axes: Sequence[Axis], at: Val, k: Val, b: str, acc: list[Val], rows: list[int]) -> list[Val]:
        """The terms of a unit, ascending, from a place in the window and a term of the panel."""
        f, extents = self.f, [axis.extent for axis in axes]
        if math.prod(extents) <= WRITTEN_OUT:
            strides = [self._stride(axis) for axis in axes]
            for number, place in enumerate(product(*map(range, extents))):
                away = sum(step * stride for step, stride in zip(place, strides, strict=True))
                acc = self._link(at, away, f.add(k, integer(number)), b, acc, rows)
            return acc
        stride, inner = self._stride(axes[0]), math.prod(extents[1:])
        turn = 1 if len(axes) > 1 else max(n for n in range(1, TURN + 1) if extents[0] % n == 0)

        def step(number: Val, state: list[Val]) -> Sequence[Val]:
            here, term = f.add(at, f.scaled(number, stride)), f.add(k, f.scaled(number, inner))
            if len(axes) > 1:
                return self._chain(axes[1:], here, term, b, state, rows)
            for ahead in range(turn):
                state = self._link(here, ahead * stride, f.add(term, integer(ahead)), b, state, rows)
            return state

        return f.loop(integer(0), integer(extents[0]), turn, acc, step)

    def _link(self, at: Val, away: int, k: Val, b: str, acc: list[Val], rows: list[int]) -> list[Val]:
        """One term of the chain for the whole register tile."""
        f, width, vectors = self.f, self.shape.width, self.tile.vectors
        line = f.scaled(k, self.shape.term_stride)
        columns = [self.read(b, f.add(line, integer(v * width)), width) for v in range(vectors)]
        longer: list[Val] = []
        for position, row in enumerate(rows):
            left = f.splat(self.read(self.a, f.add(at, integer(away + row)), 1), width)
            for v in range(vectors):
                longer.append(scalars.fma(f, left, columns[v], acc[position * vectors + v]))
        return longer

    # what is stored ─────────────────────────────────────────────────────────────────────────────────

    def finish(self) -> None:
        """total + 0.0, then the rest of the store's expression, along the rows: totals are turned in squares."""
        f, width, axes = self.f, self.shape.width, self.contraction.rows

        def chunk(at: Val, mask: Val | None, ok: Val) -> Val:
            aligned = self.tile.block_m % width == 0 or self.shape.blocks[1] == 1
            lanes = self.body.lane_scope(self.scope, axes, f.add(self.row0, at), width, mask, aligned)

            def square(column: Val, _: list[Val]) -> Sequence[Val]:
                places = [
                    f.add(f.scaled(f.add(at, integer(n)), self.shape.padded_columns), column) for n in range(width)
                ]
                values = turned(f, [self.read(self.totals, place, width) for place in places])
                for number, value in enumerate(values):
                    self._column(lanes, f.add(column, integer(number)), value)
                return ()

            f.loop(integer(0), self.columns, width, (), square)
            return ok

        self.chunks(self.rows, width, Val("true", BOOL), chunk)

    def _column(self, lanes: Scope, column: Val, total: Val) -> None:
        f, axes = self.f, self.contraction.columns
        zero = scalars.constant(f, self.dtype, 0, total.width)

        def store() -> None:
            places = self.body.split(f.add(self.column0, column), axes)
            scope = Scope(lanes, dict(zip(axes, places, strict=True)))
            scope.known[self.reduce] = scalars.apply(f, "add", self.dtype, [total, zero])
            self.store(scope)

        extent = self.contraction.extents[2]
        if extent % self.shape.width == 0 and self.tile.block_n % self.shape.width == 0:
            store()
        else:
            f.when(scalars.compare(f, "lt", column, self.columns), store)


Tile = Callable[[Val, Val, Sequence[tuple[int, int]]], None]


def _share(count: int, most: int) -> int:
    """Equal shares of a count, each of at most so many."""
    most = max(most, 1)
    return -(-count // -(-count // most))

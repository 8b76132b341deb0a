"""Windows whose vectors run along pixels: convolutions of few channels a group (passes/pixels.py).

The window lies in private memory once for each place, blanks where terms are absent. Of a stride above one, a line's
places lie apart by their remainder, so that a vector of pixels reads a run. A register tile keeps some lines of some
vectors for some columns; it goes through the lines of places under it, and each that is read serves every line of the
tile whose tap lies there, ascending for each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

from passes.window_tiles import shares
from repro.ir import index as ix
from repro.ir.expressions import Axis
from repro.ir.types import BOOL
from repro.targets.llvm import scalars
from repro.targets.llvm.outputs import FEW
from repro.targets.llvm.pixel_window import PixelWindow
from repro.targets.llvm.scope import Scope
from repro.targets.llvm.text import Val, integer
from repro.targets.llvm.windows import SPARE


@dataclass(frozen=True)
class Spot:
    """Where a tile's first line begins: its scope, its offset in the window (without taps), and in the totals."""

    scope: Scope
    window: Val
    totals: Val


class PixelItem(PixelWindow):
    """The code of one work item whose vectors run along pixels."""

    def emit(self) -> None:
        """All panels, then what their tiles did not store; the plain order where a blank met what is not finite."""
        finite = self.panels()
        if not self.at_once:
            self._finish()
        if not self.contraction.guards:
            return
        exact = scalars.compare(self.f, "eq", finite, Val("false", BOOL))
        with self.f.rolled():
            self.f.when(exact, lambda: self._exact_road(integer(0), self.rows))

    @cached_property
    def at_once(self) -> bool:
        """Whether outputs are computed from a tile's registers: where vectors are whole, and the code short."""
        return self.takes_at_most(FEW) and self.shape.panels == 1 and self.sizes.whole_vectors

    def panels(self) -> Val:
        shape, f = self.shape, self.f
        self.body.hoist([*self.reduce.children, self.kernel.stores[0].value], self.scope)
        terms = self.contraction.extents[3]
        if not self.sizes.whole_vectors:  # the last line's lanes reach behind the window
            self._blank(f.scaled(self.row_units, shape.strides[0]), integer(0), integer(shape.width))

        def panel(number: Val, state: list[Val]) -> Sequence[Val]:
            start = f.scaled(number, shape.panel)
            size = self.remaining(start, shape.panel, terms)
            self.first_unit = self.quotient(start, self.window.terms_per_unit)
            finite = self._weights(start, size, state[0])
            self._pack_window(start, size)
            self._tiles(number, start, size)
            return [finite]

        return f.loop(integer(0), integer(shape.panels), 1, [Val("true", BOOL)], panel)[0]

    # the columns' terms ─────────────────────────────────────────────────────────────────────────────

    def _weights(self, start: Val, size: Val, finite: Val) -> Val:
        """Pack a panel's columns, where they are not read in place; whether a blank may meet them."""
        f, packed = self.f, self.sizes.in_place is None
        if not packed and not self.contraction.guards:
            return finite

        def column(number: Val, state: list[Val]) -> Sequence[Val]:
            scope = self.at_line(1, number)
            self.body.hoist([self.contraction.terms[1]], scope)

            def chunk(at: Val, mask: Val | None, ok: Val) -> Val:
                value, ok = self._term(1, self.lanes_of_terms(scope, f.add(start, at), mask), ok)
                if packed:
                    self.write(self.b, f.add(f.scaled(number, self.sizes.weights), at), value)
                return ok

            return [self.chunks(size, self.shape.width, state[0], chunk)]

        return f.loop(integer(0), self.columns, 1, [finite], column)[0]

    @cached_property
    def _term_steps(self) -> Mapping[Axis, int]:
        """Elements between a column's terms along each axis of the terms."""
        load, axes = self.sizes.in_place, self.reduce.axes
        if load is not None:
            return {axis: ix.coefficient(load.offset, axis) or 0 for axis in axes}
        return {axis: math.prod(each.extent for each in axes[at + 1 :]) for at, axis in enumerate(axes)}

    def _column_start(self, column: Val, start: Val) -> Val:
        """Where a column's terms begin in the operand, or those of the panel where they are packed."""
        load = self.sizes.in_place
        if load is None:
            return self.f.scaled(column, self.sizes.weights)
        zero = dict.fromkeys(self.reduce.axes, integer(0))
        return self.body.value(load.offset, Scope(self.at_line(1, column), zero))

    @property
    def _weights_at(self) -> str:
        """Where columns' terms are read."""
        load = self.sizes.in_place
        return self.b if load is None else f"%b{load.buffer}"

    # register tiles ─────────────────────────────────────────────────────────────────────────────────

    def _tiles(self, panel: Val, start: Val, size: Val) -> None:
        def of_columns(column: Val, count: int) -> None:
            begins = [self._column_start(self.f.add(column, integer(n)), start) for n in range(count)]

            def unit(number: Val, _: list[Val]) -> Sequence[Val]:
                self._lines_of_unit(
                    number, lambda spot, lines: self._line_of_tiles(spot, lines, column, begins, panel, size)
                )
                return ()

            self.f.loop(integer(0), self.row_units, 1, (), unit)

        self._shared(self.contraction.extents[2], self.tile.block_n, of_columns)

    def _shared(self, extent: int, most: int, visit: Callable[[Val, int], None]) -> None:
        """Shares of an extent, the larger ones first."""
        every = shares(extent, most)
        for count in sorted({count for _, count in every}, reverse=True):
            begins = [begin for begin, each in every if each == count]

            def share(at: Val, _: list[Val], count: int = count) -> Sequence[Val]:
                visit(at, count)
                return ()

            self.f.loop(integer(begins[0]), integer(begins[-1] + count), count, (), share)

    def _steps(self, axis: Axis | None) -> int:
        """Elements of the window between neighbours along a row or a term axis, the lanes' taps apart."""
        if axis is None:
            return 0
        pairs = zip(self.window.places[:-1], self.shape.strides[2:-1], strict=True)
        return sum(self.found.steps(axis, place) * stride for place, stride in pairs)

    def _lines_of_unit(self, number: Val, visit: Callable[[Spot, int], None]) -> None:
        """The lines of a row unit."""
        f, shape, found = self.f, self.sizes, self.found
        least = sum(p.least * s for p, s in zip(self.window.places[:-1], shape.strides[2:-1], strict=True))
        units = self.window.row_units
        scope = Scope(self.scope, dict(zip(units, self.body.split(f.add(self.row_unit0, number), units), strict=True)))
        first = f.add(f.scaled(number, shape.strides[0]), integer(-least))
        spot = Spot(scope, first, f.scaled(number, shape.totals_unit))

        def outer(axes: Sequence[Axis], spot: Spot, lines: int) -> None:
            if not axes:
                of_lines(spot)
                return
            inner = lines // axes[0].extent

            def step(at: Val, _: list[Val]) -> Sequence[Val]:
                outer(axes[1:], self._further(spot, axes[0], at, inner), inner)
                return ()

            f.loop(integer(0), integer(axes[0].extent), 1, (), step)

        def of_lines(spot: Spot) -> None:
            line = found.line
            if line is None:
                visit(spot, 1)
                return
            self._shared(line.extent, self.tile.rows, lambda at, n: visit(self._further(spot, line, at, 1), n))

        outer(found.outside, spot, shape.lines_per_unit)

    def _further(self, spot: Spot, axis: Axis, at: Val, lines: int) -> Spot:
        f = self.f
        return Spot(
            Scope(spot.scope, {axis: at}),
            f.add(spot.window, f.scaled(at, self._steps(axis))),
            f.add(spot.totals, f.scaled(at, lines * self.sizes.totals_line)),
        )

    def _line_of_tiles(self, spot: Spot, lines: int, column: Val, begins: list[Val], panel: Val, size: Val) -> None:
        """Register tiles along some lines."""
        f = self.f

        def tile(first: Val, count: int) -> None:
            places = [f.add(first, integer(n)) for n in range(count)]
            starts = [self._start(place) for place in places]
            acc = self._register_tile(spot, lines, starts, begins, size)
            each = product(range(len(begins)), range(lines), range(count))
            for value, (number, line, n) in zip(acc, each, strict=True):
                of_column = f.add(column, integer(number))
                if self.at_once:
                    self._store(spot, line, starts[n], of_column, value)
                else:
                    self.accumulate(panel, self._total(spot, line, places[n], of_column), value)

        self._shared(len(self.sizes.starts), self.tile.vectors, tile)

    def _start(self, place: Val) -> Val:
        """Where a vector of a line begins: the last one reaches back over its neighbour."""
        at, last = self.f.scaled(place, self.shape.width), self.found.length - self.shape.width
        return at if last <= 0 or last % self.shape.width == 0 else self.least(at, integer(last))

    def _total(self, spot: Spot, line: int, place: Val, column: Val) -> Val:
        f, shape = self.f, self.sizes
        of_column = f.scaled(column, shape.row_units * shape.totals_unit)
        of_line = f.add(f.add(of_column, spot.totals), integer(line * shape.totals_line))
        return f.add(of_line, f.scaled(place, shape.width))

    def _register_tile(self, spot: Spot, lines: int, starts: list[Val], begins: list[Val], size: Val) -> list[Val]:
        """The sums of a tile: columns by lines by vectors."""
        f, shape, window = self.f, self.sizes, self.window
        zero = scalars.constant(f, self.dtype, 0, shape.width)

        def unit(number: Val, acc: list[Val]) -> Sequence[Val]:
            at = f.add(spot.window, f.scaled(number, shape.strides[1]))
            if shape.in_place is None:
                further = f.scaled(number, window.terms_per_unit)
            else:
                number = f.add(self.first_unit, number)
                along = zip(window.term_units, self.body.split(number, window.term_units), strict=True)
                further = integer(0)
                for axis, value in along:
                    further = f.add(further, f.scaled(value, self._term_steps[axis]))
            weights = [f.add(begin, further) for begin in begins]
            return looped(self.found.looped, at, weights, acc)

        def looped(axes: Sequence[Axis], at: Val, weights: list[Val], acc: list[Val]) -> list[Val]:
            if not axes:
                return self._written_taps([f.add(at, start) for start in starts], weights, acc, lines)
            axis = axes[0]

            def step(number: Val, acc: list[Val]) -> Sequence[Val]:
                away, further = f.scaled(number, self._steps(axis)), f.scaled(number, self._term_steps[axis])
                return looped(axes[1:], f.add(at, away), [f.add(each, further) for each in weights], acc)

            return f.loop(integer(0), integer(axis.extent), 1, acc, step)

        units = self.quotient(size, window.terms_per_unit)
        return f.loop(integer(0), units, 1, [zero] * (len(begins) * lines * len(starts)), unit)

    def _written_taps(self, vectors: list[Val], weights: list[Val], acc: list[Val], lines: int) -> list[Val]:
        """The taps that stand in the code: for each line of places under the tile, ascending for each of its lines."""
        f, longer = self.f, list(acc)
        *before, last = self.found.written
        tap = before[0] if before else None
        of_line, of_tap = self._steps(self.found.line), self._steps(tap)
        under: dict[int, list[tuple[int, int]]] = {}
        for line, number in product(range(lines), range(1 if tap is None else tap.extent)):
            under.setdefault(of_line * line + of_tap * number, []).append((line, number))
        held, weights_at = len(acc) + len(vectors) + len(weights) * self.found.taps, self._weights_at
        for away in sorted(under, reverse=of_tap < 0):
            if held > self.body.machine.registers - SPARE:
                weights_at = self.anew(weights_at, longer[-len(vectors) :])
            for across in range(last.extent):
                place = away + self._across(last, across)
                read = [self.read(self.a, f.add(at, integer(place)), self.shape.width) for at in vectors]
                for line, number in under[away]:
                    of_term = across * self._term_steps[last] + (number * self._term_steps[tap] if tap else 0)
                    for column, begin in enumerate(weights):
                        one = self.read(weights_at, f.add(begin, integer(of_term)), 1)
                        weight = f.splat(one, self.shape.width)
                        first = (column * lines + line) * len(vectors)
                        for n, value in enumerate(read):
                            longer[first + n] = self.longer(weight, value, longer[first + n], side=1)
        return longer

    def _across(self, axis: Axis, number: int) -> int:
        """Where in a line of places a tap lies for the first pixel."""
        lane, step = self.lane, self.found.step
        tap = lane.term_step * number if lane.term is axis else 0
        away = 0 if lane.term is axis else self._steps(axis) * number
        place = tap - lane.least
        return away + place % step * self.sizes.pitch + place // step

    # what is stored ─────────────────────────────────────────────────────────────────────────────────

    def _store(self, spot: Spot, line: int, start: Val, column: Val, total: Val) -> None:
        """A vector's outputs, from a register."""
        scope = spot.scope
        if self.found.line is not None:
            at = scope.lookup(self.found.line)
            assert at is not None
            scope = Scope(scope, {self.found.line: self.f.add(at, integer(line))})
        self._vector_of(scope, start, None, column, total)

    def _vector_of(self, scope: Scope, at: Val, mask: Val | None, column: Val, total: Val) -> None:
        axes = self.contraction.columns
        places = dict(zip(axes, self.body.split(column, axes), strict=True))
        lanes = self.body.lane_scope(
            Scope(scope, places), (self.window.rows[-1],), at, self.shape.width, mask, aligned=False
        )
        self._output(lanes, total)

    def _finish(self) -> None:
        f = self.f

        def column(number: Val, _: list[Val]) -> Sequence[Val]:
            def unit(at: Val, _: list[Val]) -> Sequence[Val]:
                self._finish_unit(at, number)
                return ()

            f.loop(integer(0), self.row_units, 1, (), unit)
            return ()

        f.loop(integer(0), self.columns, 1, (), column)

    def _finish_unit(self, unit: Val, column: Val) -> None:
        f, shape, units = self.f, self.sizes, self.window.row_units
        at_unit = self.body.split(f.add(self.row_unit0, unit), units)
        scope = Scope(self.scope, dict(zip(units, at_unit, strict=True)))
        begin = f.add(f.scaled(column, shape.row_units * shape.totals_unit), f.scaled(unit, shape.totals_unit))
        if shape.compact:
            self._finish_compact(scope, column, begin)
            return
        axes = self.window.rows[:-1]

        def line(number: Val, _: list[Val]) -> Sequence[Val]:
            inner = Scope(scope, dict(zip(axes, self.body.split(number, axes), strict=True)))
            of_line = f.add(begin, f.scaled(number, shape.totals_line))
            last = integer(max(0, self.found.length - shape.width))

            def some(at: Val, _: list[Val]) -> Sequence[Val]:
                mask = None
                if not shape.whole_vectors:
                    lanes = f.lanes(shape.width)
                    mask = scalars.compare(f, "lt", lanes, f.splat(integer(self.found.length), shape.width))
                total = self.read(self.totals, f.add(of_line, at), shape.width)
                self._vector_of(inner, self.least(at, last), mask, column, total)
                return ()

            f.loop(integer(0), integer(self.found.length), shape.width, (), some)
            return ()

        f.loop(integer(0), integer(shape.lines_per_unit), 1, (), line)

    def _totals_there(self, at: Val, mask: Val | None) -> Val:
        """A vector of totals; behind the last one zeros, not what was in memory before (docs/cpu.md, Lanes that hold
        nothing)."""
        if mask is None:
            return self.read(self.totals, at, self.shape.width)
        return self.body.masked("load", "ptr", self.address(self.totals, at), mask, self.dtype)

    def _finish_compact(self, scope: Scope, column: Val, begin: Val) -> None:
        f, axes, columns = self.f, self.window.rows, self.contraction.columns
        places = dict(zip(columns, self.body.split(column, columns), strict=True))
        inner = Scope(scope, places)

        def chunk(at: Val, mask: Val | None, ok: Val) -> Val:
            lanes = self.body.lane_scope(inner, axes, at, self.shape.width, mask, aligned=True)
            self._output(lanes, self._totals_there(f.add(begin, at), mask))
            return ok

        self.chunks(integer(self.window.rows_per_unit), self.shape.width, Val("true", BOOL), chunk)

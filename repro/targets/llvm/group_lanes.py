"""Windows whose vectors run along groups: weight gradients of grouped convolutions (passes/group_lanes.py).

An item goes through images, strips of lines, and the panels that a strip is cut by. Of each strip it turns both
operands into private memory, groups side by side; each register tile then takes up its sums, or begins anew with a
panel, runs along the strip's lines, and puts them down or adds them to the totals where the panel ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

from passes.pixels import conjuncts, everywhere
from passes.window_tiles import shares
from repro.ir import index as ix
from repro.ir.loops import Kernel
from repro.ir.types import BOOL, I64
from repro.targets.llvm import scalars
from repro.targets.llvm.body import Body
from repro.targets.llvm.packing import FEWEST, turned
from repro.targets.llvm.pixel_window import SMALL_BYTES, present_run
from repro.targets.llvm.scope import Scope
from repro.targets.llvm.text import Val, integer
from repro.targets.llvm.tiling import GroupShape, Shape
from repro.targets.llvm.turned import TurnedItem


class GroupItem(TurnedItem):
    """The code of one work item whose vectors run along groups."""

    def __init__(self, body: Body, kernel: Kernel, shape: Shape, number: Val) -> None:
        assert isinstance(shape, GroupShape)
        self.sizes, self.found, f = shape, shape.found, body.f
        block, rest = integer(0), number
        if shape.lane_blocks > 1:
            block = f.let(f"urem i64 {number.text}, {shape.lane_blocks}", I64)
            rest = f.let(f"udiv i64 {number.text}, {shape.lane_blocks}", I64)
        super().__init__(body, kernel, shape, rest)
        self.window = self.found.window
        self.group0 = f.scaled(block, shape.lanes)
        self.column0, self.columns = integer(0), integer(self.contraction.extents[2])
        self.inside = everywhere(self.window.term, self.window.present)
        self.partial = self.address(self.totals, integer(shape.outputs))
        self.outer = self.scope

    def emit(self) -> None:
        f, found, shape = self.f, self.found, self.sizes
        units, terms = self.window.term_units, self.contraction.extents[3]
        count = terms // (found.lines * found.pixel.extent)
        self.body.hoist([*self.reduce.children, self.kernel.stores[0].value], self.scope)

        def image(number: Val, state: list[Val]) -> Sequence[Val]:
            scope = Scope(self.outer, dict(zip(units, self.body.split(number, units), strict=True)))
            first = f.scaled(number, found.lines)

            def strip(line: Val, state: list[Val]) -> Sequence[Val]:
                lines = self.remaining(line, shape.strip_lines, found.lines)
                if self._asks:
                    self.body.ahead, self.body.terms_ask = (units[-1], 1), True
                self._pack_window(scope, line, lines)
                finite = self._pack_strip(scope, line, lines, state[0])
                self.body.ahead, self.body.terms_ask = None, False
                self._panels(f.add(first, line), lines)
                return [finite]

            return f.loop(integer(0), integer(found.lines), shape.strip_lines, state, strip)

        finite = f.loop(integer(0), integer(count), 1, [Val("true", BOOL)], image)[0]
        with f.rolled():
            self._outputs(finite)

    @property
    def _asks(self) -> bool:
        """Whether the next image is asked for while one is packed: a small one, unless items share it out."""
        of_image = self.found.lines * self.found.pixel.extent * self.dtype.bytes
        return bool(self.window.term_units) and of_image <= SMALL_BYTES and self.sizes.blocks[1] == 1

    # packing ────────────────────────────────────────────────────────────────────────────────────────

    def _of_groups(self, scope: Scope, first: Val) -> list[Scope]:
        """The scopes of a vector's groups; those beyond the last are the last one again."""
        last = integer(self.found.group.extent - 1)
        numbers = [self.f.add(first, integer(lane)) for lane in range(self.shape.width)]
        return [Scope(scope, {self.found.group: self.least(number, last)}) for number in numbers]

    def _each_vector(self, visit: Callable[[Val], None]) -> None:
        """Each vector of the item's groups, by its first lane."""

        def one(lane: Val, _: list[Val]) -> Sequence[Val]:
            visit(lane)
            return ()

        self.f.loop(integer(0), integer(self.sizes.lanes), self.shape.width, (), one)

    def _turned(self, area: str, line: Val, lane: Val, values: list[Val]) -> None:
        """Write a square: a place of each group after another."""
        for number, value in enumerate(turned(self.f, values)):
            self.write(area, self.f.add(self.f.add(line, lane), integer(number * self.sizes.lanes)), value)

    def _pack_window(self, scope: Scope, line: Val, lines: Val) -> None:
        """The places under a strip's lines."""
        f, found, shape = self.f, self.found, self.sizes
        channel_stride, line_stride, _ = shape.window_strides
        under = f.add(f.scaled(lines, found.steps), integer(found.places(1) - found.steps))
        channel0 = self.quotient(self.row0, found.tap_count)
        channels = self.quotient(self.rows, found.tap_count)

        def channel(number: Val, _: list[Val]) -> Sequence[Val]:
            at = self.body.split(f.add(channel0, number), found.channels)
            of_channel = Scope(scope, dict(zip(found.channels, at, strict=True)))

            def places(place: Val, _: list[Val]) -> Sequence[Val]:
                bound_ = {} if found.across is None else {found.across.axis: f.add(f.scaled(line, found.steps), place)}
                begin = f.add(f.scaled(number, channel_stride), f.scaled(place, line_stride))
                self._line(Scope(of_channel, bound_), begin)
                return ()

            f.loop(integer(0), under, 1, (), places)
            return ()

        f.loop(integer(0), channels, 1, (), channel)

    def _line(self, scope: Scope, begin: Val) -> None:
        """A line of places."""
        f, axis = self.f, self.found.along.axis
        parts = conjuncts(self.window.present)
        along = [each for each in parts if axis in each.free]
        whole = ix.both(*(each for each in parts if each not in along))

        def present() -> Sequence[Val]:
            low, high = present_run(self, along, axis, scope)
            self._blank(begin, integer(0), low)
            self._each_vector(lambda lane: self._squares(scope, begin, lane, low, high))
            self._blank(begin, high, integer(axis.extent))
            return ()

        def absent() -> Sequence[Val]:
            self._blank(begin, integer(0), integer(axis.extent))
            return ()

        if whole is ix.TRUE:
            present()
        else:
            f.either(self.body.value(whole, scope), present, absent)

    def _blank(self, begin: Val, first: Val, last: Val) -> None:
        f, lanes = self.f, self.sizes.lanes
        zero = scalars.constant(f, self.dtype, 0, self.shape.width)

        def some(at: Val, _: list[Val]) -> Sequence[Val]:
            self.write(self.a, f.add(begin, at), zero)
            return ()

        f.loop(f.scaled(first, lanes), f.scaled(last, lanes), self.shape.width, (), some)

    def _squares(self, scope: Scope, begin: Val, lane: Val, low: Val, high: Val) -> None:
        """Places from low to high of a vector of groups; what hangs over is written anew."""
        f, axis, width = self.f, self.found.along.axis, self._square(low, high)
        scopes = self._of_groups(scope, f.add(self.group0, lane))
        for each in scopes:
            self.body.hoist([self.inside], each)

        def square(at: Val, mask: Val | None, ok: Val) -> Val:
            place, values = f.add(low, at), list[Val]()
            for each in scopes:
                lanes = self.body.lane_scope(each, (axis,), place, width, mask, aligned=False)
                values.append(f.splat(self.body.value(self.inside, lanes), width))
            self._turned(self.a, f.add(begin, f.scaled(place, self.sizes.lanes)), lane, values)
            return ok

        self.chunks(f.let(f"sub i64 {high.text}, {low.text}", I64), width, Val("true", BOOL), square)

    def _square(self, low: Val, high: Val) -> int:
        """Places that are turned together: no more than a short line needs."""
        if low.number is None or high.number is None:
            return self.shape.width
        return min(self.shape.width, max(FEWEST, 1 << (high.number - low.number - 1).bit_length()))

    def _pack_strip(self, scope: Scope, line: Val, lines: Val, finite: Val) -> Val:
        """The columns' terms of a strip; whether a blank may meet them."""
        f, found, width = self.f, self.found, self.shape.width
        pixels, axes = found.pixel.extent, self.window.terms
        start, count = f.scaled(line, pixels), f.scaled(lines, pixels)

        def column(number: Val, state: list[Val]) -> Sequence[Val]:
            of_column = Scope(scope, self.at_line(1, number).bound)
            begin = f.scaled(number, self.sizes.column_elements)

            def vector(lane: Val, state: list[Val]) -> Sequence[Val]:
                scopes = self._of_groups(of_column, f.add(self.group0, lane))
                for each in scopes:
                    self.body.hoist([self.contraction.terms[1]], each)

                def square(at: Val, mask: Val | None, ok: Val) -> Val:
                    values = list[Val]()
                    for each in scopes:
                        lanes = self.body.lane_scope(each, axes, f.add(start, at), width, mask, aligned=False)
                        value, ok = self._term(1, lanes, ok)
                        values.append(value)
                    self._turned(self.b, f.add(begin, f.scaled(at, self.sizes.lanes)), lane, values)
                    return ok

                return [self.chunks(count, width, state[0], square)]

            return f.loop(integer(0), integer(self.sizes.lanes), width, state, vector)

        return f.loop(integer(0), self.columns, 1, [finite], column)[0]

    # register tiles ─────────────────────────────────────────────────────────────────────────────────

    def _panels(self, first: Val, lines: Val) -> None:
        """The panels that a strip has lines of; `first`: of all lines of all images."""
        f, of_panel = self.f, self.sizes.panel_lines
        every = self.contraction.extents[3] // self.found.pixel.extent
        beyond = f.add(first, lines)

        def panel(number: Val, _: list[Val]) -> Sequence[Val]:
            start = f.scaled(number, of_panel)
            end = self.least(f.add(start, integer(of_panel)), integer(every))
            fresh = scalars.compare(f, "ge", start, first)
            ends = scalars.compare(f, "le", end, beyond)
            begin = scalars.select(f, fresh, start, first)
            stop = self.least(end, beyond)
            inside = [f.let(f"sub i64 {at.text}, {first.text}", I64) for at in (begin, stop)]
            self._tiles(number, inside[0], inside[1], fresh, ends)
            return ()

        last = self.quotient(f.add(beyond, integer(of_panel - 1)), of_panel)
        f.loop(self.quotient(first, of_panel), last, 1, (), panel)

    def _tiles(self, panel: Val, begin: Val, end: Val, fresh: Val, ends: Val) -> None:
        """All register tiles along some lines of the strip."""
        f, found = self.f, self.found
        every = list(product(*(range(axis.extent) for axis in found.taps)))

        def channel(number: Val, _: list[Val]) -> Sequence[Val]:
            for first, count in shares(found.tap_count, self.tile.rows):
                taps = every[first : first + count]
                row = f.add(f.scaled(number, found.tap_count), integer(first))
                for start, columns in shares(self.contraction.extents[2], self.tile.block_n):
                    self._register_tile(
                        panel, (begin, end), (fresh, ends), number, row, taps, range(start, start + columns)
                    )
            return ()

        f.loop(integer(0), self.quotient(self.rows, found.tap_count), 1, (), channel)

    def _register_tile(
        self,
        panel: Val,
        lines: tuple[Val, Val],
        panel_ends: tuple[Val, Val],
        channel: Val,
        row: Val,
        taps: Sequence[tuple[int, ...]],
        columns: range,
    ) -> None:
        f, shape, lanes = self.f, self.sizes, self.sizes.lanes
        fresh, ends = panel_ends
        zero = scalars.constant(f, self.dtype, 0, lanes)
        outputs = [self._output_place(f.add(row, integer(n)), c) for n, c in product(range(len(taps)), columns)]
        begun = [scalars.select(f, fresh, zero, self.read(self.partial, place, lanes)) for place in outputs]
        of_channel = f.scaled(channel, shape.window_strides[0])
        away = [self._away(tap) for tap in taps]
        pixels, steps = self.found.pixel.extent, self.found.along.term_step

        def line(number: Val, acc: list[Val]) -> Sequence[Val]:
            a = f.add(of_channel, f.scaled(number, self.found.steps * shape.window_strides[1]))
            b = f.scaled(number, pixels * lanes)

            def pixel(at: Val, acc: list[Val]) -> Sequence[Val]:
                place, further = f.add(a, f.scaled(at, steps * lanes)), f.add(b, f.scaled(at, lanes))
                right = [self.read(self.b, f.add(further, integer(c * shape.column_elements)), lanes) for c in columns]
                longer: list[Val] = []
                for n, tap in enumerate(away):
                    left = self.read(self.a, f.add(place, integer(tap)), lanes)
                    for c, value in enumerate(right):
                        longer.append(self.longer(left, value, acc[n * len(columns) + c]))
                return longer

            return f.loop(integer(0), integer(pixels), 1, acc, pixel)

        sums = f.loop(*lines, 1, begun, line)

        def finished() -> Sequence[Val]:
            for place, value in zip(outputs, sums, strict=True):
                self.accumulate(panel, place, value)
            return ()

        def kept() -> Sequence[Val]:
            for place, value in zip(outputs, sums, strict=True):
                self.write(self.partial, place, value)
            return ()

        f.either(ends, finished, kept)

    def _away(self, tap: tuple[int, ...]) -> int:
        """Where a tap's places lie from the first one's."""
        _, line, place = self.sizes.window_strides
        found, total = self.found, 0
        for axis, number in zip(found.taps, tap, strict=True):
            if axis is found.along.row:
                total += found.along.row_step * number * place
            else:
                assert found.across is not None
                total += found.across.row_step * number * line
        return total

    def _output_place(self, row: Val, column: int) -> Val:
        f, shape = self.f, self.sizes
        columns = self.contraction.extents[2]
        return f.scaled(f.add(f.scaled(row, columns), integer(column)), shape.lanes)

    # what is stored ─────────────────────────────────────────────────────────────────────────────────

    def _outputs(self, finite: Val) -> None:
        """All outputs, along rows; where a blank met a value that is not finite, by the plain order."""
        f = self.f
        left = f.let(f"sub i64 {self.found.group.extent}, {self.group0.text}", I64)
        groups = self.least(left, integer(self.sizes.lanes))

        def fast() -> Sequence[Val]:
            f.loop(integer(0), self.columns, 1, (), lambda column, _: self._of_totals(column, groups))
            return ()

        def exact() -> Sequence[Val]:
            f.loop(integer(0), groups, 1, (), group)
            return ()

        def group(lane: Val, _: list[Val]) -> Sequence[Val]:
            self.scope = Scope(self.outer, {self.found.group: f.add(self.group0, lane)})
            self._exact_road(integer(0), self.rows)
            return ()

        if not self.contraction.guards:
            fast()
        else:
            f.either(finite, fast, exact)

    def _of_totals(self, column: Val, groups: Val) -> Sequence[Val]:
        f, axes = self.f, self.contraction.columns
        at_column = dict(zip(axes, self.body.split(column, axes), strict=True))

        def place(row: Val, lane: Val) -> Val:
            of_row = f.add(f.scaled(row, self.contraction.extents[2]), column)
            return f.add(f.scaled(of_row, self.sizes.lanes), lane)

        def output(lanes: Scope, lane: Val, total: Val) -> None:
            def store() -> None:
                self._output(Scope(lanes, {**at_column, self.found.group: f.add(self.group0, lane)}), total)

            if self.found.group.extent % self.shape.width == 0:
                store()
            else:
                f.when(scalars.compare(f, "lt", lane, groups), store)

        self.along_rows(self.rows, groups, place, output)
        return ()

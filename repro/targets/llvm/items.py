"""Work items of a kernel without register tiles: rows, blocks of a vector axis, squares, sweeps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

from passes.near_rows import kept
from passes.phases import Phases, phases
from passes.rename import rewritten
from passes.row_reductions import row_elements
from passes.squares import Crossing
from passes.streams import ahead, crowded, far, streamed
from repro.ir import index as ix
from repro.ir.dependence import reads_its_output
from repro.ir.expressions import Axis, Expr, Lanes, Load, Reduce, const, topological
from repro.ir.loops import Kernel, Store
from repro.ir.schedule import Schedule
from repro.ir.types import I64
from repro.machines.machine import LINE_BYTES, line_elements
from repro.targets.llvm import scalars, tables
from repro.targets.llvm.body import Body
from repro.targets.llvm.grid import Grid
from repro.targets.llvm.rows import Elements, Rows, stages
from repro.targets.llvm.scope import Scope
from repro.targets.llvm.sweeps import Layout, Sweep
from repro.targets.llvm.text import Function, Val, integer
from repro.targets.llvm.turning import Squares

AHEAD_BYTES = 8 << 10
"""Of all rows that are asked for ahead, a quarter of the nearest cache: more push out what was asked for before (a
norm's gradient, which reads three rows, took 1.4 times as long with five of each on their way as with one)."""
TOGETHER = 4096
"""Elements of the vector axis that go through serial axes together: they stay in the nearest cache."""
WRITTEN_VECTORS, WRITTEN_FAR, WRITTEN_TERMS = 8, 2, 128
"""Vectors of a line that stand in the code one after another, at most; the same where kernels read memory (a pooling of
64 x 112 x 112 took 1.3 times as long with four from there, and 0.7 times from a cache, Zen 5); terms of their sums."""


class Items:
    """The code of work items, one at a time, into a function."""

    def __init__(self, body: Body, kernel: Kernel, schedule: Schedule, roots: list[Expr]) -> None:
        self.body, self.f, self.kernel, self.roots = body, body.f, kernel, roots
        self.grid, self.schedule, self.width = Grid(kernel, schedule), schedule, schedule.vector_width
        self.repeatable = kernel.serial == 0 and not reads_its_output(kernel)
        """Whether an output may be computed twice: then a last vector reaches back over its neighbour."""
        self.kept, self.kept_at = kept(kernel), cast(Val | None, None)
        self.phases = self._phases()
        if self.phases is not None:
            self.roots = self._roots(self.phases)
        if self._by_rows():
            body.ahead = self.grid.outer[-1], _rows_ahead(self._row_bytes())
            body.writes_ahead = not self._near()
        self.streamed = streamed(kernel, body.machine) or crowded(kernel, self.grid.across, body.machine)
        if self.grid.vector is not None and self.grid.across is None:
            body.far = far(kernel, [*self.grid.outer, *self.grid.inner, self.grid.vector], body.machine)

    def _phases(self) -> Phases | None:
        """The remainders of the vector axis, where each has a vector in every vector of the schedule's."""
        found = None if self.grid.vector is None else phases(self.kernel, self.grid.vector)
        if found is None or self.width == found.count or self.width % found.count or self.grid.block % found.count:
            return None
        return found

    def _roots(self, apart: Phases) -> list[Expr]:
        """What is computed: parts by remainders, and around them what reads elements as they lie."""
        blank: dict[Expr, Expr] = {part: const(part.dtype, 0) for part in apart.parts}
        around = rewritten([store.value for store in self.kernel.stores], blank)
        return [*(store.offset for store in self.kernel.stores), *around, *(v for each in apart.values for v in each)]

    def _by_rows(self) -> bool:
        """Whether items are rows, each reduced before its elements are computed."""
        whole = self.grid.vector is not None and self.grid.blocks == 1 and bool(self.grid.outer)
        reduced = (e for e in self.kernel.expressions if isinstance(e, Reduce))
        return whole and any(e.free == frozenset(self.grid.outer) for e in reduced)

    def _beside(self) -> bool:
        """Whether elements are computed beside all stages of later rows, where the near caches hold those and the last
        stage keeps terms, or looks into tables: short rows of a softmax take 0.92 to 0.97 of the time (Zen 4). Of what
        comes from memory, only the last is beside them (a layer norm of 32 MiB 0.71 ms, one with all 0.78, one with
        none 0.80; Zen 4), but with vectors shorter than a line: sums take so long then that rows which go past the
        caches would wait for them (0.89 times where rows begin with a line, 0.98 where they do not, Zen 3)."""
        if streamed(self.kernel, self.body.machine):
            return self.body.machine.vector_bits < 8 * LINE_BYTES
        return self.kept is not None or bool(self.body.roads)

    def _near(self) -> bool:
        """Whether all that the kernel reads and writes fits the second-level cache."""
        return not self.body.machine.is_far(self.kernel.nbytes)

    def _row_loads(self) -> list[Load]:
        """What the elements of one row are computed from, which those of other rows are not."""
        axes, row, along = frozenset(self.kernel.axes), self.grid.outer[-1], self.grid.vector
        assert along is not None
        loads = (expr for expr in self.kernel.expressions if isinstance(expr, Load) and expr.free <= axes)
        return [expr for expr in loads if {row, along} <= expr.free]

    def _row_bytes(self) -> int:
        assert self.grid.vector is not None
        return sum(expr.dtype.bytes for expr in self._row_loads()) * self.grid.vector.extent

    def reduced_ahead(self) -> bool:
        """Whether a row is reduced before the elements of the one before it are computed: both stay near meanwhile. Of
        kernels that read several rows for one (a norm's gradient) some took 1.2 times as long so on AVX2, none less."""
        if not self.repeatable or self.grid.inner or self.grid.across is not None or not self._by_rows():
            return False
        if self.kept is not None:
            return True
        return len(self._row_loads()) == 1 and 2 * self._row_bytes() <= self.body.machine.l1_bytes

    def only_reduces(self) -> bool:
        """Whether items are rows of which nothing is kept but what several reductions, one of another, come to."""
        grid, reduced = self.grid, [e for e in self.kernel.expressions if isinstance(e, Reduce)]
        if grid.vector is not None or grid.inner or self.kernel.serial or not grid.outer or len(reduced) < 2:
            return False
        rows = frozenset(grid.outer)
        return (
            self.repeatable
            and all(e.free == rows for e in reduced)
            and len(stages(self.roots, rows, Scope(None, {}))) > 1
        )

    def reductions(self, first: Val, last: Val, top: Scope) -> None:
        """Items that are what a row's reductions come to: several rows at once, each at a stage of its own."""

        def rest(_: Val, scope: Scope) -> None:
            self.stores(scope)

        elements = Elements(row_elements(self.kernel), 0, self.vectors, rest, lambda _: None)
        rows = Rows(self.body, self.roots, top, self.grid.outer, None, True)
        self._ask_for_rows(rows.stages[0], elements.extent)
        rows.emit(first, last, lambda number: self.at_outer(number, top), elements)

    def _ask_for_rows(self, first: Sequence[Reduce], extent: int) -> None:
        """Have the reductions that read a row first ask for a later one, if all go over rows in one loop; else each one
        asks for what it reads by itself."""
        orders = (expr.order for expr in self.kernel.expressions if isinstance(expr, Reduce))
        if not extent or extent > min((each.leaf for each in orders if isinstance(each, Lanes)), default=extent):
            return
        row, axes = self.grid.outer[-1], frozenset(self.kernel.axes)
        loads = {expr for expr in topological([e for each in first for e in each.terms]) if isinstance(expr, Load)}
        row_bytes = extent * sum(expr.dtype.bytes for expr in loads if row in expr.free and not expr.free <= axes)
        self.body.ahead = row, _rows_ahead(row_bytes)

    def rows(self, first: Val, last: Val, top: Scope) -> None:
        """Items that are rows. What elements need of all of their row is computed before the elements of the row before
        it, which do not wait for it: a sum ends with steps that wait for each other."""
        assert self.grid.vector is not None
        extent, lanes = self.grid.vector.extent, self.width
        apart = self.phases is not None or lanes > extent

        def rest(at: Val, scope: Scope) -> None:
            self.along(at, integer(extent), scope)

        def reads(slot: Val) -> None:
            self.kept_at = slot

        elements = Elements(extent, 0 if apart else lanes, self.vectors, rest, reads)
        kept_sum = None if self.kept is None else self.kept[0]
        rows = Rows(self.body, self.roots, top, self.grid.outer, kept_sum, self._beside())
        rows.emit(first, last, lambda number: self.at_outer(number, top), elements)

    def item(self, number: Val, top: Scope) -> None:
        f, grid = self.f, self.grid
        if grid.across is not None:
            self._squares(number, grid.across, top)
            return
        block = _rem(f, number, grid.blocks)
        loops = [*self.kernel.axes[: self.kernel.serial], *grid.inner]

        def inside(level: Scope, _: list[Val]) -> Sequence[Val]:
            self.along_vector(block, level)
            return ()

        self.body.nest(loops, self.at_outer(_quotient(f, number, grid.blocks), top), self.roots, (), inside)

    def _squares(self, number: Val, across: Crossing, top: Scope) -> None:
        """Items that follow each other go on with the lines that are read."""
        f, grid = self.f, self.grid
        assert grid.vector is not None
        rest = _quotient(f, number, grid.rows)
        scope = self.at_outer(_quotient(f, rest, grid.blocks), top)
        self.body.hoist(self.roots, scope)
        asks = self.streamed or ahead(self.kernel, across, min(grid.block, grid.vector.extent), self.body.machine)
        squares = Squares(self.body, grid.vector, across, asks, self.streamed)
        squares.emit(_rem(f, rest, grid.blocks), _rem(f, number, grid.rows), scope, self.stores)

    def at_outer(self, rest: Val, top: Scope) -> Scope:
        """The scope of one iteration of the outer axes, by its number."""
        bound: dict[Axis, Val] = {}
        for position, axis in reversed(list(enumerate(self.grid.outer))):
            bound[axis] = rest if position == 0 else _rem(self.f, rest, axis.extent)
            rest = _quotient(self.f, rest, axis.extent)
        return Scope(top, bound)

    def together(self, first: Val, last: Val, top: Scope) -> None:
        """Items `first` to `last`, which lie side by side: as many as stay near from one serial step to the next."""
        f, grid = self.f, self.grid
        assert grid.vector is not None
        extent, most = grid.vector.extent, max(1, TOGETHER // grid.block) * grid.block
        stop = scalars.least(f, f.scaled(last, grid.block), integer(extent))

        def some(begin: Val, _: list[Val]) -> Sequence[Val]:
            end = scalars.least(f, f.add(begin, integer(most)), stop)

            def inside(level: Scope, _: list[Val]) -> Sequence[Val]:
                self.along(begin, end, level)
                return ()

            self.body.nest([*self.kernel.axes[: self.kernel.serial], *grid.inner], top, self.roots, (), inside)
            return ()

        f.loop(f.scaled(first, grid.block), stop, most, (), some)

    def sweep(self, first: Val, last: Val, top: Scope) -> None:
        """Items `first` to `last`, those that lie side by side together: rows are read in runs as long as may be."""
        f, grid, layout = self.f, self.grid, Layout(self.kernel, self.schedule)
        assert grid.vector is not None
        extent, every = grid.vector.extent, integer(grid.blocks)
        sums = Sweep(self.body, layout, self.schedule, grid.vector)

        def one(number: Val, _: list[Val]) -> Sequence[Val]:
            scope = self.at_outer(number, top)
            self.body.hoist(self.roots, scope)
            before = f.scaled(number, grid.blocks)
            start, stop = (f.let(f"sub i64 {at.text}, {before.text}", I64) for at in (first, last))
            begin = f.scaled(scalars.greatest(f, start, integer(0)), grid.block)
            end = scalars.least(f, f.scaled(scalars.least(f, stop, every), grid.block), integer(extent))

            def some(at: Val, _: list[Val]) -> Sequence[Val]:
                sums.emit(at, scalars.least(f, f.add(at, integer(layout.columns)), end), scope, self.stores)
                return ()

            f.loop(begin, end, layout.columns, (), some)
            return ()

        beyond = _quotient(f, f.add(last, integer(grid.blocks - 1)), grid.blocks)
        f.loop(_quotient(f, first, grid.blocks), beyond, 1, (), one)

    def along_vector(self, block: Val, scope: Scope) -> None:
        axis = self.grid.vector
        if axis is None:
            self.stores(scope)
            return
        f, size = self.f, self.grid.block
        begin = integer(0) if self.grid.blocks == 1 else f.scaled(block, size)
        self.along(begin, self._end(begin, axis.extent), scope)

    def along(self, begin: Val, end: Val, scope: Scope) -> None:
        """A block of the vector axis, or what is left of it from a multiple of the vector on."""
        axis, width, f, size = self.grid.vector, self.width, self.f, self.grid.block
        assert axis is not None
        even = axis.extent % width == 0 and size % width == 0
        if self.phases is not None:
            self._along_phases(self.phases, begin, end, scope)
            return
        if (begin, end) == (integer(0), integer(width)):
            self.lanes(begin, scope)  # LLVM would move the store of such a loop behind it, and forget how it writes
            return
        if width > 1 and axis.extent >= width and (even or self.repeatable):
            if (begin, end) == (integer(0), integer(axis.extent)) and self._written_out(axis):
                for at in range(0, axis.extent, width):
                    self.lanes(integer(min(at, axis.extent - width)), scope)
                return
            last = integer(axis.extent - width)
            f.loop(begin, end, width, (), lambda at, _: self.lanes(at if even else scalars.least(f, at, last), scope))
            return
        middle = begin
        if width > 1 and min(axis.extent, size) >= width:
            span = f.let(f"sub i64 {end.text}, {begin.text}", I64)
            middle = f.add(begin, f.let(f"and i64 {span.text}, {-width}", I64))
            f.loop(begin, middle, width, (), lambda at, _: self.lanes(at, scope))
        f.loop(middle, end, 1, (), lambda at, _: self.single(at, scope))

    def _written_out(self, axis: Axis) -> bool:
        """Whether the vectors of a line stand in the code one after another: where some lanes may be absent, the code
        then knows which."""
        expressions, vectors = self.kernel.expressions, -(-axis.extent // self.width)
        reduces = [e for e in expressions if isinstance(e, Reduce)]
        conditions = [*(e.when for e in expressions if isinstance(e, Load)), *(e.present for e in reduces)]
        terms = max((math.prod(each.extent for each in e.axes) for e in reduces), default=1)
        few = vectors <= (WRITTEN_VECTORS if self._near() else WRITTEN_FAR) and vectors * terms <= WRITTEN_TERMS
        return few and any(each is not None and axis in each.free for each in conditions)

    def _along_phases(self, apart: Phases, begin: Val, end: Val, scope: Scope) -> None:
        """Vectors of each remainder, put together; the last ones reach back as far as remainders allow, behind them
        stand fewer elements than there are remainders."""
        f, width = self.f, self.width
        span = f.let(f"sub i64 {end.text}, {begin.text}", I64)
        enough = scalars.compare(f, "ge", span, integer(width))

        def vectors() -> Sequence[Val]:
            whole = f.scaled(_quotient(f, span, apart.count), apart.count)
            last = f.add(begin, f.let(f"sub i64 {whole.text}, {width}", I64))
            middle = f.add(last, integer(width))
            f.loop(begin, middle, width, (), lambda at, _: self._together(apart, scalars.least(f, at, last), scope))
            f.loop(middle, end, 1, (), lambda at, _: self.single(at, scope))
            return ()

        def singles() -> Sequence[Val]:
            f.loop(begin, end, 1, (), lambda at, _: self.single(at, scope))
            return ()

        f.either(enough, vectors, singles)

    def _together(self, apart: Phases, at: Val, scope: Scope) -> Sequence[Val]:
        f, axis, lanes = self.f, self.grid.vector, self.width // apart.count
        assert axis is not None
        first = _quotient(f, at, apart.count)
        numbers = f.add(f.splat(first, lanes), f.lanes(lanes))
        inner = Scope(scope, {apart.quotient: numbers}, lanes, ((apart.quotient,), first))
        every = [[f.splat(self.body.value(value, inner), lanes) for value in values] for values in apart.values]
        beside = Scope(scope, {axis: f.add(f.splat(at, self.width), f.lanes(self.width))}, self.width, ((axis,), at))
        for number, part in enumerate(apart.parts):
            beside.known[part] = tables.interleaved(f, [values[number] for values in every])
        for store in self.kernel.stores:
            value = self.body.value(store.value, beside)
            self.body.store(store.buffer, store.offset, value, None, beside, self._streamed(store))
        return ()

    def _end(self, begin: Val, extent: int) -> Val:
        if self.grid.blocks == 1:
            return integer(extent)
        end = self.f.add(begin, integer(self.grid.block))
        return end if extent % self.grid.block == 0 else scalars.least(self.f, end, integer(extent))

    def lanes(self, at: Val, scope: Scope) -> Sequence[Val]:
        self.vectors(at, scope, self.width)
        return ()

    def vectors(self, at: Val, scope: Scope, width: int) -> None:
        """Elements from a place on, as many as one or several vectors hold."""
        assert self.grid.vector is not None
        numbers = self.f.add(self.f.splat(at, width), self.f.lanes(width))
        inside = Scope(scope, {self.grid.vector: numbers}, width, ((self.grid.vector,), at))
        self._know_kept(at, inside)
        self.stores(inside)

    def single(self, at: Val, scope: Scope) -> Sequence[Val]:
        assert self.grid.vector is not None
        inside = Scope(scope, {self.grid.vector: at})
        self._know_kept(at, inside)
        self.stores(inside)
        return ()

    def _know_kept(self, at: Val, scope: Scope) -> None:
        """The terms of the row's sum that were kept, in place of what they were computed from."""
        if self.kept is not None and self.kept_at is not None:
            element = self.kept[1]
            scope.known[element] = self.body.held(self.kept_at, at, element.dtype, scope.width)

    def stores(self, scope: Scope) -> None:
        """All values of the iteration first: a store may not change what another one reads."""
        values = [self.body.value(store.value, scope) for store in self.kernel.stores]
        for store, value in zip(self.kernel.stores, values, strict=True):
            self.body.store(store.buffer, store.offset, value, store.when, scope, self._streamed(store))

    def _streamed(self, store: Store) -> bool:
        """Whether a store's vectors lie one after another from a multiple of their size on."""
        axis, size = self.grid.vector, line_elements(self.kernel.buffers[store.buffer].dtype.bytes)
        width = self.width if self.grid.across is None else self.grid.across.run
        run = min(width, size)
        if not self.streamed or self.schedule.sweep or axis is None:
            return False
        if axis.extent % size or self.grid.block % size or width % run:
            return False
        return ix.coefficient(store.offset, axis) == 1 and ix.divisible(ix.add(store.offset, ix.scale(axis, -1)), run)


def _rows_ahead(row_bytes: int) -> int:
    """Rows between one that is read and one that is asked for, of so many bytes."""
    return max(1, AHEAD_BYTES // max(1, row_bytes))


def _rem(f: Function, number: Val, extent: int) -> Val:
    return integer(0) if extent == 1 else f.let(f"urem i64 {number.text}, {extent}", I64)


def _quotient(f: Function, number: Val, extent: int) -> Val:
    return number if extent == 1 else f.let(f"udiv i64 {number.text}, {extent}", I64)

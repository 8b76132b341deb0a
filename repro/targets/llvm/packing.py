"""Packing: the terms of a panel, evaluated into private memory in the order in which register tiles read them.

A tile reads one element of a row for all of a vector, so rows may lie as [row][k] or as [k][row], whichever they do in
memory; those of one tile are packed at a time. Columns lie as [tile][k][column], all of a work item's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from itertools import product

from passes.vectors import MOST_APART
from repro.ir import index as ix
from repro.ir.expressions import Axis, Load, topological
from repro.ir.types import BOOL, I64
from repro.machines.machine import LINE_BYTES, line_elements
from repro.targets.llvm import scalars
from repro.targets.llvm.block import Block
from repro.targets.llvm.scope import Scope
from repro.targets.llvm.text import Function, Val, integer

FEWEST = 4
"""Elements side by side that are worth squares of their own."""
PAGES_AHEAD = 8
"""Terms between those of columns that are copied from end to end and those that are asked for, each on another page."""
MOST_TAPS = 25
"""Terms of a unit that are written out in code: up to those of a window of 5 by 5."""
TOGETHER = 16
"""Vectors of columns, times the terms of a unit, that are packed at once: those of each unit lie on a page of its own,
which is then visited once for all of them."""


class Packing(Block):
    """The packing of one work item's operands."""

    def pack_columns(self, start: Val, size: Val, finite: Val) -> Val:
        """Evaluate the columns' terms of a panel, along the axes by which they lie in memory."""
        pack = self._turn_columns if self._turns() else self._pack_columns
        return pack(start, size, finite)

    @cached_property
    def copies_columns(self) -> bool:
        """Whether columns are packed by the first row of tiles that reads them, and not before."""
        term = self.contraction.terms[1]
        return isinstance(term, Load) and self.shape.can_copy_columns(near=not self._far([term]))

    def blank_columns(self) -> None:
        """Zeros in the vectors of the last tile that no column comes to, which it multiplies nevertheless (docs/cpu.md,
        Lanes that hold nothing)."""
        f, shape, width = self.f, self.shape, self.shape.width
        extent, per_tile = self.contraction.extents[2], shape.columns_per_tile
        rests = {min(extent, self.tile.block_n) % per_tile, extent % self.tile.block_n % per_tile} - {0}
        if all(per_tile - rest < width for rest in rests):
            return
        first = f.scaled(self.quotient(f.add(self.columns, integer(width - 1)), width), width)
        last = f.scaled(self.quotient(f.add(self.columns, integer(per_tile - 1)), per_tile), per_tile)
        zero = scalars.constant(f, self.dtype, 0, width)

        def of_vector(column: Val, _: list[Val]) -> Sequence[Val]:
            def of_term(term: Val, _: list[Val]) -> Sequence[Val]:
                self.write(self.b, self.column_place(column, term), zero)
                return ()

            f.loop(integer(0), integer(shape.panel), 1, (), of_term)
            return ()

        f.loop(first, last, width, (), of_vector)

    def _turns(self) -> bool:
        """Whether vectors of columns' terms lie nearer to each other in memory than vectors of columns."""
        along_columns, along_terms = self.contraction.neighbours(1)
        few = max(along_columns, along_terms) < self.shape.width
        near_columns, near_terms = (
            few and bool(axes) and self._near(axes[-1]) for axes in (self.contraction.columns, self.reduce.axes)
        )
        return near_terms if near_columns != near_terms else along_terms > along_columns

    def _near(self, axis: Axis) -> bool:
        """Whether vectors along an axis of the columns' operand lie few elements apart."""
        loads = [e for e in topological([self.contraction.terms[1]]) if isinstance(e, Load) and axis in e.free]
        apart = [ix.coefficient(load.offset, axis) or 0 for load in loads]
        return axis.extent % self.shape.width == 0 and all(1 <= step <= MOST_APART for step in apart)

    def pack_rows(self, first: Val, count: Val, start: Val, size: Val, finite: Val) -> Val:
        """The same of the rows of a tile, or of several: each tile of columns reads them again, from a near cache."""
        pack = self._rows_beside if self.shape.rows_beside else self._rows_apart
        return pack(first, count, start, size, finite)

    def fetch_rows(self, first: Val, part: Val, parts: int, start: Val, size: Val) -> None:
        """Ask for a part of what a tile's rows will be packed from, or read in place: it comes while other tiles are
        computed."""
        f, loads, direct = self.f, self._loads_of_rows(), self.shape.rows_direct is not None
        if not loads or self.shape.rows_beside or (direct and not self.rows_come_before):
            return
        line = self.line_elements
        share = -(-self.shape.panel // (parts * line)) * line
        begin = f.scaled(part, share)
        end = self.least(f.add(begin, integer(share)), size)

        def of_row(number: Val, _: list[Val]) -> Sequence[Val]:
            scope = self.at_line(0, f.add(first, number))

            def of_term(term: Val, _: list[Val]) -> Sequence[Val]:
                at = self.at_term(scope, f.add(start, term))
                for load in loads:
                    self.body.fetch(load.buffer, self.body.value(load.offset, at), 3 if direct else 2)
                return ()

            f.loop(begin, end, line, (), of_term)
            return ()

        f.loop(integer(0), integer(self.tile.rows), 1, (), of_row)

    @property
    def line_elements(self) -> int:
        """Elements of a cache line."""
        return line_elements(self.dtype.bytes)

    def _loads_of_rows(self) -> list[Load]:
        rows, terms = frozenset(self.contraction.rows), frozenset(self.reduce.axes)
        loads = [e for e in topological([self.contraction.terms[0]]) if isinstance(e, Load)]
        return [load for load in loads if load.free & rows and load.free & terms]

    @cached_property
    def rows_come_before(self) -> bool:
        """Whether rows that are read in place are asked for while the tiles before are computed: from beyond the
        second-level cache, if the nearest one has room for a tile's and those of the next: not in few of its sets."""
        machine, apart = self.body.machine, (self.shape.rows_direct or 0) * self.dtype.bytes
        room = 2 * self.tile.rows * self.shape.panel * self.dtype.bytes <= machine.l1_bytes
        return self._far(self._loads_of_rows()) and room and apart % machine.l1_set_bytes != 0

    def _far(self, loads: Sequence[Load]) -> bool:
        """Whether something that is read may come from beyond the second-level cache."""
        return any(self.body.is_far(load.buffer) for load in loads)

    def _term(self, side: int, scope: Scope, finite: Val) -> tuple[Val, Val]:
        """The operand's terms in the lanes of a scope, blanked where absent; and whether all so far are finite."""
        f, width = self.f, scope.vector.width if scope.vector is not None else 1
        value = f.splat(self.body.value(self.contraction.terms[side], scope), width)
        keep = scope.vector.mask if scope.vector is not None else None
        if self.contraction.absent_in == side and self.reduce.present is not None:
            present = f.splat(self.body.value(self.reduce.present, scope), width)
            keep = present if keep is None else scalars.binary(f, "and", keep, present)
        if keep is not None:
            value = scalars.select(f, keep, value, scalars.constant(f, self.dtype, 0, width))
        if not self.contraction.guards or self.contraction.absent_in == side:
            return value, finite
        return value, scalars.binary(f, "and", finite, self._all_finite(value))

    def _all_finite(self, value: Val) -> Val:
        f = self.f
        infinity = 0x7F800000 if self.dtype.bits == 32 else 0x7FF0000000000000
        bound = scalars.constant(f, self.dtype, infinity, value.width)
        lanes = scalars.compare(f, "lt", scalars.intrinsic(f, "fabs", value), bound)
        if value.width == 1:
            return lanes
        return f.call(f"llvm.vector.reduce.and.v{value.width}i1", (BOOL, 1), [lanes])

    def _rows_apart(self, first: Val, count: Val, start: Val, size: Val, finite: Val) -> Val:
        """a as [row][k]: each row a copy of consecutive terms."""
        f, width = self.f, self.shape.width

        def row(number: Val, state: list[Val]) -> Sequence[Val]:
            scope = self.at_line(0, f.add(first, number))
            self.body.hoist([self.contraction.terms[0]], scope)
            line = f.scaled(number, self.shape.row_strides[0])

            def chunk(at: Val, mask: Val | None, ok: Val) -> Val:
                value, ok = self._term(0, self.lanes_of_terms(scope, f.add(start, at), mask), ok)
                self.write(self.a, f.add(line, at), value)
                return ok

            return [self.chunks(size, width, state[0], chunk)]

        return f.loop(integer(0), count, 1, [finite], row)[0]

    def _rows_beside(self, first: Val, count: Val, start: Val, size: Val, finite: Val) -> Val:
        """a as [tile][k][row]: of each term the rows of several tiles, which lie on one page. There is code for as many
        as are packed together, for what is left of a block, and of the last one."""
        f, shape = self.f, self.shape
        whole = {shape.rows_packed} if shape.tile.block_m >= shape.rows_packed else set[int]()
        counts = whole | {each % shape.rows_packed for each in (shape.tile.block_m, shape.last_block)} - {0}

        def of(one: int, *others: int) -> list[Val]:
            if not others:
                return [self._beside(first, one, start, size, finite)]
            found = scalars.compare(f, "eq", count, integer(one))
            return f.either(found, lambda: of(one), lambda: of(*others))

        return of(*sorted(counts, reverse=True))[0]

    def _beside(self, first: Val, count: int, start: Val, size: Val, finite: Val) -> Val:
        """So many rows; what hangs over the end of a term's rows is written anew by the next term: lanes may well hold
        rows of the next tile, which are there."""
        f, rows, width = self.f, self.tile.rows, self.shape.width
        scopes: list[tuple[Scope, int]] = []
        for tile, place in product(range(-(-count // rows)), range(0, rows, width)):
            at, mask = tile * rows + place, None
            if at >= count:
                break
            if at + width > count:
                lanes = f.add(f.splat(integer(at), width), f.lanes(width))
                mask = scalars.compare(f, "lt", lanes, f.splat(integer(count), width))
            scope = self.lanes_of_lines(0, f.add(first, integer(at)), mask)
            self.body.hoist(self.reduce.children, scope)
            scopes.append((scope, tile * self.shape.strip + place))

        def term(number: Val, state: list[Val]) -> Sequence[Val]:
            found, line = state[0], f.scaled(number, self.shape.row_strides[1])
            for scope, place in scopes:
                value, found = self._term(0, self.at_term(scope, f.add(start, number)), found)
                self.write(self.a, f.add(line, integer(place)), value)
            return [found]

        return f.loop(integer(0), size, 1, [finite], term)[0]

    def _pack_columns(self, start: Val, size: Val, finite: Val) -> Val:
        """b as [tile][k][column], by vectors of columns.

        Terms in the outer loop read rows of memory from end to end, each while the next one comes: vectors as long as a
        line keep as many lines in flight as a core can have, shorter ones ask for later terms' besides. Where a
        column's place takes arithmetic (patches of a picture), columns stand outside, so that it is done once for all
        terms.
        """
        if len(self.contraction.columns) > 1 or self.contraction.absent_in == 1:
            return self._columns_of_terms(start, size, finite)
        f, width = self.f, self.shape.width
        load = self.contraction.terms[1]
        short = width * self.dtype.bytes < LINE_BYTES
        asks = short and isinstance(load, Load) and self.shape.columns_in_memory > 0 and self._far([load])

        def term(number: Val, state: list[Val]) -> Sequence[Val]:
            scope = self.at_term(self.scope, f.add(start, number))
            self.body.hoist(self.reduce.children, scope)

            def chunk(at: Val, mask: Val | None, ok: Val) -> Val:
                value, ok = self._term(1, self.lanes_of_lines(1, at, mask, scope), ok)
                self.write(self.b, self.column_place(at, number), value)
                return ok

            self.body.ahead = (self.reduce.axes[-1], PAGES_AHEAD) if asks else None
            found = self.chunks(self.columns, width, state[0], chunk)
            self.body.ahead = None
            return [found]

        return f.loop(integer(0), size, 1, [finite], term)[0]

    def _columns_of_terms(self, start: Val, size: Val, finite: Val) -> Val:
        """Which of a column's taps are absent is found out once for all channels: taps stand in the code one by one."""
        f, width = self.f, self.shape.width
        axes = self.reduce.axes
        first = len(axes) - self._taps()
        taps = math.prod(axis.extent for axis in axes[first:])
        begin, count = self.quotient(start, taps), self.quotient(size, taps)

        def some(at: Val, vectors: int, mask: Val | None, ok: Val) -> Val:
            scopes = list[tuple[Val, int, Scope]]()
            for column in (f.add(at, integer(vector * width)) for vector in range(vectors)):
                scope = self.lanes_of_lines(1, column, mask)
                self.body.hoist(self.reduce.children, scope)
                for tap, place in enumerate(_places(axes[first:])):
                    scopes.append((column, tap, Scope(scope, dict(zip(axes[first:], place, strict=True)))))
            for _, _, each in scopes:
                self.body.hoist(self.reduce.children, each)

            def unit(number: Val, state: list[Val]) -> Sequence[Val]:
                places = self.body.split(f.add(begin, number), axes[:first])
                line, found = f.scaled(number, taps), state[0]
                for column, tap, each in scopes:
                    inner = Scope(each, dict(zip(axes[:first], places, strict=True)))
                    value, found = self._term(1, inner, found)
                    self.write(self.b, self.column_place(column, f.add(line, integer(tap))), value)
                return [found]

            return f.loop(integer(0), count, 1, [ok], unit)[0]

        several = 1 if self.contraction.absent_in == 1 else TOGETHER // taps
        return self.runs(self.columns, width, several, finite, some)

    def _taps(self) -> int:
        """How many of the last axes of the terms hold few terms, and whole in every panel."""
        count, terms = 0, 1
        for axis in reversed(self.reduce.axes[1:]):
            terms *= axis.extent
            if terms > MOST_TAPS or self.shape.panel % terms:
                break
            count += 1
        return count

    def _turn_columns(self, start: Val, size: Val, finite: Val) -> Val:
        """b as [tile][k][column] from columns whose terms lie side by side: squares, turned in registers.

        Columns beyond the last repeat it: their totals are never stored. Terms beyond the last hang over into
        what is written next, or into the area's spare room.
        """
        f, width = self.f, self.shape.width
        last = f.let(f"sub i64 {self.columns.text}, 1", I64)

        outside, run = self._run_of_terms()
        axes, short = self.reduce.axes, min(width, max(FEWEST, 1 << (run - 1).bit_length()))
        end = f.add(start, size)

        def group(at: Val, state: list[Val]) -> Sequence[Val]:
            scopes = [self.at_line(1, self.least(f.add(at, integer(n)), last)) for n in range(width)]
            for scope in scopes:
                self.body.hoist(self.reduce.children, scope)

            def square(lanes: Sequence[Scope], term: Val, ok: Val) -> Val:
                parts: list[Val] = []
                for each in lanes:
                    value, ok = self._term(1, each, ok)
                    parts.append(value)
                for number, value in enumerate(turned(f, parts)):
                    self.write(self.b, self.column_place(at, f.add(term, integer(number))), value)
                return ok

            def anywhere(term: Val, mask: Val | None, ok: Val) -> Val:
                return square([self.lanes_of_terms(scope, f.add(start, term), mask) for scope in scopes], term, ok)

            def of_run(number: Val, state: list[Val]) -> Sequence[Val]:
                bound = dict(zip(axes[:outside], self.body.split(number, axes[:outside]), strict=True))
                inner = [Scope(scope, bound) for scope in scopes]
                for each in inner:
                    self.body.hoist(self.reduce.children, each)
                first = f.scaled(number, run)
                begins = scalars.greatest(f, first, start)
                ends = self.least(f.add(first, integer(run)), end)
                place, away = (f.let(f"sub i64 {begins.text}, {each.text}", I64) for each in (first, start))

                def inside(at: Val, mask: Val | None, ok: Val) -> Val:
                    flat = f.add(place, at)
                    lanes = [self.body.lane_scope(s, axes[outside:], flat, short, mask, aligned=False) for s in inner]
                    return square(lanes, f.add(away, at), ok)

                return [self.chunks(f.let(f"sub i64 {ends.text}, {begins.text}", I64), short, state[0], inside)]

            if outside:
                runs = self.quotient(f.add(end, integer(run - 1)), run)
                return f.loop(self.quotient(start, run), runs, 1, state, of_run)
            return [self.chunks(size, width, state[0], anywhere)]

        return f.loop(integer(0), self.columns, width, [finite], group)[0]

    def _run_of_terms(self) -> tuple[int, int]:
        """How many of the first axes of the terms stand outside of runs that lie in memory, and how long these are; 0
        where vectors of all terms lie in one run each."""
        axes, run, width = self.reduce.axes, 1, self.shape.width
        loads = [e for e in topological([self.contraction.terms[1]]) if isinstance(e, Load) and e.free & {*axes}]
        for position in reversed(range(len(axes))):
            if any(ix.coefficient(load.offset, axes[position]) != run for load in loads):
                whole = run % width == 0 and self.shape.panel % width == 0
                return (0, 1) if whole or run < FEWEST else (position + 1, run)
            run *= axes[position].extent
        return 0, 1


def _places(axes: Sequence[Axis]) -> list[tuple[Val, ...]]:
    """Every place on the axes, the last fastest."""
    return list(product(*([integer(at) for at in range(axis.extent)] for axis in axes)))


def turned(f: Function, rows: list[Val]) -> list[Val]:
    """The columns of some rows: of a square of vectors, or of squares of shorter ones, which are put side by side. In
    each stage halves of runs change places between pairs of rows."""
    width, count = len(rows), rows[0].width
    rows, run = [_side_by_side(f, rows[first::count]) for first in range(count)], count // 2
    while run:
        if run == 2 and rows[0].dtype.bits == 32:
            return [column for first in range(0, count, 4) for column in _quads(f, rows[first : first + 4])]
        low = [lane if lane & run == 0 else width + lane - run for lane in range(width)]
        high = [lane + run if lane & run == 0 else width + lane for lane in range(width)]
        rows = [_shuffled(f, rows[n & ~run], rows[n | run], low if n & run == 0 else high) for n in range(count)]
        run //= 2
    return rows


def _quads(f: Function, rows: Sequence[Val]) -> list[Val]:
    """The columns of squares of four, side by side in four rows: rows two apart are interleaved, twice. Each is one
    instruction on any machine; an exchange of single lanes is two on x86 without permutes of two registers."""
    width = rows[0].width
    low = [first + lane for first in range(0, width, 4) for lane in (0, width, 1, width + 1)]
    high = [lane + 2 for lane in low]
    for _ in range(2):
        rows = [_shuffled(f, rows[n], rows[n + 2], half) for n in range(2) for half in (low, high)]
    return list(rows)


def _side_by_side(f: Function, parts: Sequence[Val]) -> Val:
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [_shuffled(f, a, b, list(range(2 * a.width))) for a, b in pairs]
    return parts[0]


def _shuffled(f: Function, a: Val, b: Val, lanes: list[int]) -> Val:
    picks = ", ".join(f"i32 {lane}" for lane in lanes)
    return f.let(f"shufflevector {a.typed}, {b.typed}, <{len(lanes)} x i32> <{picks}>", a.dtype, len(lanes))

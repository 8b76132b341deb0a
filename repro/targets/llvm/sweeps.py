"""Sums of columns, row by row: the order's lanes of all columns of an item stand in private memory (rule 10).

Rows are read in the order of memory and not one sum after another. Of each lane some rows are added at a time, so that
its running sum is read and written once for them; a leaf of few rows is folded as it is read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property

from repro.ir import index as ix
from repro.ir.expressions import Axis, Lanes, Load, Reduce, topological
from repro.ir.loops import Kernel
from repro.ir.schedule import Schedule
from repro.ir.types import F32, I64
from repro.machines.machine import LINE_BYTES, line_elements, whole_lines
from repro.targets.llvm import scalars
from repro.targets.llvm.body import Body
from repro.targets.llvm.reductions import Reduction
from repro.targets.llvm.scope import Scope
from repro.targets.llvm.text import Val, element, integer, vector

PRIVATE_BYTES = 128 << 10
"""For the lanes of the columns that are swept together: they stay in the second-level cache."""
AT_ONCE = 16
"""Rows of a column that are added at a time where a leaf has few of each lane."""
SHORT = 4
"""Columns of f32 that are aligned in every buffer (16 bytes, `kernel.module`): the vectors at the ends of runs whose
rows do not begin with a line have so many."""


class Layout:
    """Where the private rows of each sum of a kernel begin, in bytes: its lanes, its leaves' lanes, its total."""

    def __init__(self, kernel: Kernel, schedule: Schedule) -> None:
        self.sums = [expr for expr in kernel.expressions if isinstance(expr, Reduce)]
        axis, step = kernel.axes[schedule.vector_axis or 0], schedule.vector_width
        most = PRIVATE_BYTES // sum(order_of(each).lanes * each.dtype.bytes for each in self.sums)
        self.columns = min(axis.extent, max(step, most // step * step))
        """Side by side, at most."""
        self.starts, self.bytes = dict[Reduce, int](), 0
        for each in self.sums:
            self.starts[each] = self.bytes
            self.bytes += self.pitch(each) * (2 * order_of(each).lanes + 1)

    def pitch(self, reduce: Reduce) -> int:
        """Bytes from a private row to the next: a line more than it holds, so that rows do not share a cache set."""
        return whole_lines(self.columns * reduce.dtype.bytes) + LINE_BYTES


def first_line(body: Body, layout: Layout, axis: Axis) -> Val | None:
    """The first column that begins a line, in rows of whole lines of a buffer: a multiple of `SHORT`, from the address
    at run time; None where there is no such buffer.

    Where vectors cross lines, each line is read for two of them, and rows a power of two apart push each other's lines
    out of the caches in between (16 rows of 128 KiB on a Zen 4: twice the time). Columns do not depend on each other:
    vectors may begin anywhere among them.
    """
    terms = (expr for reduce in layout.sums for term in reduce.terms for expr in topological([term]))
    loads = [expr for expr in terms if isinstance(expr, Load) and ix.coefficient(expr.offset, axis) == 1]
    lines = line_elements(F32.bytes)
    for each in loads:
        rows = ix.add(each.offset, ix.scale(axis, -1))
        if each.dtype is F32 and ix.divisible(rows, lines) and axis not in rows.free:
            f = body.f
            address = f.let(f"ptrtoint ptr %b{each.buffer} to i64", I64)
            beyond = f.let(f"lshr i64 {address.text}, {(F32.bytes - 1).bit_length()}", I64)
            before = f.let(f"sub i64 0, {beyond.text}", I64)
            return f.let(f"and i64 {before.text}, {lines - SHORT}", I64)
    return None


def order_of(reduce: Reduce) -> Lanes:
    assert isinstance(reduce.order, Lanes), "a sum in lanes"
    return reduce.order


class Sweep:
    """The sums of the columns `begin` to `end` along an axis, in a scope that binds all other axes."""

    def __init__(self, body: Body, layout: Layout, schedule: Schedule, axis: Axis) -> None:
        self.body, self.f, self.layout, self.axis = body, body.f, layout, axis
        self.width, self.rows = schedule.vector_width, schedule.sweep
        self.begin, self.end, self.scope = integer(0), integer(0), Scope(None, {})
        self.line = first_line(body, layout, axis) if self.width % SHORT == 0 else None
        """The first column that begins a line of what is read; None where there is none, or it is not known."""
        self.head = integer(0)
        """Columns in front of it in the item."""

    def emit(self, begin: Val, end: Val, scope: Scope, stores: Callable[[Scope], None]) -> None:
        """All sums of the item, then its stores, a vector of columns at a time."""
        self.begin, self.end, self.scope = begin, end, scope
        if self.line is not None:
            self.head = self.before(self.line)
        done: list[Reduce] = []
        for group in self.groups:
            self.sum(group, done)
            done += group
        self.columns(lambda at: stores(self.lanes(scope, at, done)))

    @cached_property
    def groups(self) -> list[list[Reduce]]:
        """Sums over the same rows that do not need each other's results are computed in one reading."""
        groups: list[list[Reduce]] = []
        for reduce in self.layout.sums:
            key, last = _rows_of(reduce), groups[-1] if groups else []
            if last and _rows_of(last[0]) == key and not any(_needs(reduce, other) for other in last):
                last.append(reduce)
            else:
                groups.append([reduce])
        return groups

    # a group of sums ────────────────────────────────────────────────────────────────────────────────

    def sum(self, group: list[Reduce], done: list[Reduce]) -> None:
        (count, order), f = _rows_of(group[0]), self.f
        leaf = _Leaf(self, group, done)
        if count <= order.leaf:
            leaf.emit(integer(0), count, leaf.total)
            return
        leaves, rest = divmod(count, order.leaf)
        held = min(order.lanes, leaves + (rest > 0))
        for reduce in group:
            self.fill(reduce, order.lanes, held)

        def one(number: Val, size: int) -> tuple[()]:
            lane = f.let(f"and i64 {number.text}, {order.lanes - 1}", I64)
            leaf.emit(f.scaled(number, order.leaf), size, lambda at, sums: leaf.add(lane, at, sums))
            return ()

        f.loop(integer(0), integer(leaves), 1, (), lambda number, _: one(number, order.leaf))
        if rest:
            one(integer(leaves), rest)
        leaf.fold(order.lanes, held, leaf.total)

    def fill(self, reduce: Reduce, first: int, count: int) -> None:
        """The identity in some private rows."""

        def nothing(at: Val) -> Val:
            return Reduction(self.body, reduce, self.lanes(self.scope, at, [])).identity()

        def row(number: Val, _: list[Val]) -> tuple[()]:
            self.columns(lambda at: self.write(reduce, self.f.add(number, integer(first)), at, nothing(at)))
            return ()

        self.f.loop(integer(0), integer(count), 1, (), row)

    # columns and private rows ───────────────────────────────────────────────────────────────────────

    def columns(self, visit: Callable[[Val], None]) -> None:
        """A vector after another from the first line on; what is left behind the last and before the first, in
        short ones."""
        f, width = self.f, self.width

        def inside(at: Val, _: list[Val]) -> tuple[()]:
            visit(at)
            return ()

        def short(at: Val, _: list[Val]) -> tuple[()]:
            behind = scalars.compare(f, "lt", at, self.end)
            visit(scalars.select(f, behind, at, f.let(f"sub i64 {at.text}, {span.text}", I64)))
            return ()

        if self.line is None:
            f.loop(self.begin, self.end, width, (), inside)
            return
        span, first = f.let(f"sub i64 {self.end.text}, {self.begin.text}", I64), f.add(self.begin, self.head)
        rest = f.let(f"sub i64 {self.end.text}, {first.text}", I64)
        whole = f.add(first, f.let(f"and i64 {rest.text}, {-width}", I64))
        f.loop(first, whole, width, (), inside)
        self.width = SHORT
        f.loop(whole, f.add(self.end, self.head), SHORT, (), short)
        self.width = width

    def before(self, line: Val) -> Val:
        """How many of the item's columns lie in front of the first line, if a line begins with that column."""
        f = self.f
        span, apart = (f.let(f"sub i64 {a.text}, {self.begin.text}", I64) for a in (self.end, line))
        columns = f.let(f"and i64 {apart.text}, {line_elements(F32.bytes) - SHORT}", I64)
        return scalars.select(f, scalars.compare(f, "lt", columns, span), columns, span)

    def lanes(self, scope: Scope, at: Val, done: Sequence[Reduce]) -> Scope:
        """The scope of a vector of columns, in which some sums are known."""
        numbers = self.f.add(self.f.splat(at, self.width), self.f.lanes(self.width))
        made = Scope(scope, {self.axis: numbers}, self.width, ((self.axis,), at))
        for reduce in done:
            made.known[reduce] = self.read(reduce, integer(2 * order_of(reduce).lanes), at)
        return made

    def read(self, reduce: Reduce, row: Val, at: Val) -> Val:
        kind = vector(element(reduce.dtype), self.width)
        address = self.address(reduce, row, at)
        return self.f.let(f"load {kind}, ptr {address}, align {reduce.dtype.bytes}", reduce.dtype, self.width)

    def write(self, reduce: Reduce, row: Val, at: Val, value: Val) -> None:
        self.f.line(f"store {value.typed}, ptr {self.address(reduce, row, at)}, align {reduce.dtype.bytes}")

    def address(self, reduce: Reduce, row: Val, at: Val) -> str:
        f = self.f
        base = f.add(f.scaled(row, self.layout.pitch(reduce)), integer(self.layout.starts[reduce]))
        start = f.let(f"getelementptr inbounds i8, ptr %scratch, {base.typed}", I64)
        column = f.let(f"sub i64 {at.text}, {self.begin.text}", I64)
        return f.let(f"getelementptr inbounds {element(reduce.dtype)}, ptr {start.text}, {column.typed}", I64).text


Take = Callable[[Val, list[Val]], None]
"""What becomes of the sums of a group for a vector of columns."""


class _Leaf:
    """One leaf of a group of sums: `lanes` accumulators for each column, folded by halves."""

    def __init__(self, sweep: Sweep, group: list[Reduce], done: list[Reduce]) -> None:
        self.sweep, self.f, self.group, self.done = sweep, sweep.f, group, done
        self.lanes = order_of(group[0]).lanes

    def emit(self, start: Val, count: int, take: Take) -> None:
        """A leaf of `count` rows from `start` on."""
        if -(-count // self.lanes) <= self.sweep.rows:
            self.few(start, count, take)
        else:
            self.many(start, count)
            self.fold(0, self.lanes, take)

    def few(self, start: Val, count: int, take: Take) -> None:
        """Lanes that fold with each other are read together, and only what they come to is held; what would be the one
        held sum is taken at once."""
        f, lanes = self.f, self.lanes
        each, rest = divmod(count, lanes)
        held = min(lanes, _power_of_two(-(-count // AT_ONCE)))
        longer, left = divmod(rest, held)

        def groups(first: int, last: int, more: int) -> None:
            """The lanes that fold onto some held ones: of each of these, the first `more` have a row more."""

            def group(lane: Val, _: list[Val]) -> tuple[()]:
                begin = f.add(start, lane)
                rows = [
                    [f.add(begin, integer(at + lanes * row)) for row in range(each + (number < more))]
                    for number, at in enumerate(range(0, lanes, held))
                ]
                self.visit(rows, take if held == 1 else lambda at, sums: self.put(lane, at, sums))
                return ()

            f.loop(integer(first), integer(last), 1, (), group)

        if left:
            groups(0, left, longer + 1)
        groups(left, held, longer)
        if held > 1:
            self.fold(0, held, take)

    def many(self, start: Val, count: int) -> None:
        """Some rows of each lane at a time. The first and the last turn share what whole turns leave; in the last one
        the first lanes may have a row more."""
        f, lanes, most = self.f, self.lanes, self.sweep.rows
        each, rest = divmod(count, lanes)
        longest = each + (rest > 0)
        whole = -(-longest // most) - 2
        first = (longest - whole * most) // 2
        left = each - first - whole * most
        if rest == 0 and left == most:
            whole, left = whole + 1, 0
        self.turn(start, first, 0, lanes, True)
        begin, last = (f.add(start, integer(lanes * row)) for row in (first, first + whole * most))

        def later(at: Val, _: list[Val]) -> tuple[()]:
            self.turn(at, most, 0, lanes, False)
            return ()

        if whole:
            f.loop(begin, last, lanes * most, (), later)
        self.turn(last, left + 1, 0, rest, False)
        self.turn(last, left, rest, lanes, False)

    def turn(self, start: Val, rows: int, first: int, last: int, fresh: bool) -> None:
        """So many rows, from `start` on, of each lane from `first` to before `last`: as its first ones, or onto its
        running sum."""

        def one(lane: Val, _: list[Val]) -> tuple[()]:
            begin = self.f.add(start, lane)
            places = [self.f.add(begin, integer(self.lanes * row)) for row in range(rows)]
            self.visit([places], lambda at, sums: self.put(lane, at, sums), None if fresh else lane)
            return ()

        if rows and first < last:
            self.f.loop(integer(first), integer(last), 1, (), one)

    # values ─────────────────────────────────────────────────────────────────────────────────────────

    def visit(self, lanes: list[list[Val]], take: Take, running: Val | None = None) -> None:
        """Along the columns: the rows of each lane ascending, then those lanes folded."""
        scopes = [[[self.row(reduce, row) for row in rows] for rows in lanes] for reduce in self.group]

        def column(at: Val) -> None:
            sums: list[Val] = []
            for reduce, of_lanes in zip(self.group, scopes, strict=True):
                before = None if running is None else self.sweep.read(reduce, running, at)
                parts = [self.ascending(reduce, rows, at, before) if rows else None for rows in of_lanes]
                sums.append(self.halves(reduce, parts, at))
            take(at, sums)

        self.sweep.columns(column)

    def row(self, reduce: Reduce, flat: Val) -> Scope:
        """The scope of a row: what it alone decides is computed before its columns."""
        made = Reduction(self.sweep.body, reduce, self.sweep.scope).at(flat)
        self.sweep.body.hoist(reduce.children, made)
        return made

    def ascending(self, reduce: Reduce, rows: list[Scope], at: Val, total: Val | None) -> Val:
        for row in rows:
            scope = self.sweep.lanes(row, at, [other for other in self.done if _needs(reduce, other)])
            own = Reduction(self.sweep.body, reduce, scope)
            term = own.term(scope)
            total = term if total is None else own.combine(total, term)
        assert total is not None, "a lane without rows"
        return total

    def halves(self, reduce: Reduce, parts: Sequence[Val | None], at: Val) -> Val:
        """Lane j with j + half, down to one; an absent lane changes nothing."""
        own = Reduction(self.sweep.body, reduce, self.sweep.lanes(self.sweep.scope, at, []))
        present = [*parts, *[None] * (_power_of_two(len(parts)) - len(parts))]
        while len(present) > 1:
            half = len(present) // 2
            pairs = zip(present[:half], present[half:], strict=True)
            present = [a if b is None or a is None else own.combine(a, b) for a, b in pairs]
        (total,) = present
        assert total is not None, "the first lane is there"
        return total

    def put(self, lane: Val, at: Val, sums: list[Val]) -> None:
        for reduce, value in zip(self.group, sums, strict=True):
            self.sweep.write(reduce, lane, at, value)

    def add(self, lane: Val, at: Val, sums: list[Val]) -> None:
        """A leaf's sum onto its lane among the leaves."""
        for reduce, value in zip(self.group, sums, strict=True):
            row = self.f.add(lane, integer(self.lanes))
            own = Reduction(self.sweep.body, reduce, self.sweep.lanes(self.sweep.scope, at, []))
            self.sweep.write(reduce, row, at, own.combine(self.sweep.read(reduce, row, at), value))

    def total(self, at: Val, sums: list[Val]) -> None:
        for reduce, value in zip(self.group, sums, strict=True):
            self.sweep.write(reduce, integer(2 * self.lanes), at, value)

    def fold(self, first: int, count: int, take: Take) -> None:
        """What the private rows `first` to `first + count` hold, folded."""

        def column(at: Val) -> None:
            sums: list[Val] = []
            for reduce in self.group:
                parts = [self.sweep.read(reduce, integer(first + lane), at) for lane in range(count)]
                sums.append(self.halves(reduce, parts, at))
            take(at, sums)

        self.sweep.columns(column)


def _rows_of(reduce: Reduce) -> tuple[int, Lanes]:
    return math.prod(axis.extent for axis in reduce.axes), order_of(reduce)


def _needs(reduce: Reduce, other: Reduce) -> bool:
    """Whether a sum's terms read another sum."""
    seen, stack = set[object](), list(reduce.children)
    while stack:
        expr = stack.pop()
        if expr is other:
            return True
        if expr not in seen:
            seen.add(expr)
            stack.extend(expr.children)
    return False


def _power_of_two(count: int) -> int:
    return 1 << (count - 1).bit_length()

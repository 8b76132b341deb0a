"""Contractions that read one operand through a moving window: convolutions and their gradients.

In such an operand a(row, k) an axis of the rows and one of the terms only ever occur in one sum, p*x + q*y: a place
(a pixel's column is stride * x + tap). Neighbouring rows then share most of what they read, and copying a row's terms
side by side writes each element once for each tap. A window is the same operand in places: evaluated once for each
place of a block, it is read by every row and tap from where it lies, since x and y are strides over places.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

from passes.rename import rewritten
from repro.ir import index as ix
from repro.ir.contraction import Contraction, find, one_axis
from repro.ir.expressions import Affine, Apply, Axis, Const, Expr, IndexOp, Load, topological
from repro.ir.loops import Kernel, Store

ROWS = 16
"""Rows that a unit should have at least, for whole register tiles."""

FEW_ABSENT = 32
"""Where fewer than one term of so many is absent, it is not worth asking which."""


@dataclass(frozen=True)
class Place:
    """An axis of the window: `row_step` for each step of the row axis and `term_step` for each of the term axis, where
    it has one, counted from `least`, so that it begins at 0. Terms outside of `first` to `last` are absent."""

    axis: Axis
    row: Axis | None
    row_step: int
    term: Axis | None
    term_step: int
    first: int
    last: int

    @property
    def trimmed(self) -> bool:
        """Whether so many terms are absent that they are worth leaving out."""
        if self.row is None or self.term is None:
            return False
        pairs = list(product(range(self.row.extent), range(self.term.extent)))
        return sum(not self.there(row, term) for row, term in pairs) * FEW_ABSENT >= len(pairs)

    def there(self, row: int, term: int) -> bool:
        """Whether the term of a row is not absent for where they stand along these axes."""
        return self.first <= self.row_step * row + self.term_step * term - self.least <= self.last

    @property
    def least(self) -> int:
        ends = ((self.row, self.row_step), (self.term, self.term_step))
        return sum(min(0, step * (axis.extent - 1)) for axis, step in ends if axis is not None)


@dataclass(frozen=True)
class Window:
    """`kernel` is the one asked about, or that with an axis cut in two; its contraction's rows are the side that the
    window is of.

    Rows are `row_units` times `rows`, terms are `term_units` times `terms`: blocks and panels hold whole units.
    `term` and `present` are the rows' operand in unit axes and places.
    """

    kernel: Kernel
    contraction: Contraction
    row_units: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    term_units: tuple[Axis, ...]
    terms: tuple[Axis, ...]
    places: tuple[Place, ...]
    term: Expr
    present: Expr | None

    @property
    def rows_per_unit(self) -> int:
        return math.prod(axis.extent for axis in self.rows)

    @property
    def terms_per_unit(self) -> int:
        return math.prod(axis.extent for axis in self.terms)

    @cached_property
    def in_place(self) -> tuple[int, ...] | None:
        """Elements between neighbours in memory along row units, term units and each place, where the window lies there
        as it is: without blanks, and units at one distance. None where it does not."""
        term = self.term
        if not isinstance(term, Load) or term.when is not None or self.present is not None:
            return None
        found = list[int]()
        for units in (self.row_units, self.term_units):
            step = ix.coefficient(term.offset, units[-1]) if units else 0
            if step is None or not one_axis(term.offset, units, step):
                return None
            found.append(step)
        steps = [ix.coefficient(term.offset, place.axis) for place in self.places]
        known = [step for step in steps if step is not None]
        return (*found, *known) if len(known) == len(steps) else None


def window(kernel: Kernel, most_rows: int) -> Window | None:
    """The kernel's window, with at most about `most_rows` rows in a unit; None where no axes share places."""
    kernel, found = _contraction(kernel)
    if found is None:
        return None
    for side in (0, 1) if found.absent_in is None else (found.absent_in,):
        made = _of_side(kernel, found, side, most_rows)
        if made is not None:
            return made
    return None


def pointwise(kernel: Kernel) -> Window | None:
    """The operand whose outputs lie side by side as a window in which every term is a unit: pixels of a convolution of
    one tap. None where axes share places."""
    kernel, found = _contraction(kernel)
    if found is None or found.absent_in is not None or window(kernel, 1 << 20) is not None:
        return None
    contraction = _turned(kernel, found, 1)
    rows, terms = contraction.rows, contraction.reduce.axes
    if not rows or not contraction.columns:
        return None
    return _window(kernel, contraction, rows[_first(rows, len(rows) - 1) :], (), (terms, ()))


def any_window(kernel: Kernel, most_rows: int) -> Window | None:
    return window(kernel, most_rows) or pointwise(kernel)


def _contraction(kernel: Kernel) -> tuple[Kernel, Contraction | None]:
    """The kernel with its groups cut, and its contraction, if it has one that has outputs and terms."""
    if len(kernel.stores) > 1 or find(kernel) is None:
        return kernel, None
    cut = ungrouped(kernel)
    found = find(cut)
    return cut, None if found is None or 0 in found.extents else found


def whole_window(kernel: Kernel) -> Window | None:
    """The kernel's window with all rows in one unit, and all terms from the first that shares places in another: of the
    last two axes of the terms at most."""
    kernel, found = _contraction(kernel)
    if found is None:
        return None
    for side in (0, 1) if found.absent_in is None else (found.absent_in,):
        contraction = _turned(kernel, found, side)
        axes = contraction.reduce.axes
        pairs = _pairs(contraction, axes[-2:])
        if pairs:
            first = min(axes.index(pair[2]) for pair in pairs)
            return _window(kernel, contraction, contraction.rows, pairs, (axes[:first], axes[first:]))
    return None


def _of_side(kernel: Kernel, found: Contraction, side: int, most_rows: int) -> Window | None:
    contraction = _turned(kernel, found, side)
    units = _units(contraction)
    pairs = _pairs(contraction, units[1])
    if not pairs:
        return None
    first = _first(contraction.rows, min(contraction.rows.index(pair[0]) for pair in pairs))
    for at in reversed(range(first, len(contraction.rows))):
        rows = math.prod(axis.extent for axis in contraction.rows[at:])
        if rows > most_rows:
            axis, most = contraction.rows[at], most_rows * contraction.rows[at].extent // rows
            inner = max((size for size in range(2, most + 1) if axis.extent % size == 0), default=None)
            if inner is not None:
                return _of_part(kernel, axis, inner, side, most_rows)
            first = at + 1
            break
    kept = [pair for pair in pairs if pair[0] in contraction.rows[first:]]
    return _window(kernel, contraction, contraction.rows[first:], kept, units) if kept else None


def _first(rows: tuple[Axis, ...], first: int) -> int:
    """The first row axis of a unit that begins at `first` or before, with about as many rows as a tile."""
    while first and math.prod(axis.extent for axis in rows[first - 1 :]) <= ROWS:
        first -= 1
    return first


def _turned(kernel: Kernel, found: Contraction, side: int) -> Contraction:
    """The contraction with a side as rows, and all axes that it has alone."""
    a, b = found.terms[side], found.terms[1 - side]
    rows = tuple(axis for axis in kernel.axes if axis in a.free and axis not in b.free)
    columns = tuple(axis for axis in kernel.axes if axis in b.free and axis not in a.free)
    batch = tuple(axis for axis in kernel.axes if axis not in rows and axis not in columns)
    absent = None if found.absent_in is None else 0
    unsigned = None if found.unsigned is None else abs(found.unsigned - side)
    return replace(
        found,
        terms=(a, b),
        batch=batch,
        rows=rows,
        columns=columns,
        absent_in=absent,
        unsigned=unsigned,
        elements=(found.elements[side], found.elements[1 - side]),
    )


def _of_part(kernel: Kernel, axis: Axis, inner: int, side: int, most_rows: int) -> Window | None:
    """The window of the kernel with the axis cut in two, the inner one of that extent."""
    again = cut(kernel, axis, inner)
    found = find(again)
    return None if found is None else _of_side(again, found, side, most_rows)


def ungrouped(kernel: Kernel) -> Kernel:
    """A contraction with each axis of groups and their members, of which an index takes the group alone, cut in two:
    then members are an axis of one operand."""
    for load in (expr for expr in kernel.expressions if isinstance(expr, Load)):
        parts = [expr for expr in topological([load.offset]) if isinstance(expr, IndexOp)]
        members = {(expr.children[0], expr.divisor) for expr in parts if expr.op == "mod"}
        for expr in parts:
            axis = expr.children[0]
            alone = expr.op == "floordiv" and (axis, expr.divisor) not in members
            if alone and isinstance(axis, Axis) and axis in kernel.axes and axis.extent % expr.divisor == 0:
                return ungrouped(cut(kernel, axis, expr.divisor))
    return kernel


def cut(kernel: Kernel, axis: Axis, inner: int) -> Kernel:
    """The kernel with an axis as two, the inner one of that extent."""
    fresh = 1 + max(each.number for each in kernel.expressions if isinstance(each, Axis))
    fresh = max(fresh, 1 + max(each.number for each in kernel.axes))
    outside, inside = ix.axis(fresh, axis.extent // inner), ix.axis(fresh + 1, inner)
    whole: dict[Expr, Expr] = {axis: ix.add(ix.scale(outside, inner), inside)}
    stores = tuple(
        Store(store.buffer, offset, value)
        for store in kernel.stores
        for offset, value in [rewritten([store.offset, store.value], whole)]
    )
    axes = tuple(each for one in kernel.axes for each in ((outside, inside) if one is axis else (one,)))
    return Kernel(kernel.buffers, kernel.scalars, axes, kernel.serial, stores)


# places ─────────────────────────────────────────────────────────────────────────────────────────────

Pair = tuple[Axis, int, Axis, int]
"""A row axis and its step, a term axis and its step."""


def _pairs(contraction: Contraction, terms: Sequence[Axis]) -> list[Pair]:
    """Which axes share places: each of those of the terms with the row axis beside which it makes least steps."""
    roots = _roots(contraction)
    found: list[Pair] = []
    for term in reversed(terms):
        left = [axis for axis in contraction.rows if axis not in [pair[0] for pair in found]]
        shared = [pair for row in left if (pair := _shared(roots, row, term)) is not None]
        if shared:
            found.append(min(shared, key=lambda pair: max(abs(pair[1]), abs(pair[3]))))
    return found


def _roots(contraction: Contraction) -> list[Expr]:
    present = contraction.reduce.present if contraction.absent_in == 0 else None
    return [contraction.terms[0]] if present is None else [contraction.terms[0], present]


def _shared(roots: Sequence[Expr], row: Axis, term: Axis) -> Pair | None:
    """The steps of both over places, if each index has both or neither, in one ratio, one of the steps is 1, and places
    are fewer than rows times terms."""
    steps: tuple[int, int] | None = None
    for expr in topological(roots):
        if row not in expr.children and term not in expr.children:
            continue
        if not isinstance(expr, Affine):
            return None
        steps_of = dict(zip(expr.children, expr.coefficients, strict=True))
        both = [steps_of.get(axis, 0) for axis in (row, term)]
        if 0 in both:
            return None
        unit = math.gcd(*both)
        found = (both[0] // unit, both[1] // unit)
        if steps is not None and found not in (steps, (-steps[0], -steps[1])):
            return None
        steps = found if steps is None else steps
    if steps is None or min(map(abs, steps)) != 1 or _extent(row, steps[0], term, steps[1]) >= row.extent * term.extent:
        return None
    return row, steps[0], term, steps[1]


def _extent(row: Axis, row_step: int, term: Axis, term_step: int) -> int:
    return abs(row_step) * (row.extent - 1) + abs(term_step) * (term.extent - 1) + 1


def _units(contraction: Contraction) -> tuple[tuple[Axis, ...], tuple[Axis, ...]]:
    """The reduction's axes in two: the last ones, of which every panel holds all, and those before."""
    axes, size = contraction.reduce.axes, 1
    panel = min(contraction.chain.panel, contraction.extents[3])
    for at in reversed(range(len(axes))):
        size *= axes[at].extent
        if panel % size:
            return axes[: at + 1], axes[at + 1 :]
    return (), axes


def _window(
    kernel: Kernel,
    contraction: Contraction,
    rows: tuple[Axis, ...],
    pairs: Sequence[Pair],
    of_terms: tuple[tuple[Axis, ...], tuple[Axis, ...]],
) -> Window:
    units, terms = of_terms
    numbers = [each.number for each in (*kernel.expressions, *kernel.axes) if isinstance(each, Axis)]
    fresh, known, places = 1 + max(numbers), dict[Expr, Expr](), list[Place]()
    for row, row_step, term, term_step in pairs:
        extent = _extent(row, row_step, term, term_step)
        place = Place(ix.axis(fresh + len(places), extent), row, row_step, term, term_step, 0, extent - 1)
        single, step, other = (term, term_step, row) if abs(term_step) == 1 else (row, row_step, term)
        known[single] = ix.scale(ix.add(place.axis, ix.number(place.least)), step)
        known[other] = ix.number(0)
        places.append(place)
    places += [Place(axis, axis, 1, None, 0, 0, axis.extent - 1) for axis in rows if axis not in known]
    places += [Place(axis, None, 0, axis, 1, 0, axis.extent - 1) for axis in terms if axis not in known]
    term, *present = rewritten(_roots(contraction), known)
    if present:
        places = [_trimmed(place, present[0]) for place in places]
    places.sort(key=lambda place: -_stride(term, place.axis))
    before = contraction.rows[: len(contraction.rows) - len(rows)]
    return Window(kernel, contraction, before, rows, units, terms, tuple(places), term, present[0] if present else None)


def _trimmed(place: Place, present: Expr) -> Place:
    """The place with the ends that the conditions on it alone leave of it."""
    first, last, conditions = place.first, place.last, [present]
    while conditions:
        condition = conditions.pop()
        if not isinstance(condition, Apply) or condition.free != frozenset((place.axis,)):
            conditions += condition.children if isinstance(condition, Apply) and condition.op == "and" else ()
            continue
        index, bound = condition.children[0], condition.children[-1]
        step, least = ix.coefficient(index, place.axis), ix.bounds(index)[0]
        if condition.op == "and":
            conditions += condition.children
        elif isinstance(bound, Const) and step == 1 and condition.op == "ge":
            first = max(first, bound.bits - least)
        elif isinstance(bound, Const) and step == 1 and condition.op == "lt":
            last = min(last, bound.bits - 1 - least)
    return replace(place, first=first, last=last)


def _stride(term: Expr, axis: Axis) -> int:
    """How far apart in memory neighbours along an axis lie."""
    loads = [expr for expr in topological([term]) if isinstance(expr, Load) and axis in expr.free]
    return max((abs(ix.coefficient(load.offset, axis) or 0) for load in loads), default=0)

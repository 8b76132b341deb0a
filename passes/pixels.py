"""Windows whose vectors run along pixels: convolutions of few channels a group, depthwise ones first.

Where a group has fewer columns (out channels) than a vector has lanes, vectors run along the last axis of the window's
rows instead, which is a line of the picture. Each place is evaluated once into private memory, blanks for padding; a
line is apart by its remainder modulo the stride, so that neighbouring pixels read neighbouring places whatever the
stride is. A register tile is some lines of some vectors, for some columns: a line of places that is read serves the
taps of all lines of the tile that it is under, in each pixel's own order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

from passes.rename import rebuilt
from passes.window_tiles import IN_FLIGHT, shares
from passes.windows import Place, Window, window
from repro.ir import index as ix
from repro.ir.dependence import reads_its_output
from repro.ir.expressions import Apply, Axis, Const, Expr, Load, topological
from repro.ir.loops import Kernel
from repro.machines import Machine

WRITTEN_TAPS = 128
"""Taps that stand in the code one after another, at most: those of the last two axes, or of the last one."""
UNALIGNED = 3
"""Halves of a load that a vector from the window costs: every other one crosses a line of the cache."""
SPARE = 1
"""Registers that the compiler takes to read ahead."""
MOST_VECTORS, MOST_COLUMNS = 8, 4
"""Of a register tile."""


@dataclass(frozen=True)
class Pixels:
    """A window as this form reads it.

    `lane` is the place along vectors; of the terms of a unit, those along `written` stand in the code, those along
    `looped` take turns. Rows lie along `outside`, then `line`, if there is such an axis, then the lane's.
    """

    window: Window
    lane: Place
    looped: tuple[Axis, ...]
    written: tuple[Axis, ...]
    outside: tuple[Axis, ...]
    line: Axis | None

    @property
    def step(self) -> int:
        """Places from a pixel to its neighbour."""
        return self.lane.row_step

    @property
    def length(self) -> int:
        """Pixels of a line."""
        return self.window.rows[-1].extent

    @property
    def lines(self) -> int:
        return 1 if self.line is None else self.line.extent

    def steps(self, axis: Axis | None, place: Place) -> int:
        """Steps along a place for one along a row or term axis."""
        if axis is None:
            return 0
        return place.row_step * (place.row is axis) + place.term_step * (place.term is axis)

    @cached_property
    def reading(self) -> tuple[int, int]:
        """Along the places across lines, how far a line of the tile and a tap of the first written axis go."""
        tap = self.written[0] if len(self.written) == 2 else None
        pairs = [(self.steps(self.line, place), self.steps(tap, place)) for place in self.window.places[:-1]]
        return next((pair for pair in pairs if pair[0] and pair[1]), (1 << 20, 1))

    def read(self, lines: int) -> int:
        """Lines of places that some lines of a tile read."""
        of_line, of_tap = self.reading
        taps = self.written[0].extent if len(self.written) == 2 else 1
        return len({of_line * line + of_tap * tap for line, tap in product(range(lines), range(taps))})

    @property
    def taps(self) -> int:
        return math.prod(axis.extent for axis in self.written)


def pixels(kernel: Kernel, most_rows: int) -> Pixels | None:
    """The kernel in this form, or None where it has no such: blocks are at most about `most_rows` pixels."""
    found = window(kernel, most_rows)
    if found is None or reads_its_output(kernel) or 0 in found.contraction.extents:
        return None
    lane, terms = next(place for place in found.places if place.row is found.rows[-1]), found.terms
    if lane.row_step < 1 or not bounded(found, lane):
        return None
    found = replace(found, places=(*(place for place in found.places if place is not lane), lane))
    written = next((terms[-n:] for n in (2, 1) if 1 <= math.prod(a.extent for a in terms[-n:]) <= WRITTEN_TAPS), None)
    if not terms or written is None:
        return None
    if lane.term is not None and lane.term is not terms[-1]:  # of the taps in the code, only the last go along a line
        return None
    *outside, line = (None, *found.rows[:-1])
    outer = tuple(axis for axis in outside if axis is not None)
    return Pixels(found, lane, terms[: len(terms) - len(written)], written, outer, line)


def conjuncts(condition: Expr | None) -> list[Expr]:
    """What all has to hold for a condition to."""
    if condition is None:
        return []
    if isinstance(condition, Apply) and condition.op == "and":
        return [each for child in condition.children for each in conjuncts(child)]
    return [condition]


def bound(condition: Expr, axis: Axis) -> tuple[str, Expr, int] | None:
    """A condition `axis + rest >= number` or `axis + rest < number` as operator, rest and number."""
    if not isinstance(condition, Apply) or condition.op not in ("ge", "lt"):
        return None
    index, number = condition.children
    if not isinstance(number, Const) or ix.coefficient(index, axis) != 1:
        return None
    value = number.bits - (1 << 64) if number.bits >> 63 else number.bits
    return condition.op, ix.add(index, ix.scale(axis, -1)), value


def bounded(found: Window, lane: Place) -> bool:
    """Whether a line's places are present from one to another."""
    along = [each for each in conjuncts(found.present) if lane.axis in each.free]
    return all(bound(each, lane.axis) is not None for each in along)


def everywhere(term: Expr, present: Expr | None) -> Expr:
    """The term as it is where places are present."""
    if present is None:
        return term
    memo: dict[Expr, Expr] = {}
    for expr in topological([term]):
        children = tuple(memo[child] for child in expr.children)
        if isinstance(expr, Load) and expr.when is present:
            children = children[:1]
        memo[expr] = rebuilt(expr, children)
    return memo[term]


# what a register tile costs ─────────────────────────────────────────────────────────────────────────


def starts(length: int, width: int) -> list[int]:
    """Where a line's vectors begin: the last one reaches back over its neighbour, where a line has a whole one."""
    return [max(0, min(at, length - width)) for at in range(0, length, width)]


def register_tile(found: Pixels, width: int, machine: Machine) -> tuple[int, int, int]:
    """Lines, vectors and columns of the cheapest tile."""
    return min(_candidates(found, width, machine), key=lambda tile: (cost(found, width, tile), tile))


def _candidates(found: Pixels, width: int, machine: Machine) -> Iterator[tuple[int, int, int]]:
    columns = found.window.contraction.extents[2]
    most = len(starts(found.length, width))
    for vectors, count in product(range(1, min(MOST_VECTORS, most) + 1), range(1, min(MOST_COLUMNS, columns) + 1)):
        held = (machine.registers - 1 - SPARE - vectors) // (vectors * count)
        yield from ((lines, vectors, count) for lines in range(1, min(held, found.lines) + 1))


def cost(found: Pixels, width: int, tile: tuple[int, int, int]) -> int:
    """Of all tiles over one run of lines and all columns, in halves of a cycle of a unit that multiplies or loads."""
    lines, vectors, columns = tile
    several = (
        _sizes(found.lines, lines),
        _sizes(len(starts(found.length, width)), vectors),
        _sizes(found.window.contraction.extents[2], columns),
    )
    return sum(_cost(found, *sizes) for sizes in product(*several))


def _sizes(count: int, most: int) -> Sequence[int]:
    return [size for _, size in shares(count, most)]


def _cost(found: Pixels, lines: int, vectors: int, columns: int) -> int:
    taps = found.taps
    deep = taps // (found.written[0].extent if len(found.written) == 2 else 1)
    loads = found.read(lines) * deep * vectors * UNALIGNED + 2 * lines * taps * columns
    return max(2 * lines * vectors * columns * taps, loads, 2 * IN_FLIGHT * taps)

"""How the rows of a window are cut into register tiles, and what that costs: shared by the cost model and the emitter.

Costs count products of a row's term with one vector of columns. A tile of few products takes as long as one of
`IN_FLIGHT`; one that loads more than it multiplies as long as its loads.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import product

from passes.windows import Place, Window
from repro.ir.expressions import Axis
from repro.machines import Machine

IN_FLIGHT = 9
"""Products of a term at which the units are never idle: each waits four cycles for the one before, two begin in each,
and one is to spare."""
WRITTEN_TILES = 4
"""Tiles of a line, or of several units, that are each written out, so that absent terms can be left out of them."""
MOST_VECTORS = 4
WORTH = 16
"""One part of so many that another tile than the machine's own has to save: costs leave out more than that."""


def shares(count: int, most: int) -> list[tuple[int, int]]:
    """Starts and sizes of shares of at most `most`; the first ones are larger by one where they are not equal."""
    parts = -(-count // max(most, 1))
    sizes = [count // parts + (part < count % parts) for part in range(parts)]
    return [(sum(sizes[:part]), size) for part, size in enumerate(sizes)]


def line_axes(found: Window, tile_rows: int) -> tuple[Axis, Axis | None]:
    """The axis along which tiles of a unit's rows lie, and the one inside of which each tile has the whole."""
    *before, last = found.rows
    if before and 2 * last.extent <= tile_rows:
        return before[-1], last
    return last, None


def written(place: Place, parts: int) -> bool:
    """Whether so many tiles along a place's row axis are written out, for the terms that are absent in each."""
    return parts <= WRITTEN_TILES and place.trimmed


def together(found: Window, units: int, tile_rows: int, vectors: int) -> int:
    """How many of a block's units make tiles together: more than one where the rows of one are a few tiles of few."""
    rows, every = found.rows_per_unit, math.prod(axis.extent for axis in found.row_units)
    most = WRITTEN_TILES * tile_rows // rows
    whole = [count for count in range(2, most + 1) if every % count == 0 == units % count]
    return min([1, *whole], key=lambda count: _of_units(count, rows, tile_rows, vectors))


def _of_units(count: int, rows: int, tile_rows: int, vectors: int) -> Fraction:
    """What a row of several units costs."""
    return Fraction(sum(_cost(size, vectors) for _, size in shares(count * rows, tile_rows)), count * rows)


def _cost(rows: int, vectors: int) -> int:
    return max(rows * vectors, rows + vectors, IN_FLIGHT) if rows else 0


def cost(found: Window, units: int, tile_rows: int, vectors: int) -> Fraction:
    """What a term of a row costs on average, for one tile of columns."""
    count = together(found, units, tile_rows, vectors)
    if count > 1:
        return _of_units(count, found.rows_per_unit, tile_rows, vectors)
    axis, inside = line_axes(found, tile_rows)
    per_line = 1 if inside is None else inside.extent
    parts = shares(axis.extent, tile_rows // per_line)
    known = [place for place in found.places if place.row is axis and written(place, len(parts))]
    known += [place for place in found.places if place.row is inside and place.trimmed]
    total = Fraction(0)
    for start, size in parts:
        rows = [{axis: at, inside: within} for at, within in product(range(start, start + size), range(per_line))]
        present = _present(known, rows)
        total += Fraction(sum(_cost(count, vectors) for count in present), len(present))
    return total / (axis.extent * per_line)


def _present(known: Sequence[Place], rows: Sequence[Mapping[Axis | None, int]]) -> list[int]:
    """Of some rows how many have a term, for each term along the axes that share places with theirs."""
    taps = product(*(range(place.term.extent) for place in known if place.term is not None))
    return [sum(_has(row, known, each) for row in rows) for each in taps]


def _has(row: Mapping[Axis | None, int], known: Sequence[Place], taps: Sequence[int]) -> bool:
    return all(place.there(row[place.row], tap) for place, tap in zip(known, taps, strict=True))


def register_tile(found: Window, units: int, machine: Machine) -> tuple[int, int]:
    """Rows and vectors of the cheapest register tile, of as many totals as there are registers for: the machine's own
    unless another costs less."""
    _, _, columns, _ = found.contraction.extents
    width = machine.lanes(found.contraction.reduce.dtype.bits)

    def whole(tile: tuple[int, int]) -> Fraction:
        rows, vectors = tile
        return cost(found, units, rows, vectors) * -(-columns // (vectors * width))

    own, *others = _candidates(machine, -(-columns // width))
    best = min(others, key=whole, default=own)
    return best if whole(best) * WORTH <= whole(own) * (WORTH - 1) else own


def _candidates(machine: Machine, most_vectors: int) -> Iterator[tuple[int, int]]:
    """The machine's tile, then those that fill the registers beside a term's columns and one element of its rows."""
    yield machine.tile_rows, min(machine.tile_vectors, most_vectors)
    for vectors in range(min(MOST_VECTORS, most_vectors), 1, -1):
        yield (machine.registers - 1 - vectors) // vectors, vectors

"""How register tiles come by their operands' terms, and how many terms a turn of their loop has.

Columns and rows are read where they lie, copied by the first tile that reads them, or packed before. Which is best
depends on how far apart an operand's terms lie in memory, and on how much a tile takes of each.
"""

from __future__ import annotations

import math
from dataclasses import replace

from repro.ir.contraction import Contraction
from repro.ir.schedule import ContractionTile
from repro.machines import Machine
from repro.machines.machine import LINE_BYTES

NEAR_TERMS = 1024
"""Bytes between a column's terms up to which each thread may as well read all columns: further apart each is on a page
of its own."""
UNFETCHED = 1024
"""Bytes between a column's terms from which on the hardware does not fetch a tile's next lines by itself."""
PACKED_BEYOND = 128
"""Bytes between a column's terms beyond which columns are packed if many tiles read them: terms further apart are each
on a page of their own, or share sets of the nearest cache, and every tile waits for them anew."""
FEW_TILES, LONG_RUN = 8, 128
"""Tiles of rows for which columns are not worth packing, however they lie, but for two kinds. Those that come from
beyond the second-level cache, each term from a page of its own, are packed from a whole tile of rows on; those of which
a tile takes so many bytes of each term, two lines, which come later than they are multiplied, from two on. Packing
reads either row by row, as it is fetched ahead. (Of 28 to 112 rows 0.65 to 0.87 of the time where columns come from the
third-level cache, 0.75 to 1.0 from the second; of 14 rows 0.65 to 0.9, and 1.0; Sapphire Rapids. Near ones of 14 to 27
rows 1.05 to 1.5, Zen 5. Tiles of one line: 1.0 to 1.4.)"""
TWO_TILES = 2
"""Tiles of rows from which on fewer rows and more columns for each pay, and copies of columns that are near."""

SHORT_RUN, SCATTERED = 128, 2048
"""Bytes of a tile's rows or columns in a term up to which the hardware does not fetch ahead by itself, and bytes from
one term to the next from which on such runs are one or two of a page. The first tile would get each line at its
latency, and the next tile's, which it asks for, crowd into few sets of the caches. So columns that lie so are copied
before, each term's from end to end; and rows, of many terms."""
FORGOTTEN = 512
"""Terms in a panel from which on lines that a tile reads of scattered rows, one or two of each term, are gone from the
nearest cache when the next tile takes its own part of them. What is multiplied with a single vector of columns is read
in place all the same: copies cost more there; and so is what a single tile of columns reads, once, if it takes half a
line or more of each term (14 rows, 32 columns: 0.65 to 0.7 of the time, Zen 5; 1.1 to 1.15, Sapphire Rapids; but of 6
rows 1.4 to 1.8, with AVX2 on a Zen 5)."""

MANY_PRODUCTS = 1 << 16
"""From which on a turn of several terms is worth the time that it takes to compile: fewer take a few microseconds."""


def with_operands(contraction: Contraction, tile: ContractionTile, width: int, machine: Machine) -> ContractionTile:
    """The tile with what is best for its operands."""
    before = _rows_before(contraction, tile, width)
    tile = replace(tile, packs=_packs(contraction, tile, width, machine), rows_before=before)
    return replace(tile, unroll=_turn(contraction, tile, width, machine))


def few_rows(contraction: Contraction, machine: Machine) -> bool:
    """Whether reading the columns takes longer than multiplying with them."""
    return contraction.extents[1] <= machine.tile_rows // 2


def scattered(contraction: Contraction, run: int, apart: int) -> bool:
    """Whether a tile takes short runs of terms that lie far from one another, in elements."""
    size = contraction.reduce.dtype.bytes
    return run * size <= SHORT_RUN and apart * size >= SCATTERED


def _packs(contraction: Contraction, tile: ContractionTile, width: int, machine: Machine) -> bool:
    """Whether columns that could be read in place are better packed."""
    few = TWO_TILES * machine.tile_rows - 1 if _two_lines(contraction, tile, width) else FEW_TILES * tile.rows
    if _afar(contraction, tile, width, machine):
        few = machine.tile_rows - 1
    return _apart(contraction, tile, width) > PACKED_BEYOND and tile.block_m > few


def _rows_before(contraction: Contraction, tile: ContractionTile, width: int) -> bool:
    """Whether rows are better packed before the tiles, many tiles' at once, than by the first tile that reads them, or
    read in place by few."""
    _, _, columns, terms = contraction.extents
    once = columns <= tile.vectors * width and 2 * tile.rows * contraction.reduce.dtype.bytes >= LINE_BYTES
    many = min(contraction.chain.panel, terms) >= FORGOTTEN and tile.vectors > 1 and not once
    return many and not tile.makes and scattered(contraction, tile.rows, contraction.rows_side_by_side or 0)


def _turn(contraction: Contraction, tile: ContractionTile, width: int, machine: Machine) -> int:
    """Terms of a turn of the loop: one, but for few rows, where a tile wider than the machine's leaves a single
    register, so that LLVM would keep sums in memory (9 x 3: 14 moves for 108 products, 1.1 of the time on a Zen 5), and
    where near columns are read in place, which come in time without (8 to 27 rows 0.7 to 1.0 of the time there)."""
    if math.prod(contraction.extents) < MANY_PRODUCTS:
        return 1
    if few_rows(contraction, machine):
        return machine.tile_terms
    full = tile.vectors > machine.tile_vectors and (tile.rows + 1) * tile.vectors + 1 >= machine.registers - 1
    in_place = not tile.packs and _apart(contraction, tile, width) >= UNFETCHED
    near = in_place and _two_lines(contraction, tile, width) and not _afar(contraction, tile, width, machine)
    return 1 if full or near else machine.tile_terms


def _apart(contraction: Contraction, tile: ContractionTile, width: int) -> int:
    """Bytes between the terms of columns that could be read in place; 0 where they could not, or lie as packing would
    have them."""
    per_tile = tile.vectors * width
    apart = contraction.in_place(per_tile)
    return 0 if apart is None or apart == per_tile else apart * contraction.terms[1].dtype.bytes


def _two_lines(contraction: Contraction, tile: ContractionTile, width: int) -> bool:
    """Whether a tile takes two lines of each term."""
    return tile.vectors * width * contraction.terms[1].dtype.bytes >= LONG_RUN


def _afar(contraction: Contraction, tile: ContractionTile, width: int, machine: Machine) -> bool:
    """Whether such columns come from beyond the second-level cache, each term from a page of its own."""
    term = contraction.terms[1]
    held = math.prod(axis.extent for axis in term.free) * term.dtype.bytes
    return machine.is_far(held) and _apart(contraction, tile, width) > NEAR_TERMS

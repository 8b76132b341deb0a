"""Kernels seen as contractions of a(batch, rows, k) with b(batch, columns, k)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from repro.ir import byte_dot
from repro.ir import index as ix
from repro.ir.expressions import Apply, Axis, Chain, Expr, Load, Lookup, Rarely, Reduce, topological
from repro.ir.loops import Kernel

CHEAP = 8
"""Operations for a term of a column, up to which tiles compute it beside the products."""
TERMS_TURNED = 4
"""Terms of a column that are turned at a time, with those of as many columns as a vector has."""
PANEL = 512
"""Terms of a chain of integers, at most: their sums have no order, so it ends where loops over terms do."""
RUN = 64
"""Columns that are worth an item of their own: packing the rows anew for it costs little beside them."""


@dataclass(frozen=True)
class Contraction:
    """What a kernel contracts: its reduction, the terms that vary with rows and with columns, its axes by role, and
    the operand (0: the rows', 1: the columns') that absent terms blank; and the one whose terms are quads of unsigned
    bytes, beside quads of signed ones in the other (None: terms are multiplied as they are)."""

    reduce: Reduce
    chain: Chain
    terms: tuple[Expr, Expr]
    batch: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    absent_in: int | None
    unsigned: int | None = None
    elements: tuple[int, int] = (0, 0)
    """Of the buffers that the terms load; 0 where one is something else."""

    @property
    def guards(self) -> bool:
        """Whether a blank must not meet some terms: 0 times infinity is NaN."""
        return self.absent_in is not None and self.reduce.dtype.is_float

    @cached_property
    def extents(self) -> tuple[int, int, int, int]:
        """Batch, rows, columns, terms."""
        groups = (self.batch, self.rows, self.columns, self.reduce.axes)
        batch, rows, columns, terms = (math.prod(axis.extent for axis in group) for group in groups)
        return batch, rows, columns, terms

    def neighbours(self, side: int) -> tuple[int, int]:
        """How many neighbours in memory a load of an operand's matrix meets: along its last row (side 0) or column
        axis, and along the last axis of the terms."""
        return _neighbours(self.terms[side], self.rows if side == 0 else self.columns, self.reduce.axes)

    def in_place(self, columns_per_tile: int) -> int | None:
        """Elements between b's terms where it lies in memory as register tiles of so many columns read it, a tile's
        columns side by side for one term after another: then it need not be packed. None where it does not."""
        term, columns = self.terms[1], self.columns
        if not isinstance(term, Load) or term.when is not None or self.absent_in is not None or not columns:
            return None
        if self.laid_out(columns_per_tile):
            return columns_per_tile
        if columns_per_tile > columns[-1].extent or columns[-1].extent % columns_per_tile:
            return None
        strides, stride = [(columns[-1], 1)], columns[-1].extent
        for axis in reversed(self.reduce.axes):
            strides.append((axis, stride))
            stride *= axis.extent
        beside = all(ix.coefficient(term.offset, axis) == wanted for axis, wanted in strides)
        return columns[-1].extent if beside else None

    def laid_out(self, columns_per_tile: int) -> bool:
        """Whether b lies as [tile][term][column of the tile], in tiles of so many columns, the last a whole one too:
        a part of a matrix may lie so whose last tile would end behind the matrix."""
        term = self.terms[1]
        if not isinstance(term, Load) or term.when is not None or not self.columns:
            return False
        rest = ix.add(term.offset, ix.scale(tiled_offset(self.columns, self.reduce.axes, columns_per_tile), -1))
        if rest.free & {*self.columns, *self.reduce.axes}:
            return False
        _, _, columns, terms = self.extents
        tiles = -(-columns // columns_per_tile)
        return ix.bounds(rest)[1] + tiles * columns_per_tile * terms <= self.elements[1]

    def turns(self, width: int) -> bool:
        """Whether a column's terms lie side by side where it lies, in runs that panels do not cut, and vectors of so
        many columns can be made of them in registers."""
        term, panel = self.terms[1], min(self.chain.panel, self.extents[3])
        if not isinstance(term, Load) or term.when is not None or self.absent_in is not None or width < TERMS_TURNED:
            return False
        along_columns, along_terms = self.neighbours(1)
        return along_terms > along_columns and not (along_terms % TERMS_TURNED or panel % TERMS_TURNED)

    def makes(self, width: int) -> bool:
        """Whether vectors of so many columns can be made in registers: turned, or computed along columns that lie side
        by side in memory."""
        if self.turns(width):
            return True
        inside = topological([self.terms[1]])
        operations = sum(isinstance(e, Apply) for e in inside)
        plain = operations <= CHEAP and not any(isinstance(e, Reduce | Lookup | Rarely) for e in inside)
        along_columns, along_terms = self.neighbours(1)
        return plain and self.absent_in is None and along_columns >= max(width, along_terms)

    @property
    def row_stride(self) -> int | None:
        """Elements between the rows' terms in memory, where those of a row lie side by side and rows at one distance:
        then they need not be packed. None where they do not."""
        (term, _), rows, terms = self.terms, self.rows, self.reduce.axes
        if not isinstance(term, Load) or term.when is not None or self.absent_in is not None or not rows:
            return None
        stride = ix.coefficient(term.offset, rows[-1])
        if not stride or not one_axis(term.offset, rows, stride) or not one_axis(term.offset, terms, 1):
            return None
        return stride

    @property
    def rows_side_by_side(self) -> int | None:
        """Elements between the rows' terms in memory, where the rows of each term lie side by side and terms at one
        distance. None where they do not."""
        (term, _), rows, terms = self.terms, self.rows, self.reduce.axes
        if not isinstance(term, Load) or term.when is not None or self.absent_in is not None or not rows:
            return None
        stride = ix.coefficient(term.offset, terms[-1])
        if not stride or not one_axis(term.offset, terms, stride) or not one_axis(term.offset, rows, 1):
            return None
        return stride


def tiled_offset(columns: Sequence[Axis], terms: Sequence[Axis], columns_per_tile: int) -> Expr:
    """Where a column's term lies in a matrix [tile][term][column of the tile], its last tile a whole one too."""
    column, term = (ix.linear(axes, [axis.extent for axis in axes]) for axes in (columns, terms))
    tile_elements = columns_per_tile * math.prod(axis.extent for axis in terms)
    tile = ix.scale(ix.floordiv(column, columns_per_tile), tile_elements)
    return ix.add(tile, ix.scale(term, columns_per_tile), ix.mod(column, columns_per_tile))


@lru_cache(maxsize=4096)
def _neighbours(term: Expr, lines: tuple[Axis, ...], terms: tuple[Axis, ...]) -> tuple[int, int]:
    loads = [e for e in topological([term]) if isinstance(e, Load)]
    return _beside(loads, lines, terms), _beside(loads, terms, lines)


def _beside(loads: Sequence[Load], axes: Sequence[Axis], others: Sequence[Axis]) -> int:
    matrix = [load for load in loads if load.free & frozenset(others)] or loads
    beside = bool(axes) and any(ix.coefficient(load.offset, axes[-1]) == 1 for load in matrix)
    return axes[-1].extent if beside else 0


def one_axis(offset: Expr, axes: Sequence[Axis], step: int) -> bool:
    """Whether steps along axes are those along one axis that runs through all of them."""
    for axis in reversed(axes):
        if ix.coefficient(offset, axis) != step:
            return False
        step *= axis.extent
    return True


def find(kernel: Kernel, floats: bool = False) -> Contraction | None:
    """The kernel as a contraction, or None where it is not one that tiles can run; with `floats`, not one of integers
    either. (Sums of these have no order, so that of a chain is as good.)"""
    reductions = [e for e in kernel.expressions if isinstance(e, Reduce)]
    if len(reductions) != 1 or not _in_one_place(kernel) or kernel.serial:
        return None
    reduce, store = reductions[0], kernel.stores[0]
    factors = None if floats else _products(reduce)
    order = reduce.order if factors is None else _any_chain(reduce)
    if not isinstance(order, Chain) or reduce in store.offset.children:
        return None
    a, b = _sides(reduce.terms if factors is None else factors, kernel)
    rows = tuple(axis for axis in kernel.axes if axis in a.free and axis not in b.free)
    columns = tuple(axis for axis in kernel.axes if axis in b.free and axis not in a.free)
    columns = columns[_apart(b, columns) :]
    batch = tuple(axis for axis in kernel.axes if axis not in rows and axis not in columns)
    absent = None
    if reduce.present is not None:
        over = reduce.present.free
        if over & set(rows) and over & set(columns):
            return None
        absent = 0 if over & set(rows) else 1
    quads = None if factors is None else byte_dot.factors(reduce.terms[0])
    unsigned = None if quads is None else (a, b).index(quads[0])
    return Contraction(
        reduce, order, (a, b), batch, rows, columns, absent, unsigned, (_elements(a, kernel), _elements(b, kernel))
    )


def _elements(term: Expr, kernel: Kernel) -> int:
    """Of the buffer that a term loads; 0 where it is something else, or nothing is known of buffers."""
    if not isinstance(term, Load) or term.buffer >= len(kernel.buffers):
        return 0
    return kernel.buffers[term.buffer].elements


def _in_one_place(kernel: Kernel) -> bool:
    """Whether all that it stores, one number or several for each output, lies at one offset of several buffers."""
    offsets = {store.offset for store in kernel.stores}
    return len(offsets) == 1 and all(store.when is None for store in kernel.stores)


def _products(reduce: Reduce) -> tuple[Expr, ...] | None:
    """The factors of a sum of products of integers, or of byte dots; None where it is something else."""
    (term, *more), dtype = reduce.terms, reduce.dtype
    if dtype.is_float or dtype.bits < 32 or reduce.combiner != "add" or more or not isinstance(term, Apply):
        return None
    return term.children if term.op == "mul" and term.dtype is dtype else byte_dot.factors(term)


def _any_chain(reduce: Reduce) -> Chain:
    """A chain whose panels hold as many of the last axes of the terms as they can."""
    inside = 1
    for axis in reversed(reduce.axes):
        if inside * axis.extent > PANEL:
            break
        inside *= max(axis.extent, 1)
    return Chain(PANEL // inside * inside, 8)


def _sides(factors: Sequence[Expr], kernel: Kernel) -> tuple[Expr, Expr]:
    """The operand of the rows and that of the columns: a product's order is free, and columns, which vectors run along,
    are those that the store writes side by side."""
    a, b = factors
    offset = kernel.stores[0].offset
    beside = [axis for axis in kernel.axes if axis.extent > 3 and ix.coefficient(offset, axis) == 1]
    if any(axis in a.free and axis not in b.free for axis in beside):
        return b, a
    return a, b


def _apart(term: Expr, columns: tuple[Axis, ...]) -> int:
    """How many leading column axes are better a batch: the others are one run of memory, long enough alone."""
    offsets = [e.offset for e in topological([term]) if isinstance(e, Load) and e.free & frozenset(columns)]
    extent, start = 1, len(columns)
    while start and all(ix.coefficient(offset, columns[start - 1]) == extent for offset in offsets):
        start -= 1
        extent *= columns[start].extent
    return start if extent >= RUN else 0

"""Chain reductions on the matrix unit: which axes are rows, columns and batch, and where operands and sums lie.

    sums[batch, row, column] = chain over k of data[batch, row, k] * weights[batch, column, k]

The operand that absent terms belong to is the data, whose elements have valid bits: nothing is put in their place
(rule 8).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from repro.ir import index as ix
from repro.ir.expressions import Axis, Chain, Expr, Load, Reduce, topological
from repro.ir.types import F32
from repro.targets.tpu_sim.operands import COLUMNS


def pitch(extent: int) -> int:
    """Elements from one line of a matrix to the next: a power of two, or whole rows of a register."""
    if extent > COLUMNS:
        return -(-extent // COLUMNS) * COLUMNS
    return 1 << max(extent - 1, 0).bit_length()


def extent_of(axes: Sequence[Axis]) -> int:
    return math.prod(axis.extent for axis in axes)


def flat(axes: Sequence[Axis]) -> Expr:
    """The row-major number of the axes' values."""
    return ix.linear(axes, [axis.extent for axis in axes])


@dataclass(frozen=True)
class Matrix:
    """Lines of elements in an area: element (batch, line, place) lies at (batch * lines + line) * pitch + place."""

    batch: tuple[Axis, ...]
    lines: tuple[Axis, ...]
    places: tuple[Axis, ...]

    @property
    def pitch(self) -> int:
        return pitch(extent_of(self.places))

    @property
    def stride(self) -> int:
        """Elements from one batch to the next."""
        return extent_of(self.lines) * self.pitch

    @property
    def elements(self) -> int:
        return extent_of(self.batch) * self.stride

    @property
    def offset(self) -> Expr:
        return ix.add(
            ix.scale(flat(self.batch), self.stride), ix.scale(flat(self.lines), self.pitch), flat(self.places)
        )


@dataclass(frozen=True)
class Contraction:
    """`reduce` with the data's term first. `turned`: the sums are wanted by columns, each a line of rows."""

    reduce: Reduce
    chain: Chain
    data: Expr
    weights: Expr
    batch: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    turned: bool

    @property
    def terms(self) -> tuple[Axis, ...]:
        return self.reduce.axes

    @property
    def sums(self) -> Matrix:
        return Matrix(self.batch, self.rows, self.columns)

    @property
    def result(self) -> Matrix:
        """The sums as they are read."""
        return Matrix(self.batch, self.columns, self.rows) if self.turned else self.sums


def find(reduce: Reduce, axes: Sequence[Axis], beside: Axis | None) -> Contraction | None:
    """The reduction as a contraction, or None where the vector unit should run it. `beside`: the axis along which its
    values are read one after another."""
    order = reduce.order
    if not isinstance(order, Chain) or reduce.combiner != "fma" or reduce.dtype is not F32 or 0 in _extents(reduce):
        return None
    a, b = reduce.terms
    used = [axis for axis in axes if axis in reduce.free]
    first = tuple(axis for axis in used if axis in a.free and axis not in b.free)
    second = tuple(axis for axis in used if axis in b.free and axis not in a.free)
    asked = frozenset[Axis]() if reduce.present is None else reduce.present.free
    if asked & set(first) and asked & set(second):
        return None
    swap = bool(asked & set(second)) if asked & set(first + second) else beside in first
    data, weights, rows, columns = (b, a, second, first) if swap else (a, b, first, second)
    if min(extent_of(rows), extent_of(columns)) < 4 and max(extent_of(rows), extent_of(columns)) < COLUMNS:
        return None
    batch = tuple(axis for axis in used if axis not in rows and axis not in columns)
    return Contraction(reduce, order, data, weights, batch, rows, columns, beside in rows and len(columns) > 0)


def _extents(reduce: Reduce) -> list[int]:
    return [axis.extent for axis in reduce.axes]


def run(term: Expr, axes: Sequence[Axis]) -> int:
    """How many neighbours in memory a load of the term meets along the last of the axes, and those that go on."""
    return max((_run(each.offset, axes) for each in topological([term]) if isinstance(each, Load)), default=0)


def _run(offset: Expr, axes: Sequence[Axis]) -> int:
    length = 1
    for axis in reversed(axes):
        if axis.extent > 1 and ix.coefficient(offset, axis) != length:
            break
        length *= axis.extent
    return length


def layouts(c: Contraction) -> list[tuple[Expr, Matrix]]:
    """Data and weights, and how each is first laid out: along what lies side by side in memory."""
    data, held = Matrix(c.batch, c.rows, c.terms), Matrix(c.batch, c.terms, c.columns)
    if run(c.data, c.rows) > run(c.data, c.terms):
        data = Matrix(c.batch, c.terms, c.rows)
    if run(c.weights, c.terms) >= run(c.weights, c.columns):
        held = Matrix(c.batch, c.columns, c.terms)
    return [(c.data, data), (c.weights, held)]

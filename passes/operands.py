"""Operands of contractions that are worth computing once.

A tiled contraction evaluates its terms into packed blocks, and does so again for every block of the other side. Where a
term is more than an array read along a row (a transpose that no vector can follow, a concatenation, index arithmetic)
that costs more than the products. Such a term gets a kernel of its own that leaves it as the packing reads it best.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from passes.rename import rewritten
from repro.ir import index as ix
from repro.ir.contraction import Contraction
from repro.ir.expressions import Axis, Expr, IndexOp, Load, topological

REPEATS = 2
"""Blocks of the other side that pack a term again, from which on it is computed before."""
BLOCK = 256
"""About as many rows or columns as a block has."""
TILE = 32
"""Columns that lie together in an operand of a loop: whole register tiles of most machines."""
RUN = 16
"""Neighbours in memory that make a vector."""


def awkward(contraction: Contraction, side: int, invariant: bool = False) -> bool:
    """Whether a side's terms (0: rows, 1: columns) are better computed before.

    `invariant`: they are the same in every iteration of a loop, so it is done once for all of them.
    """
    if min(contraction.extents) == 0 or side == contraction.absent_in:
        return False
    term, own = contraction.terms[side], _own(contraction, side)
    if invariant and tiled(contraction, side) is not None:
        return True
    if _repeats(contraction, side) < REPEATS or _plain(term, own, contraction.reduce.axes):
        return False
    return not _lies_so(term, places(contraction, side, False))


def tiled(contraction: Contraction, side: int) -> Axis | None:
    """The axis to cut in tiles, where terms that stay the same are to lie as register tiles read them."""
    own = _own(contraction, side)
    if side == 0 or contraction.absent_in is not None or not own or own[-1].extent % TILE:
        return None
    return own[-1]


def _own(contraction: Contraction, side: int) -> tuple[Axis, ...]:
    return contraction.rows if side == 0 else contraction.columns


def _repeats(contraction: Contraction, side: int) -> int:
    """How often the packing evaluates the same terms."""
    term, other = contraction.terms[side], _own(contraction, 1 - side)
    shared = math.prod(axis.extent for axis in contraction.batch if axis not in term.free)
    return shared * -(-math.prod(axis.extent for axis in other) // BLOCK)


def _plain(term: Expr, own: Sequence[Axis], terms: Sequence[Axis]) -> bool:
    """Whether every load reads a run of neighbours, along the last of its own axes or of the terms, by plain steps."""
    for expr in topological([term]):
        if isinstance(expr, IndexOp) or (isinstance(expr, Load) and expr.when is not None):
            return False
        if isinstance(expr, Load):
            strides = {axis: ix.coefficient(expr.offset, axis) for axis in (*own, *terms)}
            if None in strides.values():
                return False
            ends = [axes[-1] for axes in (own, terms) if axes]
            used = [axis for axis in ends if strides[axis]]
            if used and not any(strides[axis] == 1 and axis.extent >= RUN for axis in used):
                return False
    return True


def _lies_so(term: Expr, axes: Sequence[Axis]) -> bool:
    """Whether a term is an array that lies as it would be left: a convolution's weights, whose taps are no long run."""
    return isinstance(term, Load) and term.when is None and term.offset is ix.linear(axes, [a.extent for a in axes])


def places(contraction: Contraction, side: int, tiles: bool) -> tuple[Axis, ...]:
    """The axes of a side's terms, in the order in which packing reads them from end to end: the reduction's inside for
    rows, outside for columns, or around the last of the columns' axes, where that is a tile."""
    batch = tuple(axis for axis in contraction.batch if axis in contraction.terms[side].free)
    own, terms = _own(contraction, side), contraction.reduce.axes
    if tiles:
        return (*batch, *own[:-1], *terms, own[-1])
    return (*batch, *own, *terms) if side == 0 else (*batch, *terms, *own)


def with_term(expressions: Sequence[Expr], contraction: Contraction, side: int, term: Expr) -> list[Expr]:
    """The expressions with another term for a side's in the contraction's sum. What is computed of the sum may read the
    old one as well, where the axes of the terms are not known: there it stays."""
    (reduce,) = rewritten([contraction.reduce], {contraction.terms[side]: term})
    return rewritten(expressions, {contraction.reduce: reduce})

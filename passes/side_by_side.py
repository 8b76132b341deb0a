"""Whether what is read along an axis lies side by side in memory."""

from __future__ import annotations

from itertools import pairwise

from passes.rename import rewritten
from repro.ir import index as ix
from repro.ir.expressions import Axis, Expr

LINE = 16
"""Elements side by side that are read as well as a whole row of them."""


def side_by_side(offset: Expr, axis: Axis) -> bool:
    """Whether elements along an axis are one, or neighbours: the first line of them, where others follow elsewhere."""
    step = ix.coefficient(offset, axis)
    if step is not None:
        return step in (0, 1)
    first = {each: ix.number(0) for each in offset.free}
    line = [rewritten([offset], {**first, axis: ix.number(at)})[0] for at in range(min(axis.extent, LINE))]
    return all(ix.bounds(there)[0] - ix.bounds(here)[0] in (0, 1) for here, there in pairwise(line))

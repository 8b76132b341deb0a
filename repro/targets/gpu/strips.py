"""Strips: what neighbouring taps of a picture's row read in common is brought once.

In the weight gradient of a convolution a column is (..., tap) and a term (..., pixel), and pixel and tap only ever
occur as their sum: a row of pixels is the operand of each of its taps, every time one place further on. Where a step of
K holds whole rows, the row is brought once, 16 bytes at a time, and a thread that computes all taps of it reads each
chunk of it once. Beside a row's ends lies padding, so zeros.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

from repro.ir import index as ix
from repro.ir.contraction import Contraction
from repro.ir.expressions import Load, load
from repro.targets.gpu.separation import conjuncts, separate

TAPS = 3
"""Of a row: 3 x 3 is what convolutions mostly are."""
CHUNK = 4
"""Pixels of 16 bytes."""


@dataclass(frozen=True)
class Strip:
    """`contraction` has the middle tap alone: its columns are rows of pixels, its terms pixels of `width` in a row."""

    contraction: Contraction
    width: int


@functools.lru_cache(maxsize=4096)
def strip(contraction: Contraction) -> Strip | None:
    """The columns' operand in strips; None where it is something else, or its rows are no whole chunks."""
    term, columns, terms = contraction.terms[1], contraction.columns, contraction.reduce.axes
    if not isinstance(term, Load) or term.dtype.bits != 32 or len(columns) < 2 or contraction.absent_in != 1:
        return None
    tap, pixel = columns[-1], terms[-1]
    middle = ix.add(term.offset, ix.scale(tap, -1), ix.number(TAPS // 2))
    beside = ix.add(middle, ix.scale(pixel, -1))
    if tap.extent != TAPS or pixel.extent % CHUNK or beside.free & {tap, pixel} or not ix.divisible(beside, CHUNK):
        return None
    conditions = dict.fromkeys([*conjuncts(term.when), *conjuncts(contraction.reduce.present)])
    within = list(conjuncts(ix.inside(ix.add(pixel, tap, ix.number(-(TAPS // 2))), pixel.extent)))
    rest = [each for each in conditions if each not in within]
    if len(rest) + len(within) != len(conditions) or any(each.free & {tap, pixel} for each in rest):
        return None
    operand = load(term.dtype, term.buffer, middle, ix.both(*rest) if rest else None)
    assert isinstance(operand, Load)
    if separate(operand, None, columns[:-1], terms) is None:
        return None
    return Strip(replace(contraction, terms=(contraction.terms[0], operand), columns=columns[:-1]), pixel.extent)

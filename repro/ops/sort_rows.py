"""Sorting and selecting in rows [outer, n, inner] of packed keys (`sort_keys`), by operations that any target runs side
by side: a network, and blocks' least for few out of many.

No two packed keys of a row are equal, so that their order is one and every way to it has the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence

from repro.ir.graph import Value
from repro.ir.types import I64, TensorType
from repro.ops.arithmetic import elementwise
from repro.ops.exchange import exchange
from repro.ops.movement import broadcast, fill, reshape, transpose
from repro.ops.points import take_along_axis
from repro.ops.reduction import reduce_axes
from repro.ops.slicing import concatenate, pad, slice_
from repro.ops.sort_keys import LAST, places_of
from repro.ops.structure import iota, scalar

BLOCK = 4
"""Elements of which the least stands for all, when few are selected."""
FEW = 8
"""Elements for each that is selected, from which on blocks are worth forming: more than a block holds."""
FEWEST = 16
"""Elements of which no blocks are formed."""
LANES = 16
"""Elements that steps of a network have side by side, where no other axis gives them."""
STEPS = 4
"""Steps of a network that are one operation: sixteen elements are exchanged in registers."""


def is_selected(extent: int, count: int) -> bool:
    """Whether so few of a row are wanted that the rest is not sorted."""
    return extent > max(count * FEW, FEWEST)


def least(rows: Value, count: int) -> Value:
    """The `count` least packed keys of each row, ascending: [outer, count, inner]."""
    outer, extent, inner = rows.shape
    if is_selected(extent, count):
        return _selected(rows, count)
    if inner < LANES <= outer * inner:
        return _turned_back(_first(_by_network(_beside(rows)), count), rows)
    return _first(_by_network(rows), count)


def _beside(rows: Value) -> Value:
    """All rows side by side: [1, n, outer * inner]."""
    outer, extent, inner = rows.shape
    return reshape(transpose(rows, (1, 0, 2)), (1, extent, outer * inner))


def _turned_back(found: Value, like: Value) -> Value:
    outer, _, inner = like.shape
    return transpose(reshape(found, (found.shape[1], outer, inner)), (1, 0, 2))


def _first(rows: Value, count: int) -> Value:
    outer, _, inner = rows.shape
    return slice_(rows, (0, 0, 0), (outer, count, inner))


# ── few out of many ─────────────────────────────────────────────────────────────────────────────────


def _selected(rows: Value, count: int) -> Value:
    """Block g of a level holds its elements g, g + blocks, …; the next level has the least of each.

    The least `count` of a level lie in the blocks of the `count` least of the next one: each block before an
    element's own holds one that is less. What no block holds is always looked at.
    """
    levels = [rows]
    while is_selected(levels[-1].shape[1], count):
        levels.append(_least_of_blocks(levels[-1]))
    found = least(levels.pop(), count)
    extents = [level.shape[1] // BLOCK for level in levels]
    for number, level in reversed(list(enumerate(levels))):
        places = places_of(found)
        for blocks in extents[: number + 1]:
            places = elementwise("rem", places, fill(blocks, places.type))
        found = least(_members(level, places), count)
    return found


def _least_of_blocks(rows: Value) -> Value:
    outer, extent, inner = rows.shape
    blocks = extent // BLOCK
    whole = reshape(slice_(rows, (0, 0, 0), (outer, blocks * BLOCK, inner)), (outer, BLOCK, blocks, inner))
    return reduce_axes("min", whole, (1,))


def _members(rows: Value, blocks: Value) -> Value:
    """The elements of blocks [outer, count, inner] of a row, and those of none."""
    outer, count, inner = blocks.shape
    extent = rows.shape[1]
    step = extent // BLOCK
    shape = (outer, BLOCK, count, inner)
    steps = elementwise("mul", iota(shape, 1), fill(step, TensorType(I64, shape)))
    places = reshape(elementwise("add", broadcast(blocks, shape, (0, 2, 3)), steps), (outer, BLOCK * count, inner))
    if extent > BLOCK * step:
        behind = (outer, extent - BLOCK * step, inner)
        places = concatenate(
            [places, elementwise("add", iota(behind, 1), fill(BLOCK * step, TensorType(I64, behind)))], 1
        )
    return take_along_axis(rows, places, 1, inside=True)


# ── a network ───────────────────────────────────────────────────────────────────────────────────────


def _by_network(rows: Value) -> Value:
    """Batcher's bitonic network over 2^bits elements: behind the row's stand as many that are last.

    Stage `top` merges runs of 2^top, of which every other one is in descending order: what would be sorted downwards is
    complemented before it. Bit b of an element's place is an axis of two. Elements lie in the order of their places,
    or with the uppermost bits of these side by side (`beside`), so that no step exchanges what lies in one vector.
    """
    _, extent, inner = rows.shape
    bits = (extent - 1).bit_length()
    rows = pad(rows, (0, 0, 0), (0, (1 << bits) - extent, 0), scalar(LAST, rows.dtype))
    lanes = max(0, min((LANES // max(inner, 1)).bit_length() - 1, (bits - 1) // 2))
    beside = False
    for top in range(bits):
        steps, turned = list(range(top, -1, -1)), [bit for bit in (top, top + 1) if 0 < bit < bits]
        while steps:
            if max([steps[0], *turned]) >= bits - lanes if beside else steps[0] < lanes:
                rows, beside = _laid(rows, lanes if beside else bits - lanes), not beside
            chosen = [bit for bit in steps[:STEPS] if beside or bit >= lanes]
            rows = _exchanged(rows, _order(bits, lanes if beside else 0), chosen, turned)
            steps, turned = steps[len(chosen) :], []
    return _laid(rows, lanes) if beside else rows


def _order(bits: int, beside: int) -> list[int]:
    """The bits of a place, the outermost first, where so many of the uppermost lie side by side."""
    order = list(range(bits - 1, -1, -1))
    return order[beside:] + order[:beside]


def _laid(rows: Value, behind: int) -> Value:
    """Rows whose outer bits of a place change places with the inner ones, of which there are `behind` then outside."""
    outer, extent, inner = rows.shape
    turned = transpose(reshape(rows, (outer, extent >> behind, 1 << behind, inner)), (0, 2, 1, 3))
    return reshape(turned, rows.shape)


def _exchanged(rows: Value, order: Sequence[int], bits: Sequence[int], turned: Sequence[int]) -> Value:
    """Steps over `bits`, where an element has the bits of `order` as axes of two. Others beside each other are one."""
    shape, axes = [rows.shape[0], 1], dict[int, int]()
    for bit in order:
        if bit in bits or bit in turned:
            axes[bit] = len(shape)
            shape += [2, 1]
        else:
            shape[-1] *= 2
    split = reshape(rows, (*shape, rows.shape[-1]))
    return reshape(exchange(split, [axes[bit] for bit in bits], [axes[bit] for bit in turned]), rows.shape)

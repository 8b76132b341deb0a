"""Sorting and selecting in rows [outer, n, inner] of packed keys (`sort_keys`), by operations that any target runs side
by side: comparisons of all pairs for few elements, a network for many, blocks' least for few out of many.

No two packed keys of a row are equal, so that their order is one and every way to it has the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from repro.ir.graph import Value
from repro.ir.types import I64, TensorType
from repro.ops.arithmetic import compare, convert_to, elementwise, select
from repro.ops.exchange import exchange
from repro.ops.movement import broadcast, fill, reshape, transpose
from repro.ops.points import take_along_axis
from repro.ops.reduction import reduce_axes
from repro.ops.slicing import concatenate, pad, slice_
from repro.ops.sort_keys import LAST, places_of
from repro.ops.structure import iota, scalar

PAIRS = 448
"""Elements up to which all pairs are compared."""
BLOCK = 4
"""Elements of which the least stands for all, when few are selected."""
FEW = 8
"""Elements for each that is selected, from which on blocks are worth forming."""
FEWEST = 16
"""Elements of which no blocks are formed."""
LANES = 128
"""Elements that steps of a network have side by side, where no other axis gives them."""
STEPS = 2
"""Steps of a network that are one operation."""

Pack = Callable[[Value, Value], Value]
"""Packed keys from elements and their places, elementwise."""


def is_selected(extent: int, count: int) -> bool:
    """Whether so few of a row are wanted that the rest is not sorted."""
    return extent > max(count * FEW, FEWEST)


def least(source: Value, pack: Pack, count: int) -> Value:
    """The `count` least packed keys of each row, ascending: [outer, count, inner]."""
    extent = source.shape[1]
    if is_selected(extent, count):
        return _selected(pack(source, iota(source.shape, 1)), count)
    if extent <= PAIRS:
        return _by_pairs(pack(source, iota(source.shape, 1)), count)
    return _first(_by_network(source, pack), count)


def _as_they_are(values: Value, _: Value) -> Value:
    return values


def _first(rows: Value, count: int) -> Value:
    outer, _, inner = rows.shape
    return slice_(rows, (0, 0, 0), (outer, count, inner))


# ── all pairs ───────────────────────────────────────────────────────────────────────────────────────


def _by_pairs(rows: Value, count: int) -> Value:
    """The rank of an element is how many are less; the element of rank r is the only one that stands there."""
    outer, extent, inner = rows.shape
    pairs = (outer, extent, inner, extent)
    own = broadcast(rows, pairs, (0, 1, 2))
    others = broadcast(transpose(rows, (0, 2, 1)), pairs, (0, 2, 3))
    rank = reduce_axes("add", convert_to(compare("lt", others, own), I64), (3,))
    slots = (outer, count, inner, extent)
    ranks, values = (broadcast(transpose(each, (0, 2, 1)), slots, (0, 2, 3)) for each in (rank, rows))
    here = compare("eq", ranks, iota(slots, 1))
    return reduce_axes("or", select(here, values, fill(0, values.type)), (3,))


# ── few out of many ─────────────────────────────────────────────────────────────────────────────────


def _selected(rows: Value, count: int) -> Value:
    """Block g of a level holds its elements g, g + blocks, …; the next level has the least of each.

    The least `count` of a level lie in the blocks of the `count` least of the next one: each block before an
    element's own holds one that is less. What no block holds is always looked at.
    """
    levels = [rows]
    while is_selected(levels[-1].shape[1], count):
        levels.append(_least_of_blocks(levels[-1]))
    found = least(levels.pop(), _as_they_are, count)
    extents = [level.shape[1] // BLOCK for level in levels]
    for number, level in reversed(list(enumerate(levels))):
        places = places_of(found)
        for blocks in extents[: number + 1]:
            places = elementwise("rem", places, fill(blocks, places.type))
        found = least(_members(level, places), _as_they_are, count)
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


def _by_network(source: Value, pack: Pack) -> Value:
    """Batcher's bitonic network, whose runs face each other so that all exchanges have one direction.

    Bit b of an element's place is an axis of two. Memory holds the upper bits, which few steps exchange, behind the
    others and reversed, so that most steps find long runs side by side.
    """
    outer, extent, inner = source.shape
    bits = (extent - 1).bit_length()
    behind = min(max(0, (LANES // max(inner, 1)).bit_length() - 1), bits - 1)
    order = [*range(bits - behind - 1, -1, -1), *range(bits - behind, bits)]
    split = (outer, *(2,) * bits, inner)
    laid = (0, *(bits - bit for bit in order), bits + 1)

    def lay(value: Value) -> Value:
        return reshape(transpose(reshape(value, split), laid), (outer, 1 << bits, inner))

    rows = lay(_lengthened(source, 1 << bits))
    place = lay(iota((outer, 1 << bits, inner), 1))
    rows = pack(rows, place)
    if extent < 1 << bits:
        rows = select(compare("lt", place, fill(extent, place.type)), rows, fill(LAST, rows.type))
    for top in range(bits):
        steps = range(top, -1, -1)
        for at in range(0, bits, STEPS):
            if chosen := steps[at : at + STEPS]:
                rows = _exchanged(rows, order, chosen, range(top) if at == 0 else ())
    turned = transpose(reshape(rows, split), [laid.index(axis) for axis in range(bits + 2)])
    return _first(reshape(turned, (outer, 1 << bits, inner)), extent)


def _exchanged(rows: Value, order: Sequence[int], bits: Sequence[int], mirrored: Sequence[int]) -> Value:
    """Steps over `bits`, where an element has the bits of `order` as axes of two. Axes of one kind that are beside each
    other are one."""
    shape, axes, against, last = [rows.shape[0]], dict[int, int](), list[int](), False
    for bit in order:
        if bit in bits:
            axes[bit] = len(shape)
        if (bit in mirrored) != last or bit in bits or len(shape) - 1 in axes.values():
            shape.append(1)
            if bit in mirrored:
                against.append(len(shape) - 1)
        shape[-1] *= 2
        last = bit in mirrored
    split = reshape(rows, (*shape, rows.shape[-1]))
    return reshape(exchange(split, [axes[bit] for bit in bits], against), rows.shape)


def _lengthened(rows: Value, extent: int) -> Value:
    return pad(rows, (0, 0, 0), (0, extent - rows.shape[1], 0), scalar(0, rows.dtype))

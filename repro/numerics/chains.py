"""Rule 7 on NumPy arrays: contractions as ascending fma chains over panels, panels over blocks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from repro.ir.expressions import Chain
from repro.ir.types import Array
from repro.numerics.numpy_fma import Hazard, fma_f32, fma_f64

TILE = 16384
"""Outputs at a time: their running sums stay in the cache."""


def chain_sum(order: Chain, left: Array, right: Array, present: Array | None) -> Array:
    """The contraction of `left` and `right` ([..., K], f32 or f64, broadcasting) over their last axis."""
    masks = () if present is None else (present,)
    shape = np.broadcast_shapes(left.shape, right.shape, *(mask.shape for mask in masks))
    count, outer = shape[-1], shape[:-1]
    result = np.empty(outer, left.dtype)
    for tile in _tiles(outer):
        parts = [_reduced_axis_first(array, tile, len(shape), count) for array in (left, right, *masks)]
        total = _blocks(order, count, parts)
        result[tile] = total
    return result


def _tiles(outer: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
    """Boxes of at most about TILE outputs that cover the outer axes."""
    room = TILE
    steps: list[int] = []
    for extent in reversed(outer):
        step = max(1, min(extent, room))
        steps.append(step)
        room //= step
    steps.reverse()
    counts = tuple(-(-extent // step) for extent, step in zip(outer, steps, strict=True))
    for index in np.ndindex(counts):
        yield tuple(slice(i * step, (i + 1) * step) for i, step in zip(index, steps, strict=True))


def _reduced_axis_first(array: Array, tile: tuple[slice, ...], rank: int, count: int) -> Array:
    """The tile of one operand with the reduced axis in front; axes along which it is the same have extent 1, to
    broadcast later."""
    full = array.reshape((1,) * (rank - array.ndim) + array.shape)
    kinds = zip(tile, full.shape[:-1], full.strides[:-1], strict=True)
    box = tuple(slice(0, 1) if extent == 1 or stride == 0 else part for part, extent, stride in kinds)
    moved = np.moveaxis(full[box], -1, 0)
    return np.broadcast_to(moved, (count, *moved.shape[1:])) if moved.shape[0] != count else moved.copy()


def _blocks(order: Chain, count: int, parts: list[Array]) -> Array:
    """Panels added within blocks, blocks added, each from the first; last + 0.0."""
    shape = np.broadcast_shapes(*(part.shape[1:] for part in parts))
    zero = parts[0].dtype.type(0)
    total: Array | None = None
    block: Array | None = None
    for number, start in enumerate(range(0, count, order.panel)):
        panel = _panel(shape, [part[start : start + order.panel] for part in parts])
        if number % order.panels_per_block:
            assert block is not None
            block = block + panel
            continue
        total = block if total is None else total + block
        block = panel
    if block is None:
        return np.zeros(shape, parts[0].dtype)
    return (block if total is None else total + block) + zero


def _panel(shape: tuple[int, ...], parts: list[Array]) -> Array:
    if parts[0].dtype == np.float32:
        return _panel_f32(shape, parts)
    total = np.zeros(shape, np.float64)
    for a, b, *mask in zip(*parts, strict=True):
        added = fma_f64(a, b, total)
        total = np.where(mask[0], added, total) if mask else added
    return total


def _panel_f32(shape: tuple[int, ...], parts: list[Array]) -> Array:
    """The chain in f64 arithmetic; outputs that met a double rounding are done again with the exact fma.

    Products of f32 are exact in f64, so only the sum is rounded twice, and only a midpoint goes wrong.
    """
    left, right, *masks = parts
    left64, right64 = left.astype(np.float64), right.astype(np.float64)
    total, sums = np.zeros(shape, np.float64), np.empty(shape, np.float64)
    rounded = np.empty(shape, np.float32)
    hazard = Hazard(shape)
    for k in range(len(left64)):
        np.multiply(left64[k], right64[k], out=sums)
        np.add(sums, total, out=sums)
        hazard.note(sums)
        np.copyto(rounded, sums, casting="same_kind")
        np.copyto(total, rounded, where=masks[0][k] if masks else True)
    return _repaired(total, hazard.met, parts)


def _repaired(total: Array, hazard: Array, parts: list[Array]) -> Array:
    result = total.astype(np.float32)
    if hazard.any():
        result[hazard] = _exact_chain(total.shape, hazard, parts)
    return result


def _exact_chain(shape: tuple[int, ...], chosen: Array, parts: list[Array]) -> Array:
    spread = [np.broadcast_to(part, (len(part), *shape)) for part in parts]
    total = np.zeros(int(np.count_nonzero(chosen)), np.float32)
    for a, b, *mask in zip(*spread, strict=True):
        added = fma_f32(a[chosen], b[chosen], total)
        total = np.where(mask[0][chosen], added, total) if mask else added
    return total

"""Elements of an axis at positions known at build, as moves where the positions run evenly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from repro.ir.graph import Value
from repro.ops import broadcast, concatenate, gather, integers, reshape, reverse, slice_, transpose

_MOST_PIECES = 4
"""Runs of positions that are worth a concatenation; more become a gather."""


def take(value: Value, axis: int, positions: Sequence[int]) -> Value:
    """`value` with the elements at `positions` (each in range) along an axis, in that order."""
    extent = value.shape[axis]
    if any(not 0 <= position < extent for position in positions):
        raise ValueError(f"positions beyond the extent {extent} of axis {axis}")
    if not positions:
        return _cut(value, axis, 0, 0, 1)
    times = _repeats(positions)
    if times > 1:
        return repeat_each(take(value, axis, positions[::times]), axis, times)
    runs = list(_runs(positions))
    if len(runs) > _MOST_PIECES:
        return _gathered(value, axis, positions)
    return concatenate([_run(value, axis, *run) for run in runs], axis)


def repeat_each(value: Value, axis: int, times: int) -> Value:
    """Every element along an axis `times` times in a row."""
    shape = value.shape
    wide = (*shape[: axis + 1], times, *shape[axis + 1 :])
    spread = broadcast(value, wide, [at if at <= axis else at + 1 for at in range(len(shape))])
    return reshape(spread, (*shape[:axis], shape[axis] * times, *shape[axis + 1 :]))


def strided(value: Value, axis: int, start: int, count: int, step: int) -> Value:
    """`count` elements along an axis from `start`, `step` apart; a negative step runs backward."""
    if not count:
        return _cut(value, axis, 0, 0, 1)
    last = start + (count - 1) * step
    if step > 0:
        return _cut(value, axis, start, last + 1, step)
    return reverse(_cut(value, axis, last, start + 1, -step), (axis,))


def _cut(value: Value, axis: int, start: int, limit: int, stride: int) -> Value:
    starts, limits, strides = [0] * value.rank, list(value.shape), [1] * value.rank
    starts[axis], limits[axis], strides[axis] = start, limit, stride
    return slice_(value, starts, limits, strides)


def _repeats(positions: Sequence[int]) -> int:
    """How many times in a row each position stands, where that is the same for all."""
    times = next((i for i, position in enumerate(positions) if position != positions[0]), len(positions))
    even = len(positions) % times == 0
    return times if even and all(p == positions[i - i % times] for i, p in enumerate(positions)) else 1


def _runs(positions: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """The positions as (start, count, step), each run as long as it goes."""
    at = 0
    while at < len(positions):
        step = positions[at + 1] - positions[at] if at + 1 < len(positions) else 1
        end = at + 1
        while end < len(positions) and positions[end] - positions[end - 1] == step:
            end += 1
        yield positions[at], end - at, step
        at = end


def _run(value: Value, axis: int, start: int, count: int, step: int) -> Value:
    if step:
        return strided(value, axis, start, count, step)
    return repeat_each(_cut(value, axis, start, start + 1, 1), axis, count)


def _gathered(value: Value, axis: int, positions: Sequence[int]) -> Value:
    found = gather(value, integers(np.asarray(positions, np.int64).reshape(-1, 1)), (axis,))
    others = range(1, value.rank)
    return transpose(found, [*others[:axis], 0, *others[axis:]])

"""Elements of an axis at positions known at build, as moves where the positions run evenly."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np

from repro.frontend.context import NodeContext
from repro.frontend.limits import MAX_STATIC_WORK
from repro.ir.graph import Value
from repro.ir.types import Array
from repro.ops import broadcast, concatenate, gather, integers, reshape, reverse, slice_, transpose

_MOST_PIECES = 4
"""Runs of positions that are worth a concatenation; more become a gather."""


def check_count(ctx: NodeContext, count: int) -> None:
    """Refuses to list more positions than the limit on work at build; call it before they are listed."""
    if count > MAX_STATIC_WORK:
        found = f"{count} positions"
        raise ctx.error("too many positions to list at build", found, f"at most {MAX_STATIC_WORK}")


def take(value: Value, axis: int, positions: Array) -> Value:
    """`value` with the elements at `positions` (i64, each in range) along an axis, in that order."""
    extent = value.shape[axis]
    if not positions.size:
        return _cut(value, axis, 0, 0, 1)
    if positions.min() < 0 or positions.max() >= extent:
        raise ValueError(f"positions beyond the extent {extent} of axis {axis}")
    times = _repeats(positions)
    if times > 1:
        return repeat_each(take(value, axis, positions[::times]), axis, times)
    runs = list(islice(_runs(positions), _MOST_PIECES + 1))
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


def _repeats(positions: Array) -> int:
    """How many times in a row each position stands, where that is the same for all."""
    differs = positions != positions[0]
    times = int(np.argmax(differs)) if differs.any() else len(positions)
    if times == 1 or len(positions) % times:
        return 1
    rows = positions.reshape(-1, times)
    return times if bool((rows == rows[:, :1]).all()) else 1


def _runs(positions: Array) -> Iterator[tuple[int, int, int]]:
    """The positions as (start, count, step), each run as long as it goes."""
    steps = np.diff(positions)
    at = 0
    while at < len(positions):
        step = int(steps[at]) if at < len(steps) else 1
        breaks = steps[at:] != step
        count = int(np.argmax(breaks)) + 1 if breaks.any() else len(positions) - at
        yield int(positions[at]), count, step
        at += count


def _run(value: Value, axis: int, start: int, count: int, step: int) -> Value:
    if step:
        return strided(value, axis, start, count, step)
    return repeat_each(_cut(value, axis, start, start + 1, 1), axis, count)


def _gathered(value: Value, axis: int, positions: Array) -> Value:
    found = gather(value, integers(positions.reshape(-1, 1)), (axis,))
    others = range(1, value.rank)
    return transpose(found, [*others[:axis], 0, *others[axis:]])

"""Operators that change the shape or the order of elements and nothing else."""

from __future__ import annotations

import math
from collections.abc import Sequence

from repro.frontend.context import NodeContext
from repro.frontend.families.positions import strided
from repro.frontend.registry import onnx_op
from repro.frontend.scope import Item
from repro.ir.graph import Value
from repro.ir.types import I64
from repro.ops import (
    broadcast,
    broadcast_shape,
    broadcast_to,
    compare,
    concatenate,
    convert_to,
    fill,
    gather,
    iota,
    reshape,
    select,
    slice_,
    sub,
    transpose,
)


@onnx_op("Identity", moves=True)
def identity(_: NodeContext, value: Item) -> Item:
    return value


# ── the same elements in the same order ─────────────────────────────────────────────────────────────


@onnx_op("Reshape", since=5, moves=True)
def reshaped(ctx: NodeContext, data: Value, _: Value) -> Value:
    """0 copies the operand's extent (unless `allowzero`), one -1 takes what is left."""
    wanted = list(ctx.static_ints(1))
    zero_is_extent = not (ctx.opset >= 14 and ctx.attr_bool("allowzero"))
    for axis, extent in enumerate(wanted):
        if extent == 0 and zero_is_extent:
            if axis >= data.rank:
                raise ctx.error("an extent 0 copies no axis", f"shape {wanted} for {data.type}", "an axis to copy")
            wanted[axis] = data.shape[axis]
    known = math.prod(extent for extent in wanted if extent != -1)
    if wanted.count(-1) > 1 or min(wanted, default=0) < -1 or (-1 in wanted and not known):
        raise ctx.error("a shape is not determined", str(wanted), "at most one -1, and no 0 beside it")
    shape = [data.type.elements // known if extent == -1 else extent for extent in wanted]
    return reshape(data, shape)


@onnx_op("Flatten", moves=True)
def flatten(ctx: NodeContext, data: Value) -> Value:
    """[d0*...*d(axis-1), d(axis)*...]"""
    axis = ctx.attr_int("axis", 1)
    if not (-data.rank if ctx.opset >= 11 else 0) <= axis <= data.rank:
        raise ctx.error("an axis is out of range", f"axis {axis} of {data.type}", f"at most {data.rank}")
    axis += data.rank if axis < 0 else 0
    return reshape(data, (math.prod(data.shape[:axis]), math.prod(data.shape[axis:])))


def _axes(ctx: NodeContext, rank: int, index: int = 1, since: int = 13) -> tuple[int, ...] | None:
    """Axes given by the attribute before opset `since`, by an input from there on; None if not given."""
    if ctx.opset >= since:
        return ctx.axes(ctx.static_ints(index), rank) if ctx.given(index) else None
    return ctx.axes(ctx.attr_ints("axes"), rank) if ctx.has("axes") else None


@onnx_op("Squeeze", until=12, moves=True)
def squeeze_by_attribute(ctx: NodeContext, data: Value) -> Value:
    return squeeze(ctx, data)


@onnx_op("Squeeze", since=13, moves=True)
def squeeze(ctx: NodeContext, data: Value, _: Value | None = None) -> Value:
    """Without the named axes, each of extent 1; without axes, all of extent 1."""
    axes = _axes(ctx, data.rank)
    if axes is None:
        axes = tuple(axis for axis, extent in enumerate(data.shape) if extent == 1)
    wide = [axis for axis in axes if data.shape[axis] != 1]
    if wide:
        raise ctx.error("an axis to squeeze is not of extent 1", f"axes {wide} of {data.type}", "extent 1")
    return reshape(data, [extent for axis, extent in enumerate(data.shape) if axis not in axes])


@onnx_op("Unsqueeze", until=12, moves=True)
def unsqueeze_by_attribute(ctx: NodeContext, data: Value) -> Value:
    return unsqueeze(ctx, data, data)


@onnx_op("Unsqueeze", since=13, moves=True)
def unsqueeze(ctx: NodeContext, data: Value, _: Value) -> Value:
    """Axes of extent 1, numbered in the result."""
    numbers = ctx.static_ints(1) if ctx.opset >= 13 else ctx.attr_ints("axes")
    rank = data.rank + len(numbers)
    axes, old = ctx.axes(numbers, rank), iter(data.shape)
    return reshape(data, [1 if axis in axes else next(old) for axis in range(rank)])


# ── order ───────────────────────────────────────────────────────────────────────────────────────────


@onnx_op("Transpose", moves=True)
def transposed(ctx: NodeContext, data: Value) -> Value:
    """Result axis i is operand axis perm[i]; axes reversed by default."""
    return transpose(data, ctx.attr_ints("perm", tuple(reversed(range(data.rank)))))


def _block(ctx: NodeContext, data: Value) -> int:
    size = ctx.attr_int("blocksize")
    if data.rank != 4 or size < 1:
        raise ctx.error("blocks do not fit", f"{data.type} with blocksize {size}", "rank 4, blocksize above 0")
    return size


def _columns_first(ctx: NodeContext, since: int) -> bool:
    mode = ctx.attr_str("mode", "DCR") if ctx.opset >= since else "DCR"
    if mode not in ("DCR", "CRD"):
        raise ctx.error("'mode' is not known", mode, "DCR or CRD")
    return mode == "CRD"


@onnx_op("DepthToSpace", moves=True)
def depth_to_space(ctx: NodeContext, data: Value) -> Value:
    """Channels [b, b, c] (DCR) or [c, b, b] (CRD, opset 11) become blocks of b x b."""
    b = _block(ctx, data)
    n, c, h, w = data.shape
    if c % (b * b):
        raise ctx.error("channels do not fill blocks", f"{c} channels", f"a multiple of {b * b}")
    if _columns_first(ctx, 11):
        parts, order = (n, c // (b * b), b, b, h, w), (0, 1, 4, 2, 5, 3)
    else:
        parts, order = (n, b, b, c // (b * b), h, w), (0, 3, 4, 1, 5, 2)
    return reshape(transpose(reshape(data, parts), order), (n, c // (b * b), h * b, w * b))


@onnx_op("SpaceToDepth", moves=True)
def space_to_depth(ctx: NodeContext, data: Value) -> Value:
    """Blocks of b x b become channels [b, b, c] (DCR) or [c, b, b] (CRD, opset 28)."""
    b = _block(ctx, data)
    n, c, h, w = data.shape
    if h % b or w % b:
        raise ctx.error("blocks do not fill the image", f"{h} x {w}", f"multiples of {b}")
    order = (0, 1, 3, 5, 2, 4) if _columns_first(ctx, 28) else (0, 3, 5, 1, 2, 4)
    parts = transpose(reshape(data, (n, c, h // b, b, w // b, b)), order)
    return reshape(parts, (n, c * b * b, h // b, w // b))


@onnx_op("ReverseSequence", since=10, moves=True)
def reverse_sequence(ctx: NodeContext, data: Value, lengths: Value) -> Value:
    """Element t of sequence b is element lengths[b] - 1 - t where t < lengths[b], else t."""
    time, batch = ctx.attr_int("time_axis", 0), ctx.attr_int("batch_axis", 1)
    if data.rank < 2 or sorted((time, batch)) != [0, 1]:
        raise ctx.error("axes do not fit", f"time_axis {time}, batch_axis {batch} of {data.type}", "0 and 1")
    plane = data.shape[:2]
    if lengths.shape != (plane[batch],):
        raise ctx.error("the number of lengths is wrong", str(lengths.type), f"{plane[batch]} lengths")
    steps, row = iota(plane, time), iota(plane, batch)
    length = broadcast(convert_to(lengths, I64), plane, (batch,))
    mirrored = sub(sub(length, fill(1, length.type)), steps)
    source = select(compare("lt", steps, length), mirrored, steps)
    columns = (source, row) if time == 0 else (row, source)
    points = concatenate([reshape(column, (*plane, 1)) for column in columns], 2)
    return gather(data, points, (0, 1))


# ── parts and repetitions ───────────────────────────────────────────────────────────────────────────


@onnx_op("Concat", since=4, moves=True)
def concat(ctx: NodeContext, *parts: Value) -> Value:
    if not parts:
        raise ctx.error("Concat of nothing", expected="one tensor or more")
    return concatenate(parts, ctx.axis(ctx.attr_int("axis"), parts[0].rank))


@onnx_op("Split", until=12, moves=True)
def split_by_attribute(ctx: NodeContext, data: Value) -> tuple[Value, ...]:
    """Parts of the lengths in `split`, or equal ones."""
    return split_along(ctx, data, ctx.attr_ints("split") if ctx.has("split") else None)


@onnx_op("Split", since=13, moves=True)
def split(ctx: NodeContext, data: Value, _: Value | None = None) -> tuple[Value, ...]:
    """Parts of the lengths in input 1, or `num_outputs` (opset 18) of which the last may be shorter, or equal ones."""
    if ctx.given(1):
        if ctx.opset >= 18 and ctx.has("num_outputs"):
            raise ctx.error("lengths and 'num_outputs' are both given", expected="one of them")
        return split_along(ctx, data, ctx.static_ints(1))
    if ctx.opset < 18 or not ctx.has("num_outputs"):
        return split_along(ctx, data, None)
    count, extent = ctx.attr_int("num_outputs"), data.shape[ctx.axis(ctx.attr_int("axis", 0), data.rank)]
    if count < 1:
        raise ctx.error("'num_outputs' is not a count", str(count), "1 or more")
    if count != ctx.outputs:
        raise ctx.error(
            "'num_outputs' does not fit the node", str(count), f"{ctx.outputs}, as many as the node has outputs"
        )
    chunk = -(-extent // count)
    return split_along(ctx, data, (*(chunk,) * (count - 1), extent - chunk * (count - 1)))


def split_along(ctx: NodeContext, data: Value, lengths: Sequence[int] | None) -> tuple[Value, ...]:
    axis = ctx.axis(ctx.attr_int("axis", 0), data.rank)
    extent, count = data.shape[axis], ctx.outputs
    if lengths is None:
        if extent % count:
            raise ctx.error("parts are not equal", f"extent {extent} in {count} parts", "an extent that divides")
        lengths = (extent // count,) * count
    if len(lengths) != count or min(lengths) < 0 or sum(lengths) != extent:
        raise ctx.error("lengths do not fit", f"{list(lengths)}", f"{count} lengths that add up to {extent}")
    parts: list[Value] = []
    at = 0
    for length in lengths:
        starts, limits = [0] * data.rank, list(data.shape)
        starts[axis], limits[axis] = at, at + length
        parts.append(slice_(data, starts, limits))
        at += length
    return tuple(parts)


@onnx_op("Slice", until=9, moves=True)
def slice_by_attribute(ctx: NodeContext, data: Value) -> Value:
    """start to before end along each of `axes`; negative ones count from the end, all are clamped."""
    starts, ends = ctx.attr_ints("starts"), ctx.attr_ints("ends")
    axes = ctx.attr_ints("axes") if ctx.has("axes") else range(len(starts))
    return slice_along(ctx, data, starts, ends, axes, (1,) * len(starts))


@onnx_op("Slice", since=10, moves=True)
def sliced(
    ctx: NodeContext, data: Value, _: Value, __: Value, ___: Value | None = None, ____: Value | None = None
) -> Value:
    """As before, by inputs starts, ends, axes, steps; a negative step runs backward."""
    starts, ends = ctx.static_ints(1), ctx.static_ints(2)
    axes = ctx.static_ints(3) if ctx.given(3) else range(len(starts))
    return slice_along(ctx, data, starts, ends, axes, ctx.static_ints(4) if ctx.given(4) else (1,) * len(starts))


def slice_along(
    ctx: NodeContext, data: Value, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int], steps: Sequence[int]
) -> Value:
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        found = f"starts {list(starts)}, ends {list(ends)}, axes {list(axes)}, steps {list(steps)}"
        raise ctx.error("a slice does not fit itself", found, "one of each for every axis, steps not 0")
    for axis, start, end, step in zip(ctx.axes(axes, data.rank), starts, ends, steps, strict=True):
        extent = data.shape[axis]
        start, end = (at + extent if at < 0 else at for at in (start, end))
        if step > 0:
            start, end = min(max(start, 0), extent), min(max(end, 0), extent)
        else:
            start, end = max(min(start, extent - 1), 0), max(min(end, extent - 1), -1)
        count = max(-((start - end) // step), 0) if extent else 0
        data = strided(data, axis, start, count, step)
    return data


@onnx_op("Expand", since=8, moves=True)
def expand(ctx: NodeContext, data: Value, _: Value) -> Value:
    """NumPy's broadcasting of the data with the shape."""
    wanted = ctx.static_ints(1)
    if min(wanted, default=0) < 0:
        raise ctx.error("a shape has a negative extent", str(list(wanted)), "extents of 0 and up")
    shape = broadcast_shape(data.shape, wanted)
    ctx.check_size(shape, data.dtype)
    return broadcast_to(data, shape)


@onnx_op("Tile", since=6, moves=True)
def tile(ctx: NodeContext, data: Value, _: Value) -> Value:
    """The whole tensor repeats[i] times along axis i."""
    repeats = ctx.static_ints(1)
    if len(repeats) != data.rank or min(repeats, default=0) < 0:
        raise ctx.error("repeats do not fit", f"{list(repeats)} for {data.type}", f"{data.rank} counts")
    shape = [extent * times for extent, times in zip(data.shape, repeats, strict=True)]
    ctx.check_size(shape, data.dtype)
    wide: list[int] = []
    own: list[int] = []
    for extent, times in zip(data.shape, repeats, strict=True):
        wide += [times, extent] if times != 1 else [extent]
        own.append(len(wide) - 1)
    return reshape(broadcast(data, wide, own), shape)

"""Gather and scatter. Negative indices count from the end; what is then out of range is rule 6 (+0, or dropped)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from repro.frontend.context import NodeContext
from repro.frontend.families.positions import strided
from repro.frontend.registry import onnx_op
from repro.ir.graph import Value
from repro.ir.types import BF16, F16, F32, I64
from repro.ops import (
    add,
    broadcast,
    compare,
    concatenate,
    convert_to,
    elementwise,
    fill,
    gather,
    integers,
    iota,
    reshape,
    scatter,
    select,
    static,
    transpose,
)

_COMBINERS = {"none": "set", "add": "add", "mul": "mul", "min": "min", "max": "max"}


def _indices(ctx: NodeContext, indices: Value) -> Value:
    if not indices.dtype.is_integer:
        raise ctx.error("indices are not integers", str(indices.type), "int32 or int64")
    return convert_to(indices, I64)


def from_start(indices: Value, extents: Sequence[int]) -> Value:
    """i64 indices with negative ones moved up by the extent, once; several extents belong to the last axis."""
    known = static(indices)
    if known is not None:
        return integers(np.where(known < 0, known + np.asarray(extents if len(extents) > 1 else extents[0]), known))
    if len(extents) == 1:
        extent = fill(extents[0], indices.type)
    else:
        extent = broadcast(integers(list(extents)), indices.shape, (indices.rank - 1,))
    return select(compare("lt", indices, fill(0, indices.type)), add(indices, extent), indices)


# ── gather ──────────────────────────────────────────────────────────────────────────────────────────


@onnx_op("Gather", moves=True)
def gathered(ctx: NodeContext, data: Value, indices: Value) -> Value:
    """data[..., indices, ...] along an axis; one index known at build is a slice."""
    axis = ctx.axis(ctx.attr_int("axis", 0), data.rank)
    extent = data.shape[axis]
    points = from_start(_indices(ctx, indices), (extent,))
    lead, rest = data.shape[:axis], data.shape[axis + 1 :]
    known = static(points)
    if known is not None and known.size == 1 and 0 <= int(known.reshape(-1)[0]) < extent:
        return reshape(strided(data, axis, int(known.reshape(-1)[0]), 1, 1), (*lead, *points.shape, *rest))
    found = gather(data, reshape(points, (*points.shape, 1)), (axis,))  # axes: those of indices, then the others
    own = range(points.rank)
    others = range(points.rank, found.rank)
    return transpose(found, [*others[:axis], *own, *others[axis:]])


def _along(ctx: NodeContext, data: Value, indices: Value) -> Value:
    """Full coordinates, [indices' shape..., rank]: the index on the axis, its own place on the others."""
    axis = ctx.axis(ctx.attr_int("axis", 0), data.rank)
    inside = indices.rank == data.rank and all(
        n <= m for at, (n, m) in enumerate(zip(indices.shape, data.shape, strict=True)) if at != axis
    )
    if not inside:
        raise ctx.error(
            "indices do not lie in the data", f"{indices.type} for {data.type}", "the data's rank, no longer"
        )
    places = from_start(_indices(ctx, indices), (data.shape[axis],))
    columns = [places if at == axis else iota(indices.shape, at) for at in range(data.rank)]
    return concatenate([reshape(column, (*indices.shape, 1)) for column in columns], indices.rank)


@onnx_op("GatherElements", since=11, moves=True)
def gather_elements(ctx: NodeContext, data: Value, indices: Value) -> Value:
    """NumPy's take_along_axis."""
    return gather(data, _along(ctx, data, indices), range(data.rank))


@onnx_op("GatherND", since=11, moves=True)
def gather_nd(ctx: NodeContext, data: Value, indices: Value) -> Value:
    """Windows at points on the axes after the first `batch_dims`, which both share."""
    return windows_at_points(ctx, data, indices, ctx.attr_int("batch_dims", 0) if ctx.opset >= 12 else 0)


def windows_at_points(ctx: NodeContext, data: Value, indices: Value, batch: int) -> Value:
    """GatherND with `batch` axes that data and indices share."""
    shared = 0 <= batch < min(data.rank, indices.rank) and data.shape[:batch] == indices.shape[:batch]
    if not shared or batch + indices.shape[-1] > data.rank:
        found = f"batch_dims {batch}, indices {indices.type}"
        raise ctx.error("indices do not fit", found, f"points in {data.type} with equal batch axes")
    points = _points(ctx, indices, data.shape[batch : batch + indices.shape[-1]])
    lead = (*indices.shape[:-1], 1)
    columns = [reshape(iota(lead[:-1], axis), lead) for axis in range(batch)]
    return gather(data, concatenate([*columns, points], indices.rank - 1), range(batch + indices.shape[-1]))


def _points(ctx: NodeContext, indices: Value, extents: Sequence[int]) -> Value:
    places = _indices(ctx, indices)
    return from_start(places, extents) if extents else places


# ── scatter ─────────────────────────────────────────────────────────────────────────────────────────


def _combiner(ctx: NodeContext) -> str:
    """The `reduction` of opset 16. Its min and max are opset 18's by the standard, but PyTorch writes them before."""
    allowed = tuple(_COMBINERS) if ctx.opset >= 16 else ("none",)
    reduction = ctx.attr_str("reduction", "none")
    if reduction not in allowed:
        raise ctx.error("'reduction' is not known", reduction, ", ".join(allowed))
    return _COMBINERS[reduction]


def _scattered(ctx: NodeContext, data: Value, points: Value, updates: Value, axes: Sequence[int]) -> Value:
    """Updates put or combined one by one, ascending (rule 12); f16 and bf16 combine in f32 (rule 3)."""
    combiner, narrow = _combiner(ctx), data.dtype in (F16, BF16)
    if combiner == "set" or not narrow:
        return scatter(combiner, data, points, updates, axes)
    wide = scatter(combiner, convert_to(data, F32), points, convert_to(updates, F32), axes)
    return convert_to(wide, data.dtype)


@onnx_op("Scatter", since=9, until=15, moves=True)
@onnx_op("ScatterElements", since=11, moves=True)
def scatter_elements(ctx: NodeContext, data: Value, indices: Value, updates: Value) -> Value:
    """The inverse of GatherElements."""
    if updates.shape != indices.shape:
        raise ctx.error("updates do not fit", f"{updates.type} for indices {indices.type}", "one for each index")
    return _scattered(ctx, data, _along(ctx, data, indices), updates, range(data.rank))


@onnx_op("ScatterND", since=11, moves=True)
def scatter_nd(ctx: NodeContext, data: Value, indices: Value, updates: Value) -> Value:
    """The inverse of GatherND."""
    if not indices.rank or indices.shape[-1] > data.rank:
        raise ctx.error("indices do not fit", str(indices.type), f"points in {data.type}")
    depth = indices.shape[-1]
    return _scattered(ctx, data, _points(ctx, indices, data.shape[:depth]), updates, range(depth))


@onnx_op("TensorScatter", since=24, moves=True)
def tensor_scatter(ctx: NodeContext, cache: Value, update: Value, starts: Value | None = None) -> Value:
    """`update` written into `cache` from starts[batch] on along an axis, `circular` or not."""
    axis, mode = ctx.axis(ctx.attr_int("axis", -2), cache.rank), ctx.attr_str("mode", "linear")
    fits = (
        axis
        and update.rank == cache.rank
        and all(
            n <= m if at == axis else n == m for at, (n, m) in enumerate(zip(update.shape, cache.shape, strict=True))
        )
    )
    if not fits or mode not in ("linear", "circular"):
        raise ctx.error("the update does not fit", f"{update.type} in {cache.type}, axis {axis}, mode {mode}")
    plane = (cache.shape[0], update.shape[axis])
    place = iota(plane, 1)
    if starts is not None:
        place = add(broadcast(_indices(ctx, starts), plane, (0,)), place)
    if mode == "circular":
        place = elementwise("rem", place, fill(cache.shape[axis], place.type))
    columns = [reshape(column, (*plane, 1)) for column in (iota(plane, 0), place)]
    others = [at for at in range(1, cache.rank) if at != axis]
    return scatter("set", cache, concatenate(columns, 2), transpose(update, (0, axis, *others)), (0, axis))

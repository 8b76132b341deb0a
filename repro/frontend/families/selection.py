"""Elements chosen by their values: TopK, OneHot, and those whose count has to be known at build."""

from __future__ import annotations

import numpy as np

from repro.frontend.context import NodeContext
from repro.frontend.families.indexing import from_start
from repro.frontend.families.positions import take
from repro.frontend.registry import onnx_op
from repro.ir.graph import Value
from repro.ir.types import BF16, F16, F32, I64, Array
from repro.ops import broadcast, compare, convert_to, integers, iota, reshape, select, slice_, sort, take_along_axis

# ── TopK, OneHot ────────────────────────────────────────────────────────────────────────────────────


@onnx_op("TopK", until=9, moves=True)
def top_k_by_attribute(ctx: NodeContext, data: Value) -> tuple[Value, Value]:
    return _top_k(ctx, data, ctx.attr_int("k"), largest=True)


@onnx_op("TopK", since=10, until=10, moves=True)
def top_k_largest(ctx: NodeContext, data: Value, _: Value) -> tuple[Value, Value]:
    return _top_k(ctx, data, ctx.static_int(1), largest=True)


@onnx_op("TopK", since=11, moves=True)
def top_k(ctx: NodeContext, data: Value, _: Value) -> tuple[Value, Value]:
    """The first k by rule 5: NaN is greatest, ties go to the lower index. Sorted even where `sorted` is 0."""
    return _top_k(ctx, data, ctx.static_int(1), ctx.attr_bool("largest", True))


def _top_k(ctx: NodeContext, data: Value, k: int, largest: bool) -> tuple[Value, Value]:
    axis = ctx.axis(ctx.attr_int("axis", -1), data.rank)
    if not 0 <= k <= data.shape[axis]:
        raise ctx.error("k does not fit", str(k), f"0 to {data.shape[axis]}")
    narrow = data.dtype in (F16, BF16)
    values, indices = sort(convert_to(data, F32) if narrow else data, axis, largest, k)
    return take_along_axis(data, indices, axis) if narrow else values, indices


@onnx_op("OneHot", since=9, moves=True)
def one_hot(ctx: NodeContext, indices: Value, _: Value, values: Value) -> Value:
    """values[1] where the new axis' place is the index, values[0] elsewhere; an index out of range hits nothing."""
    found = ctx.static(1)
    depth = int(found.reshape(-1)[0]) if found.size == 1 else -1
    if depth < 0 or values.shape != (2,):
        raise ctx.error(
            "depth or values do not fit", f"depth {found.tolist()}, values {values.type}", "a count, [off, on]"
        )
    axis = ctx.axis(ctx.attr_int("axis", -1), indices.rank + 1)
    shape = (*indices.shape[:axis], depth, *indices.shape[axis:])
    ctx.check_size(shape, values.dtype)
    places = from_start(convert_to(indices, I64), (depth,))
    spread = broadcast(places, shape, [at for at in range(len(shape)) if at != axis])
    off, on = (broadcast(reshape(slice_(values, (at,), (at + 1,)), ()), shape, ()) for at in (0, 1))
    return select(compare("eq", spread, iota(shape, axis)), on, off)


# ── what depends on values known at build ───────────────────────────────────────────────────────────


def _known(ctx: NodeContext, index: int) -> Array:
    """An input on whose values the result's shape depends."""
    item = ctx.inputs[index]
    found = ctx.static_value(item) if isinstance(item, Value) else None
    if found is None:
        raise ctx.data_dependent(item if isinstance(item, Value) else None)
    return found


@onnx_op("Compress", since=9, moves=True)
def compress(ctx: NodeContext, data: Value, _: Value) -> Value:
    """The elements (or slices along `axis`) whose condition, known at build, is true."""
    kept = np.flatnonzero(_known(ctx, 1).reshape(-1)).astype(np.int64)
    axis = ctx.axis(ctx.attr_int("axis"), data.rank) if ctx.has("axis") else None
    source = reshape(data, (data.type.elements,)) if axis is None else data
    return take(source, axis or 0, kept)


@onnx_op("NonZero", since=9, moves=True)
def non_zero(ctx: NodeContext, _: Value) -> Value:
    """Coordinates [rank, count] of what is not zero, row-major; the data is known at build."""
    return integers(np.stack(np.nonzero(np.atleast_1d(_known(ctx, 0)))).astype(np.int64))


@onnx_op("Unique", since=11, moves=True)
def unique(ctx: NodeContext, data: Value) -> tuple[Value, ...]:
    """Unique elements (or slices along `axis`), ascending or by first place; the data is known at build."""
    axis = ctx.axis(ctx.attr_int("axis"), data.rank) if ctx.has("axis") else None
    keys = _known(ctx, 0)
    keys = keys.astype(np.float32) if data.dtype in (F16, BF16) else keys
    _, first, inverse, counts = np.unique(keys, return_index=True, return_inverse=True, return_counts=True, axis=axis)
    order = np.arange(len(first)) if ctx.attr_bool("sorted", True) else np.argsort(first, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    source = reshape(data, (data.type.elements,)) if axis is None else data
    values = take(source, axis or 0, first[order].astype(np.int64))
    return values, integers(first[order]), integers(rank[inverse.reshape(-1)]), integers(counts[order])

"""Pools: window reductions (rules 5, 10, 11). Padding is absent from every window."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from repro.frontend.context import NodeContext
from repro.frontend.families.positions import check_count
from repro.frontend.families.windows import Windows, read_windows, spatial_ints
from repro.frontend.registry import onnx_op
from repro.ir.graph import Value, constant
from repro.ir.types import I64, Array, DType, to_storage
from repro.ops import (
    add,
    broadcast,
    broadcast_to,
    concatenate,
    div,
    elementwise,
    fill,
    mul,
    reduce_keep,
    reshape,
    scalar,
    scatter,
    window_reduce,
)


def _over(combiner: str, x: Value, windows: Windows) -> Value:
    """The reduction of every window over the spatial axes."""
    return window_reduce(
        combiner,
        x,
        (1, 1, *windows.kernel),
        (1, 1, *windows.strides),
        (1, 1, *windows.dilations),
        (0, 0, *windows.low),
        (0, 0, *windows.needed_high(x.shape[2:])),
    )


def _windows(ctx: NodeContext, x: Value) -> Windows:
    if x.rank < 3:
        raise ctx.error("a pool has spatial axes", str(x.type), "a tensor of rank 3 or more")
    windows = read_windows(ctx, x.shape[2:], ceil=ctx.attr_bool("ceil_mode"))
    ctx.check_size(windows.kernel, x.dtype)
    ctx.check_size((*x.shape[:2], *windows.output), x.dtype)
    return windows


def _spatial(ctx: NodeContext, x: Value) -> tuple[int, ...]:
    if x.rank < 3:
        raise ctx.error("a pool has spatial axes", str(x.type), "a tensor of rank 3 or more")
    return tuple(range(2, x.rank))


# ── maxima ──────────────────────────────────────────────────────────────────────────────────────────


@onnx_op("MaxPool")
def max_pool(ctx: NodeContext, x: Value) -> Value | tuple[Value, Value]:
    """The greatest of each window (rule 5); on demand the offset of the first of the greatest in the whole input."""
    windows = _windows(ctx, x)
    greatest = _over("max", x, windows)
    if not ctx.wants(1):
        return greatest
    offsets = _over("argmax", x, windows)
    return greatest, _column_major(offsets, x.shape) if ctx.attr_int("storage_order", 0) else offsets


def _column_major(offsets: Value, shape: Sequence[int]) -> Value:
    """Row-major offsets into `shape` as offsets with the first spatial axis fastest; the channels' planes stay."""

    def by(name: str, value: Value, number: int) -> Value:
        return elementwise(name, value, fill(number, value.type))

    plane = math.prod(shape[2:])
    result = by("mul", by("div", offsets, plane), plane)
    behind, before = plane, 1
    for extent in shape[2:]:
        behind //= extent
        place = by("rem", by("div", offsets, behind), extent)
        result = add(result, by("mul", place, before))
        before *= extent
    return result


@onnx_op("GlobalMaxPool")
def global_max_pool(ctx: NodeContext, x: Value) -> Value:
    """The greatest over all spatial axes."""
    return reduce_keep("max", x, _spatial(ctx, x))


@onnx_op("MaxUnpool", since=9, moves=True)
def max_unpool(ctx: NodeContext, x: Value, indices: Value, output_shape: Value | None = None) -> Value:
    """Zeros, with each element at its offset in the shape that was pooled; the last of several at one place stays."""
    rank = len(_spatial(ctx, x))
    kernel = spatial_ints(ctx, "kernel_shape", rank, 1, 1)
    strides = spatial_ints(ctx, "strides", rank, 1, 1)
    pads = spatial_ints(ctx, "pads", 2 * rank, 0, 0)
    parts = zip(x.shape[2:], strides, kernel, pads[:rank], pads[rank:], strict=True)
    pooled = (*x.shape[:2], *((n - 1) * stride + size - low - high for n, stride, size, low, high in parts))
    output = pooled if output_shape is None else ctx.static_ints(2)
    if (
        len(output) != x.rank
        or min(pooled[2:], default=1) < 1
        or any(n < m for n, m in zip(output, pooled, strict=True))
    ):
        raise ctx.error("output_shape does not fit", str(list(output)), f"at least {list(pooled)}")
    if indices.shape != x.shape or indices.dtype is not I64:
        raise ctx.error("the indices do not fit", str(indices.type), f"i64 of the shape of {x.type}")
    ctx.check_size(output, x.dtype)
    zeros = broadcast(scalar(0, x.dtype), output, ())
    if not x.type.elements:
        return zeros
    # An offset counts in the shape that was pooled, so a larger result needs the place on every axis.
    flat, behind, places = reshape(indices, (x.type.elements,)), math.prod(pooled), list[Value]()
    for axis, extent in enumerate(pooled):
        behind //= extent
        place = elementwise("div", flat, fill(behind, flat.type))
        if axis:
            place = elementwise("rem", place, fill(extent, flat.type))
        places.append(reshape(place, (*flat.shape, 1)))
    return scatter("set", zeros, concatenate(places, 1), reshape(x, flat.shape), range(x.rank))


# ── means ───────────────────────────────────────────────────────────────────────────────────────────


@onnx_op("AveragePool")
def average_pool(ctx: NodeContext, x: Value) -> Value:
    """sum / count; with count_include_pad the count takes in the padding that the model states."""
    windows = _windows(ctx, x)
    check_count(ctx, math.prod(windows.output))
    counts = _counts(windows, x.shape[2:], ctx.attr_bool("count_include_pad"))
    total = _over("add", x, windows)
    return div(total, broadcast_to(_numbers(counts, x.dtype), total.shape))


def _counts(windows: Windows, extents: Sequence[int], padding_too: bool) -> Array:
    """How many positions of each window count."""
    counts = np.ones((), np.int64)
    for axis, extent in enumerate(extents):
        starts = np.arange(windows.output[axis]) * windows.strides[axis] - windows.low[axis]
        first, last = (-windows.low[axis], extent + windows.high[axis]) if padding_too else (0, extent)
        before, until = (
            np.clip(-((starts - edge) // windows.dilations[axis]), 0, windows.kernel[axis]) for edge in (first, last)
        )  # elements of the window before the edge: ceil((edge - start) / dilation)
        counts = counts[..., None] * (until - before)
    return counts


def _numbers(counts: Array, dtype: DType) -> Value:
    """The counts as a constant; as a scalar where they are all one."""
    if counts.size and (counts == counts.flat[0]).all():
        return scalar(int(counts.flat[0]), dtype)
    return constant(to_storage(counts.astype(dtype.face), dtype), dtype)


@onnx_op("GlobalAveragePool")
def global_average_pool(ctx: NodeContext, x: Value) -> Value:
    """sum / count over all spatial axes."""
    axes = _spatial(ctx, x)
    total = reduce_keep("add", x, axes)
    return div(total, fill(math.prod(x.shape[axis] for axis in axes), total.type))


# ── norms ───────────────────────────────────────────────────────────────────────────────────────────


def lp_norm(x: Value, p: int, total: Callable[[Value], Value]) -> Value:
    """The p-norm, with `total` the sum: of |x|; or sqrt of that of x * x; or (sum of |x| ** p) ** (1 / p)."""
    if p == 2:
        return elementwise("sqrt", total(mul(x, x)))
    if p == 1:
        return total(elementwise("abs", x))
    dtype = x.dtype
    summed = total(elementwise("pow", elementwise("abs", x), fill(p, x.type)))
    root = div(scalar(1, dtype), scalar(p, dtype))
    return elementwise("pow", summed, broadcast(root, summed.shape, ()))


def _p(ctx: NodeContext) -> int:
    p = ctx.attr_int("p", 2)
    if not 1 <= p <= 1 << 24:
        raise ctx.error("attribute 'p' is out of range", str(p), "a number from 1 up")
    return p


@onnx_op("LpPool", since=2)
def lp_pool(ctx: NodeContext, x: Value) -> Value:
    """The p-norm of each window."""
    p, windows = _p(ctx), _windows(ctx, x)
    return ctx.composite("LpPool", (x,), lambda v: lp_norm(v, p, lambda t: _over("add", t, windows)), p=p).value


@onnx_op("GlobalLpPool", since=2)
def global_lp_pool(ctx: NodeContext, x: Value) -> Value:
    """The p-norm over all spatial axes."""
    p, axes = _p(ctx), _spatial(ctx, x)
    return ctx.composite("LpPool", (x,), lambda v: lp_norm(v, p, lambda t: reduce_keep("add", t, axes)), p=p).value

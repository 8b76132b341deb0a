"""Pad in every mode, and cropping to a centre."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from repro.frontend.context import NodeContext
from repro.frontend.families.positions import check_count, take
from repro.frontend.registry import onnx_op
from repro.ir.graph import Value
from repro.ir.types import Array
from repro.ops import pad, reshape, scalar, slice_

_MODES = ("constant", "reflect", "edge", "wrap")


@onnx_op("Pad", since=2, until=10, moves=True)
def pad_by_attributes(ctx: NodeContext, data: Value) -> Value:
    return _padded(ctx, data, ctx.attr_ints("pads"), scalar(ctx.attr_float("value", 0.0), data.dtype))


@onnx_op("Pad", since=11, until=17, moves=True)
def pad_all_axes(ctx: NodeContext, data: Value, _: Value, value: Value | None = None) -> Value:
    return _padded(ctx, data, ctx.static_ints(1), value)


@onnx_op("Pad", since=18, moves=True)
def pad_axes(ctx: NodeContext, data: Value, _: Value, value: Value | None = None, axes: Value | None = None) -> Value:
    """Amounts before and after each axis, negative ones crop. `wrap` is opset 19's by the standard, but PyTorch writes
    it before."""
    if axes is None:
        return _padded(ctx, data, ctx.static_ints(1), value)
    chosen, amounts = ctx.axes(ctx.static_ints(3), data.rank), ctx.static_ints(1)
    if len(amounts) != 2 * len(chosen):
        raise ctx.error("pads do not fit", f"{list(amounts)} for axes {chosen}", f"{2 * len(chosen)} numbers")
    spread = [0] * (2 * data.rank)
    for position, axis in enumerate(chosen):
        spread[axis], spread[data.rank + axis] = amounts[position], amounts[len(chosen) + position]
    return _padded(ctx, data, spread, value)


def _padded(ctx: NodeContext, data: Value, amounts: Sequence[int], value: Value | None) -> Value:
    mode, known = ctx.attr_str("mode", "constant"), _MODES if ctx.opset >= 18 else _MODES[:-1]
    if mode not in known:
        raise ctx.error("'mode' is not known", mode, ", ".join(known))
    if len(amounts) != 2 * data.rank:
        raise ctx.error("pads do not fit", f"{list(amounts)} for {data.type}", f"{2 * data.rank} numbers")
    low, high = amounts[: data.rank], amounts[data.rank :]
    final = [n + a + b for n, a, b in zip(data.shape, low, high, strict=True)]
    if min(final, default=0) < 0:
        raise ctx.error("pads crop more than there is", f"{list(amounts)} for {data.type}", "extents of 0 and up")
    ctx.check_size(final, data.dtype)
    if mode == "constant":
        return _constant(data, low, high, scalar(0, data.dtype) if value is None else reshape(value, ()))
    data = _cropped(data, low, high)
    for axis, (before, after) in enumerate(zip(low, high, strict=True)):
        if before > 0 or after > 0:
            data = take(data, axis, _positions(ctx, mode, data.shape[axis], max(before, 0), max(after, 0)))
    return data


def _constant(data: Value, low: Sequence[int], high: Sequence[int], value: Value) -> Value:
    """Cropping past an end crops what the other side adds: a negative amount may exceed the extent."""
    extents = zip(data.shape, low, high, strict=True)
    if any(n + min(a, 0) + min(b, 0) < 0 for n, a, b in extents):
        grown = pad(data, [max(a, 0) for a in low], [max(b, 0) for b in high], value)
        return _cropped(grown, low, high)
    data = _cropped(data, low, high)
    return pad(data, [max(a, 0) for a in low], [max(b, 0) for b in high], value)


def _cropped(data: Value, low: Sequence[int], high: Sequence[int]) -> Value:
    """Without what negative amounts take away."""
    starts = [max(-a, 0) for a in low]
    limits = [n - max(-b, 0) for n, b in zip(data.shape, high, strict=True)]
    return slice_(data, starts, limits) if data.rank else data


def _positions(ctx: NodeContext, mode: str, extent: int, before: int, after: int) -> Array:
    """Which element of the axis stands at each place of the padded one."""
    if not extent:
        raise ctx.error(f"an empty axis cannot be padded by '{mode}'", expected="an extent above 0")
    check_count(ctx, before + extent + after)
    places = np.arange(-before, extent + after)
    if mode == "edge":
        return np.clip(places, 0, extent - 1)
    if mode == "wrap":
        return places % extent
    period = max(2 * (extent - 1), 1)
    return np.minimum(places % period, -places % period)


@onnx_op("CenterCropPad", since=18, moves=True)
def center_crop_pad(ctx: NodeContext, data: Value, _: Value) -> Value:
    """Axes cropped or zero-padded to given extents around their middle; an odd element is cut before, added after."""
    axes = ctx.axes(ctx.attr_ints("axes"), data.rank) if ctx.has("axes") else tuple(range(data.rank))
    wanted = ctx.static_ints(1)
    if len(wanted) != len(axes) or min(wanted, default=0) < 0:
        raise ctx.error("the shape does not fit", f"{list(wanted)} for axes {axes}", f"{len(axes)} extents")
    low, high = [0] * data.rank, [0] * data.rank
    for axis, extent in zip(axes, wanted, strict=True):
        more = extent - data.shape[axis]
        low[axis] = more // 2 if more >= 0 else -(-more // 2)
        high[axis] = more - low[axis]
    ctx.check_size([n + a + b for n, a, b in zip(data.shape, low, high, strict=True)], data.dtype)
    return _constant(data, low, high, scalar(0, data.dtype))

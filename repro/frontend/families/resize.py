"""Resize and Upsample: positions and weights are computed at build, in f64; what runs is gathers and short sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from repro.frontend.context import NodeContext
from repro.frontend.families.interpolation import MODES, TRANSFORMS, Axis, Sampling, nearest_positions, tap_count, taps
from repro.frontend.families.positions import check_count, take
from repro.frontend.registry import onnx_op
from repro.ir.graph import Value, constant
from repro.ir.types import BF16, BOOL, F16, F32, F64, Array, DType
from repro.ops import add, broadcast, convert_to, elementwise, fill, mul, reduce_axes, reshape, select

# ── the operators ───────────────────────────────────────────────────────────────────────────────────


@onnx_op("Upsample", since=7, until=8, moves=True)
def upsample_by_attribute(ctx: NodeContext, data: Value) -> Value:
    return _resized(ctx, data, _by_scales(ctx, data, ctx.attr_floats("scales"), range(data.rank)), _before_11(ctx))


@onnx_op("Upsample", since=9, until=9, moves=True)
@onnx_op("Resize", since=10, until=10, moves=True)
def upsample(ctx: NodeContext, data: Value, _: Value) -> Value:
    """x = i / scale; nearest takes the element before it, or behind it where the axis shrinks."""
    return _resized(ctx, data, _by_scales(ctx, data, _numbers(ctx, 1), range(data.rank)), _before_11(ctx))


def _before_11(ctx: NodeContext) -> Sampling:
    mode = ctx.attr_str("mode", "nearest")
    if mode not in ("nearest", "linear"):
        raise ctx.error("'mode' is not known", mode, "nearest or linear")
    return Sampling(mode, "asymmetric", "simple")


@onnx_op("Resize", since=11, until=12, moves=True)
def resize_11(ctx: NodeContext, data: Value, _: Value, __: Value, ___: Value | None = None) -> Value:
    return _resize(ctx, data)


@onnx_op("Resize", since=13, moves=True)
def resize(
    ctx: NodeContext, data: Value, _: Value | None = None, __: Value | None = None, ___: Value | None = None
) -> Value:
    """Axis by axis, ascending: the sum (rule 10) of weight * element over the taps, each product rounded."""
    return _resize(ctx, data)


def _resize(ctx: NodeContext, data: Value) -> Value:
    axes = range(data.rank)
    if ctx.opset >= 18 and ctx.has("axes"):
        axes = ctx.axes(ctx.attr_ints("axes"), data.rank)
    scales, sizes = _numbers(ctx, 2), _numbers(ctx, 3)
    if bool(scales) == bool(sizes) and axes:
        raise ctx.error("scales and sizes", f"{len(scales)} scales and {len(sizes)} sizes", "one of the two")
    sampling = _sampling(ctx)
    chosen = _by_scales(ctx, data, scales, axes) if scales else _by_sizes(ctx, data, sizes, axes)
    if sampling.transform == "tf_crop_and_resize":
        chosen = _cropped(ctx, chosen)
    return _resized(ctx, data, chosen, sampling)


def _sampling(ctx: NodeContext) -> Sampling:
    mode = ctx.attr_str("mode", "nearest")
    transform = ctx.attr_str("coordinate_transformation_mode", "half_pixel")
    since = TRANSFORMS.get(transform)
    if mode not in MODES or since is None or not since[0] <= ctx.opset <= since[1]:
        raise ctx.error("a mode is not known", f"{mode}, {transform}", f"{', '.join(MODES)}; {', '.join(TRANSFORMS)}")
    nearest = ctx.attr_str("nearest_mode", "round_prefer_floor")
    antialias = ctx.opset >= 18 and ctx.attr_bool("antialias")
    if nearest not in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil") or (antialias and mode == "nearest"):
        raise ctx.error("a mode is not known", f"nearest_mode {nearest}, antialias {antialias} with {mode}")
    cubic_a = ctx.attr_float("cubic_coeff_a", -0.75)
    return Sampling(mode, transform, nearest, cubic_a, ctx.attr_bool("exclude_outside"), antialias)


# ── extents ─────────────────────────────────────────────────────────────────────────────────────────


def _numbers(ctx: NodeContext, index: int) -> tuple[float, ...]:
    """A static input; nothing where it is left out or empty."""
    if not ctx.given(index):
        return ()
    return tuple(float(number) for number in ctx.static(index).reshape(-1))


def _check_count(ctx: NodeContext, what: str, given: Sequence[float], axes: Sequence[int]) -> None:
    if len(given) != len(axes) or not all(math.isfinite(number) and number >= 0 for number in given):
        raise ctx.error(f"{what} do not fit", f"{list(given)}", f"{len(axes)} numbers above 0")


def _by_scales(ctx: NodeContext, data: Value, scales: Sequence[float], axes: Sequence[int]) -> list[Axis]:
    """extent = floor(extent * scale)"""
    _check_count(ctx, "scales", scales, axes)
    if 0.0 in scales:
        raise ctx.error("a scale is zero", str(list(scales)), "scales above 0")
    pairs = zip(axes, scales, strict=True)
    return [Axis(axis, data.shape[axis], math.floor(data.shape[axis] * scale), scale) for axis, scale in pairs]


def _by_sizes(ctx: NodeContext, data: Value, sizes: Sequence[float], axes: Sequence[int]) -> list[Axis]:
    """scale = size / extent; a policy that keeps the aspect takes the least or greatest scale for all axes."""
    _check_count(ctx, "sizes", sizes, axes)
    if any(data.shape[axis] == 0 and size for axis, size in zip(axes, sizes, strict=True)):
        raise ctx.error("an empty axis cannot be resized", str(data.type), "extents above 0")
    scales = [size / max(data.shape[axis], 1) for axis, size in zip(axes, sizes, strict=True)]
    policy = ctx.attr_str("keep_aspect_ratio_policy", "stretch") if ctx.opset >= 18 else "stretch"
    if policy == "stretch" or not scales:
        triples = zip(axes, sizes, scales, strict=True)
        return [Axis(axis, data.shape[axis], int(size), scale) for axis, size, scale in triples]
    if policy not in ("not_larger", "not_smaller"):
        raise ctx.error("'keep_aspect_ratio_policy' is not known", policy, "stretch, not_larger or not_smaller")
    scale = min(scales) if policy == "not_larger" else max(scales)
    return [Axis(axis, data.shape[axis], math.floor(scale * data.shape[axis] + 0.5), scale) for axis in axes]


def _cropped(ctx: NodeContext, chosen: list[Axis]) -> list[Axis]:
    """The axes with their region of interest: starts, then ends, as fractions of length - 1."""
    region = _numbers(ctx, 1)
    if len(region) != 2 * len(chosen):
        raise ctx.error("the region does not fit", str(list(region)), f"{2 * len(chosen)} numbers")
    pairs = zip(region[: len(chosen)], region[len(chosen) :], strict=True)
    return [Axis(a.axis, a.extent, a.size, a.scale, pair) for a, pair in zip(chosen, pairs, strict=True)]


# ── building ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class _Taps:
    """What one axis takes: positions [size, taps], weights [size, taps] in f64."""

    axis: int
    positions: Array
    weights: Array


def _resized(ctx: NodeContext, data: Value, chosen: Sequence[Axis], sampling: Sampling) -> Value:
    shape = list(data.shape)
    for each in chosen:
        shape[each.axis] = each.size
    ctx.check_size(shape, data.dtype)
    if 0 in shape or not data.type.elements:
        if 0 not in shape:
            raise ctx.error("an empty tensor cannot be resized", str(data.type), "extents above 0")
        return reshape(data, shape) if not data.type.elements else _none_of(data, shape)
    moving = sorted((each for each in chosen if not each.stays), key=lambda each: each.axis)
    for each in moving:
        check_count(ctx, each.size * tap_count(each, sampling))
    if sampling.mode == "nearest":
        for each in moving:
            data = take(data, each.axis, nearest_positions(each, sampling))
    elif moving:
        data = _interpolated(ctx, data, moving, sampling)
    if sampling.transform != "tf_crop_and_resize":
        return data
    return _extrapolated(data, moving, sampling, ctx.attr_float("extrapolation_value", 0.0))


def _none_of(data: Value, shape: Sequence[int]) -> Value:
    for axis, extent in enumerate(shape):
        data = take(data, axis, np.zeros(extent, np.int64)) if data.shape[axis] else data
    return data


def _computing(dtype: DType) -> DType:
    """f16, bf16 and integers of up to 16 bits fit f32; wider integers are computed in f64."""
    return F32 if dtype in (F16, BF16, F32) or dtype.bits <= 16 else F64


def _interpolated(ctx: NodeContext, data: Value, moving: Sequence[Axis], sampling: Sampling) -> Value:
    plan = [_Taps(each.axis, *taps(each, sampling)) for each in moving]

    def body(x: Value) -> Value:
        result = convert_to(x, _computing(x.dtype))
        for each in plan:
            result = _weighted(result, each)
        return convert_to(result if x.dtype.is_float else elementwise("round", result), x.dtype)

    if data.dtype is BOOL:
        raise ctx.error("booleans are not interpolated", str(data.type), "mode nearest")
    sizes = tuple(each.size for each in moving)
    axes = tuple(each.axis for each in moving)
    return ctx.composite("Resize", (data,), body, mode=sampling.mode, axes=axes, sizes=sizes).value


def _weighted(x: Value, each: _Taps) -> Value:
    """The sum over taps of weight * element along one axis. Two taps are one addition, which is what rule 10 says."""
    size, count = each.positions.shape
    wide = (*x.shape[: each.axis], size, *x.shape[each.axis + 1 :])
    weights = each.weights.astype(x.dtype.storage)
    if count == 2:
        first, second = (
            mul(
                take(x, each.axis, each.positions[:, tap]),
                broadcast(constant(np.ascontiguousarray(weights[:, tap]), x.dtype), wide, (each.axis,)),
            )
            for tap in range(2)
        )
        return add(first, second)
    taken = take(x, each.axis, each.positions.reshape(-1))
    split = (*wide[: each.axis + 1], count, *wide[each.axis + 1 :])
    factors = broadcast(constant(weights, x.dtype), split, (each.axis, each.axis + 1))
    return reduce_axes("add", mul(reshape(taken, split), factors), (each.axis + 1,))


def _extrapolated(data: Value, moving: Sequence[Axis], sampling: Sampling, value: float) -> Value:
    """`extrapolation_value` wherever a coordinate lies outside the image."""
    for each in moving:
        outside = each.outside(sampling.transform)
        if outside.any():
            mask = broadcast(constant(outside, BOOL), data.shape, (each.axis,))
            data = select(mask, fill(value, data.type), data)
    return data

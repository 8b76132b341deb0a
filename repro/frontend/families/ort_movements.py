"""Gradients of operators that move elements, and the joins and splits of ONNX Runtime's training graphs.

Several contributions to one element are added one by one, ascending (rule 12). Shapes come as inputs, known at build.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from repro.frontend.context import NodeContext
from repro.frontend.families.contraction import matmul_numpy, scaled
from repro.frontend.families.indexing import gather_elements, gathered, windows_at_points
from repro.frontend.families.ort_common import MICROSOFT, pullback, pullback_of_linear, summed_to
from repro.frontend.families.shape import slice_along, split_along
from repro.frontend.registry import onnx_op
from repro.ir.graph import Value
from repro.ir.types import TensorType
from repro.ops import (
    broadcast_shape,
    broadcast_to,
    concatenate,
    convert_to,
    div,
    integers,
    mul,
    reduce_axes,
    reduce_keep,
    reshape,
    transpose,
)


def _into(ctx: NodeContext, dy: Value, shape_input: int, forward: Callable[[Value], Value]) -> Value:
    """The pullback into a tensor whose shape is an input."""
    shape = ctx.static_ints(shape_input)
    if min(shape, default=0) < 0:
        raise ctx.error("the shape has a negative extent", str(list(shape)), "extents of 0 and up")
    ctx.check_size(shape, dy.dtype)
    return pullback_of_linear(dy, TensorType(dy.dtype, shape), forward)


@onnx_op("GatherGrad", domain=MICROSOFT)
def gather_grad(ctx: NodeContext, _: Value, indices: Value, dy: Value) -> Value:
    """Of Gather."""
    return _into(ctx, dy, 0, lambda data: gathered(ctx, data, indices))


@onnx_op("GatherElementsGrad", domain=MICROSOFT)
def gather_elements_grad(ctx: NodeContext, dy: Value, _: Value, indices: Value) -> Value:
    """Of GatherElements."""
    return _into(ctx, dy, 1, lambda data: gather_elements(ctx, data, indices))


@onnx_op("GatherNDGrad", domain=MICROSOFT)
def gather_nd_grad(ctx: NodeContext, _: Value, indices: Value, dy: Value) -> Value:
    """Of GatherND."""
    return _into(ctx, dy, 0, lambda data: windows_at_points(ctx, data, indices, ctx.attr_int("batch_dims", 0)))


@onnx_op("SliceGrad", domain=MICROSOFT)
def slice_grad(
    ctx: NodeContext, dy: Value, _: Value, __: Value, ___: Value, ____: Value | None = None, _____: Value | None = None
) -> Value:
    """Of Slice: dY put back between zeros."""
    starts, ends = ctx.static_ints(2), ctx.static_ints(3)
    axes = ctx.static_ints(4) if ctx.given(4) else range(len(starts))
    steps = ctx.static_ints(5) if ctx.given(5) else (1,) * len(starts)
    return _into(ctx, dy, 1, lambda data: slice_along(ctx, data, starts, ends, axes, steps))


# ── joins and splits ────────────────────────────────────────────────────────────────────────────────


@onnx_op("ConcatTraining", domain=MICROSOFT, moves=True)
def concat_training(ctx: NodeContext, *values: Value) -> tuple[Value, Value]:
    """Concat, and the extents of its operands along the axis."""
    axis = ctx.axis(ctx.attr_int("axis"), values[0].rank)
    return concatenate(values, axis), integers(np.asarray([value.shape[axis] for value in values], np.int64))


@onnx_op("SplitTraining", domain=MICROSOFT, moves=True)
def split_training(ctx: NodeContext, data: Value, _: Value) -> tuple[Value, ...]:
    """Split by the lengths in input 1."""
    return split_along(ctx, data, ctx.static_ints(1))


# ── arithmetic ──────────────────────────────────────────────────────────────────────────────────────


@onnx_op("DivGrad", domain=MICROSOFT)
def div_grad(ctx: NodeContext, dy: Value, a: Value, b: Value) -> tuple[Value, ...]:
    """Of Div: a quotient's rule at every position, then summed over the axes that were stretched."""
    wide = [broadcast_to(value, dy.shape) for value in (a, b)]
    made = pullback(ctx, dy, wide, div)
    return tuple(summed_to(value, own.shape) for value, own in zip(made, (a, b), strict=True))


@onnx_op("BroadcastGradientArgs", domain=MICROSOFT)
def stretched_axes(ctx: NodeContext, _: Value, __: Value) -> tuple[Value, Value]:
    """The axes along which each of two shapes is stretched to fit the other, last to first."""
    shapes = [ctx.static_ints(0), ctx.static_ints(1)]
    rank = max(len(shape) for shape in shapes)
    wide = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    broadcast_shape(*shapes)
    found = [
        [axis for axis in reversed(range(rank)) if own[axis] == 1 and (other[axis] != 1 or axis < rank - len(shape))]
        for own, other, shape in zip(wide, wide[::-1], shapes, strict=True)
    ]
    return integers(np.asarray(found[0], np.int64)), integers(np.asarray(found[1], np.int64))


@onnx_op("ReduceSumTraining", domain=MICROSOFT)
def reduce_sum_training(ctx: NodeContext, x: Value, _: Value) -> Value:
    """sum(x) over the axes in input 1; without any over all, or over none with `noop_with_empty_axes`."""
    axes = tuple(sorted(ctx.axes(ctx.static_ints(1), x.rank)))
    if not axes:
        axes = () if ctx.attr_bool("noop_with_empty_axes") else tuple(range(x.rank))
    if not axes:
        return x
    return reduce_keep("add", x, axes) if ctx.attr_bool("keepdims", True) else reduce_axes("add", x, axes)


@onnx_op("Scale", domain=MICROSOFT)
def scale_(ctx: NodeContext, x: Value, scale: Value) -> Value:
    """x * scale; with scale_down x / scale."""
    factor = broadcast_to(reshape(convert_to(scale, x.dtype), ()), x.shape)
    return div(x, factor) if ctx.attr_bool("scale_down") else mul(x, factor)


@onnx_op("FusedMatMul", domain=MICROSOFT)
@onnx_op("TransposeMatMul", domain=MICROSOFT)
def fused_matmul(ctx: NodeContext, a: Value, b: Value) -> Value:
    """(A' B') * alpha, left out where it is 1. A transBatch puts the first axis behind the batch axes before all else,
    a trans then swaps the last two; neither means anything to a vector.
    """
    left = _turned(a, ctx.attr_bool("transBatchA"), ctx.attr_bool("transA"))
    right = _turned(b, ctx.attr_bool("transBatchB"), ctx.attr_bool("transB"))
    return scaled(ctx, matmul_numpy(ctx, left, right), "alpha")


def _turned(value: Value, batch: bool, last: bool) -> Value:
    if value.rank < 2:
        return value
    axes = list(range(value.rank))
    if batch:
        axes = [*axes[1:-1], 0, axes[-1]]
    if last:
        axes[-2:] = axes[:-3:-1]
    return transpose(value, axes)

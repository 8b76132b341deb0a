"""QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear."""

from __future__ import annotations

import numpy as np

from repro.frontend.context import NodeContext
from repro.frontend.families.elementwise import to_f8_unsaturated
from repro.frontend.families.ort_common import MICROSOFT
from repro.frontend.families.positions import repeat_each
from repro.frontend.registry import onnx_op
from repro.ir.graph import Value
from repro.ir.types import F32, I32, U8
from repro.ops import (
    add,
    broadcast,
    convert_to,
    div,
    elementwise,
    maximum,
    minimum,
    mul,
    reduce_axes,
    reshape,
    scalar,
    slice_,
    static,
    sub,
)

_INTEGERS = ("i8", "u8", "i16", "u16")
_FLOATS = ("f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz")


def _opset(ctx: NodeContext) -> int:
    """The opset of ONNX that a node's attributes are those of; ONNX Runtime's own operators have them since 13, and
    16-bit types before ONNX had."""
    return 13 if ctx.node.domain == MICROSOFT else ctx.opset


def _spread(ctx: NodeContext, factor: Value, x: Value) -> Value:
    """Scale or zero point stretched to x: one for all, one for each place of `axis`, or one for each block of it."""
    if factor.type.elements == 1 and factor.rank <= 1:
        return broadcast(reshape(factor, ()), x.shape, ())
    axis = ctx.axis(ctx.attr_int("axis", 1) if x.rank > 1 else 0, x.rank)
    block = ctx.attr_int("block_size", 0) if _opset(ctx) >= 21 else 0
    if _opset(ctx) >= 13 and not block and factor.shape == (x.shape[axis],):
        return broadcast(factor, x.shape, (axis,))
    wanted = list(x.shape)
    if block > 0:
        wanted[axis] = -(-x.shape[axis] // block)
    if block <= 0 or factor.shape != tuple(wanted):
        raise ctx.error("a scale or zero point does not fit", f"{factor.type} for {x.type}, axis {axis}, block {block}")
    return slice_(repeat_each(factor, axis, block), [0] * x.rank, x.shape)


def _shift(ctx: NodeContext, zero: Value | None) -> tuple[Value, ...]:
    """The zero point, unless it is known to be zero: -0 + 0 would be +0. Those of f8 are, in practice."""
    if zero is None:
        return ()
    known = ctx.static_value(zero) if zero.dtype.is_float else static(zero)
    return () if known is not None and not known.astype(np.float32).any() else (zero,)


@onnx_op("QuantizeLinear", since=10, moves=True)
@onnx_op("QuantizeLinear", domain=MICROSOFT, moves=True)
def quantize_linear(ctx: NodeContext, x: Value, scale: Value, zero: Value | None = None) -> Value:
    """round(x / scale) + zero point, in f32, saturated to an integer type; to f8: x / scale + zero point, converted."""
    target = zero.dtype if zero is not None else U8
    if _opset(ctx) >= 21 and ctx.attr_int("output_dtype", 0):
        target = ctx.attr_dtype("output_dtype")
    if (zero is not None and zero.dtype is not target) or target.name not in _INTEGERS + _FLOATS:
        found = f"{target}" + (f", zero point {zero.dtype}" if zero is not None else "")
        raise ctx.error("the type to quantize to does not fit", found, ", ".join(_INTEGERS + _FLOATS))
    if zero is not None and zero.shape != scale.shape and (zero.type.elements, scale.type.elements) != (1, 1):
        raise ctx.error("scale and zero point differ in shape", f"{scale.type} and {zero.type}", "one shape")
    saturate = ctx.attr_bool("saturate", True) if _opset(ctx) >= 19 else True

    def body(x: Value, scale: Value, *zero: Value) -> Value:
        ratio = div(convert_to(x, F32), _spread(ctx, convert_to(scale, F32), x))
        if target.is_integer:
            ratio = elementwise("round", ratio)
        for shift in zero:
            ratio = add(ratio, _spread(ctx, convert_to(shift, F32), x))
        if target.is_float and not saturate:
            return to_f8_unsaturated(ratio, target)
        return convert_to(ratio, target)

    return ctx.composite("QuantizeLinear", (x, scale, *_shift(ctx, zero)), body, saturate=saturate).value


@onnx_op("DequantizeLinear", since=10, moves=True)
@onnx_op("DequantizeLinear", domain=MICROSOFT, moves=True)
def dequantize_linear(ctx: NodeContext, x: Value, scale: Value, zero: Value | None = None) -> Value:
    """(x - zero point) * scale: integers subtracted exactly, the product in f32, rounded once to the result's type."""
    target = scale.dtype
    if _opset(ctx) >= 23 and ctx.attr_int("output_dtype", 0):
        target = ctx.attr_dtype("output_dtype")
    if x.dtype.name not in (*_INTEGERS, *_FLOATS, "i32") or (zero is not None and zero.dtype is not x.dtype):
        found = f"{x.type}" + (f", zero point {zero.type}" if zero is not None else "")
        raise ctx.error("the type to dequantize does not fit", found, "a quantized type, and a zero point of it")
    wide = F32 if x.dtype.is_float else I32

    def body(x: Value, scale: Value, *zero: Value) -> Value:
        shifted = convert_to(x, wide)
        for shift in zero:
            shifted = sub(shifted, _spread(ctx, convert_to(shift, wide), x))
        product = mul(convert_to(shifted, F32), _spread(ctx, convert_to(scale, F32), x))
        return convert_to(product, target)

    return ctx.composite("DequantizeLinear", (x, scale, *_shift(ctx, zero)), body).value


@onnx_op("DynamicQuantizeLinear", since=11)
def dynamic_quantize_linear(ctx: NodeContext, x: Value) -> tuple[Value, ...]:
    """scale = (max(max x, 0) - min(min x, 0)) / 255, zero = clip(0 - min(min x, 0) / scale), then QuantizeLinear."""

    def body(x: Value) -> tuple[Value, ...]:
        axes = range(x.rank)
        none, most = scalar(0.0, F32), scalar(255.0, F32)
        low, high = minimum(reduce_axes("min", x, axes), none), maximum(reduce_axes("max", x, axes), none)
        scale = div(sub(high, low), most)
        shift = sub(none, div(low, scale))
        zero = convert_to(elementwise("round", minimum(maximum(shift, none), most)), U8)
        ratio = elementwise("round", div(x, broadcast(scale, x.shape, ())))
        return convert_to(add(ratio, broadcast(convert_to(zero, F32), x.shape, ())), U8), scale, zero

    return ctx.composite("DynamicQuantizeLinear", (x,), body).results

"""The quantized operators of ONNX Runtime's QOperator format: in f32 on what their bytes stand for, and back to bytes.

ONNX Runtime documents their operands and not their arithmetic (docs/ContribOperators.md there). Here each is the float
operator of its name between DequantizeLinear and QuantizeLinear of one scale each. QGemm and QLinearGlobalAveragePool
add integers, which is exact, and scale the sum once.
"""

from __future__ import annotations

import math

from repro.frontend.context import NodeContext
from repro.frontend.families.activation import sigmoid_of, softmax_of
from repro.frontend.families.contraction import matmul_integer
from repro.frontend.families.elementwise import broadcast_together
from repro.frontend.families.ort_common import MICROSOFT
from repro.frontend.families.pooling import average_pool
from repro.frontend.families.quantized import requantized
from repro.frontend.registry import onnx_op
from repro.ir.graph import Value
from repro.ir.types import F32, I32, U8
from repro.ops import (
    add,
    broadcast,
    broadcast_to,
    compare,
    concatenate,
    convert_to,
    div,
    elementwise,
    fill,
    mul,
    reduce_keep,
    reshape,
    scalar,
    select,
    sub,
    transpose,
)


def _one(ctx: NodeContext, factor: Value, x: Value) -> Value:
    """A scale or zero point of a whole tensor, under the tensor's shape."""
    if factor.type.elements != 1:
        raise ctx.error("a scale or zero point is not one number", str(factor.type), "one for the whole tensor")
    return broadcast(reshape(factor, ()), x.shape, ())


def _integers(ctx: NodeContext, x: Value, zero: Value | None) -> Value:
    """x less its zero point, in i32."""
    wide = convert_to(x, I32)
    return wide if zero is None else sub(wide, _one(ctx, convert_to(zero, I32), x))


def _floats(ctx: NodeContext, x: Value, scale: Value, zero: Value | None) -> Value:
    """What the bytes stand for."""
    return mul(convert_to(_integers(ctx, x, zero), F32), _one(ctx, scale, x))


def _bytes(ctx: NodeContext, y: Value, scale: Value, zero: Value | None, like: Value) -> Value:
    """round(y / scale) + zero point, saturated; without a zero point, of the type of an operand."""
    rounded = elementwise("round", div(y, _one(ctx, scale, y)))
    if zero is None:
        return convert_to(rounded, like.dtype)
    return convert_to(add(rounded, _one(ctx, convert_to(zero, F32), y)), zero.dtype)


@onnx_op("QLinearAdd", domain=MICROSOFT, moves=True)
@onnx_op("QLinearMul", domain=MICROSOFT, moves=True)
def qlinear_of_two(
    ctx: NodeContext,
    a: Value, a_scale: Value, a_zero: Value | None,
    b: Value, b_scale: Value, b_zero: Value | None,
    c_scale: Value, c_zero: Value | None = None,
) -> Value:  # fmt: skip
    """a + b or a * b of what the bytes stand for, broadcast."""
    operands = broadcast_together(_floats(ctx, a, a_scale, a_zero), _floats(ctx, b, b_scale, b_zero))
    return _bytes(ctx, (add if ctx.op_type == "QLinearAdd" else mul)(*operands), c_scale, c_zero, a)


@onnx_op("QLinearLeakyRelu", domain=MICROSOFT, moves=True)
def qlinear_leaky_relu(
    ctx: NodeContext, x: Value, x_scale: Value, x_zero: Value | None, y_scale: Value, y_zero: Value | None = None
) -> Value:
    """x < 0 ? alpha * x : x."""
    found = _floats(ctx, x, x_scale, x_zero)
    sloped = mul(broadcast(scalar(ctx.attr_float("alpha", 0.01), F32), found.shape, ()), found)
    leaky = select(compare("lt", found, fill(0, found.type)), sloped, found)
    return _bytes(ctx, leaky, y_scale, y_zero, x)


@onnx_op("QLinearSigmoid", domain=MICROSOFT, moves=True)
def qlinear_sigmoid(
    ctx: NodeContext, x: Value, x_scale: Value, x_zero: Value | None, y_scale: Value, y_zero: Value | None = None
) -> Value:
    """1 / (1 + exp(-x))."""
    return _bytes(ctx, sigmoid_of(_floats(ctx, x, x_scale, x_zero)), y_scale, y_zero, x)


@onnx_op("QLinearSoftmax", domain=MICROSOFT, moves=True)
def qlinear_softmax(
    ctx: NodeContext, x: Value, x_scale: Value, x_zero: Value | None, y_scale: Value, y_zero: Value
) -> Value:
    """Along an axis; as of an opset before 13 along it and all axes behind it."""
    axis = ctx.axis(ctx.attr_int("axis", -1), x.rank)
    axes = (axis,) if ctx.attr_int("opset") >= 13 else tuple(range(axis, x.rank))
    return _bytes(ctx, softmax_of(_floats(ctx, x, x_scale, x_zero), axes), y_scale, y_zero, x)


@onnx_op("QLinearConcat", domain=MICROSOFT, moves=True)
def qlinear_concat(ctx: NodeContext, y_scale: Value, y_zero: Value, *parts: Value) -> Value:
    """Parts of scales and zero points of their own: (x, scale, zero point), one after another."""
    if not parts or len(parts) % 3:
        raise ctx.error("parts of QLinearConcat", f"{len(parts)} inputs", "three for each: x, scale, zero point")
    each = [_floats(ctx, *parts[at : at + 3]) for at in range(0, len(parts), 3)]
    whole = concatenate(each, ctx.axis(ctx.attr_int("axis"), parts[0].rank))
    return _bytes(ctx, whole, y_scale, y_zero, parts[0])


@onnx_op("QLinearWhere", domain=MICROSOFT, moves=True)
def qlinear_where(
    ctx: NodeContext, condition: Value,
    x: Value, x_scale: Value, x_zero: Value,
    y: Value, y_scale: Value, y_zero: Value,
    z_scale: Value, z_zero: Value,
) -> Value:  # fmt: skip
    """condition ? x : y."""
    operands = broadcast_together(condition, _floats(ctx, x, x_scale, x_zero), _floats(ctx, y, y_scale, y_zero))
    return _bytes(ctx, select(*operands), z_scale, z_zero, x)


@onnx_op("QLinearGlobalAveragePool", domain=MICROSOFT, moves=True)
def qlinear_global_average_pool(
    ctx: NodeContext, x: Value, x_scale: Value, x_zero: Value, y_scale: Value, y_zero: Value
) -> Value:
    """round((sum of x - x_zero) * (x_scale * (1 / count) / y_scale)) + y_zero over all spatial axes; the sum is one of
    integers."""
    if x.rank < 3:
        raise ctx.error("a pool of images", str(x.type), "batch, channels and one spatial axis or more")
    axes = range(1, x.rank - 1) if ctx.attr_bool("channels_last") else range(2, x.rank)
    total = reduce_keep("add", _integers(ctx, x, x_zero), axes)
    count = scalar(1 / math.prod(x.shape[axis] for axis in axes), F32)
    return requantized(ctx, total, (x_scale, count, y_scale), y_zero)


@onnx_op("QLinearAveragePool", domain=MICROSOFT, moves=True)
def qlinear_average_pool(
    ctx: NodeContext, x: Value, x_scale: Value, x_zero: Value | None, y_scale: Value, y_zero: Value | None = None
) -> Value:
    """AveragePool of what the bytes stand for."""
    found, last = _floats(ctx, x, x_scale, x_zero), x.rank - 1
    if ctx.attr_bool("channels_last"):
        pooled = average_pool(ctx, transpose(found, (0, last, *range(1, last))))
        return _bytes(ctx, transpose(pooled, (0, *range(2, x.rank), 1)), y_scale, y_zero, x)
    return _bytes(ctx, average_pool(ctx, found), y_scale, y_zero, x)


@onnx_op("QGemm", domain=MICROSOFT, moves=True)
def qgemm(
    ctx: NodeContext,
    a: Value, a_scale: Value, a_zero: Value,
    b: Value, b_scale: Value, b_zero: Value,
    c: Value | None = None, y_scale: Value | None = None, y_zero: Value | None = None,
) -> Value:  # fmt: skip
    """(a - a_zero) (b - b_zero) + c in i32, times alpha * a_scale * b_scale: in f32, or as bytes if a scale for them is
    given. Scale and zero point of b are one or one for each column; c broadcasts."""
    if a.rank != 2 or b.rank != 2:
        raise ctx.error("QGemm multiplies matrices", f"{a.type} and {b.type}", "two of rank 2")
    left = transpose(a, (1, 0)) if ctx.attr_bool("transA") else a
    right = transpose(b, (1, 0)) if ctx.attr_bool("transB") else b
    product = matmul_integer(ctx, left, right, a_zero, b_zero)
    if c is not None:
        if c.dtype is not I32:
            raise ctx.error("the bias does not fit", str(c.type), "i32")
        product = add(product, broadcast_to(c, product.shape))
    scale = mul(reshape(a_scale, ()), scalar(ctx.attr_float("alpha", 1.0), F32)) if ctx.has("alpha") else a_scale
    if y_scale is None:
        factor = mul(_one(ctx, scale, product), broadcast_to(b_scale, product.shape))
        return mul(convert_to(product, F32), factor)
    return requantized(ctx, product, (scale, b_scale, y_scale), scalar(0, U8) if y_zero is None else y_zero)

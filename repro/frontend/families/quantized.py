"""QLinearMatMul and QLinearConv: integer contractions, exact in i32, brought to the output's scale."""

from __future__ import annotations

from repro.frontend.context import NodeContext, broadcast_together
from repro.frontend.families.contraction import matmul_integer
from repro.frontend.families.convolution import conv_integer
from repro.frontend.registry import onnx_op
from repro.ir.graph import Value
from repro.ir.types import F32
from repro.ops import add, broadcast, broadcast_to, convert_to, div, elementwise, fill, maximum, mul, reshape


@onnx_op("QLinearMatMul", since=10, moves=True)
def qlinear_matmul(
    ctx: NodeContext,
    a: Value, a_scale: Value, a_zero: Value,
    b: Value, b_scale: Value, b_zero: Value,
    y_scale: Value, y_zero: Value,
) -> Value:  # fmt: skip
    """round(MatMulInteger * (a_scale * b_scale / y_scale)) + y_zero, in f32, saturated. Scales and zero points of a are
    one or one for each row, those of b one or one for each column."""
    product = matmul_integer(ctx, a, b, a_zero, b_zero)
    rows = a_scale if a_scale.type.elements == 1 or a_scale.rank > 1 else reshape(a_scale, (*a_scale.shape, 1))
    return requantized(ctx, product, (rows, b_scale, y_scale), y_zero)


@onnx_op("QLinearConv", since=10, moves=True)
def qlinear_conv(
    ctx: NodeContext,
    x: Value, x_scale: Value, x_zero: Value,
    w: Value, w_scale: Value, w_zero: Value,
    y_scale: Value, y_zero: Value, bias: Value | None = None,
) -> Value:  # fmt: skip
    """round((ConvInteger + bias) * (x_scale * w_scale / y_scale)) + y_zero, in f32, saturated. The bias is i32, of
    scale x_scale * w_scale; scale and zero point of w are one or one for each output channel."""
    product = conv_integer(ctx, x, w, x_zero, w_zero)
    if bias is not None:
        if bias.shape != (w.shape[0],) or bias.dtype is not product.dtype:
            raise ctx.error("the bias does not fit", str(bias.type), f"i32, one for each of {w.shape[0]} channels")
        product = add(product, broadcast(bias, product.shape, (1,)))
    channels = w_scale if w_scale.type.elements == 1 else reshape(w_scale, (w.shape[0], *(1,) * (w.rank - 2)))
    return requantized(ctx, product, (x_scale, channels, y_scale), y_zero)


def requantized(ctx: NodeContext, product: Value, scales: tuple[Value, Value, Value], zero: Value) -> Value:
    """round(product * (left * right / out)) + zero, in f32, saturated, of three scales that broadcast. What the product
    is scaled by has the shape of the scales, one for each channel, say."""
    small = [_fitting(ctx, each, product) for each in (*scales, zero)]

    def body(product: Value, left: Value, right: Value, out: Value, zero: Value) -> Value:
        left, right, out = broadcast_together(*(convert_to(each, F32) for each in (left, right, out)))
        factor = div(mul(left, right), out)
        return rescaled(product, factor, zero)

    return ctx.composite("Requantize", (product, *small), body).value


def rescaled(product: Value, factor: Value, zero: Value, positive: bool = False) -> Value:
    """round(float(product) * factor) + zero, converted to the type of the zero point; if asked, of the greater of 0
    and the scaled product."""
    y = mul(convert_to(product, F32), broadcast_to(factor, product.shape))
    if positive:
        y = maximum(fill(0, y.type), y)
    y = add(elementwise("round", y), convert_to(broadcast_to(zero, product.shape), F32))
    return convert_to(y, zero.dtype)


def _fitting(ctx: NodeContext, value: Value, product: Value) -> Value:
    """A scale or zero point that can be stretched to a product: one number, or of a shape that broadcasts."""
    if value.type.elements == 1:
        return reshape(value, ())
    try:
        broadcast_to(value, product.shape)
    except TypeError:
        expected = f"one that fits {product.type}"
        raise ctx.error("a scale or zero point does not fit", str(value.type), expected) from None
    return value

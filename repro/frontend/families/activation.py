"""Activations: fixed formulas of core ops, one composite each (rule 15)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from repro.frontend.context import NodeContext, float_bits
from repro.frontend.registry import onnx_op
from repro.ir.graph import Value
from repro.ops import (
    add,
    broadcast_to,
    compare,
    composite,
    convert_to,
    div,
    elementwise,
    fill,
    iota,
    maximum,
    minimum,
    mul,
    neg,
    reduce_keep,
    reshape,
    select,
    sub,
)


def number(value: float, like: Value) -> Value:
    """A number in the type and shape of a value."""
    return fill(value, like.type)


def _pointwise(ctx: NodeContext, x: Value, body: Callable[[Value], Value], **attributes: float) -> Value:
    return ctx.composite(ctx.op_type, (x,), body, **attributes).value


# ── rectifiers ──────────────────────────────────────────────────────────────────────────────────────


@onnx_op("Relu")
def relu(_: NodeContext, x: Value) -> Value:
    """max(+0, x): Relu(-0) = +0 and NaN stays (rule 6); the 0 comes first, so that its slope at 0 is 0 (rule 5)."""
    return maximum(number(0, x), x)


def _below_zero(x: Value, otherwise: Value) -> Value:
    """x < 0 ? otherwise : x."""
    return select(compare("lt", x, number(0, x)), otherwise, x)


@onnx_op("LeakyRelu")
def leaky_relu(ctx: NodeContext, x: Value) -> Value:
    """x < 0 ? alpha * x : x."""
    alpha = ctx.attr_float("alpha", 0.01)
    return _pointwise(ctx, x, lambda x: _below_zero(x, mul(number(alpha, x), x)), alpha=alpha)


@onnx_op("PRelu", since=7)
def prelu(ctx: NodeContext, x: Value, slope: Value) -> Value:
    """x < 0 ? slope * x : x."""
    slope = broadcast_to(slope, x.shape)
    return ctx.composite("PRelu", (x, slope), lambda x, slope: _below_zero(x, mul(slope, x))).value


@onnx_op("ThresholdedRelu", since=10)
def thresholded_relu(ctx: NodeContext, x: Value) -> Value:
    """x > alpha ? x : 0."""
    alpha = ctx.attr_float("alpha", 1.0)

    def body(x: Value) -> Value:
        return select(compare("gt", x, number(alpha, x)), x, number(0, x))

    return _pointwise(ctx, x, body, alpha=alpha)


# ── exponential units ───────────────────────────────────────────────────────────────────────────────


@onnx_op("Elu")
def elu(ctx: NodeContext, x: Value) -> Value:
    """x < 0 ? alpha * expm1(x) : x."""
    alpha = ctx.attr_float("alpha", 1.0)
    return _pointwise(ctx, x, lambda x: _below_zero(x, mul(number(alpha, x), elementwise("expm1", x))), alpha=alpha)


@onnx_op("Selu")
def selu(ctx: NodeContext, x: Value) -> Value:
    """gamma * (x < 0 ? alpha * expm1(x) : x)."""
    alpha = ctx.attr_float("alpha", 1.67326319217681884765625)
    gamma = ctx.attr_float("gamma", 1.05070102214813232421875)

    def body(x: Value) -> Value:
        return mul(number(gamma, x), _below_zero(x, mul(number(alpha, x), elementwise("expm1", x))))

    return _pointwise(ctx, x, body, alpha=alpha, gamma=gamma)


@onnx_op("Celu", since=12)
def celu(ctx: NodeContext, x: Value) -> Value:
    """x < 0 ? alpha * expm1(x / alpha) : x."""
    alpha = ctx.attr_float("alpha", 1.0)

    def body(x: Value) -> Value:
        scale = number(alpha, x)
        return _below_zero(x, mul(scale, elementwise("expm1", div(x, scale))))

    return _pointwise(ctx, x, body, alpha=alpha)


# ── sigmoids and what is gated by them ──────────────────────────────────────────────────────────────


def sigmoid_of(x: Value) -> Value:
    """1 / (1 + exp(-x))."""
    one = number(1, x)
    return div(one, add(one, elementwise("exp", neg(x))))


def hard_sigmoid_of(x: Value, alpha: float, beta: float) -> Value:
    """max(0, min(1, alpha * x + beta))."""
    line = add(mul(number(alpha, x), x), number(beta, x))
    return maximum(number(0, x), minimum(number(1, x), line))


def softplus_of(x: Value) -> Value:
    """max(x, 0) + log1p(exp(-|x|))."""
    small = elementwise("exp", neg(elementwise("abs", x)))
    return add(maximum(x, number(0, x)), elementwise("log1p", small))


def softsign_of(x: Value) -> Value:
    """x / (1 + |x|)."""
    return div(x, add(number(1, x), elementwise("abs", x)))


@onnx_op("Sigmoid")
def sigmoid(ctx: NodeContext, x: Value) -> Value:
    """1 / (1 + exp(-x))."""
    return _pointwise(ctx, x, sigmoid_of)


@onnx_op("HardSigmoid")
def hard_sigmoid(ctx: NodeContext, x: Value) -> Value:
    """max(0, min(1, alpha * x + beta))."""
    alpha, beta = ctx.attr_float("alpha", 0.2), ctx.attr_float("beta", 0.5)
    return _pointwise(ctx, x, lambda x: hard_sigmoid_of(x, alpha, beta), alpha=alpha, beta=beta)


@onnx_op("HardSwish", since=14)
def hard_swish(ctx: NodeContext, x: Value) -> Value:
    """x * max(0, min(1, x / 6 + 1 / 2)), with 1 / 6 rounded first."""
    return _pointwise(ctx, x, lambda x: mul(x, hard_sigmoid_of(x, 1 / 6, 0.5)))


def swish_of(x: Value, alpha: float) -> Value:
    """x * sigmoid(alpha * x), as its composite."""

    def body(x: Value) -> Value:
        scaled = x if alpha == 1.0 else mul(number(alpha, x), x)  # x * 1 == x, for every x
        return mul(x, sigmoid_of(scaled))

    return composite("Swish", (x,), body, alpha=float_bits(alpha)).value


@onnx_op("Swish", since=24)
def swish(ctx: NodeContext, x: Value) -> Value:
    """x * sigmoid(alpha * x)."""
    return swish_of(x, ctx.attr_float("alpha", 1.0))


@onnx_op("SwiGLU", since=28)
def swiglu(ctx: NodeContext, gate: Value, x: Value) -> Value:
    """(gate * sigmoid(alpha * gate)) * x."""
    if gate.shape != x.shape:
        raise ctx.error("the inputs differ in shape", f"{gate.type} and {x.type}", "one shape")
    return mul(swish_of(gate, ctx.attr_float("alpha", 1.0)), x)


@onnx_op("Softplus")
def softplus(ctx: NodeContext, x: Value) -> Value:
    """max(x, 0) + log1p(exp(-|x|)): no overflow where x is large."""
    return _pointwise(ctx, x, softplus_of)


@onnx_op("Mish", since=18)
def mish(ctx: NodeContext, x: Value) -> Value:
    """x * tanh(softplus(x))."""
    return _pointwise(ctx, x, lambda x: mul(x, elementwise("tanh", softplus_of(x))))


@onnx_op("Softsign")
def softsign(ctx: NodeContext, x: Value) -> Value:
    """x / (1 + |x|)."""
    return _pointwise(ctx, x, softsign_of)


@onnx_op("Shrink", since=9)
def shrink(ctx: NodeContext, x: Value) -> Value:
    """x < -lambd ? x + bias : x > lambd ? x - bias : 0; the attributes truncated where x is an integer."""
    lambd, bias = ctx.attr_float("lambd", 0.5), ctx.attr_float("bias", 0.0)

    def body(x: Value) -> Value:
        limit, shift = number(lambd, x), number(bias, x)
        upper = select(compare("gt", x, limit), sub(x, shift), number(0, x))
        if not (x.dtype.is_float or x.dtype.is_signed):
            return upper
        return select(compare("lt", x, neg(limit)), add(x, shift), upper)

    return _pointwise(ctx, x, body, lambd=lambd, bias=bias)


# ── Gelu ────────────────────────────────────────────────────────────────────────────────────────────


def gelu_exact(x: Value) -> Value:
    """(0.5 * x) * (1 + erf(x / sqrt(2)))."""
    error = elementwise("erf", div(x, number(math.sqrt(2.0), x)))
    return mul(mul(number(0.5, x), x), add(number(1, x), error))


def gelu_tanh(x: Value) -> Value:
    """(0.5 * x) * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * ((x * x) * x))))."""
    cubed = mul(mul(x, x), x)
    inner = add(x, mul(number(0.044715, x), cubed))
    curve = elementwise("tanh", mul(number(math.sqrt(2.0 / math.pi), x), inner))
    return mul(mul(number(0.5, x), x), add(number(1, x), curve))


_GELU: dict[str, Callable[[Value], Value]] = {"none": gelu_exact, "tanh": gelu_tanh}


@onnx_op("Gelu", since=20)
def gelu(ctx: NodeContext, x: Value) -> Value:
    """By erf, or by the tanh approximation."""
    approximate = ctx.attr_str("approximate", "none")
    if approximate not in _GELU:
        raise ctx.error("Gelu has no such approximation", f"'{approximate}'", "'none' or 'tanh'")
    return ctx.composite("Gelu", (x,), _GELU[approximate], approximate=approximate).value


# ── normalized over axes ────────────────────────────────────────────────────────────────────────────


def softmax_of(x: Value, axes: Sequence[int]) -> Value:
    """m = max(x), e = exp(x - m), e / sum(e)."""
    exponentials = elementwise("exp", sub(x, broadcast_to(reduce_keep("max", x, axes), x.shape)))
    return div(exponentials, broadcast_to(reduce_keep("add", exponentials, axes), x.shape))


def log_softmax_of(x: Value, axes: Sequence[int]) -> Value:
    """d = x - max(x), d - log(sum(exp(d)))."""
    distance = sub(x, broadcast_to(reduce_keep("max", x, axes), x.shape))
    total = reduce_keep("add", elementwise("exp", distance), axes)
    return sub(distance, broadcast_to(elementwise("log", total), x.shape))


def hardmax_of(x: Value, axes: Sequence[int]) -> Value:
    """1 at the first greatest element, 0 elsewhere."""
    if not x.type.elements:
        return x
    outer = x.shape[: axes[0]]
    inner = x.shape[axes[-1] + 1 :]
    flat = reshape(x, (*outer, math.prod(x.shape[axis] for axis in axes), *inner))
    first = reduce_keep("argmax", flat, (axes[0],))
    chosen = compare("eq", iota(flat.shape, axes[0]), broadcast_to(first, flat.shape))
    return convert_to(reshape(chosen, x.shape), x.dtype)


_OVER_AXES: dict[str, Callable[[Value, Sequence[int]], Value]] = {
    "Softmax": softmax_of, "LogSoftmax": log_softmax_of, "Hardmax": hardmax_of,
}  # fmt: skip


def _over(ctx: NodeContext, x: Value, axes: tuple[int, ...]) -> Value:
    body = _OVER_AXES[ctx.op_type]
    return ctx.composite(ctx.op_type, (x,), lambda x: body(x, axes), axes=axes).value


@onnx_op("Softmax", since=13)
@onnx_op("LogSoftmax", since=13)
@onnx_op("Hardmax", since=13)
def over_axis(ctx: NodeContext, x: Value) -> Value:
    """Along one axis."""
    return _over(ctx, x, (ctx.axis(ctx.attr_int("axis", -1), x.rank),))


@onnx_op("Softmax", until=12)
@onnx_op("LogSoftmax", until=12)
@onnx_op("Hardmax", until=12)
def over_matrix_rows(ctx: NodeContext, x: Value) -> Value:
    """Over `axis` and all axes behind it at once: the rows of x as a matrix."""
    axis = ctx.attr_int("axis", 1)
    if axis == x.rank:  # rows of one element
        return reshape(_over(ctx, reshape(x, (*x.shape, 1)), (axis,)), x.shape)
    return _over(ctx, x, tuple(range(ctx.axis(axis, x.rank), x.rank)))

"""Activations, softmaxes and the loss over class labels as ONNX Runtime's training graphs differentiate them.

The formulas are those of the gradients that repro derives itself (docs/numerics.md, rule 15), so that a model and
ONNX Runtime's training graph of it give the same bits. Operators and their inputs: ONNX Runtime's training_op_defs.cc
and gradient_builder.cc.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from repro.frontend.context import NodeContext
from repro.frontend.families.activation import gelu_exact, gelu_tanh, number, swish_of
from repro.frontend.families.loss import ClassLoss
from repro.frontend.families.ort_common import MICROSOFT, pullback
from repro.frontend.registry import onnx_op
from repro.ir.graph import Value
from repro.ir.types import BOOL, I64
from repro.ops import (
    add,
    broadcast,
    broadcast_to,
    compare,
    composite,
    convert_to,
    div,
    elementwise,
    fill,
    gather,
    iota,
    is_constant,
    mul,
    reduce_keep,
    reshape,
    scalar,
    select,
    sub,
)


def _one_minus(x: Value) -> Value:
    return sub(number(1, x), x)


def _pointwise(ctx: NodeContext, operands: Sequence[Value], body: Callable[..., Value], **attributes: float) -> Value:
    return ctx.composite(ctx.op_type, operands, body, **attributes).value


# ── rectifiers and sigmoids ─────────────────────────────────────────────────────────────────────────


@onnx_op("ReluGrad", domain=MICROSOFT)
def relu_grad(ctx: NodeContext, dy: Value, y: Value) -> Value:
    """y > 0 ? dY : +0; y is Relu's result, and its operand would do as well."""
    return _pointwise(ctx, (dy, y), lambda g, y: select(compare("gt", y, number(0, y)), g, number(0, g)))


@onnx_op("LeakyReluGrad", domain=MICROSOFT)
def leaky_relu_grad(ctx: NodeContext, dy: Value, y: Value) -> Value:
    """y < 0 ? alpha * dY : dY; y is LeakyRelu's result, whose sign is its operand's while alpha is positive."""
    alpha = ctx.attr_float("alpha", 0.01)

    def body(g: Value, y: Value) -> Value:
        return select(compare("lt", y, number(0, y)), mul(number(alpha, g), g), g)

    return _pointwise(ctx, (dy, y), body, alpha=alpha)


@onnx_op("SigmoidGrad", domain=MICROSOFT)
def sigmoid_grad(ctx: NodeContext, dy: Value, y: Value) -> Value:
    """dY * (y * (1 - y))."""
    return _pointwise(ctx, (dy, y), lambda g, y: mul(g, mul(y, _one_minus(y))))


@onnx_op("TanhGrad", domain=MICROSOFT)
def tanh_grad(ctx: NodeContext, dy: Value, y: Value) -> Value:
    """dY * (1 - y * y)."""
    return _pointwise(ctx, (dy, y), lambda g, y: mul(g, _one_minus(mul(y, y))))


@onnx_op("ErfGrad", domain=MICROSOFT)
def erf_grad(ctx: NodeContext, dy: Value, x: Value) -> Value:
    """dY * (2 / sqrt(pi) * exp(-(x * x)))."""
    return pullback(ctx, dy, (x,), lambda x: elementwise("erf", x))[0]


# ── Gelu ────────────────────────────────────────────────────────────────────────────────────────────


def _gelu(approximate: str) -> Callable[[Value], Value]:
    """The composite of ONNX's Gelu."""
    body = gelu_tanh if approximate == "tanh" else gelu_exact
    return lambda x: composite("Gelu", (x,), body, approximate=approximate).value


def _biased(x: Value, bias: Value | None) -> Value:
    return x if bias is None else add(x, broadcast_to(bias, x.shape))


@onnx_op("Gelu", domain=MICROSOFT)
@onnx_op("BiasGelu", domain=MICROSOFT)
def gelu(_: NodeContext, x: Value, bias: Value | None = None) -> Value:
    """ONNX's Gelu of x + bias."""
    return _gelu("none")(_biased(x, bias))


@onnx_op("FastGelu", domain=MICROSOFT)
def fast_gelu(_: NodeContext, x: Value, bias: Value | None = None) -> Value:
    """ONNX's Gelu with approximate = tanh, of x + bias."""
    return _gelu("tanh")(_biased(x, bias))


@onnx_op("GeluGrad", domain=MICROSOFT)
@onnx_op("BiasGeluGrad_dX", domain=MICROSOFT)
def gelu_grad(ctx: NodeContext, dy: Value, x: Value, bias: Value | None = None) -> Value:
    """That of ONNX's Gelu."""
    return pullback(ctx, dy, (_biased(x, bias),), _gelu("none"))[0]


@onnx_op("FastGeluGrad", domain=MICROSOFT)
@onnx_op("BiasFastGeluGrad_dX", domain=MICROSOFT)
def fast_gelu_grad(ctx: NodeContext, dy: Value, x: Value, bias: Value | None = None) -> Value:
    """That of ONNX's Gelu with approximate = tanh."""
    return pullback(ctx, dy, (_biased(x, bias),), _gelu("tanh"))[0]


def _quick_gelu(ctx: NodeContext) -> Callable[[Value], Value]:
    """x * sigmoid(alpha * x): ONNX's Swish."""
    alpha = ctx.attr_float("alpha", 1.702)
    return lambda x: swish_of(x, alpha)


@onnx_op("QuickGelu", domain=MICROSOFT)
def quick_gelu(ctx: NodeContext, x: Value) -> Value:
    """x * sigmoid(alpha * x)."""
    return _quick_gelu(ctx)(x)


@onnx_op("QuickGeluGrad", domain=MICROSOFT)
def quick_gelu_grad(ctx: NodeContext, dy: Value, x: Value) -> Value:
    """That of ONNX's Swish."""
    return pullback(ctx, dy, (x,), _quick_gelu(ctx))[0]


# ── softmaxes ───────────────────────────────────────────────────────────────────────────────────────


def _sum_along(x: Value, axes: Sequence[int]) -> Value:
    return broadcast_to(reduce_keep("add", x, axes), x.shape)


def _softmax(g: Value, y: Value, axes: Sequence[int]) -> Value:
    """y * (g - sum(g * y))."""
    return mul(y, sub(g, _sum_along(mul(g, y), axes)))


def _log_softmax(g: Value, y: Value, axes: Sequence[int]) -> Value:
    """g - exp(y) * sum(g)."""
    return sub(g, mul(elementwise("exp", y), _sum_along(g, axes)))


def _over(ctx: NodeContext, dy: Value, y: Value, axes: Sequence[int]) -> Value:
    formula = _log_softmax if ctx.op_type.startswith("Log") else _softmax
    return ctx.composite(ctx.op_type, (dy, y), lambda g, y: formula(g, y, axes), axes=tuple(axes)).value


@onnx_op("SoftmaxGrad", domain=MICROSOFT)
@onnx_op("LogSoftmaxGrad", domain=MICROSOFT)
def of_matrix_rows(ctx: NodeContext, dy: Value, y: Value) -> Value:
    """Of the softmaxes before opset 13: over `axis` and all axes behind it at once."""
    return _over(ctx, dy, y, range(ctx.axis(ctx.attr_int("axis", 1), y.rank), y.rank))


@onnx_op("SoftmaxGrad_13", domain=MICROSOFT)
@onnx_op("LogSoftmaxGrad_13", domain=MICROSOFT)
def of_axis(ctx: NodeContext, dy: Value, y: Value) -> Value:
    """Of the softmaxes from opset 13 on: along one axis."""
    return _over(ctx, dy, y, (ctx.axis(ctx.attr_int("axis", -1), y.rank),))


# ── loss ────────────────────────────────────────────────────────────────────────────────────────────


@onnx_op("SoftmaxCrossEntropyLossInternal", domain=MICROSOFT)
def softmax_cross_entropy_internal(
    ctx: NodeContext, scores: Value, labels: Value, weights: Value | None = None, _: Value | None = None
) -> tuple[Value, ...]:
    """ONNX's SoftmaxCrossEntropyLoss, with ignore_index as an input."""
    loss = ClassLoss.of_node(ctx, scores, labels, weights)
    if ctx.given(3):
        loss = ClassLoss(loss.reduction, ctx.static_int(3))
    return loss.softmax_cross_entropy(scores, labels, weights).results


@onnx_op("SoftmaxCrossEntropyLossGrad", domain=MICROSOFT)
@onnx_op("SoftmaxCrossEntropyLossInternalGrad", domain=MICROSOFT)
def softmax_cross_entropy_grad(
    ctx: NodeContext,
    dy: Value,
    logarithms: Value,
    labels: Value,
    weights: Value | None = None,
    _: Value | None = None,
    bias: Value | None = None,
) -> Value:
    """p = exp(log_prob), (class = label ? p - 1 : p) * k, +0 where the label is ignored, + bias; see `_of_labels`."""
    loss = ClassLoss.of_node(ctx, logarithms, labels, weights)
    if ctx.given(4):
        loss = ClassLoss(loss.reduction, ctx.static_int(4))

    def body(dy: Value, logarithms: Value, labels: Value, *weights: Value) -> Value:
        k = _of_labels(loss, dy, labels, weights[0] if weights else None)
        p = elementwise("exp", logarithms)
        spread = broadcast_to(_column(labels), p.shape)
        slope = select(compare("eq", iota(p.shape, 1), spread), sub(p, number(1, p)), p)
        made = mul(slope, broadcast_to(_column(k), p.shape))
        if loss.ignored is None:
            return made
        return select(compare("ne", spread, fill(loss.ignored, spread.type)), made, number(0, made))

    operands = (dy, logarithms, convert_to(labels, I64), *(() if weights is None else (weights,)))
    ignored = {} if loss.ignored is None else {"ignore_index": loss.ignored}
    made = ctx.composite(ctx.op_type, operands, body, reduction=loss.reduction, **ignored).value
    return made if bias is None else add(made, bias)


def _column(value: Value) -> Value:
    """[n, ...] as [n, 1, ...]."""
    return reshape(value, (value.shape[0], 1, *value.shape[1:]))


def _of_labels(loss: ClassLoss, dy: Value, labels: Value, weights: Value | None) -> Value:
    """k of each label: dY; of a mean dY / count, as the loss counts (dY where the count is 0); then * w."""
    if loss.reduction == "none":
        k = reshape(dy, labels.shape)
    else:
        share = reshape(dy, ())
        if loss.reduction == "mean":
            count = loss.count(labels, weights, dy.dtype)
            mean = div(share, count)
            share = mean if is_constant(count) else select(compare("eq", count, fill(0, count.type)), share, mean)
        k = broadcast(share, labels.shape, ())
    if weights is None:
        return k
    own = gather(weights, reshape(loss.without_ignored(labels), (*labels.shape, 1)), (0,))
    return mul(k, own)


# ── Dropout ─────────────────────────────────────────────────────────────────────────────────────────


@onnx_op("DropoutGrad", domain=MICROSOFT)
@onnx_op("TrainableDropoutGrad", domain=MICROSOFT)
def dropout_grad(
    ctx: NodeContext, dy: Value, mask: Value, ratio: Value | None = None, training: Value | None = None
) -> Value:
    """mask ? dY * (1 / (1 - ratio)) : +0; dY where training_mode is given and false."""
    rate = scalar(0.5, dy.dtype) if ratio is None else convert_to(reshape(ratio, ()), dy.dtype)
    if mask.dtype is not BOOL:
        raise ctx.error("the mask is not of truth values", str(mask.type), "bool")

    def body(dy: Value, mask: Value, rate: Value) -> Value:
        one = scalar(1, dy.dtype)
        factor = broadcast(div(one, sub(one, rate)), dy.shape, ())
        return select(mask, mul(dy, factor), number(0, dy))

    made = ctx.composite("DropoutGrad", (dy, mask, rate), body).value
    if training is None:
        return made
    return select(broadcast(reshape(training, ()), dy.shape, ()), made, dy)

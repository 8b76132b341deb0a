"""Normalizations as ONNX Runtime's training graphs differentiate them: from the statistics that the forward saved.

Its formulas multiply by the saved 1 / sqrt(variance + epsilon), where the gradients that repro derives itself divide by
the root; so the two differ in the last bits. Sources: ONNX Runtime's layer_norm.cc and batch_norm_grad.cc.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from repro.frontend.context import NodeContext
from repro.frontend.families.normalization import (
    inverse_deviation,
    mean_of,
    moments,
    over_deviation,
    per_channel,
    running_statistic,
    scaled_and_shifted,
)
from repro.frontend.families.ort_common import MICROSOFT, summed_to
from repro.frontend.registry import onnx_op
from repro.ir.graph import Value
from repro.ops import broadcast_to, convert_to, div, fill, mul, reduce_axes, reshape, sub


def _stretched(value: Value, like: Value) -> Value:
    """A statistic with its reduced axes kept, or a scale for the trailing axes, at every position."""
    return broadcast_to(value, like.shape)


def _statistic(value: Value, x: Value, axis: int) -> Value:
    """A saved statistic, whichever of its reduced axes it kept, with all of them, in the type of x."""
    return convert_to(reshape(value, (*x.shape[:axis], *(1,) * (x.rank - axis))), x.dtype)


def _of_layer(
    ctx: NodeContext, dy: Value, x: Value, scale: Value, mean: Value | None, inverse: Value
) -> tuple[Value, ...]:
    """n = (x - mean) * r, b = (dY * scale) * r; dX = (b - mean(b)) - n * mean(b * n); the scale's sum(dY * n), the
    bias's sum(dY). Without a mean n = x * r, and mean(b) and the bias are left out.
    """
    axis = ctx.axis(ctx.attr_int("axis", -1), x.rank)
    axes = range(axis, x.rank)
    statistics = [_statistic(value, x, axis) for value in (mean, inverse) if value is not None]

    def body(dy: Value, x: Value, scale: Value, *statistics: Value) -> tuple[Value, ...]:
        r = _stretched(statistics[-1], x)
        centred = sub(x, _stretched(statistics[0], x)) if len(statistics) == 2 else x
        n = mul(centred, r)
        b = mul(mul(dy, _stretched(scale, x)), r)
        level = sub(b, _stretched(mean_of(b, axes), x)) if len(statistics) == 2 else b
        dx = sub(level, mul(n, _stretched(mean_of(mul(b, n), axes), x)))
        of_scale = summed_to(mul(dy, n), scale.shape)
        return (dx, of_scale, summed_to(dy, scale.shape)) if len(statistics) == 2 else (dx, of_scale)

    return ctx.composite(ctx.op_type, (dy, x, scale, *statistics), body, axis=axis).results


@onnx_op("LayerNormalizationGrad", domain=MICROSOFT)
def layer_normalization_grad(
    ctx: NodeContext, dy: Value, x: Value, scale: Value, mean: Value, inverse: Value
) -> tuple[Value, ...]:
    """See `_of_layer`."""
    return _of_layer(ctx, dy, x, scale, mean, inverse)


@onnx_op("SimplifiedLayerNormalizationGrad", domain=MICROSOFT)
def simplified_layer_normalization_grad(
    ctx: NodeContext, dy: Value, x: Value, scale: Value, inverse: Value
) -> tuple[Value, ...]:
    """See `_of_layer`: x * r in place of (x - mean) * r."""
    return _of_layer(ctx, dy, x, scale, None, inverse)


# ── BatchNormalization ──────────────────────────────────────────────────────────────────────────────


def _check_channels(ctx: NodeContext, x: Value, values: Sequence[Value]) -> None:
    if x.rank < 2 or any(value.shape != x.shape[1:2] for value in values):
        found = f"{x.type} with " + ", ".join(str(value.type) for value in values)
        raise ctx.error("operands do not fit", found, "[N, C, …], and one number for each channel")


@onnx_op("BatchNormInternal", domain=MICROSOFT)
def batch_norm_internal(
    ctx: NodeContext, x: Value, scale: Value, bias: Value, mean: Value, variance: Value
) -> tuple[Value, ...]:
    """BatchNormalization in training, with the batch's mean and 1 / sqrt(v + epsilon) behind the running statistics."""
    if not ctx.attr_bool("training_mode", True):
        raise ctx.error("BatchNormInternal is for training", "training_mode=0", "training_mode=1")
    _check_channels(ctx, x, (scale, bias, mean, variance))
    epsilon, momentum = ctx.attr_float("epsilon", 1e-5), ctx.attr_float("momentum", 0.9)
    axes, shape = (0, *range(2, x.rank)), x.shape[1:2]

    def body(x: Value, scale: Value, bias: Value, mean: Value, variance: Value) -> tuple[Value, ...]:
        d, batch_mean, batch_variance = moments(x, axes)
        normalized = over_deviation(d, batch_variance, epsilon)
        y = scaled_and_shifted(normalized, per_channel(scale, x.rank), per_channel(bias, x.rank))
        own = [reshape(value, shape) for value in (batch_mean, batch_variance)]
        running = [running_statistic(old, new, momentum) for old, new in zip((mean, variance), own, strict=True)]
        return y, *running, own[0], reshape(inverse_deviation(batch_variance, epsilon), shape)

    operands = (x, scale, bias, mean, variance)
    return ctx.composite("BatchNormInternal", operands, body, epsilon=epsilon, momentum=momentum).results


@onnx_op("BatchNormalizationGrad", domain=MICROSOFT)
def batch_normalization_grad(
    ctx: NodeContext, dy: Value, x: Value, scale: Value, mean: Value, inverse: Value
) -> tuple[Value, ...]:
    """d = x - mean; the bias's b = sum(dY), the scale's s = sum((d * r) * dY), r the saved inverse;
    dX = ((scale * r) / n) * ((dY * n - b) - (d * s) * r), n the count of a channel.
    """
    _check_channels(ctx, x, (scale, mean, inverse))
    axes = (0, *range(2, x.rank))
    count = math.prod(x.shape[axis] for axis in axes)

    def body(dy: Value, x: Value, scale: Value, mean: Value, inverse: Value) -> tuple[Value, ...]:
        def everywhere(value: Value) -> Value:
            return broadcast_to(per_channel(value, x.rank), x.shape)

        d, r = sub(x, everywhere(mean)), everywhere(inverse)
        of_bias = reduce_axes("add", dy, axes)
        of_scale = reduce_axes("add", mul(mul(d, r), dy), axes)
        share = div(mul(scale, inverse), fill(count, scale.type))
        level = sub(mul(dy, fill(count, dy.type)), everywhere(of_bias))
        dx = mul(everywhere(share), sub(level, mul(mul(d, everywhere(of_scale)), r)))
        return dx, of_scale, of_bias

    return ctx.composite("BatchNormalizationGrad", (dy, x, scale, mean, inverse), body).results

"""Normalizations: fixed formulas over sums in lanes (rules 10, 11, 15)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from repro.frontend.context import NodeContext
from repro.frontend.families.pooling import lp_norm
from repro.frontend.registry import onnx_op
from repro.ir.graph import Value
from repro.ir.types import BF16, F16, F32, F64, DType
from repro.ops import (
    add,
    broadcast,
    broadcast_to,
    compare,
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
    window_reduce,
)

_EPSILON = 1e-5


def mean_of(x: Value, axes: Sequence[int]) -> Value:
    """sum / count, the reduced axes kept with extent 1."""
    total = reduce_keep("add", x, axes)
    return div(total, fill(math.prod(x.shape[axis] for axis in axes), total.type))


def standardized(x: Value, mean: Value, variance: Value, epsilon: float) -> Value:
    """(x - mean) / sqrt(variance + epsilon)."""
    return over_deviation(sub(x, broadcast_to(mean, x.shape)), variance, epsilon)


def deviation(variance: Value, epsilon: float) -> Value:
    """sqrt(variance + epsilon)."""
    return elementwise("sqrt", add(variance, fill(epsilon, variance.type)))


def over_deviation(d: Value, variance: Value, epsilon: float) -> Value:
    return div(d, broadcast_to(deviation(variance, epsilon), d.shape))


def moments(x: Value, axes: Sequence[int]) -> tuple[Value, Value, Value]:
    """mean = sum(x) / n, d = x - mean, variance = sum(d * d) / n (of the population); gives d, mean, variance."""
    mean = mean_of(x, axes)
    d = sub(x, broadcast_to(mean, x.shape))
    return d, mean, mean_of(mul(d, d), axes)


def scaled_and_shifted(normalized: Value, scale: Value, bias: Value | None) -> Value:
    """normalized * scale + bias, both stretched by NumPy's rule."""
    result = mul(normalized, broadcast_to(scale, normalized.shape))
    return result if bias is None else add(result, broadcast_to(bias, normalized.shape))


def per_channel(value: Value, rank: int) -> Value:
    """[C, ...] as [C, ..., 1, ...]: for the second axis of a tensor of that rank, and those that follow it."""
    return reshape(value, (*value.shape, *(1,) * (rank - 1 - value.rank)))


def _common(values: Sequence[Value]) -> list[Value]:
    """All in the widest of their types."""
    widest = F64 if any(value.dtype is F64 for value in values) else F32
    return [convert_to(value, widest) for value in values]


# ── BatchNormalization ──────────────────────────────────────────────────────────────────────────────


def _check_statistics(ctx: NodeContext, x: Value, values: Sequence[Value], shape: tuple[int, ...]) -> None:
    if any(value.shape != shape for value in values):
        found = ", ".join(str(value.type) for value in values)
        raise ctx.error("scale, bias, mean and variance do not fit", f"{found} for {x.type}", f"the shape {shape}")


@onnx_op("BatchNormalization", since=14)
def batch_normalization(
    ctx: NodeContext, x: Value, scale: Value, bias: Value, mean: Value, variance: Value
) -> tuple[Value, ...]:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias; see `_train` for training_mode."""
    if not ctx.attr_bool("training_mode"):
        if ctx.wants(1) or ctx.wants(2):
            raise ctx.error("running statistics are asked for without training_mode", expected="training_mode=1")
        return (_infer(ctx, x, (scale, bias, mean, variance)),)
    return _train(ctx, x, (scale, bias, mean, variance))


@onnx_op("BatchNormalization", since=7, until=13)
def batch_normalization_by_outputs(
    ctx: NodeContext, x: Value, scale: Value, bias: Value, mean: Value, variance: Value
) -> tuple[Value, ...]:
    """As the newer ones; training where more than one output is asked for (then also the batch's own statistics)."""
    training = any(ctx.wants(output) for output in range(1, 5))
    return (_train if training else _infer_only)(ctx, x, (scale, bias, mean, variance))


def _infer_only(ctx: NodeContext, x: Value, given: Sequence[Value]) -> tuple[Value, ...]:
    return (_infer(ctx, x, given),)


def _feature_shape(ctx: NodeContext, x: Value) -> tuple[int, ...]:
    """The shape of the statistics: the channels, or (before opset 9, spatial=0) all axes but the batch.

    A tensor of rank 1 is a batch of one channel.
    """
    if x.rank < 2:
        return (1,)
    return x.shape[1:2] if ctx.opset >= 9 or ctx.attr_bool("spatial", True) else x.shape[1:]


def _infer(ctx: NodeContext, x: Value, given: Sequence[Value]) -> Value:
    epsilon = ctx.attr_float("epsilon", _EPSILON)
    _check_statistics(ctx, x, given, _feature_shape(ctx, x))

    def body(x: Value, *rest: Value) -> Value:
        scale, bias, mean, variance = (per_channel(value, x.rank) for value in rest)
        return scaled_and_shifted(standardized(x, mean, variance, epsilon), scale, bias)

    made = ctx.composite("BatchNormalization", _common((x, *given)), body, epsilon=epsilon, training=0)
    return convert_to(made.value, x.dtype)


def _train(ctx: NodeContext, x: Value, given: Sequence[Value]) -> tuple[Value, ...]:
    """By the batch's own mean and variance; running = given * momentum + batch * (1 - momentum).

    Results: y, running mean, running variance, the batch's mean and variance; only y where nothing more is asked for.
    """
    epsilon, momentum = ctx.attr_float("epsilon", _EPSILON), ctx.attr_float("momentum", 0.9)
    shape = _feature_shape(ctx, x)
    _check_statistics(ctx, x, given, shape)
    axes = (0, *range(1 + len(shape), x.rank))
    all_results = any(ctx.wants(output) for output in range(1, 5))

    def body(x: Value, scale: Value, bias: Value, mean: Value, variance: Value) -> tuple[Value, ...]:
        d, batch_mean, batch_variance = moments(x, axes)
        normalized = over_deviation(d, batch_variance, epsilon)
        y = scaled_and_shifted(normalized, per_channel(scale, x.rank), per_channel(bias, x.rank))
        if not all_results:
            return (y,)
        own = reshape(batch_mean, shape), reshape(batch_variance, shape)
        return y, running_statistic(mean, own[0], momentum), running_statistic(variance, own[1], momentum), *own

    operands = _common((x, *given))
    made = ctx.composite("BatchNormalization", operands, body, epsilon=epsilon, momentum=momentum, training=1)
    kinds = (x.dtype, given[2].dtype, given[3].dtype, given[2].dtype, given[3].dtype)
    return tuple(convert_to(value, kind) for value, kind in zip(made.results, kinds, strict=False))


def running_statistic(given: Value, own: Value, momentum: float) -> Value:
    rest = sub(scalar(1, own.dtype), scalar(momentum, own.dtype))
    return add(mul(given, fill(momentum, own.type)), mul(own, broadcast(rest, own.shape, ())))


# ── InstanceNormalization, GroupNormalization ───────────────────────────────────────────────────────


@onnx_op("InstanceNormalization", since=6)
def instance_normalization(ctx: NodeContext, x: Value, scale: Value, bias: Value) -> Value:
    """Per instance and channel: d / sqrt(variance + epsilon) * scale + bias."""
    if x.rank < 3 or scale.shape != x.shape[1:2] or bias.shape != x.shape[1:2]:
        found = f"{x.type}, scale {scale.type}, bias {bias.type}"
        raise ctx.error("operands do not fit", found, "[N, C, …] and a scale and a bias for each channel")
    epsilon = ctx.attr_float("epsilon", _EPSILON)

    def body(x: Value, scale: Value, bias: Value) -> Value:
        d, _, variance = moments(x, range(2, x.rank))
        normalized = over_deviation(d, variance, epsilon)
        return scaled_and_shifted(normalized, per_channel(scale, x.rank), per_channel(bias, x.rank))

    return ctx.composite("InstanceNormalization", (x, scale, bias), body, epsilon=epsilon).value


@onnx_op("GroupNormalization", since=18)
def group_normalization(ctx: NodeContext, x: Value, scale: Value, bias: Value) -> Value:
    """Per instance and group of channels: d / sqrt(variance + epsilon) * scale + bias.

    Scale and bias are for each group before opset 21, for each channel from then on.
    """
    groups, epsilon = ctx.attr_int("num_groups"), ctx.attr_float("epsilon", _EPSILON)
    if x.rank < 2 or groups < 1 or x.shape[1] % groups:
        raise ctx.error("channels do not fit", f"{x.type} in {groups} groups", "channels that the groups divide")
    count = x.shape[1] if ctx.opset >= 21 else groups
    if scale.shape != (count,) or bias.shape != (count,):
        expected = f"[{count}] each, for opset {ctx.opset}"
        raise ctx.error("scale and bias do not fit", f"{scale.type} and {bias.type}", expected)
    grouped = (x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])

    def body(x: Value, scale: Value, bias: Value) -> Value:
        d, _, variance = moments(reshape(x, grouped), range(2, len(grouped)))
        normalized = over_deviation(d, variance, epsilon)
        per_group = (groups, count // groups, *(1,) * (x.rank - 2))
        return reshape(scaled_and_shifted(normalized, reshape(scale, per_group), reshape(bias, per_group)), x.shape)

    return ctx.composite("GroupNormalization", (x, scale, bias), body, epsilon=epsilon, groups=groups).value


# ── LayerNormalization, RMSNormalization ────────────────────────────────────────────────────────────


def _trailing_axes(ctx: NodeContext, x: Value) -> tuple[int, ...]:
    return tuple(range(ctx.axis(ctx.attr_int("axis", -1), x.rank), x.rank))


def _stash_dtype(ctx: NodeContext) -> DType:
    return ctx.attr_dtype("stash_type", F32)


@onnx_op("LayerNormalization")
def layer_normalization(ctx: NodeContext, x: Value, scale: Value, bias: Value | None = None) -> tuple[Value, ...]:
    """d / sqrt(variance + epsilon) * scale + bias over the trailing axes; mean and 1 / sqrt(variance + epsilon)."""
    axes, epsilon, stash = _trailing_axes(ctx, x), ctx.attr_float("epsilon", _EPSILON), _stash_dtype(ctx)

    def body(x: Value, scale: Value, bias: Value | None = None) -> tuple[Value, ...]:
        d, mean, variance = moments(x, axes)
        y = scaled_and_shifted(over_deviation(d, variance, epsilon), scale, bias)
        return (y, mean, inverse_deviation(variance, epsilon)) if ctx.wants(1) or ctx.wants(2) else (y,)

    operands = (x, scale) if bias is None else (x, scale, bias)
    made = ctx.composite("LayerNormalization", operands, body, epsilon=epsilon, axis=axes[0])
    y, *statistics = made.results
    return y, *(convert_to(value, stash) for value in statistics)


def inverse_deviation(variance: Value, epsilon: float) -> Value:
    root = deviation(variance, epsilon)
    return div(fill(1, root.type), root)


def _rms(ctx: NodeContext, x: Value, scale: Value, inverse_too: bool) -> tuple[Value, ...]:
    """x / sqrt(sum(x * x) / n + epsilon) * scale over the trailing axes; 1 / sqrt(…)."""
    axes, epsilon = _trailing_axes(ctx, x), ctx.attr_float("epsilon", _EPSILON)

    def body(x: Value, scale: Value) -> tuple[Value, ...]:
        square = mean_of(mul(x, x), axes)
        y = scaled_and_shifted(over_deviation(x, square, epsilon), scale, None)
        return (y, inverse_deviation(square, epsilon)) if inverse_too else (y,)

    return ctx.composite("RMSNormalization", (x, scale), body, epsilon=epsilon, axis=axes[0]).results


@onnx_op("RMSNormalization", since=23)
def rms_normalization(ctx: NodeContext, x: Value, scale: Value) -> Value:
    """x / sqrt(sum(x * x) / n + epsilon) * scale, in the type of the scale."""
    wide = _common((x, scale))
    return convert_to(_rms(ctx, wide[0], wide[1], False)[0], scale.dtype)


@onnx_op("SimplifiedLayerNormalization", moves=True)
@onnx_op("SimplifiedLayerNormalization", domain="com.microsoft", moves=True)
def simplified_layer_normalization(ctx: NodeContext, x: Value, scale: Value) -> tuple[Value, ...]:
    """RMSNormalization as ONNX Runtime writes it, in either domain, with the inverse as a second output."""
    wide = _common([convert_to(value, F32) if value.dtype in (F16, BF16) else value for value in (x, scale)])
    y, *inverse = _rms(ctx, wide[0], wide[1], ctx.wants(1))
    return convert_to(y, scale.dtype), *(convert_to(value, _stash_dtype(ctx)) for value in inverse)


# ── LpNormalization, MeanVarianceNormalization, LRN ─────────────────────────────────────────────────


@onnx_op("LpNormalization")
def lp_normalization(ctx: NodeContext, x: Value) -> Value:
    """x / norm along an axis, +0 where the norm is zero; the norm is sum(|x|) or sqrt(sum(x * x))."""
    p, axis = ctx.attr_int("p", 2), ctx.axis(ctx.attr_int("axis", -1), x.rank)
    if p not in (1, 2):
        raise ctx.error("attribute 'p' is out of range", str(p), "1 or 2")

    def body(x: Value) -> Value:
        norm = lp_norm(x, p, lambda value: reduce_keep("add", value, (axis,)))
        norm, zero = broadcast_to(norm, x.shape), fill(0, x.type)
        return select(compare("eq", norm, zero), zero, div(x, norm))

    return ctx.composite("LpNormalization", (x,), body, p=p, axis=axis).value


@onnx_op("MeanVarianceNormalization", since=9)
def mean_variance_normalization(ctx: NodeContext, x: Value) -> Value:
    """d / (sqrt(variance) + 1e-9) over the axes, variance = sum(d * d) / n."""
    axes = tuple(sorted(ctx.axes(ctx.attr_ints("axes", (0, 2, 3)), x.rank)))

    def body(x: Value) -> Value:
        d, _, variance = moments(x, axes)
        root = elementwise("sqrt", variance)
        return div(d, broadcast_to(add(root, fill(1e-9, root.type)), x.shape))

    return ctx.composite("MeanVarianceNormalization", (x,), body, axes=axes).value


@onnx_op("LRN")
def local_response_normalization(ctx: NodeContext, x: Value) -> Value:
    """x / (bias + (alpha / size) * sum(x * x)) ** beta, the sum over `size` channels around each."""
    size, alpha = ctx.attr_int("size"), ctx.attr_float("alpha", 1e-4)
    beta, bias = ctx.attr_float("beta", 0.75), ctx.attr_float("bias", 1.0)
    if x.rank < 2 or not 1 <= size < 1 << 31:
        raise ctx.error("LRN sums over channels", f"size {size} for {x.type}", "channels, and a size of 1 or more")
    ctx.check_size((size,), x.dtype)
    one, rest = (1,) * x.rank, (0,) * (x.rank - 2)
    low, high = (size - 1) // 2, size // 2

    def body(x: Value) -> Value:
        window = (1, size, *one[2:])
        total = window_reduce("add", mul(x, x), window, one, one, (0, low, *rest), (0, high, *rest))
        share = div(scalar(alpha, x.dtype), scalar(size, x.dtype))
        base = add(fill(bias, x.type), mul(broadcast(share, x.shape, ()), total))
        return div(x, elementwise("pow", base, fill(beta, x.type)))

    return ctx.composite("LRN", (x,), body, size=size, alpha=alpha, beta=beta, bias=bias).value

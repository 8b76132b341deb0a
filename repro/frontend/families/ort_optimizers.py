"""Gradient accumulation and the optimizers of ONNX Runtime's training graphs, over sequences of tensors.

There they work in place; here the new tensors are the optional outputs, and whoever trains binds them to the state.
Sources: ONNX Runtime's gradient_control.cc, adamw.cc, sgd.cc and clip_grad_norm.cc. Numbers that a step shares are
computed in f64 and rounded once to a tensor's type, as by repro's own optimizers; ONNX Runtime computes them in f32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from repro.frontend.context import NodeContext
from repro.frontend.families.ort_common import MICROSOFT
from repro.frontend.registry import onnx_op
from repro.frontend.scope import Item, Items
from repro.ir.graph import Value
from repro.ir.types import BOOL, F64, TensorType
from repro.ops import (
    add,
    broadcast,
    broadcast_to,
    convert_to,
    div,
    elementwise,
    fill,
    minimum,
    mul,
    reduce_axes,
    reshape,
    scalar,
    select,
    sub,
)


def _tensors(ctx: NodeContext, *sequences: Item) -> list[tuple[Value, ...]]:
    """The values of sequences of one length, those at one place of one shape."""
    found = [item.values if isinstance(item, Items) else () for item in sequences]
    for row in zip(*found, strict=False):
        if any(value.type != row[0].type for value in row):
            kinds = ", ".join(str(value.type) for value in row)
            raise ctx.error("tensors at one place of the sequences do not fit", kinds, "one shape and element type")
    if not found[0] or len({len(values) for values in found}) != 1:
        lengths = ", ".join(str(len(values)) for values in found)
        raise ctx.error("the sequences do not fit", f"lengths {lengths}", "sequences of one length, 1 or more")
    return found


def _f64(number: float) -> Value:
    return scalar(number, F64)


def _number(value: Value) -> Value:
    """An input of one element as f64[]."""
    return convert_to(reshape(value, ()), F64)


def _spread(number: Value, like: Value) -> Value:
    """A f64[] number rounded to the type of a tensor, at every position."""
    return broadcast(convert_to(number, like.dtype), like.shape, ())


def _flag() -> Value:
    return fill(True, TensorType(BOOL, (1,)))


def _chosen(signal: Value | None, new: Value, old: Value) -> Value:
    """The new value where the signal is given and true, or is not given."""
    return new if signal is None else select(broadcast(reshape(signal, ()), new.shape, ()), new, old)


def _done(signal: Value | None) -> Value:
    return _flag() if signal is None else reshape(signal, (1,))


# ── gradients ───────────────────────────────────────────────────────────────────────────────────────


@onnx_op("InPlaceAccumulatorV2", domain=MICROSOFT)
def accumulate(ctx: NodeContext, buffer: Value, value: Value, overwrite: Value | None = None) -> tuple[Value, Value]:
    """Always true, and the buffer's next value: overwrite ? value : buffer + value."""
    if broadcast_to(value, buffer.shape).type != buffer.type:
        raise ctx.error("the gradient does not fit its buffer", f"{value.type} for {buffer.type}")
    value = broadcast_to(value, buffer.shape)
    total = add(buffer, value)
    return _flag(), total if overwrite is None else _chosen(overwrite, value, total)


@onnx_op("InPlaceAccumulator", domain=MICROSOFT)
def accumulate_if(_: NodeContext, buffer: Value, value: Value, update: Value | None = None) -> Value:
    """buffer + value; the buffer as it is where the signal is false."""
    return _chosen(update, add(buffer, broadcast_to(value, buffer.shape)), buffer)


@onnx_op("InplaceClipGradNorm", domain=MICROSOFT)
def clip_norm(ctx: NodeContext, gradients: Item) -> Items:
    """g * min(max_norm / (sqrt(s) + 1e-6), 1), s the sum of each gradient's sum(g * g), in order."""
    (values,) = _tensors(ctx, gradients)
    squares = [reduce_axes("add", mul(g, g), range(g.rank)) for g in values]
    total = squares[0]
    for square in squares[1:]:
        total = add(total, square)
    one, limit = scalar(1, total.dtype), scalar(ctx.attr_float("max_norm", 1.0), total.dtype)
    factor = minimum(div(limit, add(elementwise("sqrt", total), scalar(1e-6, total.dtype))), one)
    return Items(tuple(mul(g, broadcast(factor, g.shape, ())) for g in values))


# ── optimizers ──────────────────────────────────────────────────────────────────────────────────────


@onnx_op("SGDOptimizerV2", domain=MICROSOFT)
def sgd(
    ctx: NodeContext, rate: Value, weights: Item, gradients: Item, update: Value | None = None
) -> tuple[Value, Items]:
    """w + (-rate) * g, which is w - rate * g."""
    pairs = zip(*_tensors(ctx, weights, gradients), strict=True)
    new = (_chosen(update, sub(w, mul(_spread(_number(rate), w), g)), w) for w, g in pairs)
    return _done(update), Items(tuple(new))


def _averages(ctx: NodeContext, g: Value, m: Value, v: Value) -> tuple[Value, Value]:
    """m' = alpha * m + (1 - alpha) * g, v' = beta * v + ((1 - beta) * g) * g."""
    alpha, beta = ctx.attr_float("alpha", 0.9), ctx.attr_float("beta", 0.999)

    def times(factor: float, x: Value) -> Value:
        return mul(fill(factor, x.type), x)

    return add(times(alpha, m), times(1.0 - alpha, g)), add(times(beta, v), mul(times(1.0 - beta, g), g))


def _root(x: Value, epsilon: float) -> Value:
    return add(elementwise("sqrt", x), fill(epsilon, x.type))


Step = Callable[[Value, Value, Value], Value]
"""From a weight and its two new averages to the new weight."""


def _decay_first(ctx: NodeContext, rate: Value, first: Value, second: Value) -> Step:
    """adam_mode 0: w' = w - w * (rate * decay), left out where the decay is 0; w' - (rate * m) / (c1 * (sqrt(v / c2) +
    epsilon)), c1 and c2 being the bias corrections.
    """
    epsilon, decay = ctx.attr_float("epsilon", 1e-6), ctx.attr_float("weight_decay", 0.0)

    def step(w: Value, m: Value, v: Value) -> Value:
        if decay:
            w = sub(w, mul(w, _spread(mul(rate, _f64(decay)), w)))
        root = _root(div(v, _spread(second, v)), epsilon)
        return sub(w, div(mul(_spread(rate, m), m), mul(_spread(first, m), root)))

    return step


def _decay_last(ctx: NodeContext, rate: Value, first: Value, second: Value) -> Step:
    """adam_mode 1: w' = w - (((rate * sqrt(c2)) / c1) * m) / (sqrt(v) + epsilon); w' - w' * (rate * decay), the decay
    left out where it is 0. So epsilon is added before the correction, and counts 1 / sqrt(c2) times as much.
    """
    epsilon, decay = ctx.attr_float("epsilon", 1e-6), ctx.attr_float("weight_decay", 0.0)
    corrected = div(mul(rate, elementwise("sqrt", second)), first)

    def step(w: Value, m: Value, v: Value) -> Value:
        w = sub(w, div(mul(_spread(corrected, m), m), _root(v, epsilon)))
        return sub(w, mul(w, _spread(mul(rate, _f64(decay)), w))) if decay else w

    return step


_MODES = {0: _decay_first, 1: _decay_last}


@onnx_op("AdamWOptimizer", domain=MICROSOFT)
def adamw(
    ctx: NodeContext,
    rate: Value,
    step: Value,
    weights: Item,
    gradients: Item,
    first_moments: Item,
    second_moments: Item,
    update: Value | None = None,
) -> tuple[Value, Items, Items, Items]:
    """See `_averages`, then `_decay_first` or `_decay_last`; `step` counts from 1. Done; weights, and both averages."""
    mode = ctx.attr_int("adam_mode", 0)
    if mode not in _MODES:
        raise ctx.error("AdamWOptimizer has no such mode", f"adam_mode={mode}", "0 or 1")
    corrections = [_correction(ctx, name, step) for name in ("alpha", "beta")]
    move = _MODES[mode](ctx, _number(rate), *corrections)
    rows = zip(*_tensors(ctx, weights, gradients, first_moments, second_moments), strict=True)
    made: list[Sequence[Value]] = []
    for w, g, m, v in rows:
        averages = _averages(ctx, g, m, v)
        new = (move(w, *averages), *averages)
        made.append([_chosen(update, after, before) for after, before in zip(new, (w, m, v), strict=True)])
    columns = [Items(tuple(column)) for column in zip(*made, strict=True)]
    return _done(update), columns[0], columns[1], columns[2]


def _correction(ctx: NodeContext, name: str, step: Value) -> Value:
    """1 - factor^step, f64[]; 1 without `correct_bias`."""
    if not ctx.attr_bool("correct_bias", True):
        return _f64(1.0)
    factor = _f64(ctx.attr_float(name, {"alpha": 0.9, "beta": 0.999}[name]))
    return sub(_f64(1.0), elementwise("pow", factor, _number(step)))

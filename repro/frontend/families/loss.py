"""Losses over class labels."""

from __future__ import annotations

import math

from repro.frontend.context import NodeContext
from repro.frontend.families.activation import log_softmax_of
from repro.frontend.registry import onnx_op
from repro.ir.graph import Value
from repro.ir.types import I64
from repro.ops import (
    broadcast,
    compare,
    convert_to,
    div,
    fill,
    gather,
    mul,
    neg,
    reduce_axes,
    reshape,
    select,
    take_along_axis,
)

_REDUCTIONS = ("none", "sum", "mean")


class _Loss:
    """The attributes of a loss, and its formula from logarithms of probabilities on."""

    def __init__(self, ctx: NodeContext) -> None:
        self.reduction = ctx.attr_str("reduction", "mean")
        self.ignored = ctx.attr_int("ignore_index", None)
        if self.reduction not in _REDUCTIONS:
            raise ctx.error("the loss has no such reduction", f"'{self.reduction}'", "'none', 'sum' or 'mean'")

    def check(self, ctx: NodeContext, scores: Value, labels: Value, weights: Value | None) -> None:
        expected = (*scores.shape[:1], *scores.shape[2:])
        if scores.rank < 2 or labels.shape != expected or not labels.dtype.is_integer:
            found = f"scores {scores.type} and labels {labels.type}"
            raise ctx.error("labels do not fit the scores", found, "scores [N, C, ...] and integer labels [N, ...]")
        if weights is not None and weights.shape != scores.shape[1:2]:
            raise ctx.error("weights do not fit the classes", str(weights.type), f"{scores.dtype}[{scores.shape[1]}]")

    def attributes(self) -> dict[str, str | int]:
        kept: dict[str, str | int] = {"reduction": self.reduction}
        return kept if self.ignored is None else {**kept, "ignore_index": self.ignored}

    def of(self, logarithms: Value, labels: Value, weights: Value | None) -> Value:
        """l = -y[label] (* w[label]), +0 where ignored; mean: sum(l) / sum(w), w being 1, or 0 where ignored."""
        kept = None if self.ignored is None else compare("ne", labels, fill(self.ignored, labels.type))
        safe = labels if kept is None else select(kept, labels, fill(0, labels.type))
        losses = neg(_at_labels(logarithms, safe))
        weight = None if weights is None else gather(weights, reshape(safe, (*safe.shape, 1)), (0,))
        if weight is not None:
            losses = mul(losses, weight)
        if kept is not None:
            zero = fill(0, losses.type)
            losses = select(kept, losses, zero)
            weight = select(kept, fill(1, losses.type) if weight is None else weight, zero)
        return self._reduced(losses, weight)

    def _reduced(self, losses: Value, weight: Value | None) -> Value:
        if self.reduction == "none":
            return losses
        everything = tuple(range(losses.rank))
        total = reduce_axes("add", losses, everything)
        if self.reduction == "sum":
            return total
        if weight is None:
            return div(total, fill(math.prod(losses.shape), total.type))
        return div(total, reduce_axes("add", weight, everything))


def _at_labels(x: Value, labels: Value) -> Value:
    """x[n, label, ...] for labels [n, ...]."""
    column = broadcast(labels, (labels.shape[0], 1, *labels.shape[1:]), (0, *range(2, x.rank)))
    return reshape(take_along_axis(x, column, 1), labels.shape)


@onnx_op("NegativeLogLikelihoodLoss", since=12)
def negative_log_likelihood(ctx: NodeContext, x: Value, labels: Value, weights: Value | None = None) -> Value:
    """-x[label] (* w[label]), reduced."""
    loss = _Loss(ctx)
    loss.check(ctx, x, labels, weights)
    operands = (x, convert_to(labels, I64), *(() if weights is None else (weights,)))

    def body(x: Value, labels: Value, weights: Value | None = None) -> Value:
        return loss.of(x, labels, weights)

    return ctx.composite(ctx.op_type, operands, body, **loss.attributes()).value


@onnx_op("SoftmaxCrossEntropyLoss", since=12)
def softmax_cross_entropy(
    ctx: NodeContext, scores: Value, labels: Value, weights: Value | None = None
) -> tuple[Value, ...]:
    """y = LogSoftmax(scores) over the classes, then NegativeLogLikelihoodLoss; the second result is y."""
    loss = _Loss(ctx)
    loss.check(ctx, scores, labels, weights)
    operands = (scores, convert_to(labels, I64), *(() if weights is None else (weights,)))

    def body(scores: Value, labels: Value, weights: Value | None = None) -> tuple[Value, Value]:
        logarithms = log_softmax_of(scores, (1,))
        return loss.of(logarithms, labels, weights), logarithms

    return ctx.composite(ctx.op_type, operands, body, **loss.attributes()).results

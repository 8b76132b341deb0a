"""Losses over class labels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from repro.frontend.context import NodeContext
from repro.frontend.families.activation import log_softmax_of
from repro.frontend.registry import onnx_op
from repro.ir.graph import Node, Value
from repro.ir.types import I64, DType, TensorType
from repro.ops import (
    broadcast,
    compare,
    composite,
    convert_to,
    div,
    fill,
    gather,
    mul,
    neg,
    reduce_axes,
    reshape,
    scalar,
    select,
    take_along_axis,
)

_REDUCTIONS = ("none", "sum", "mean")


@dataclass(frozen=True)
class ClassLoss:
    """A loss over class labels: how it is reduced, and which label counts for nothing."""

    reduction: str = "mean"
    ignored: int | None = None

    @classmethod
    def of_node(cls, ctx: NodeContext, scores: Value, labels: Value, weights: Value | None) -> ClassLoss:
        """By a node's attributes, its operands checked."""
        loss = cls(ctx.attr_str("reduction", "mean"), ctx.attr_int("ignore_index", None))
        if loss.reduction not in _REDUCTIONS:
            raise ctx.error("the loss has no such reduction", f"'{loss.reduction}'", "'none', 'sum' or 'mean'")
        expected = (*scores.shape[:1], *scores.shape[2:])
        if scores.rank < 2 or labels.shape != expected or not labels.dtype.is_integer:
            found = f"scores {scores.type} and labels {labels.type}"
            raise ctx.error("labels do not fit the scores", found, "scores [N, C, ...] and integer labels [N, ...]")
        if weights is not None and weights.shape != scores.shape[1:2]:
            raise ctx.error("weights do not fit the classes", str(weights.type), f"{scores.dtype}[{scores.shape[1]}]")
        return loss

    def negative_log_likelihood(self, x: Value, labels: Value, weights: Value | None = None) -> Node:
        """-x[label] (* w[label]), reduced."""

        def body(x: Value, labels: Value, weights: Value | None = None) -> Value:
            return self._of(x, labels, weights)

        return self._composite("NegativeLogLikelihoodLoss", (x, labels, weights), body)

    def softmax_cross_entropy(self, scores: Value, labels: Value, weights: Value | None = None) -> Node:
        """y = LogSoftmax(scores) over the classes, then its negative log likelihood; the second result is y."""

        def body(scores: Value, labels: Value, weights: Value | None = None) -> tuple[Value, Value]:
            logarithms = log_softmax_of(scores, (1,))
            return self._of(logarithms, labels, weights), logarithms

        return self._composite("SoftmaxCrossEntropyLoss", (scores, labels, weights), body)

    def count(self, labels: Value, weights: Value | None, dtype: DType) -> Value:
        """What a mean divides by: sum(w), w being 1 without weights and 0 where ignored."""
        weight = self._weight(*self._kept(labels), weights, dtype)
        if weight is None:
            return scalar(math.prod(labels.shape), dtype)
        return reduce_axes("add", weight, tuple(range(weight.rank)))

    def without_ignored(self, labels: Value) -> Value:
        """The labels with 0 in place of those that are ignored."""
        return self._kept(labels)[1]

    def _composite(
        self, name: str, operands: tuple[Value, Value, Value | None], body: Callable[..., Value | Sequence[Value]]
    ) -> Node:
        kept: dict[str, str | int] = {"reduction": self.reduction}
        if self.ignored is not None:
            kept["ignore_index"] = self.ignored
        x, labels, weights = operands
        given = (x, convert_to(labels, I64), *(() if weights is None else (weights,)))
        return composite(name, given, body, **kept)

    def _of(self, logarithms: Value, labels: Value, weights: Value | None) -> Value:
        """l = -y[label] (* w[label]), +0 where ignored; mean: sum(l) / sum(w), w being 1, or 0 where ignored."""
        kept, safe = self._kept(labels)
        losses = neg(_at_labels(logarithms, safe))
        if weights is not None:
            losses = mul(losses, _of_classes(weights, safe))
        if kept is not None:
            losses = select(kept, losses, fill(0, losses.type))
        if self.reduction == "none":
            return losses
        total = reduce_axes("add", losses, tuple(range(losses.rank)))
        return total if self.reduction == "sum" else div(total, self.count(labels, weights, total.dtype))

    def _kept(self, labels: Value) -> tuple[Value | None, Value]:
        """Which labels count (None: all), and the labels with 0 in place of the others."""
        if self.ignored is None:
            return None, labels
        kept = compare("ne", labels, fill(self.ignored, labels.type))
        return kept, select(kept, labels, fill(0, labels.type))

    def _weight(self, kept: Value | None, safe: Value, weights: Value | None, dtype: DType) -> Value | None:
        """w of each label; None where all are 1."""
        if kept is None:
            return None if weights is None else _of_classes(weights, safe)
        kind = TensorType(dtype, safe.shape)
        weight = fill(1, kind) if weights is None else _of_classes(weights, safe)
        return select(kept, weight, fill(0, kind))


def _of_classes(weights: Value, labels: Value) -> Value:
    """w[label]."""
    return gather(weights, reshape(labels, (*labels.shape, 1)), (0,))


def _at_labels(x: Value, labels: Value) -> Value:
    """x[n, label, ...] for labels [n, ...]."""
    column = broadcast(labels, (labels.shape[0], 1, *labels.shape[1:]), (0, *range(2, x.rank)))
    return reshape(take_along_axis(x, column, 1), labels.shape)


@onnx_op("NegativeLogLikelihoodLoss", since=12)
def negative_log_likelihood(ctx: NodeContext, x: Value, labels: Value, weights: Value | None = None) -> Value:
    """-x[label] (* w[label]), reduced."""
    return ClassLoss.of_node(ctx, x, labels, weights).negative_log_likelihood(x, labels, weights).value


@onnx_op("SoftmaxCrossEntropyLoss", since=12)
def softmax_cross_entropy(
    ctx: NodeContext, scores: Value, labels: Value, weights: Value | None = None
) -> tuple[Value, ...]:
    """y = LogSoftmax(scores) over the classes, then NegativeLogLikelihoodLoss; the second result is y."""
    return ClassLoss.of_node(ctx, scores, labels, weights).softmax_cross_entropy(scores, labels, weights).results

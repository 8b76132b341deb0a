"""Losses of a model's output against labels, with the mean as PyTorch takes it.

A loss is a quotient, total / count. The count depends on labels and weights alone, so that microbatches can share one:
each contributes to the total, and the gradient of the total starts from 1 / count. In the formulas x is the output, y
the labels, w the weights (left out where there are none), each operation rounded in the order written; sums by rule 10.

    softmax_cross_entropy   sum(-LogSoftmax(x)[y] * w[y])    count sum(w[y]), or how many labels count
    nll                     sum(-x[y] * w[y])                the same; +0 where the label is `ignore_index`
    mse                     d = x - y;  sum((d * d) * w)     count sum(w), or the number of elements
    l1                      d = x - y;  sum(abs(d) * w)      the same
    bce                     sum(((y - 1) * max(log1p(-x), -100) - y * max(log(x), -100)) * w)
                            count: the number of elements, with weights too
    bce_with_logits         sum(((1 - y) * x + (log1p(exp(-abs(x))) + max(-x, 0))) * w), the same count

Gradients, from the cotangent s of the total: the first three by the rules of the core ops and composites; the others,
whose core ops have a kink or a pole where the loss has none, by these formulas (s' is s * w):

    l1                      d > 0 ? s' : d < 0 ? -s' : 0, and NaN where d is NaN
    bce                     s' * ((x - y) / max((1 - x) * x, 1e-12 as f32))
    bce_with_logits         s' * (1 / (1 + exp(-x)) - y)

Class weights are a vector over the classes; the other losses take a weight for each element of the output.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from repro.errors import ReproError
from repro.frontend.families.activation import sigmoid_of
from repro.frontend.families.loss import ClassLoss
from repro.ir.graph import Value
from repro.ir.types import I64, DType, TensorType
from repro.ops import (
    add,
    broadcast,
    compare,
    div,
    elementwise,
    fill,
    maximum,
    mul,
    neg,
    reduce_axes,
    scalar,
    select,
    sub,
)
from repro.ops.record import Step

LEAST_LOGARITHM = -100.0
"""What PyTorch's binary cross entropy bounds logarithms by."""
LEAST_VARIANCE = float(np.float32(1e-12))
"""What its gradient bounds (1 - x) * x by: a constant of f32 in PyTorch, also where it computes in f64."""


@dataclass(frozen=True)
class Total:
    """The sum of the losses of a batch, and the parts of it whose gradient has a formula of its own."""

    value: Value
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True)
class Loss(ABC):
    """A loss and its options. Operands have the output's computing type."""

    weight_is_split: ClassVar[bool] = True
    """Whether the weights have the batch as their leading axis."""

    @abstractmethod
    def labels_type(self, output: TensorType) -> TensorType:
        """The type of the labels of an output; raises ReproError for an output that the loss does not take."""

    @abstractmethod
    def weight_type(self, output: TensorType) -> TensorType:
        """The type of the weights."""

    @abstractmethod
    def total(self, x: Value, y: Value, w: Value | None) -> Total:
        """The sum over a batch, or a microbatch."""

    @abstractmethod
    def count(self, y: Value, w: Value | None, dtype: DType) -> Value:
        """What the total of a whole batch is divided by, a scalar of the given type."""


def everything(combiner: str, x: Value) -> Value:
    """A reduction over all axes."""
    return reduce_axes(combiner, x, tuple(range(x.rank)))


# ── over class labels ───────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class SoftmaxCrossEntropy(Loss):
    """Output [N, C, ...] and labels i64 [N, ...]; a label equal to `ignore_index` counts for nothing."""

    weight_is_split: ClassVar[bool] = False
    ignore_index: int = -100

    def labels_type(self, output: TensorType) -> TensorType:
        if output.rank < 2:
            raise ReproError("the loss needs a score for each class", found=str(output), expected="scores [N, C, ...]")
        return TensorType(I64, (output.shape[0], *output.shape[2:]))

    def weight_type(self, output: TensorType) -> TensorType:
        return TensorType(output.dtype, output.shape[1:2])

    @property
    def formula(self) -> ClassLoss:
        return ClassLoss("sum", self.ignore_index)

    def total(self, x: Value, y: Value, w: Value | None) -> Total:
        return Total(self.formula.softmax_cross_entropy(x, y, w).results[0])

    def count(self, y: Value, w: Value | None, dtype: DType) -> Value:
        return self.formula.count(y, w, dtype)


@dataclass(frozen=True)
class NegativeLogLikelihood(SoftmaxCrossEntropy):
    """The same for an output of logarithms of probabilities."""

    def total(self, x: Value, y: Value, w: Value | None) -> Total:
        return Total(self.formula.negative_log_likelihood(x, y, w).value)


# ── element by element ──────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class ElementLoss(Loss):
    """Labels, and weights, of the type of the output."""

    def labels_type(self, output: TensorType) -> TensorType:
        return output

    def weight_type(self, output: TensorType) -> TensorType:
        return output

    def count(self, y: Value, w: Value | None, dtype: DType) -> Value:
        return scalar(y.type.elements, dtype)


def _weighted_mean_count(y: Value, w: Value | None, dtype: DType) -> Value:
    return scalar(y.type.elements, dtype) if w is None else everything("add", w)


def _weighted(losses: Value, w: Value | None) -> Value:
    return losses if w is None else mul(losses, w)


def _with_gradient(losses: Value, x: Value, w: Value | None, rule: Callable[[Value], Value]) -> Total:
    """The total of weighted losses whose gradient at x is a rule of s', elementwise."""
    total = everything("add", _weighted(losses, w))

    def backward(s: Value) -> tuple[Value]:
        return (rule(_weighted(broadcast(s, x.shape, ()), w)),)

    return Total(total, (Step(total, (x,), backward),))


@dataclass(frozen=True)
class MeanSquaredError(ElementLoss):
    """d * d."""

    def total(self, x: Value, y: Value, w: Value | None) -> Total:
        d = sub(x, y)
        return Total(everything("add", _weighted(mul(d, d), w)))

    def count(self, y: Value, w: Value | None, dtype: DType) -> Value:
        return _weighted_mean_count(y, w, dtype)


@dataclass(frozen=True)
class MeanAbsoluteError(ElementLoss):
    """abs(d)."""

    def total(self, x: Value, y: Value, w: Value | None) -> Total:
        d = sub(x, y)
        zero = fill(0, d.type)

        def rule(s: Value) -> Value:
            flat = select(compare("eq", d, zero), zero, d)  # 0, or NaN
            falling = select(compare("lt", d, zero), neg(s), flat)
            return select(compare("gt", d, zero), s, falling)

        return _with_gradient(elementwise("abs", d), x, w, rule)

    def count(self, y: Value, w: Value | None, dtype: DType) -> Value:
        return _weighted_mean_count(y, w, dtype)


@dataclass(frozen=True)
class BinaryCrossEntropy(ElementLoss):
    """Of probabilities x and labels in [0, 1]."""

    def total(self, x: Value, y: Value, w: Value | None) -> Total:
        one, bound = fill(1, x.type), fill(LEAST_LOGARITHM, x.type)
        yes = maximum(elementwise("log", x), bound)
        no = maximum(elementwise("log1p", neg(x)), bound)
        losses = sub(mul(sub(y, one), no), mul(y, yes))

        def rule(s: Value) -> Value:
            variance = maximum(mul(sub(one, x), x), fill(LEAST_VARIANCE, x.type))
            return mul(s, div(sub(x, y), variance))

        return _with_gradient(losses, x, w, rule)


@dataclass(frozen=True)
class BinaryCrossEntropyWithLogits(ElementLoss):
    """Of x before the sigmoid that makes it a probability."""

    def total(self, x: Value, y: Value, w: Value | None) -> Total:
        one = fill(1, x.type)
        small = elementwise("log1p", elementwise("exp", neg(elementwise("abs", x))))
        losses = add(mul(sub(one, y), x), add(small, maximum(neg(x), fill(0, x.type))))
        return _with_gradient(losses, x, w, lambda s: mul(s, sub(sigmoid_of(x), y)))


LOSSES: dict[str, type[Loss]] = {
    "softmax_cross_entropy": SoftmaxCrossEntropy,
    "nll": NegativeLogLikelihood,
    "mse": MeanSquaredError,
    "l1": MeanAbsoluteError,
    "bce": BinaryCrossEntropy,
    "bce_with_logits": BinaryCrossEntropyWithLogits,
}

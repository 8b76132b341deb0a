"""Losses of a model's output against labels, with the mean as PyTorch takes it.

A loss is a quotient, total / count. The count depends on labels and weights alone, so that microbatches can share one:
each contributes to the total, and the gradient of the total starts from 1 / count. In the formulas x is the output, y
the labels, w the weights (left out where there are none), each operation rounded in the order written; sums by rule 10.

    softmax_cross_entropy   sum(-LogSoftmax(x)[y] * w[y])    count sum(w[y]), or how many labels count
      label_smoothing e     (1 - e) * that + (e / C) * sum(-sum(LogSoftmax(x) * w)), C classes, +0 where ignored
      soft_labels           -sum((LogSoftmax(x) * t) * w), t = y, or y * (1 - e) + e / C with label_smoothing;
                            count: the number of elements / C, with weights too
    nll                     sum(-x[y] * w[y])                the same; +0 where the label is `ignore_index`
    mse                     d = x - y;  sum((d * d) * w)     count sum(w), or the number of elements
    l1                      d = x - y;  sum(abs(d) * w)      the same
    bce                     sum(((y - 1) * max(log1p(-x), -100) - y * max(log(x), -100)) * w)
                            count: the number of elements, with weights too
    bce_with_logits         sum(((1 - y) * x + (log1p(exp(-abs(x))) + max(-x, 0))) * w), the same count
      pos_weight p          (1 - y) * x + l * (log1p(exp(-abs(x))) + max(-x, 0)), l = y * (p - 1) + 1, in its place

Gradients, from the cotangent s of the total: the first three by the rules of the core ops and composites; the others,
whose core ops have a kink or a pole where the loss has none, by these formulas (s' is s * w):

    l1                      d > 0 ? s' : d < 0 ? -s' : 0, and NaN where d is NaN
    bce                     s' * ((x - y) / max((1 - x) * x, 1e-12 as f32))
    bce_with_logits         s' * (1 / (1 + exp(-x)) - y); with pos_weight s' * (l * (1 / (1 + exp(-x))) - y * p)

What options give (1 - e, e / C, p - 1) is computed in f64 and rounded once to the computing type. Class weights are a
vector over the classes; the other losses take a weight for each element of the output.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from repro.errors import ReproError
from repro.frontend.families.activation import log_softmax_of, sigmoid_of
from repro.frontend.families.loss import ClassLoss
from repro.ir.graph import Value, constant
from repro.ir.types import I64, DType, TensorType, to_storage
from repro.ops import (
    add,
    broadcast,
    broadcast_to,
    compare,
    composite,
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
from repro.train_step.options import check_range

IGNORED = -100
"""The label that counts for nothing where nothing else is said: PyTorch's."""
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

    @property
    def ignored_label(self) -> int | None:
        """The label that counts for nothing, where there is one."""
        return None

    @abstractmethod
    def labels_type(self, output: TensorType) -> TensorType:
        """The type of the labels of an output; raises ReproError for an output that the loss does not take."""

    def note_on_labels(self, output: str, kind: TensorType) -> str:
        """What helps where labels have the wrong shape, '' where the shape says it all. `output` is what the loss
        reads, as a message calls it, `kind` its type."""
        return ""

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
class ClassLabels(Loss):
    """Output [N, C, ...] and labels i64 [N, ...]; a label equal to `ignore_index` counts for nothing."""

    weight_is_split: ClassVar[bool] = False
    ignore_index: int = IGNORED

    @property
    def ignored_label(self) -> int | None:
        return self.ignore_index

    def labels_type(self, output: TensorType) -> TensorType:
        if output.rank < 2:
            raise ReproError(
                "the loss needs a score for each class",
                found=f"an output {output}",
                expected="scores [N, C, ...]: samples, then classes",
                next="read another output (--loss-output), or have the model make one of that shape",
            )
        return TensorType(I64, (output.shape[0], *output.shape[2:]))

    def note_on_labels(self, output: str, kind: TensorType) -> str:
        """Which axis has the classes, and what to do if it is another: most models of sequences have them last."""
        if kind.rank < 3:
            return ""
        last = [0, kind.rank - 1, *range(1, kind.rank - 1)]
        return (
            f"the loss reads classes from axis 1 of scores [N, C, ...], so {output} has {kind.shape[1]} classes; "
            f"if they are its last axis ({kind.shape[-1]}), end the model with a Transpose of perm={last}"
        )

    def weight_type(self, output: TensorType) -> TensorType:
        return TensorType(output.dtype, output.shape[1:2])

    @property
    def formula(self) -> ClassLoss:
        return ClassLoss("sum", self.ignore_index)

    def count(self, y: Value, w: Value | None, dtype: DType) -> Value:
        return self.formula.count(y, w, dtype)


@dataclass(frozen=True)
class NegativeLogLikelihood(ClassLabels):
    """Of an output of logarithms of probabilities."""

    def total(self, x: Value, y: Value, w: Value | None) -> Total:
        return Total(self.formula.negative_log_likelihood(x, y, w).value)


@dataclass(frozen=True)
class SoftmaxCrossEntropy(ClassLabels):
    """Of an output of scores. `label_smoothing` e stands for (1 - e) of the label and e / C of every class.

    With `soft_labels` the labels are probabilities [N, C, ...] in the type of the output, and none is ignored.
    """

    label_smoothing: float = 0.0
    soft_labels: bool = False

    def __post_init__(self) -> None:
        check_range("label_smoothing", self.label_smoothing, 0.0, 1.0)
        if self.soft_labels and self.ignore_index != IGNORED:
            raise ReproError("option ignore_index has no meaning for soft labels", found=str(self.ignore_index))

    @property
    def ignored_label(self) -> int | None:
        return None if self.soft_labels else self.ignore_index

    def labels_type(self, output: TensorType) -> TensorType:
        labels = super().labels_type(output)
        return output if self.soft_labels else labels

    def total(self, x: Value, y: Value, w: Value | None) -> Total:
        if self.soft_labels:
            return Total(self._soft(x, y, w))
        total, logarithms = self.formula.softmax_cross_entropy(x, y, w).results
        if not self.label_smoothing:
            return Total(total)
        own, each = self._shares(x)
        losses = neg(reduce_axes("add", _of_classes(logarithms, w), (1,)))
        kept = compare("ne", y, fill(self.ignore_index, y.type))
        others = everything("add", select(kept, losses, fill(0, losses.type)))
        return Total(add(mul(scalar(own, x.dtype), total), mul(scalar(each, x.dtype), others)))

    def _soft(self, x: Value, y: Value, w: Value | None) -> Value:
        logarithms = composite("LogSoftmax", (x,), lambda x: log_softmax_of(x, (1,)), axes=(1,)).value
        if self.label_smoothing:
            own, each = self._shares(x)
            y = add(mul(y, fill(own, y.type)), fill(each, y.type))
        return neg(everything("add", _of_classes(mul(logarithms, y), w)))

    def _shares(self, x: Value) -> tuple[float, float]:
        """1 - e and e / C."""
        return 1 - self.label_smoothing, self.label_smoothing / max(x.shape[1], 1)

    def count(self, y: Value, w: Value | None, dtype: DType) -> Value:
        if self.soft_labels:
            return scalar(y.type.elements // max(y.shape[1], 1), dtype)
        return super().count(y, w, dtype)


def _of_classes(values: Value, w: Value | None) -> Value:
    """Values [N, C, ...] times the weight of their class."""
    return values if w is None else mul(values, broadcast(w, values.shape, (1,)))


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
    """Of x before the sigmoid that makes it a probability.

    `pos_weight` is what a positive label counts: one number, or one for each element of the output's last axis.
    """

    pos_weight: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        for weight in self.pos_weight:
            check_range("pos_weight", weight, 0.0)

    def labels_type(self, output: TensorType) -> TensorType:
        if len(self.pos_weight) > 1 and output.shape[-1:] != (len(self.pos_weight),):
            raise ReproError(
                "option pos_weight does not fit the output",
                found=f"{len(self.pos_weight)} numbers for {output}",
                expected="one number, or one for each element of its last axis",
            )
        return output

    def total(self, x: Value, y: Value, w: Value | None) -> Total:
        one = fill(1, x.type)
        small = elementwise("log1p", elementwise("exp", neg(elementwise("abs", x))))
        positive = add(small, maximum(neg(x), fill(0, x.type)))
        negative = mul(sub(one, y), x)
        if not self.pos_weight:
            return _with_gradient(add(negative, positive), x, w, lambda s: mul(s, sub(sigmoid_of(x), y)))
        p, above_one = (self._weights(x.type, shift) for shift in (0.0, 1.0))
        share = add(mul(y, above_one), one)

        def rule(s: Value) -> Value:
            return mul(s, sub(mul(share, sigmoid_of(x)), mul(y, p)))

        return _with_gradient(add(negative, mul(share, positive)), x, w, rule)

    def _weights(self, kind: TensorType, shift: float) -> Value:
        """pos_weight - shift for every element."""
        values = np.reshape(self.pos_weight, (-1,) if len(self.pos_weight) > 1 else ()) - shift
        return broadcast_to(constant(to_storage(values.astype(kind.dtype.face), kind.dtype), kind.dtype), kind.shape)


LOSSES: dict[str, type[Loss]] = {
    "softmax_cross_entropy": SoftmaxCrossEntropy,
    "nll": NegativeLogLikelihood,
    "mse": MeanSquaredError,
    "l1": MeanAbsoluteError,
    "bce": BinaryCrossEntropy,
    "bce_with_logits": BinaryCrossEntropyWithLogits,
}

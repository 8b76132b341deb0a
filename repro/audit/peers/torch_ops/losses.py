"""torch.nn.functional's losses, over a batch or its parts."""

# pyright: reportMissingImports=false, reportUntypedBaseClass=false, reportUnknownParameterType=false
# PyTorch is an extra, and may not be installed.

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor

from repro.audit.peers.peer import PeerError
from repro.audit.records import Outcome
from repro.train_step import TrainOptions
from repro.train_step.losses import (
    BinaryCrossEntropy,
    BinaryCrossEntropyWithLogits,
    ClassLabels,
    MeanAbsoluteError,
    MeanSquaredError,
    NegativeLogLikelihood,
    SoftmaxCrossEntropy,
)
from repro.train_step.problem import LABELS, WEIGHT


@dataclass(frozen=True)
class Part:
    """What one pass is given."""

    inputs: Mapping[str, Tensor]
    labels: Tensor
    weight: Tensor | None


@dataclass(frozen=True)
class Batch:
    """A batch and its parts: the runs of rows that pass one after another."""

    labels: Tensor
    weight: Tensor | None
    parts: tuple[Part, ...]

    @classmethod
    def of(cls, ports: Mapping[str, Tensor], options: TrainOptions) -> Batch:
        count = options.accumulation * options.shards
        labels, weight = ports[LABELS], ports[WEIGHT] if options.weighted else None
        whole = {name for name, tensor in ports.items() if not tensor.dim()}
        if not options.loss.weight_is_split:
            whole.add(WEIGHT)
        split = {
            name: [tensor] * count if name in whole else list(torch.chunk(tensor, count))
            for name, tensor in ports.items()
        }
        added = {LABELS} | ({WEIGHT} if weight is not None else set())
        parts = tuple(
            Part(
                {name: rows[number] for name, rows in split.items() if name not in added},
                split[LABELS][number],
                None if weight is None else split[WEIGHT][number],
            )
            for number in range(count)
        )
        return cls(labels, weight, parts)


def loss_of(output: Tensor, part: Part, batch: Batch, options: TrainOptions) -> Tensor:
    """The mean over a batch that is one part; a part's share of it otherwise: its sum by the whole batch's count."""
    if len(batch.parts) == 1:
        return _loss(output, part, options, "mean")
    return _loss(output, part, options, "sum") / _count(output, batch, options)


def _loss(x: Tensor, part: Part, options: TrainOptions, reduction: str) -> Tensor:
    y, w, loss = part.labels, part.weight, options.loss
    said: dict[str, Any] = {"weight": w, "reduction": reduction}
    match loss:
        case SoftmaxCrossEntropy():
            said |= {} if loss.soft_labels else {"ignore_index": loss.ignore_index}
            return F.cross_entropy(x, y, label_smoothing=loss.label_smoothing, **said)
        case NegativeLogLikelihood():
            return F.nll_loss(x, y, ignore_index=loss.ignore_index, **said)
        case MeanSquaredError():
            return F.mse_loss(x, y, **said)
        case MeanAbsoluteError():
            return F.l1_loss(x, y, **said)
        case BinaryCrossEntropy():
            return F.binary_cross_entropy(x, y, **said)
        case BinaryCrossEntropyWithLogits():
            positive = torch.tensor(loss.pos_weight, dtype=x.dtype) if loss.pos_weight else None
            return F.binary_cross_entropy_with_logits(x, y, pos_weight=positive, **said)
        case _:
            raise PeerError(Outcome.REFUSED, f"PyTorch has no loss {type(loss).__name__}")


def _count(x: Tensor, batch: Batch, options: TrainOptions) -> Tensor | float:
    """What the sum over a whole batch is divided by, as torch.nn.functional has it."""
    loss, y, w = options.loss, batch.labels, batch.weight
    if isinstance(loss, SoftmaxCrossEntropy) and loss.soft_labels:
        return y.numel() / y.shape[1]
    if isinstance(loss, ClassLabels):
        kept = y != loss.ignore_index
        return kept.sum() if w is None else w[y[kept]].sum()
    if w is not None and isinstance(loss, MeanSquaredError | MeanAbsoluteError):
        return w.sum()
    return float(y.numel())

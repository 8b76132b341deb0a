"""What PyTorch computes in float64: `python -m tests.train_step.record_torch` writes torch.npz beside this file.

Optimizers: five steps on given gradients. Losses: value and gradient at the output. Clipping: the clipped gradients.
Digits: the losses of a training run.
"""

# pyright: reportMissingImports=false, reportUntypedBaseClass=false
# PyTorch is an extra, and may not be installed.

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from repro.train_step.schedules import Schedule
from tests.train_step import digits

RECORD = Path(__file__).with_name("torch.npz")
SHAPES = ((3, 4), (5,))
STEPS = 5

OPTIMIZERS: dict[str, tuple[str, dict[str, Any], str, dict[str, Any]]] = {
    "sgd": ("sgd", {}, "SGD", {}),
    "sgd_decay": ("sgd", {"weight_decay": 0.1}, "SGD", {"weight_decay": 0.1}),
    "momentum": ("momentum", {}, "SGD", {"momentum": 0.9}),
    "momentum_dampened": (
        "momentum",
        {"momentum": 0.8, "dampening": 0.3, "weight_decay": 0.01},
        "SGD",
        {"momentum": 0.8, "dampening": 0.3, "weight_decay": 0.01},
    ),
    "nesterov": (
        "nesterov",
        {"momentum": 0.7, "weight_decay": 0.02},
        "SGD",
        {"momentum": 0.7, "weight_decay": 0.02, "nesterov": True},
    ),
    "adagrad": ("adagrad", {}, "Adagrad", {}),
    "adagrad_options": (
        "adagrad",
        {"lr_decay": 0.1, "initial_accumulator_value": 0.5, "weight_decay": 0.03, "epsilon": 1e-3},
        "Adagrad",
        {"lr_decay": 0.1, "initial_accumulator_value": 0.5, "weight_decay": 0.03, "eps": 1e-3},
    ),
    "rmsprop": ("rmsprop", {}, "RMSprop", {}),
    "rmsprop_options": (
        "rmsprop",
        {"alpha": 0.9, "momentum": 0.5, "centered": True, "weight_decay": 0.05, "epsilon": 1e-4},
        "RMSprop",
        {"alpha": 0.9, "momentum": 0.5, "centered": True, "weight_decay": 0.05, "eps": 1e-4},
    ),
    "adam": ("adam", {}, "Adam", {}),
    "adam_options": (
        "adam",
        {"beta1": 0.8, "beta2": 0.95, "epsilon": 1e-3, "weight_decay": 0.1, "amsgrad": True},
        "Adam",
        {"betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.1, "amsgrad": True},
    ),
    "adamw": ("adamw", {}, "AdamW", {}),
    "adamw_options": ("adamw", {"weight_decay": 0.3, "amsgrad": True}, "AdamW", {"weight_decay": 0.3, "amsgrad": True}),
}
"""Case -> our optimizer and options, PyTorch's class and options. The learning rate is PyTorch's default for all."""


@dataclass(frozen=True)
class LossCase:
    """A loss of ours with options, PyTorch's function with its own, and the output's shape."""

    loss: str
    function: str
    shape: tuple[int, ...]
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    theirs: dict[str, Any] = field(default_factory=dict[str, Any])


POSITIVE = (0.5, 1.0, 2.0, 3.5)
LOSSES: dict[str, LossCase] = {
    "softmax_cross_entropy": LossCase("softmax_cross_entropy", "cross_entropy", (6, 4)),
    "softmax_cross_entropy_planes": LossCase("softmax_cross_entropy", "cross_entropy", (3, 4, 2, 2)),
    "smoothed": LossCase(
        "softmax_cross_entropy", "cross_entropy", (6, 4), {"label_smoothing": 0.1}, {"label_smoothing": 0.1}
    ),
    "smoothed_planes": LossCase(
        "softmax_cross_entropy", "cross_entropy", (3, 4, 2, 2), {"label_smoothing": 0.3}, {"label_smoothing": 0.3}
    ),
    "soft": LossCase("softmax_cross_entropy", "cross_entropy", (6, 4), {"soft_labels": True}),
    "soft_smoothed_planes": LossCase(
        "softmax_cross_entropy",
        "cross_entropy",
        (3, 4, 2, 2),
        {"soft_labels": True, "label_smoothing": 0.2},
        {"label_smoothing": 0.2},
    ),
    "nll": LossCase("nll", "nll_loss", (6, 4)),
    "mse": LossCase("mse", "mse_loss", (6, 4)),
    "l1": LossCase("l1", "l1_loss", (6, 4)),
    "bce": LossCase("bce", "binary_cross_entropy", (6, 4)),
    "bce_with_logits": LossCase("bce_with_logits", "binary_cross_entropy_with_logits", (6, 4)),
    "bce_with_logits_positive": LossCase(
        "bce_with_logits",
        "binary_cross_entropy_with_logits",
        (6, 4),
        {"pos_weight": (2.5,)},
        {"pos_weight": np.array([2.5])},
    ),
    "bce_with_logits_positives": LossCase(
        "bce_with_logits",
        "binary_cross_entropy_with_logits",
        (6, 4),
        {"pos_weight": POSITIVE},
        {"pos_weight": np.array(POSITIVE)},
    ),
}

CLIPPING = {"below": 100.0, "above": 0.25}


def loss_operands(case: str, weighted: bool) -> dict[str, Any]:
    """Output, labels and weights of a case; they hold what the losses treat on its own."""
    loss, shape, options = LOSSES[case].loss, LOSSES[case].shape, LOSSES[case].options
    generator = np.random.default_rng([*case.encode(), weighted])
    x = generator.standard_normal(shape)
    if "soft_labels" in options:
        labels = generator.random(shape)
        labels /= labels.sum(axis=1, keepdims=True)
        return {"x": x, "labels": labels, "weight": generator.random(shape[1]) + 0.1}
    if loss in ("softmax_cross_entropy", "nll"):
        labels = generator.integers(0, shape[1], (shape[0], *shape[2:]))
        labels.reshape(-1)[1] = -100
        return {"x": x, "labels": labels, "weight": generator.random(shape[1]) + 0.1}
    labels = generator.random(shape)
    if loss == "bce":
        x = generator.random(shape)
        x[0], labels[0] = (0.0, 1.0, 0.0, 1.0), (0.0, 1.0, 1.0, 0.0)
    else:
        x[0, :2] = 0.0
        labels[0, :2] = (0.0, 1.0)
        x[1, :2] = (40.0, -40.0)
        x[1, 2] = labels[1, 2]
    return {"x": x, "labels": labels, "weight": generator.random(shape) + 0.1}


def optimizer_operands() -> tuple[list[Any], list[list[Any]]]:
    """The first values of the parameters, and gradients by step and parameter."""
    generator = np.random.default_rng(11)
    start = [generator.standard_normal(shape) for shape in SHAPES]
    slopes = [[generator.standard_normal(shape) for shape in SHAPES] for _ in range(STEPS)]
    slopes[0][1][0] = 0.0
    return start, slopes


def flat(arrays: Sequence[Any]) -> Any:
    """The arrays one behind another."""
    return np.concatenate([np.reshape(array, -1) for array in arrays])


def _optimizers(torch: Any) -> dict[str, Any]:
    start, slopes = optimizer_operands()
    found: dict[str, Any] = {}
    for case, (_, _, name, options) in OPTIMIZERS.items():
        values = [torch.tensor(value, requires_grad=True) for value in start]
        optimizer = getattr(torch.optim, name)(values, **options)
        rows: list[Any] = []
        for given in slopes:
            for value, slope in zip(values, given, strict=True):
                value.grad = torch.tensor(slope)
            optimizer.step()
            rows.append(flat([value.detach().numpy() for value in values]))
        found[f"optimizer/{case}"] = np.stack(rows)
        found[f"rate/{case}"] = np.float64(optimizer.param_groups[0]["lr"])
    return found


def _losses(torch: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for case, each in LOSSES.items():
        function: Callable[..., Any] = getattr(torch.nn.functional, each.function)
        for weighted in (False, True):
            given = loss_operands(case, weighted)
            x = torch.tensor(given["x"], requires_grad=True)
            extra = {name: torch.tensor(v) if isinstance(v, np.ndarray) else v for name, v in each.theirs.items()}
            extra |= {"weight": torch.tensor(given["weight"])} if weighted else {}
            loss = function(x, torch.tensor(given["labels"]), **extra)
            loss.backward()
            found[f"loss/{case}/{weighted}"] = flat([loss.detach().numpy(), x.grad.numpy()])
    return found


def _clipping(torch: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    _, slopes = optimizer_operands()
    for case, greatest in CLIPPING.items():
        values = [torch.zeros(shape, dtype=torch.float64, requires_grad=True) for shape in SHAPES]
        for value, slope in zip(values, slopes[0], strict=True):
            value.grad = torch.tensor(slope)
        torch.nn.utils.clip_grad_norm_(values, greatest)
        found[f"clip/{case}"] = flat([value.grad.numpy() for value in values])
    return found


def _digits(torch: Any) -> dict[str, Any]:
    """The losses of the MLP with all options: whole batches, AdamW, warm-up and cosine, clipping, frozen biases."""
    model = onnx.load(str(digits.GOLDEN / "digits_mlp" / "forward.onnx"))
    layers = {item.name: torch.tensor(numpy_helper.to_array(item).astype(float)) for item in model.graph.initializer}
    weights = [value.requires_grad_() for name, value in layers.items() if name.endswith("weight")]
    options = digits.EVERYTHING
    optimizer = torch.optim.AdamW(weights, lr=options.rate)
    rates = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: _factor(n, options.schedule))
    losses: list[float] = []
    for images, labels in digits.batches((digits.BATCH, 64)):
        x = torch.tensor(images.astype(float))
        for number in (1, 2, 3):
            x = torch.nn.functional.linear(x, layers[f"fc{number}.weight"], layers[f"fc{number}.bias"])
            x = x.relu() if number < 3 else x
        loss = torch.nn.functional.cross_entropy(x, torch.tensor(labels))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, options.clip_norm)
        optimizer.step()
        rates.step()
        losses.append(loss.item())
    return {"digits_mlp": np.array(losses)}


def _factor(n: int, schedule: Schedule) -> float:
    """A warm-up and half a wave of a cosine down to 0."""
    warm, total = schedule.warmup_steps, schedule.total_steps or 0
    if n < warm:
        return schedule.warmup_start + (1 - schedule.warmup_start) * n / warm
    return 0.5 * (1 + math.cos(math.pi * (n - warm) / (total - warm)))


def expected() -> dict[str, Any]:
    """All cases by the PyTorch that is installed."""
    import torch

    return {**_optimizers(torch), **_losses(torch), **_clipping(torch), **_digits(torch)}


if __name__ == "__main__":
    np.savez_compressed(RECORD, **expected())

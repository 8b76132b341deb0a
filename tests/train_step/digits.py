"""Training runs on the digits models: options, data."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from repro.frontend import import_model, load_model
from repro.ir.types import Array
from repro.train_step import TrainOptions, TrainStep, train_step
from repro.train_step.losses import SoftmaxCrossEntropy
from repro.train_step.optimizers import Adam, AdamW, Nesterov
from repro.train_step.schedules import Schedule

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
STEPS, BATCH = 20, 8
EVERYTHING = TrainOptions(
    SoftmaxCrossEntropy(),
    AdamW(),
    learning_rate=0.02,
    schedule=Schedule("cosine", total_steps=40, warmup_steps=3, warmup_start=0.1),
    clip_norm=1.0,
    accumulation=2,
    frozen=("fc*.bias",),
)
CASES = {
    "mlp": ("digits_mlp", TrainOptions(SoftmaxCrossEntropy(), Nesterov(), learning_rate=0.1)),
    "mlp, all options": ("digits_mlp", EVERYTHING),
    "cnn": ("digits_cnn", TrainOptions(SoftmaxCrossEntropy(), Adam(), learning_rate=0.02)),
    "cnn, all options": ("digits_cnn", EVERYTHING),
}


def step_of(model: str, options: TrainOptions) -> TrainStep:
    loaded = load_model(GOLDEN / model / "forward.onnx")
    return train_step(import_model(loaded, {"N": BATCH // options.accumulation}), options)


def batches(shape: tuple[int, ...]) -> list[list[Array]]:
    """Images and labels for each step: noisy images of ten kinds, the same four batches again and again."""
    generator = np.random.default_rng(5)
    prototypes = generator.random((10, *shape[1:]))
    made: list[list[Array]] = []
    for _ in range(4):
        labels = generator.integers(0, 10, BATCH)
        images = prototypes[labels] + 0.1 * generator.standard_normal(shape)
        made.append([images.astype(np.float32), labels])
    return [made[number % 4] for number in range(STEPS)]

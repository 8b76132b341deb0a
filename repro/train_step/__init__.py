"""A training step as one graph: loss, gradients, clipping, the optimizer's update, the schedule of its rate."""

from repro.train_step.assemble import TRAIN_STEP, TrainStep, gradients, read_for_training, train_step
from repro.train_step.problem import TrainOptions, label_notes
from repro.train_step.words import training_of, words_of

__all__ = [
    "TRAIN_STEP", "TrainOptions", "TrainStep", "gradients", "label_notes", "read_for_training", "train_step",
    "training_of", "words_of",
]  # fmt: skip

"""A training step as one graph: loss, gradients, clipping, the optimizer's update, the schedule of its rate."""

from repro.train_step.assemble import TrainStep, gradients, train_step
from repro.train_step.problem import TrainOptions
from repro.train_step.words import training_of, words_of

__all__ = ["TrainOptions", "TrainStep", "gradients", "train_step", "training_of", "words_of"]

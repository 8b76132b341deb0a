"""Metrics on validation data, with the weights of the moment.

Of a build with a loss: the entry `infer`, and the build's own formula, evaluated by the reference: total and count of
each batch, summed in f64 in the order of the data, then divided. Batches are those of `infer`; what fills up the last
one is cut off again before anything is measured. Accuracy, for integer labels: how often the largest score along axis 1
is the label's.

Of a model that brings its step: the loss that the model itself computes, over whole batches alone, averaged in f64.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Protocol

import numpy as np

from repro.artifact.config import Entry, Value
from repro.artifact.loaded import LoadedArtifact
from repro.artifact.sessions import Session
from repro.errors import ReproError
from repro.ir.graph import Graph, argument
from repro.ir.types import Array, TensorType, parse_type, to_storage
from repro.ops import convert_to
from repro.ops.record import evaluate
from repro.train_step.assemble import TRAIN_STEP
from repro.train_step.problem import LABELS, WEIGHT, TrainOptions, computing
from repro.training.data import Arrays, Dataset, fit, in_pieces

INFER = "infer"


def ignored_label(options: TrainOptions | None) -> int | None:
    """The label that counts for nothing in the loss, where there is one."""
    return options.loss.ignored_label if options else None


class Evaluator(Protocol):
    """Holds sessions of an artifact; `measure` gives the metrics for a state: `loss`, `samples`, maybe `accuracy`."""

    def measure(self, state: Mapping[str, Array]) -> dict[str, float | int]: ...

    def close(self) -> None: ...


def open_evaluator(artifact: LoadedArtifact, arrays: Arrays, target: str, threads: int | None) -> Evaluator:
    """What measures an artifact on arrays by the names of its inputs. Raises ReproError where they do not fit."""
    options = artifact.training
    if options is None:
        return OwnLoss(artifact, arrays, target, threads)
    return BuiltLoss(artifact, options, arrays, target, threads)


class BuiltLoss:
    """The loss that the build was given."""

    def __init__(
        self, artifact: LoadedArtifact, options: TrainOptions, arrays: Arrays, target: str, threads: int | None
    ) -> None:
        self._options = options
        entry = artifact.entries[INFER]
        self._output = _scored(artifact, options)
        kind = parse_type(self._output.type)
        labels = options.loss.labels_type(TensorType(computing(kind.dtype), kind.shape))
        values = [*entry.inputs, Value(LABELS, str(labels))]
        if options.weighted:
            values.append(Value(WEIGHT, str(options.loss.weight_type(kind))))
        self._data = fit(arrays, values, ignored_label(options), "validation data", artifact.label_notes)
        check_labels(artifact, self._data, "validation data")
        self._session: Session = artifact.session(INFER, target, threads)
        self._weights = [artifact.config.weights[position].name for position in entry.weights]

    def close(self) -> None:
        self._session.close()

    def measure(self, state: Mapping[str, Array]) -> dict[str, float | int]:
        self._session.state = {name: state[name] for name in self._weights if name in state}
        total, count, right, labelled = 0.0, 0.0, 0, 0
        for start in range(0, self._data.samples, self._data.batch):
            rows = np.arange(start, min(start + self._data.batch, self._data.samples))
            output, labels, weight = self._batch(rows)
            loss, number = self._loss(output, labels, weight)
            total, count = total + loss, count + number
            if labels.dtype.kind in "iu":
                counted = labels != ignored_label(self._options)
                right += int(np.sum((np.argmax(output.astype(np.float64), axis=1) == labels) & counted))
                labelled += int(np.sum(counted))
        found: dict[str, float | int] = {
            "loss": total / count if count else float("nan"),
            "samples": self._data.samples,
        }
        return {**found, "accuracy": right / labelled} if labelled else found

    def _batch(self, rows: Array) -> tuple[Array, Array, Array | None]:
        """Output, labels and weights of some samples."""
        own = self._data.rows(rows)
        whole = self._data.padded(rows, np.arange(self._data.samples))
        outputs = self._session.run({value.name: whole[value.name] for value in self._session.entry.inputs})
        labels = own[LABELS]  # as many rows as the output has, of a whole batch
        return outputs[self._output.name][: len(labels)], labels, own.get(WEIGHT)

    def _loss(self, output: Array, labels: Array, weight: Array | None) -> tuple[float, float]:
        declared = parse_type(self._output.type)
        graph = _loss_graph(self._options, TensorType(declared.dtype, output.shape))
        arguments = [output, labels, *([] if weight is None else [weight])]
        stored = [to_storage(a, kind.dtype) for a, kind in zip(arguments, graph.arguments, strict=True)]
        total, count = evaluate(graph, stored)
        return float(total), float(count)


def _scored(artifact: LoadedArtifact, options: TrainOptions) -> Value:
    """The output of `infer` that the build's loss reads."""
    outputs = artifact.entries[INFER].outputs
    chosen = options.loss_output or outputs[0].name
    return next(value for value in outputs if value.name == chosen)


def check_labels(artifact: LoadedArtifact, data: Dataset, what: str) -> None:
    """That labels of a build's loss are numbers of classes, or the one that is not counted: a row of another would have
    no loss. Raises ReproError."""
    options, labels = artifact.training, (data.sampled | data.fixed).get(LABELS)
    if options is None or labels is None or labels.dtype.kind not in "iu":
        return
    shape = parse_type(_scored(artifact, options).type).shape
    classes, ignored = shape[1] if len(shape) > 1 else 0, ignored_label(options)
    before = 0
    for piece in in_pieces(labels):
        wrong = ((piece < 0) | (piece >= classes)) & (piece != ignored)
        if wrong.any():
            place = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
            raise ReproError(
                f"a label of the {what} is no class",
                found=f"{piece[place]} of sample {before + int(place[0])}",
                expected=f"0 to {classes - 1}" + ("" if ignored is None else f", or {ignored}, which is not counted"),
                next="check the labels",
            )
        before += len(piece)


@cache
def _loss_graph(options: TrainOptions, output: TensorType) -> Graph:
    """Total and count from output, labels and, where the loss is weighted, weights."""
    wide = TensorType(computing(output.dtype), output.shape)
    kinds = [output, options.loss.labels_type(wide)]
    if options.weighted:
        kinds.append(options.loss.weight_type(wide))
    values = [argument(index, kind) for index, kind in enumerate(kinds)]
    x = convert_to(values[0], wide.dtype)
    w = values[2] if options.weighted else None
    return Graph(tuple(kinds), (options.loss.total(x, values[1], w).value, options.loss.count(values[1], w, x.dtype)))


# ── a model that brings its step ────────────────────────────────────────────────────────────────────


class OwnLoss:
    """The loss that a model itself computes.

    Where `infer` takes all that the step takes, and has one output that is a float scalar, that is its loss (ONNX
    Runtime's eval_model). Elsewhere the step is run, and what it makes of the state is dropped: dropout drops then,
    and normalizations normalize by the batch.
    """

    def __init__(self, artifact: LoadedArtifact, arrays: Arrays, target: str, threads: int | None) -> None:
        step, infer = artifact.entries[TRAIN_STEP], artifact.entries[INFER]
        own = _scalars(infer.outputs)
        evaluated = len(infer.inputs) == len(step.inputs) and len(own) == 1
        self._loss = own[0].name if evaluated else loss_of(step).name
        self._data = fit(arrays, step.inputs, None, "validation data")
        if self._data.samples < self._data.batch:
            found, expected = f"{self._data.samples} samples", f"at least {self._data.batch}, a whole batch"
            raise ReproError("there is no whole batch of validation data", found=found, expected=expected)
        self._scores, self._labels = _classes(infer.outputs, step.inputs)
        wanted = {INFER} if evaluated else {TRAIN_STEP, INFER} if self._scores else {TRAIN_STEP}
        self._sessions = {name: artifact.session(name, target, threads) for name in sorted(wanted)}

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()

    def measure(self, state: Mapping[str, Array]) -> dict[str, float | int]:
        """Over whole batches in the order of the data. `accuracy` counts the labels that are classes."""
        batch, losses = self._data.batch, list[float]()
        right, labelled = 0, 0
        self._set(INFER, state)
        for start in range(0, self._data.samples - batch + 1, batch):
            inputs = self._data.rows(np.arange(start, start + batch))
            self._set(TRAIN_STEP, state)  # each batch from the same
            outputs = self._outputs(inputs)
            losses.append(float(outputs[self._loss].reshape(())))
            if self._scores:
                scores, labels = outputs[self._scores], inputs[self._labels]
                counted = (labels >= 0) & (labels < scores.shape[1])
                right += int(np.sum((np.argmax(scores.astype(np.float64), axis=1) == labels) & counted))
                labelled += int(np.sum(counted))
        found: dict[str, float | int] = {"loss": sum(losses) / len(losses), "samples": len(losses) * batch}
        return {**found, "accuracy": right / labelled} if labelled else found

    def _set(self, entry: str, state: Mapping[str, Array]) -> None:
        if entry in self._sessions:
            session = self._sessions[entry]
            session.state = {name: state[name] for name in session.state_views() if name in state}

    def _outputs(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Those of `infer`, and then those of the step."""
        made: dict[str, Array] = {}
        for session in self._sessions.values():
            made |= session.run({value.name: inputs[value.name] for value in session.entry.inputs})
        return made


def loss_of(step: Entry) -> Value:
    """The first output of a training step. Raises ReproError where that is no float scalar."""
    if not _scalars(step.outputs[:1]):
        raise ReproError(
            "the training step has no loss",
            found=", ".join(f"{value.name} {value.type}" for value in step.outputs) or "no outputs",
            expected="a float scalar as its first output",
        )
    return step.outputs[0]


def _scalars(values: Sequence[Value]) -> list[Value]:
    """The floats of one element."""
    kinds = [parse_type(value.type) for value in values]
    return [value for value, kind in zip(values, kinds, strict=True) if kind.dtype.is_float and kind.elements == 1]


def _classes(outputs: Sequence[Value], inputs: Sequence[Value]) -> tuple[str, str]:
    """The output that scores classes, [N, C, ...], and the integer input that labels them, [N, ...].

    Empty names where there is no such pair, or more than one.
    """
    pairs: list[tuple[str, str]] = []
    for output in outputs:
        kind = parse_type(output.type)
        for label in inputs:
            own = parse_type(label.type)
            fits = own.shape == (*kind.shape[:1], *kind.shape[2:]) and own.dtype.is_integer
            if kind.rank > 1 and kind.dtype.is_float and fits:
                pairs.append((output.name, label.name))
    return pairs[0] if len(pairs) == 1 else ("", "")

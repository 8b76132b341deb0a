"""Metrics on validation data: the entry `infer` with the weights of the moment, and the loss of the build.

The loss is the build's own formula, evaluated by the reference: total and count of each batch, summed in f64 in the
order of the data, then divided. Accuracy, for integer labels: how often the largest score along axis 1 is the label's.
Batches are those of `infer`; what fills up the last one is cut off again before anything is measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np

from repro.artifact.config import Value
from repro.artifact.loaded import LoadedArtifact
from repro.artifact.sessions import Session
from repro.errors import ReproError
from repro.ir.graph import Graph, argument
from repro.ir.types import Array, TensorType, parse_type, to_storage
from repro.ops import convert_to
from repro.ops.record import evaluate
from repro.train_step.problem import LABELS, WEIGHT, TrainOptions, computing
from repro.training.data import Arrays, fit

INFER = "infer"


def ignored_label(options: TrainOptions | None) -> int | None:
    """The label that counts for nothing in the loss, where there is one."""
    return options.loss.ignored_label if options else None


class Evaluator:
    """Holds a session of `infer`; `measure` gives the metrics for a state."""

    def __init__(self, artifact: LoadedArtifact, arrays: Arrays, target: str, threads: int | None) -> None:
        options = artifact.training
        if options is None:
            raise ReproError("validation needs the loss of the build", next="build with --loss")
        self._options = options
        entry = artifact.entries[INFER]
        chosen = options.loss_output or entry.outputs[0].name
        self._output = next(value for value in entry.outputs if value.name == chosen)
        kind = parse_type(self._output.type)
        labels = options.loss.labels_type(TensorType(computing(kind.dtype), kind.shape))
        values = [*entry.inputs, Value(LABELS, str(labels))]
        if options.weighted:
            values.append(Value(WEIGHT, str(options.loss.weight_type(kind))))
        self._data = fit(arrays, values, ignored_label(options), "validation data")
        self._session: Session = artifact.session(INFER, target, threads)
        self._weights = [artifact.config.weights[position].name for position in entry.weights]

    def close(self) -> None:
        self._session.close()

    def measure(self, state: Mapping[str, Array]) -> dict[str, float | int]:
        """`loss`, `samples` and, for classes, `accuracy`."""
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

"""A training model and an optimizer model of ONNX Runtime as the algorithm of a TrainingInfoProto.

State keeps the names that it has there: `<parameter>_grad.accumulation.buffer`, `lazy_reset_grad`, `learning_rate`,
`step`, `<parameter>.momentum0` and `.momentum1`. `step` counts finished steps; the optimizer is given the number of its
own, from 1. `lazy_reset_grad` starts as true and stays as it is: a buffer is overwritten in each step, as by the usual
loop; where it is set to false, gradients add up over the steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from repro.errors import ReproError
from repro.frontend.families.ort_common import POOLED_EXTENTS
from repro.frontend.limits import MAX_MODEL_BYTES
from repro.frontend.ort_checkpoint import SavedState
from repro.ir.types import Array

LEARNING_RATE, STEP, LOSS = "learning_rate", "step", "loss"
INITIAL_RATE = 1e-3
"""Where ONNX Runtime's optimizer starts when nothing is said."""

MOMENTS = {"first_order_moments": "momentum0", "second_order_moments": "momentum1"}
"""Inputs of an optimizer model, and the names of the state behind them."""

_MICROSOFT = "com.microsoft"
_OPTIMIZERS = {"AdamWOptimizer": ("params", *MOMENTS), "SGDOptimizerV2": ("params",)}
"""The operators, and the inputs of which their outputs behind the first are the next values."""


def algorithm_of(
    training: onnx.GraphProto, optimizer: onnx.GraphProto, graph: onnx.GraphProto, saved: SavedState
) -> onnx.TrainingInfoProto:
    """The algorithm beside a model's `graph`, which has the parameters as initializers. Raises ReproError."""
    made = _Algorithm(graph, saved)
    loss = made.differentiated(training)
    made.optimized(optimizer)
    return made.info(loss)


class _Algorithm:
    """The algorithm in the making."""

    def __init__(self, graph: onnx.GraphProto, saved: SavedState) -> None:
        self.saved = saved
        self.graph = onnx.GraphProto(name="algorithm")
        self.bytes = 0
        self.updates: dict[str, str] = {}
        self.gradients: dict[str, str] = {}
        """By parameter: the value of its buffer after the pass."""
        self.inputs = {item.name for item in graph.input}
        self.parameters = {item.name for item in graph.initializer}
        self.taken = {name for node in graph.node for name in node.output} | self.inputs | self.parameters

    def info(self, loss: str) -> onnx.TrainingInfoProto:
        made = onnx.TrainingInfoProto(algorithm=self.graph)
        made.algorithm.output.extend(onnx.ValueInfoProto(name=name) for name in (loss, *self.updates.values()))
        for key, value in self.updates.items():
            made.update_binding.add(key=key, value=value)
        return made

    # ── parts ───────────────────────────────────────────────────────────────────────────────────────

    def fresh(self, name: str) -> str:
        """The name, or one made of it where it is in use."""
        while name in self.taken:
            name = f"{name}.train"
        self.taken.add(name)
        return name

    def node(self, op: str, inputs: Sequence[str], name: str) -> str:
        """The result of a new node."""
        made = self.fresh(name)
        self.graph.node.append(helper.make_node(op, list(inputs), [made], name=made))
        return made

    def constant(self, name: str, value: onnx.TensorProto) -> str:
        """A tensor that stays: of the initializers only those of the checkpoint are parameters."""
        made = self.fresh(name)
        self.graph.node.append(helper.make_node("Constant", [], [made], name=made, value=value))
        return made

    def number(self, name: str, value: Array) -> str:
        return self.constant(name, numpy_helper.from_array(value))

    def state(self, name: str, start: Array) -> str:
        """A state tensor; bind its next value."""
        if name in self.taken:
            raise _unlike("a state tensor has a name that is in use", {name})
        self.bytes += start.nbytes
        if self.bytes > MAX_MODEL_BYTES:
            raise ReproError(
                "gradient buffers and optimizer state are over the size limit of a model",
                found=f"{self.bytes} bytes up to '{name}'",
                expected=f"at most {MAX_MODEL_BYTES} bytes",
                next="build the forward model with --loss and --optimizer: its state is no part of a model file",
            )
        self.taken.add(name)
        self.graph.initializer.append(numpy_helper.from_array(start, name))
        return name

    def copied(self, graph: onnx.GraphProto, known: dict[str, str]) -> list[onnx.NodeProto]:
        """The nodes and initializers of a graph under names of their own, which `known` is told; the new nodes."""
        for tensor in graph.initializer:
            known[tensor.name] = self.constant(tensor.name, tensor)
        for node in graph.node:
            if any(item.type in (item.GRAPH, item.GRAPHS) for item in node.attribute):
                raise _unlike("control flow in training artifacts is not supported", {node.name or node.op_type})
            known.update({name: self.fresh(name) for name in node.output if name})
        found: list[onnx.NodeProto] = []
        for node in graph.node:
            unknown = {name for name in node.input if name and name not in known}
            if unknown:
                raise _unlike("a training artifact reads what nothing gives it", unknown)
            found.append(self.graph.node.add())
            found[-1].CopyFrom(node)
            found[-1].input[:] = [known.get(name, "") for name in node.input]
            found[-1].output[:] = [known.get(name, "") for name in node.output]
            if node.op_type in ("MaxPoolGrad", "AveragePoolGrad"):
                _note_extents(found[-1], node.output[0], graph)
        return found

    # ── the pass ────────────────────────────────────────────────────────────────────────────────────

    def differentiated(self, training: onnx.GraphProto) -> str:
        """Adds the forward and backward pass; its loss."""
        known = self._pass_inputs(training)
        for node in self.copied(training, known):
            if node.domain == _MICROSOFT and node.op_type == "InPlaceAccumulatorV2":
                kept = self.fresh(f"{node.input[0]}.next")
                node.output[:] = [*node.output[:1], kept]
                self.bind(node.input[0], kept)
            if node.domain == _MICROSOFT and node.op_type == "BatchNormInternal":
                for key, value in zip(node.input[3:5], node.output[1:3], strict=True):
                    if key in self.parameters and value:
                        self.bind(key, value)
        self.gradients = {
            tensor.name: self.updates[_buffer(tensor.name)]
            for tensor in self.saved.trained
            if _buffer(tensor.name) in self.updates
        }
        lost = {tensor.name for tensor in self.saved.trained}.difference(self.gradients)
        if lost or not training.output:
            raise _unlike("parameters have no gradient in the training model", lost or {"no outputs"})
        return self.node("Identity", [known[training.output[0].name]], LOSS)

    def _pass_inputs(self, training: onnx.GraphProto) -> dict[str, str]:
        """What the training model's inputs stand for: those of the model, parameters, buffers and the flag."""
        buffers = {_buffer(tensor.name): tensor for tensor in self.saved.trained}
        flags = {node.input[2] for node in training.node if node.op_type == "InPlaceAccumulatorV2" and node.input[2:]}
        known: dict[str, str] = {}
        for item in training.input:
            name = known[item.name] = item.name
            if name in self.inputs or name in self.parameters:
                continue
            if name in buffers:
                self.state(name, _zeros(buffers[name].array))
            elif name in flags:
                self.state(name, np.ones(1, np.bool_))
                self.bind(name, self.node("Identity", [name], f"{name}.next"))
            else:
                raise _unlike("the training model has an input that eval_model has not", {name})
        return known

    def bind(self, key: str, value: str) -> None:
        if key in self.updates:
            raise _unlike("two nodes update one tensor", {key})
        self.updates[key] = value

    # ── the optimizer ───────────────────────────────────────────────────────────────────────────────

    def optimized(self, optimizer: onnx.GraphProto) -> None:
        """Adds the optimizer, and binds what it changes."""
        known = {item.name: self._optimizer_input(item.name) for item in optimizer.input}
        nodes = self.copied(optimizer, known)
        last = [node for node in nodes if node.domain == _MICROSOFT and node.op_type in _OPTIMIZERS]
        if len(last) != 1:
            found = {node.op_type for node in nodes} or {"no node"}
            raise _unlike(f"the optimizer model is not one of {', '.join(_OPTIMIZERS)}", found)
        changed = _OPTIMIZERS[last[0].op_type]
        last[0].output[:] = [*last[0].output[:1], *(self.fresh(f"{name}.next") for name in changed)]
        for place, names in enumerate(zip(*(self._tensors(name) for name in changed), strict=True)):
            at = self.number(f"{names[0]}.place", np.asarray(place, np.int64))
            for name, sequence in zip(names, last[0].output[1:], strict=True):
                self.bind(name, self.node("SequenceAt", [sequence, at], f"{name}.next"))

    def _tensors(self, name: str) -> list[str]:
        """The tensors of a sequence that the optimizer is given."""
        if name == "gradients":
            return list(self.gradients.values())
        return [each if name == "params" else f"{each}.{MOMENTS[name]}" for each in self.gradients]

    def _optimizer_input(self, name: str) -> str:
        """What an input of the optimizer model stands for."""
        group = self.saved.group
        if name == LEARNING_RATE:
            start = np.float32(INITIAL_RATE if group is None else group.learning_rate)
            return self.state(LEARNING_RATE, np.full(1, start, np.float32))
        if name == STEP:
            self.state(STEP, np.full(1, 0 if group is None else group.step, np.int64))
            one = self.number(f"{STEP}.one", np.ones(1, np.int64))
            self.bind(STEP, self.node("Add", [STEP, one], f"{STEP}.next"))
            return self.updates[STEP]
        if name in MOMENTS:
            self._moments(name)
        elif name not in ("params", "gradients"):
            raise _unlike("the optimizer model has an input that is not known", {name})
        return self.node("SequenceConstruct", self._tensors(name), name)

    def _moments(self, name: str) -> None:
        """The state behind a sequence of moments: as saved, or zeros."""
        moments = {} if self.saved.group is None else self.saved.group.moments
        for tensor in self.saved.trained:
            start = _zeros(tensor.array)
            saved = {each.name: each.array for each in moments.get(tensor.name, ())}
            if saved:
                found = saved.get(MOMENTS[name])
                if found is None or found.shape != start.shape or found.dtype != start.dtype:
                    raise _unlike("the saved moments do not fit their parameter", {tensor.name})
                start = found
            self.state(f"{tensor.name}.{MOMENTS[name]}", start)


def _note_extents(node: onnx.NodeProto, output: str, graph: onnx.GraphProto) -> None:
    """Says on the node what only the graph's notes on its values say: the spatial extents of what was pooled."""
    for item in graph.value_info:
        extents = [int(dim.dim_value) for dim in item.type.tensor_type.shape.dim[2:]]
        if item.name == output and extents and all(extents):
            node.attribute.append(helper.make_attribute(POOLED_EXTENTS, extents))


def _zeros(like: Array) -> Array:
    """Unlike np.zeros_like, this takes no memory before it is read."""
    return np.zeros(like.shape, like.dtype)


def _buffer(parameter: str) -> str:
    return f"{parameter}_grad.accumulation.buffer"


def _unlike(what: str, names: Iterable[str]) -> ReproError:
    return ReproError(what, found=", ".join(sorted(names)), expected="training artifacts as ONNX Runtime writes them")

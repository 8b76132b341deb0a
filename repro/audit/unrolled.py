"""N training steps as a model: one node for loss and gradients, one for each parameter's update, again and again.

So a training run is audited by what audits models: its values have names, each is made by a node from others, steps can
be opened and severed. The nodes are of a domain of their own, which only training peers know.

    LossAndGradients   the step's inputs, the model's parameters -> loss, gradients, moved running statistics
    ClipByNorm         all gradients -> the same, scaled (only with clip_norm)
    Update             parameter, gradient, its optimizer's tensors -> the next values of parameter and tensors
    Step               a whole step of a model that brings its own: inputs, the model, state -> outputs, state

Values are named `step 3/input name`, `step 3/loss`, `step 3/grad/parameter`, `step 3/state/tensor`; the state before
the first step are initializers under the tensors' own names.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, helper

from repro.artifact.canonical import decode, encode
from repro.audit.flat import tensor, tensor_type
from repro.errors import ReproError
from repro.frontend import EntryGraph, Imported, import_model, load_model
from repro.frontend.tensors import read_array
from repro.frontend.training_info import training_step
from repro.ir.graph import Graph, argument
from repro.ir.types import I64, U8, Array, TensorType
from repro.ops.record import evaluate
from repro.train_step import TrainOptions, TrainStep, gradients, read_for_training, train_step, training_of, words_of

DOMAIN = "ai.repro.training"
GRADIENTS, CLIP, UPDATE, STEP = "LossAndGradients", "ClipByNorm", "Update", "Step"
MODEL = "training model"
"""The initializer that holds a model that brings its own step."""
LOSS = "loss"


def at(step: int, what: str) -> str:
    """The name of a step's value."""
    return f"step {step}/{what}"


def state_at(step: int, name: str) -> str:
    """A state tensor after a step; before the first, its own name."""
    return at(step, f"state/{name}") if step else name


def gradient_at(step: int, name: str) -> str:
    return at(step, f"grad/{name}")


@dataclass(frozen=True)
class Trained:
    """A parameter that steps update, and its optimizer's tensors by the end of their names."""

    name: str
    tensors: Mapping[str, str]


@dataclass
class Unrolled:
    """The model in the making."""

    nodes: list[NodeProto] = field(default_factory=list[NodeProto])
    types: dict[str, TensorType] = field(default_factory=dict[str, TensorType])
    """Of every value that a node makes."""
    inputs: dict[str, TensorType] = field(default_factory=dict[str, TensorType])
    initial: dict[str, tuple[TensorType, Array]] = field(default_factory=dict[str, tuple[TensorType, Array]])
    """Types and storage arrays of initializers."""
    hidden: set[str] = field(default_factory=set[str])
    """Values that repro's own entries do not show."""

    def add(self, op: str, name: str, inputs: Sequence[str], outputs: Mapping[str, TensorType], **said: Any) -> None:
        attributes = {key: value for key, value in said.items() if value not in ((), [], None)}
        self.nodes.append(helper.make_node(op, inputs, list(outputs), name, domain=DOMAIN, **attributes))
        self.types.update(outputs)

    def model(self, outputs: Sequence[str], opsets: Mapping[str, int]) -> ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "training",
            [tensor_type(name, kind) for name, kind in self.inputs.items()],
            [tensor_type(name, self.types[name]) for name in outputs],
            [tensor(name, array, kind.dtype) for name, (kind, array) in self.initial.items()],
            value_info=[tensor_type(name, kind) for name, kind in self.types.items() if name not in outputs],
        )
        imports = [helper.make_opsetid(domain, version) for domain, version in {**opsets, DOMAIN: 1}.items()]
        return helper.make_model(graph, opset_imports=imports, ir_version=10, producer_name="repro")


# ── a forward model with a loss and an optimizer ────────────────────────────────────────────────────


def unroll(proto: ModelProto, options: TrainOptions, steps: int) -> tuple[Unrolled, ModelProto, TrainStep]:
    """Steps of a prepared forward model. Raises ReproError where model and options do not fit."""
    imported = _read(proto, options)
    made = _Forward(proto, imported, train_step(imported, options), options)
    for number in range(1, steps + 1):
        made.add_gradients(number)
        made.add_updates(number, made.add_clipping(number))
    outputs = [at(number, LOSS) for number in range(1, steps + 1)]
    outputs += [state_at(steps, name) for name in made.changed if state_at(steps, name) in made.whole.types]
    return made.whole, made.whole.model(outputs, imported.opsets), made.step


def _read(proto: ModelProto, options: TrainOptions) -> Imported:
    return read_for_training(lambda changing: import_model(load_model(proto), changing=changing), options)


class _Forward:
    """The nodes of the steps of one forward model."""

    def __init__(self, proto: ModelProto, imported: Imported, step: TrainStep, options: TrainOptions) -> None:
        self.step = step
        self.words = _split(options)
        self.ports = [port.name for port in step.inputs]
        self.parameters = [slot.name for slot in imported.parameters]
        self.changed = [step.state[slot].name for slot, _ in step.updates]
        self.trained = trained_of(imported, step, options)
        names = {each.name for each in self.trained}
        self.statistics = [name for name in self.parameters if name in self.changed and name not in names]
        self.types = {slot.name: slot.type for slot in step.state}
        self.forward = forward_of(proto, self.parameters)
        kept = {*self.parameters, *(name for each in self.trained for name in each.tensors.values())}
        self.whole = Unrolled(
            initial={slot.name: (slot.type, slot.initial) for slot in step.state if slot.name in kept}
        )

    def add_gradients(self, number: int) -> None:
        self.whole.inputs |= {at(number, port.name): port.type for port in self.step.inputs}
        ports = [at(number, name) for name in self.ports]
        current = [state_at(number - 1 if name in self.changed else 0, name) for name in self.parameters]
        outputs = {at(number, LOSS): self.step.outputs[0].type}
        outputs |= {gradient_at(number, each.name): self.types[each.name] for each in self.trained}
        outputs |= {state_at(number, name): self.types[name] for name in self.statistics}
        self.whole.add(
            GRADIENTS,
            f"step {number} loss and gradients",
            [*ports, *current],
            outputs,
            forward=self.forward,
            ports=self.ports,
            trained=[each.name for each in self.trained],
            statistics=self.statistics,
            random=list(self.step.random_nodes),
            words=self.words[GRADIENTS],
        )

    def add_clipping(self, number: int) -> list[str]:
        """The names of the gradients that the optimizer is given."""
        slopes = [gradient_at(number, each.name) for each in self.trained]
        if not self.words[CLIP]:
            return slopes
        clipped = [at(number, f"clipped/{each.name}") for each in self.trained]
        kinds = {name: self.types[each.name] for name, each in zip(clipped, self.trained, strict=True)}
        self.whole.add(CLIP, f"step {number} clip", slopes, kinds, words=self.words[CLIP])
        self.whole.hidden.update(clipped)
        return clipped

    def add_updates(self, number: int, slopes: Sequence[str]) -> None:
        for each, slope in zip(self.trained, slopes, strict=True):
            own = list(each.tensors.values())
            self.whole.add(
                UPDATE,
                f"step {number} update {each.name}",
                [state_at(number - 1, each.name), slope, *(state_at(number - 1, name) for name in own)],
                {state_at(number, name): self.types[name] for name in (each.name, *own)},
                step=number,
                tensors=list(each.tensors),
                words=self.words[UPDATE],
            )


def _split(options: TrainOptions) -> dict[str, str]:
    """The options as words, by the kind of node that they decide on."""
    words = words_of(options)
    fields = {"loss", "loss_output", "weighted", "accumulation", "shards", "frozen", "trainable"}
    fields |= {each.name for each in dataclasses.fields(options.loss)}
    clipping = {name: word for name, word in words.items() if name == "clip_norm"}
    return {
        GRADIENTS: text({name: word for name, word in words.items() if name in fields}),
        CLIP: text(clipping) if clipping else "",
        UPDATE: text({name: word for name, word in words.items() if name not in fields and name not in clipping}),
    }


def text(words: Mapping[str, str]) -> str:
    """Words as an attribute states them; `words_in` is the inverse."""
    return encode(dict(words)).decode()


def words_in(node: NodeProto) -> dict[str, str]:
    """The words of the training options that a node states."""
    return decode(next(item.s for item in node.attribute if item.name == "words"), "a training node")


def step_in(node: NodeProto) -> int:
    """The number of an update's step; the first is 1."""
    return next(item.i for item in node.attribute if item.name == "step")


def update_options(node: NodeProto) -> TrainOptions:
    """The options that an update states: optimizer and schedule. The loss is any."""
    return training_of({"loss": "mse", **words_in(node)})


def scheduled_rate(options: TrainOptions, step: int) -> float:
    """The learning rate of a step (the first is 1), by the build's own formula: a closed form in f64."""
    graph = Graph((TensorType(I64, ()),), (options.schedule.factor(argument(0, TensorType(I64, ()))),))
    (factor,) = evaluate(graph, [np.array(step - 1, np.int64)])
    return options.rate * float(factor)


def names_in(node: NodeProto, attribute: str) -> list[str]:
    """An attribute that is a list of names; an absent one is empty."""
    return [each.decode() for item in node.attribute if item.name == attribute for each in item.strings]


def trained_of(imported: Imported, step: TrainStep, options: TrainOptions) -> tuple[Trained, ...]:
    """The parameters that a gradient reaches, in slot order, each with its optimizer's tensors, which follow the
    learning rate and the step counter in the state."""
    count = len(imported.parameters)
    suffixes = [slot.suffix for slot in options.optimizer.slots]
    rest = iter(step.state[count + 2 :])
    reached = [slot.name for slot in step.state[:count] if slot.trainable]
    return tuple(Trained(name, {suffix: next(rest).name for suffix in suffixes}) for name in reached)


def forward_of(proto: ModelProto, parameters: Sequence[str]) -> GraphProto:
    """The model's graph, its parameters made inputs, behind its own and in the order given."""
    graph = GraphProto()
    graph.CopyFrom(proto.graph)
    kept = [item for item in graph.initializer if item.name not in parameters]
    initial = {item.name: item for item in proto.graph.initializer}
    del graph.initializer[:], graph.input[:]
    graph.initializer.extend(kept)
    graph.input.extend(item for item in proto.graph.input if item.name not in initial)
    moved = (initial[name] for name in parameters)
    graph.input.extend(helper.make_tensor_value_info(item.name, item.data_type, list(item.dims)) for item in moved)
    return graph


def forward_model(model: ModelProto, node: NodeProto, with_parameters: bool) -> ModelProto:
    """The forward model of a LossAndGradients node. Its parameters are the training model's initializers, or inputs."""
    made = ModelProto(ir_version=model.ir_version)
    made.opset_import.extend(item for item in model.opset_import if item.domain != DOMAIN)
    made.graph.CopyFrom(next(item.g for item in node.attribute if item.name == "forward"))
    if with_parameters:
        initial = {item.name: item for item in model.graph.initializer}
        inputs = list(made.graph.input)
        del made.graph.input[:]
        made.graph.input.extend(item for item in inputs if item.name not in initial)
        made.graph.initializer.extend(initial[item.name] for item in inputs if item.name in initial)
    return made


# ── a model that brings its own step ────────────────────────────────────────────────────────────────


def unroll_own(proto: ModelProto, bind: Mapping[str, int], steps: int) -> tuple[Unrolled, ModelProto, EntryGraph]:
    """Steps of a model with training_info. Raises ReproError."""
    entry = training_step(load_model(proto), bind).entry
    data = np.frombuffer(proto.SerializeToString(deterministic=True), np.uint8)
    whole = Unrolled(initial={slot.name: (slot.type, slot.initial) for slot in entry.parameters})
    whole.initial[MODEL] = (TensorType(U8, data.shape), data)
    changed = [entry.parameters[slot] for slot, _ in entry.updates]
    moving = {slot.name for slot in changed}
    for number in range(1, steps + 1):
        whole.inputs |= {at(number, port.name): port.type for port in entry.inputs}
        current = [state_at(number - 1 if slot.name in moving else 0, slot.name) for slot in entry.parameters]
        outputs = {at(number, port.name): port.type for port in entry.outputs}
        outputs |= {state_at(number, slot.name): slot.type for slot in changed}
        ports = [port.name for port in entry.inputs]
        inputs = [MODEL, *(at(number, name) for name in ports), *current]
        whole.add(
            STEP, f"step {number}", inputs, outputs, ports=ports, words=text({k: str(v) for k, v in bind.items()})
        )
    shown = [at(number, port.name) for number in range(1, steps + 1) for port in entry.outputs]
    return whole, whole.model([*shown, *(state_at(steps, slot.name) for slot in changed)], {"": 22}), entry


# ── what repro's own targets run ────────────────────────────────────────────────────────────────────


def entries_of(model: ModelProto) -> tuple[EntryGraph, EntryGraph | None]:
    """The entry of a step, and that of its gradients: none where the step draws random numbers (the entry of
    gradients draws for run 0), or where the model brings its own step. Raises ReproError for another model."""
    first = next((node for node in model.graph.node if node.domain == DOMAIN), None)
    if first is None:
        raise ReproError("not a training run", found="a model without training steps")
    if first.op_type == STEP:
        source = next(item for item in model.graph.initializer if item.name == MODEL)
        bind = {name: int(word) for name, word in words_in(first).items()}
        return training_step(load_model(ModelProto.FromString(read_array(source, None)[0].tobytes())), bind).entry, None
    options = options_of(model)
    imported = _read(forward_model(model, first, with_parameters=True), options)
    step = train_step(imported, options)
    return step.entry, None if step.random_nodes else gradients(imported, options)


def options_of(model: ModelProto) -> TrainOptions:
    """The options that a training run's nodes state."""
    words: dict[str, str] = {}
    for node in model.graph.node:
        if node.op_type in (GRADIENTS, CLIP, UPDATE):
            words |= words_in(node)
        if node.op_type == UPDATE:
            break
    return training_of(words)


def steps_of(model: ModelProto) -> int:
    return sum(node.op_type in (GRADIENTS, STEP) for node in model.graph.node)

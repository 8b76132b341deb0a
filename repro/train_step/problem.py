"""What is trained on what: the loss's operands, the trained parameters, the tensors that the model updates itself."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from repro.errors import ReproError
from repro.frontend.imported import Imported, ParameterSlot, Port
from repro.frontend.limits import check_tensor_size
from repro.ir.graph import Graph, Value, parameter
from repro.ir.types import F32, DType, TensorType
from repro.train_step.losses import Loss
from repro.train_step.optimizers import Optimizer, Sgd
from repro.train_step.options import check_count, check_power_of_two, check_range
from repro.train_step.schedules import Schedule
from repro.train_step.statistics import next_statistics, statistics

LABELS, WEIGHT = "labels", "weight"
"""The names of the inputs that a loss adds."""
LOSS = "loss"
"""The output that a loss adds, and the source of its nodes."""
NARROWEST_TRAINED = 16
"""Bits of the narrowest float that is trained."""


@dataclass(frozen=True)
class TrainOptions:
    """How a forward model is trained.

    The loss reads one output (`loss_output`, or the first), the input `labels` and, with `weighted`, `weight`. With
    `accumulation` k and `shards` V the model is bound to n rows, those of one shard of one microbatch, and the step
    takes k * V * n along the leading axis of every input: k microbatches one after another, each of V shards. V is a
    power of two; it changes bits, since each shard adds up its own rows (rule 17). `frozen` and `trainable` are
    patterns (fnmatch) of initializer names; trained are float initializers of rank 1 and up, and those of rank 0 that
    `trainable` names, but neither the frozen ones nor the running statistics of normalizations.
    """

    loss: Loss
    optimizer: Optimizer = field(default_factory=Sgd)
    loss_output: str | None = None
    weighted: bool = False
    learning_rate: float | None = None
    schedule: Schedule = field(default_factory=Schedule)
    clip_norm: float | None = None
    accumulation: int = 1
    shards: int = 1
    frozen: tuple[str, ...] = ()
    trainable: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_count("accumulation", self.accumulation, 1)
        check_power_of_two("shards", self.shards)
        check_range("learning_rate", self.rate, 0.0)
        if self.clip_norm is not None:
            check_range("clip_norm", self.clip_norm, 0.0)

    @property
    def rate(self) -> float:
        """The base learning rate."""
        return self.optimizer.default_rate if self.learning_rate is None else self.learning_rate


def computing(dtype: DType) -> DType:
    """The type in which a float computes (rule 3)."""
    return dtype if dtype.computes else F32


@dataclass(frozen=True)
class Problem:
    """A model and a loss on one of its outputs, checked against each other."""

    imported: Imported
    options: TrainOptions
    forward: Graph
    """The graph of the output that the loss reads."""
    labels: TensorType
    weight: TensorType | None
    """Types of the loss's operands for one pass: a shard of a microbatch."""
    statistics: tuple[int, ...]
    """Slots that the model updates itself."""
    trained: tuple[int, ...]
    """Slots that the optimizer updates, whether or not a gradient reaches them."""

    @property
    def loss(self) -> Loss:
        return self.options.loss

    @property
    def slots(self) -> tuple[ParameterSlot, ...]:
        return self.imported.parameters

    @property
    def output(self) -> TensorType:
        """The output in its computing type."""
        kind = self.forward.types[0]
        return TensorType(computing(kind.dtype), kind.shape)

    @property
    def inputs(self) -> tuple[Port, ...]:
        """The inputs of the step: those of the model, labels, weight."""
        split = [*self.imported.inputs, Port(LABELS, self.labels)]
        ports = [Port(port.name, self.whole(port.type)) for port in split]
        if self.weight is not None:
            ports.append(Port(WEIGHT, self.whole(self.weight) if self.loss.weight_is_split else self.weight))
        return tuple(ports)

    def whole(self, kind: TensorType) -> TensorType:
        """The type of all passes together; a scalar is shared by them."""
        if not kind.rank:
            return kind
        passes = self.options.accumulation * self.options.shards
        return TensorType(kind.dtype, (kind.shape[0] * passes, *kind.shape[1:]))


def parameters_of(slots: Sequence[ParameterSlot]) -> tuple[Value, ...]:
    return tuple(parameter(index, slot.type) for index, slot in enumerate(slots))


def problem_of(imported: Imported, options: TrainOptions, chosen: bool = True) -> Problem:
    """Raises ReproError where model, loss and options do not fit; of which parameters are trained, if they are `chosen`
    for good."""
    forward = Graph(imported.graph.arguments, (imported.graph.results[_loss_output(imported, options)],))
    kind = forward.types[0]
    if not kind.dtype.is_float or kind.dtype.bits < NARROWEST_TRAINED:
        raise ReproError("the loss needs a float output", found=str(kind), expected="f32, f64, f16 or bf16")
    names = dict(zip(parameters_of(imported.parameters), (slot.name for slot in imported.parameters), strict=True))
    moving = next_statistics(forward, names, imported.locations)
    given = statistics(forward)
    buffers = {index for index, value in enumerate(names) if value in given}
    wide = TensorType(computing(kind.dtype), kind.shape)
    made = Problem(
        imported=imported,
        options=options,
        forward=forward,
        labels=options.loss.labels_type(wide),
        weight=options.loss.weight_type(wide) if options.weighted else None,
        statistics=tuple(index for index, value in enumerate(names) if value in moving),
        trained=_trained(imported, options, buffers),
    )
    if chosen:
        _check_chosen(made)
    _check_names(imported, made)
    for port in made.inputs:
        check_tensor_size(port.type.shape, port.type.dtype.bytes, node=port.name)
    return made


def label_notes(options: TrainOptions, outputs: Sequence[tuple[str, TensorType]]) -> dict[str, str]:
    """What helps where labels have the wrong shape, by the name of the input. `outputs` are the model's."""
    name, kind = next(each for each in outputs if options.loss_output in (None, each[0]))
    note = options.loss.note_on_labels(f"output '{name}' {kind}", kind)
    return {LABELS: note} if note else {}


def _loss_output(imported: Imported, options: TrainOptions) -> int:
    names = [port.name for port in imported.outputs]
    if options.loss_output is None:
        return 0
    if options.loss_output not in names:
        raise ReproError("the model has no such output", found=options.loss_output, expected=", ".join(names))
    return names.index(options.loss_output)


def _trained(imported: Imported, options: TrainOptions, buffers: Collection[int]) -> tuple[int, ...]:
    return tuple(
        index
        for index, slot in enumerate(imported.parameters)
        if index not in buffers
        and slot.type.dtype.is_float
        and slot.type.dtype.bits >= NARROWEST_TRAINED
        and (slot.trainable or _fits(slot.name, options.trainable))
        and not _fits(slot.name, options.frozen)
    )


def _check_chosen(problem: Problem) -> None:
    names = [slot.name for slot in problem.slots]
    for pattern in (*problem.options.frozen, *problem.options.trainable):
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ReproError("a pattern fits no parameter", found=f"'{pattern}'", expected=f"one of {', '.join(names)}")
    if not problem.trained:
        raise ReproError("nothing is left to train", found=f"parameters {', '.join(names) or 'none'}")


def _fits(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _check_names(imported: Imported, problem: Problem) -> None:
    own = {port.name for port in imported.inputs}
    for port in problem.inputs[len(imported.inputs) :]:
        if port.name in own:
            raise ReproError(
                "the model has an input of the name that the loss needs",
                found=f"'{port.name}'",
                expected="another name",
                next="rename that input of the model",
            )

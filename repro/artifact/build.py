"""From a model and build parameters to an artifact in memory: one straight line, the same on every host."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from onnx import TensorProto

from passes import pipeline
from passes.pipeline import Lowered
from passes.recompute import MemoryBudgetError
from repro.artifact import entries as making
from repro.artifact import golden_runs, remembered, source, tensors
from repro.artifact.cache import Cache
from repro.artifact.canonical import Bytes, hex64
from repro.artifact.compiling import compile_programs
from repro.artifact.config import FORMAT_VERSION, Build, Config, GoldenRun, Source, Target, Tensor, Versions
from repro.artifact.entries import BuiltEntry, describe
from repro.artifact.layout import Artifact, Layer, unique
from repro.artifact.media import TENSOR_TYPE, TUNING_TYPE
from repro.artifact.tuning import Tuning
from repro.collector import paused
from repro.errors import ReproError
from repro.frontend import EntryGraph, Imported, LoadedModel, ParameterSlot, import_model, limits
from repro.frontend.bindings import set_value
from repro.frontend.integer_qdq import FLOAT, INTEGER, contractions
from repro.frontend.training_info import bindings_of_infer, training_step
from repro.ir.graph import Graph
from repro.ir.types import Array, TensorType, to_face
from repro.numerics.contract import CONTRACT_VERSION
from repro.targets import registry
from repro.targets.llvm.toolchain import versions
from repro.targets.protocol import REFERENCE
from repro.train_step import (
    TRAIN_STEP,
    TrainOptions,
    gradients,
    label_notes,
    read_for_training,
    train_step,
    words_of,
)
from repro.version import VERSION

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, eq=False)
class Request:
    """What to build. `targets` are full names; `inputs` are golden inputs, or None to draw them."""

    model: LoadedModel
    bind: Mapping[str, int]
    set: Mapping[str, Any]
    targets: tuple[str, ...]
    inputs: Mapping[str, Array] | None
    golden_seed: int
    seed: int
    """Key of random nodes that have none of their own (rule 16)."""
    training: TrainOptions | None = None
    gradients: bool = False
    """Whether there is an entry `gradients`; it takes the loss of `training`."""
    memory_budget: int | None = None
    """The most bytes of temporaries of each program; None keeps every value."""
    qdq: str = FLOAT
    """How operators between DequantizeLinear and QuantizeLinear compute, one of `QDQ`."""
    tuning: Tuning | None = None
    """Schedules to use; what it does not name has those of the cost model."""


@dataclass(frozen=True)
class Role:
    """What a training step does with a parameter of the model: `trained` by the optimizer, `updated` by the model
    itself (running statistics), or `kept` as it is."""

    name: str
    type: TensorType
    role: str


@dataclass(frozen=True, eq=False)
class Built:
    """An artifact, and the entries that it was made from."""

    artifact: Artifact
    entries: tuple[BuiltEntry, ...]
    warnings: tuple[str, ...]
    roles: tuple[Role, ...] = ()
    """What the training step does with each of the model's parameters, if there is one."""


def expand_targets(names: Sequence[str]) -> tuple[str, ...]:
    """Full names of targets that code is made for, in a fixed order: `cpu` is all of cpu/*."""
    return tuple(target.name for target in registry.code_targets(names))


@paused()
def imported_entries(request: Request) -> tuple[Imported, tuple[EntryGraph, ...]]:
    """The model, and every way to call it that was asked for."""
    _check_qdq(request)
    names = {item.name for item in request.model.proto.graph.input}
    given = {name: array.shape for name, array in (request.inputs or {}).items() if name in names}
    shapes = None if request.inputs is None else given
    bind = bindings_of_infer(request.model.proto, request.bind)

    def read(changing: Collection[str] = ()) -> Imported:
        return import_model(request.model, bind, request.set, shapes, request.seed, request.qdq, changing)

    imported = read() if request.training is None else read_for_training(read, request.training)
    imported = replace(imported, warnings=(*imported.warnings, *_qdq_notes(request, imported.graph)))
    entries = [imported.infer]
    if request.training is not None:
        if request.gradients:
            entries.append(gradients(imported, request.training))
        step = train_step(imported, request.training)
        entries.append(step.entry)
        imported = replace(imported, warnings=(*imported.warnings, *step.warnings))
    elif request.model.proto.training_info:
        shapes = {name: array.shape for name, array in (request.inputs or {}).items()}
        step = training_step(request.model, request.bind, request.set, shapes, request.seed)
        entries.append(step.entry)
        imported = replace(imported, warnings=tuple(dict.fromkeys((*imported.warnings, *step.warnings))))
    return imported, tuple(entries)


def _check_qdq(request: Request) -> None:
    """Raises ReproError for a quantized model that is trained on integers."""
    if request.qdq != FLOAT and _is_trained(request):
        raise ReproError(
            "a quantized model on integers is not trained",
            found=f"--qdq {request.qdq}, and a training step",
            expected="one of them: sums of integers have no gradients",
            next="build the trained model with --qdq integer, and what trains it without",
        )


def _is_trained(request: Request) -> bool:
    return request.training is not None or bool(request.model.proto.training_info)


def _qdq_notes(request: Request, graph: Graph) -> tuple[str, ...]:
    """What to know of how a quantized model computes."""
    if _is_trained(request):
        return ()
    left = contractions(graph)
    if request.qdq == INTEGER or not left:
        return ()
    how = "compute in f32, as ONNX defines them; --qdq integer adds the integers: several times as fast, other bits"
    return (f"{left} contractions of dequantized integers {how}",)


def build(request: Request, cache: Cache | None, progress: Progress) -> Built:
    """Build an artifact. Raises ReproError for a model or parameters that cannot be built."""
    progress("import", 0, 1)
    imported, graphs = imported_entries(request)
    progress("import", 1, 1)
    slots = {slot.name: slot for graph in graphs for slot in graph.parameters}
    known = {name: slot.initial for name, slot in slots.items()}
    stored = source.store(request.model.proto, lambda tensor: _raw(request.model, tensor, known.get(tensor.name)))
    weights, state_layers = _with_state(stored.weights, slots)
    entries = _entries(request, graphs, weights, cache, progress)
    golden = _golden_runs(request, entries, weights, cache, progress)
    set_values, set_layers = _set_values(request)
    config = Config(
        format=FORMAT_VERSION,
        contract=CONTRACT_VERSION,
        versions=current_versions(),
        build=Build(
            bind=dict(request.bind),
            set=set_values,
            targets=request.targets,
            golden_inputs="drawn" if request.inputs is None else "given",
            golden_seed=hex64(request.golden_seed),
            seed=hex64(request.seed),
            training={} if request.training is None else words_of(request.training),
            gradients=request.gradients,
            memory_budget=request.memory_budget,
            qdq=request.qdq,
            tuning=None if request.tuning is None else request.tuning.digest,
        ),
        source=Source(stored.model.digest, imported.opsets),
        entries=tuple(each.entry for each in entries),
        weights=weights,
        passes=tuple(passes for each in entries for passes in making.passes_of(each)),
        targets=tuple(_target(name, entries) for name in request.targets),
        golden=tuple(run for run, _ in golden),
        limits=_limits(),
    )
    layers = (
        stored.model,
        *stored.weight_layers,
        *state_layers,
        *set_layers,
        *_tuning_layers(request.tuning),
        *(layer for each in entries for layer in making.layers(each, request.targets)),
        *(layer for _, kept in golden for layer in kept),
    )
    warnings = (*imported.warnings, *_tuning_warnings(request, entries))
    return Built(Artifact(config, unique(layers)), entries, warnings, _roles(graphs))


def _entries(
    request: Request, graphs: Sequence[EntryGraph], weights: Sequence[Tensor], cache: Cache | None, progress: Progress
) -> tuple[BuiltEntry, ...]:
    progress("passes", 0, len(graphs))
    lowered: list[Lowered] = []
    for graph in graphs:
        lowered.append(_lowered(graph, request.memory_budget, remembered.maker(cache)))
        progress("passes", len(lowered), len(graphs))
    wanted = [(registry.code_target(name), each.program) for each in lowered for name in request.targets]
    programs = iter(compile_programs(wanted, cache, progress, request.tuning))
    return tuple(
        BuiltEntry(graph, each, {name: next(programs) for name in request.targets}, describe(graph, each, weights))
        for graph, each in zip(graphs, lowered, strict=True)
    )


def _lowered(graph: EntryGraph, memory_budget: int | None, maker: pipeline.Maker) -> Lowered:
    try:
        return pipeline.run(graph.graph, graph.locations, graph.updates, memory_budget=memory_budget, maker=maker)
    except MemoryBudgetError as error:
        raise replace(error, what=f"{error.what} by entry {graph.name}") from None


def _with_state(
    weights: Sequence[Tensor], slots: Mapping[str, ParameterSlot]
) -> tuple[tuple[Tensor, ...], tuple[Layer, ...]]:
    """The model's weights, and after them the state that is no initializer of the model (an optimizer's moments)."""
    own = {weight.name for weight in weights}
    added: list[Tensor] = []
    layers: list[Layer] = []
    for name in sorted(slots.keys() - own):
        slot = slots[name]
        data = tensors.to_bytes(to_face(slot.initial, slot.type.dtype))
        layers.append(Layer(f"state/{len(added):03}", TENSOR_TYPE, data))
        added.append(Tensor(name, str(slot.type), layers[-1].digest))
    return (*weights, *added), tuple(layers)


def current_versions() -> Versions:
    return Versions(repro=VERSION, **versions())


def _limits() -> dict[str, int]:
    return {
        name.lower(): value for name, value in sorted(vars(limits).items()) if name.isupper() and isinstance(value, int)
    }


def _raw(model: LoadedModel, tensor: TensorProto, known: Array | None) -> Bytes:
    """A tensor's little-endian bytes, from its array where that is known: a large one is a file mapped once."""
    array = model.tensor(tensor, tensor.name)[1] if known is None else known
    little = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False)
    return little.reshape(-1).view(np.uint8).data if little.size else b""


# ── the parts of the config and their layers ────────────────────────────────────────────────────────


def _target(name: str, entries: Sequence[BuiltEntry]) -> Target:
    programs = tuple(making.compiled_entry(each, name) for each in entries)
    return Target(name, f"sha256:{registry.code_target(name).machine_digest}", programs)


def _tuning_layers(tuning: Tuning | None) -> tuple[Layer, ...]:
    return () if tuning is None else (Layer("tuning.json", TUNING_TYPE, tuning.data),)


def _tuning_warnings(request: Request, entries: Sequence[BuiltEntry]) -> tuple[str, ...]:
    if request.tuning is None:
        return ()
    compiled = [program for each in entries for program in each.compiled.values()]
    unused = request.tuning.unused((each.target, each.program.kernels) for each in compiled)
    count = len(request.tuning.kernels)
    return (f"{unused} of {count} tuned kernels are not in this build; they are ignored",) if unused else ()


def _set_values(request: Request) -> tuple[tuple[Tensor, ...], tuple[Layer, ...]]:
    items = {item.name: item for item in request.model.proto.graph.input}
    found: list[Tensor] = []
    layers: list[Layer] = []
    for position, (name, value) in enumerate(sorted(request.set.items())):
        dtype, array = set_value(items[name], value)
        layers.append(Layer(f"set/{position:03}", TENSOR_TYPE, tensors.to_bytes(to_face(array, dtype))))
        found.append(Tensor(name, str(TensorType(dtype, tuple(array.shape))), layers[-1].digest))
    return tuple(found), tuple(layers)


def _roles(graphs: Sequence[EntryGraph]) -> tuple[Role, ...]:
    step = next((graph for graph in graphs if graph.name == TRAIN_STEP), None)
    if step is None:
        return ()
    own = {slot.name for slot in graphs[0].parameters}
    changed = {slot for slot, _ in step.updates}
    return tuple(
        Role(slot.name, slot.type, "kept" if index not in changed else "trained" if slot.trainable else "updated")
        for index, slot in enumerate(step.parameters)
        if slot.name in own
    )


# ── golden runs ─────────────────────────────────────────────────────────────────────────────────────


def _golden_runs(
    request: Request,
    entries: Sequence[BuiltEntry],
    weights: Sequence[Tensor],
    cache: Cache | None,
    progress: Progress,
) -> list[tuple[GoldenRun, tuple[Layer, ...]]]:
    """By this host's best code, which is made for the purpose if the build has none; by the reference elsewhere."""
    best = registry.best(registry.CPU)
    target = REFERENCE if best is None else best.name
    if best is not None and best.code.name not in request.targets:
        wanted = [(best.code, each.lowered.program) for each in entries]
        programs = compile_programs(wanted, cache, progress, request.tuning)
        for each, program in zip(entries, programs, strict=True):
            each.compiled[best.code.name] = program
    given = _given_inputs(request, entries)
    outputs = [(port.name, port.type) for port in entries[0].source.outputs]
    notes = {} if request.training is None else label_notes(request.training, outputs)
    made: list[tuple[GoldenRun, tuple[Layer, ...]]] = []
    for each in entries:
        own = given.get(each.name)
        inputs = golden_runs.golden_inputs(each.source, each.entry, own, request.golden_seed, notes)
        try:
            made.append(golden_runs.golden_run(each, target, inputs, weights, cache, progress))
        except ReproError as error:
            drawn = "the golden inputs were drawn: give some that the model takes, with --inputs"
            raise error if own is not None else replace(error, next=drawn) from error
    return made


def _given_inputs(request: Request, entries: Sequence[BuiltEntry]) -> dict[str, dict[str, Array]]:
    """Of the inputs given, each entry's own; a name that no entry has is an error of the first one."""
    if request.inputs is None:
        return {}
    known = {port.name for each in entries for port in each.source.inputs}
    strange = {name: array for name, array in request.inputs.items() if name not in known}
    found: dict[str, dict[str, Array]] = {}
    for each in entries:
        own = {port.name for port in each.source.inputs}
        found[each.name] = {name: array for name, array in request.inputs.items() if name in own} | strange
    return found

"""From a model and build parameters to an artifact in memory: one straight line, the same on every host."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import TensorProto

from passes import pipeline
from passes.pipeline import Lowered
from repro.artifact import golden, sessions, source, tensors
from repro.artifact.cache import Cache
from repro.artifact.canonical import Bytes, hex64, sha256
from repro.artifact.compiling import CompiledProgram, compile_programs
from repro.artifact.config import (
    FORMAT_VERSION,
    Build,
    CompiledEntry,
    CompiledKernel,
    Config,
    Entry,
    GoldenRun,
    Pass,
    Passes,
    Source,
    Target,
    Tensor,
    Value,
    Versions,
)
from repro.artifact.layout import Artifact, Layer, unique
from repro.artifact.media import GRAPH_TEXT_TYPE, KERNEL_TYPE, OBJECT_TYPE, PROGRAM_TYPE, TENSOR_TYPE
from repro.errors import ReproError
from repro.frontend import Imported, LoadedModel, import_model, limits
from repro.frontend.bindings import set_value
from repro.ir.text import print_graph
from repro.ir.types import Array, TensorType, to_face
from repro.machines import CPUS, Machine
from repro.numerics.contract import CONTRACT_VERSION
from repro.targets import cpu
from repro.targets.llvm.toolchain import versions
from repro.version import VERSION

Progress = Callable[[str, int, int], None]
INFER = "infer"

LARGE_OUTPUT = 1 << 20
"""Bytes; of a larger golden output the artifact keeps the digest alone."""


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


@dataclass(frozen=True, eq=False)
class Built:
    """An artifact, and what it was made from: enough to run it without reading it back."""

    artifact: Artifact
    imported: Imported
    lowered: Lowered
    compiled: dict[str, CompiledProgram]

    def session(self, target: str, threads: int) -> sessions.Session:
        """A session of the entry that was just built."""
        return _session(self.artifact.config.entries[0], self.imported, self.lowered, self.compiled, target, threads)


def expand_targets(names: Sequence[str]) -> tuple[str, ...]:
    """Full names of targets that code is made for, in a fixed order: `cpu` is all of cpu/*."""
    found: set[str] = set()
    for name in names:
        if name not in ("cpu", "reference", *CPUS):
            known = ", ".join(("reference", "cpu", *sorted(CPUS)))
            raise ReproError(f"unknown target '{name}'", found=name, expected=known)
        found.update(CPUS if name == "cpu" else {name} - {"reference"})
    return tuple(sorted(found))


def build(request: Request, cache: Cache | None, progress: Progress) -> Built:
    """Build an artifact. Raises ReproError for a model or parameters that cannot be built."""
    progress("import", 0, 1)
    shapes = None if request.inputs is None else {name: array.shape for name, array in request.inputs.items()}
    imported = import_model(request.model, request.bind, request.set, shapes, request.seed)
    progress("import", 1, 1)
    known = {slot.name: slot.initial for slot in imported.parameters}
    stored = source.store(request.model.proto, lambda tensor: _raw(request.model, tensor, known.get(tensor.name)))
    progress("passes", 0, 1)
    lowered = pipeline.run(imported.graph, imported.locations)
    progress("passes", 1, 1)
    wanted = [(CPUS[name], lowered.program) for name in request.targets]
    programs = compile_programs(wanted, cache, progress)
    compiled = dict(zip(request.targets, programs, strict=True))
    entry = _entry(imported, lowered, stored.weights)
    inputs = _golden_inputs(request, imported, entry)
    outputs = _golden_outputs(entry, imported, lowered, compiled, inputs, cache, progress)
    run, golden_layers = _golden_run(entry, inputs, outputs)
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
        ),
        source=Source(stored.model.digest, imported.opsets),
        entries=(entry,),
        weights=stored.weights,
        passes=(_passes(lowered),),
        targets=tuple(_target(each, CPUS[name]) for name, each in compiled.items()),
        golden=(run,),
        limits=_limits(),
    )
    layers = (
        stored.model,
        *stored.weight_layers,
        *set_layers,
        Layer(f"graphs/{INFER}.txt", GRAPH_TEXT_TYPE, print_graph(imported.graph).encode()),
        *_program_layers(compiled, lowered),
        *golden_layers,
    )
    return Built(Artifact(config, unique(layers)), imported, lowered, compiled)


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


def _entry(imported: Imported, lowered: Lowered, weights: Sequence[Tensor]) -> Entry:
    positions = {weight.name: position for position, weight in enumerate(weights)}
    return Entry(
        name=INFER,
        graph="sha256:" + imported.graph.digest.hex(),
        inputs=tuple(Value(port.name, str(port.type)) for port in imported.inputs),
        outputs=tuple(Value(port.name, str(port.type)) for port in imported.outputs),
        weights=tuple(positions[slot.name] for slot in imported.parameters),
        index_checks=lowered.checked,
    )


def _passes(lowered: Lowered) -> Passes:
    steps = (Pass(step.name, f"sha256:{step.before}", f"sha256:{step.after}") for step in lowered.steps)
    return Passes(INFER, "", tuple(steps))


def _target(compiled: CompiledProgram, machine: Machine) -> Target:
    parts = zip(compiled.program.kernels, compiled.schedules, compiled.kernel_objects, strict=True)
    kernels = tuple(CompiledKernel(f"sha256:{kernel.digest}", s.text, sha256(code)) for kernel, s, code in parts)
    program = CompiledEntry(INFER, f"sha256:{compiled.program.digest}", sha256(compiled.program_object), kernels)
    return Target(machine.name, f"sha256:{machine.digest}", (program,))


def _set_values(request: Request) -> tuple[tuple[Tensor, ...], tuple[Layer, ...]]:
    items = {item.name: item for item in request.model.proto.graph.input}
    found: list[Tensor] = []
    layers: list[Layer] = []
    for position, (name, value) in enumerate(sorted(request.set.items())):
        dtype, array = set_value(items[name], value)
        layers.append(Layer(f"set/{position:03}", TENSOR_TYPE, tensors.to_bytes(to_face(array, dtype))))
        found.append(Tensor(name, str(TensorType(dtype, tuple(array.shape))), layers[-1].digest))
    return tuple(found), tuple(layers)


def _program_layers(compiled: Mapping[str, CompiledProgram], lowered: Lowered) -> list[Layer]:
    program = lowered.program
    layers = [Layer(f"programs/{INFER}.txt", PROGRAM_TYPE, program.text.encode())]
    layers += [Layer(f"kernels/{kernel.digest}.txt", KERNEL_TYPE, kernel.text.encode()) for kernel in program.kernels]
    constants = [Layer("", TENSOR_TYPE, data) for data in program.constants]
    layers += [Layer(f"constants/{each.digest[7:]}", TENSOR_TYPE, each.data) for each in constants]
    for name, each in compiled.items():
        for kernel, code in zip(program.kernels, each.kernel_objects, strict=True):
            layers.append(Layer(f"code/{name}/{kernel.digest}.o", OBJECT_TYPE, code))
        layers.append(Layer(f"code/{name}/{INFER}.o", OBJECT_TYPE, each.program_object))
    return layers


# ── golden ──────────────────────────────────────────────────────────────────────────────────────────


def _golden_inputs(request: Request, imported: Imported, entry: Entry) -> dict[str, Array]:
    if request.inputs is not None:
        stored = sessions.match(request.inputs, entry.inputs)
        types = imported.graph.arguments
        drawn = tuple(to_face(array, kind.dtype) for array, kind in zip(stored, types, strict=True))
    else:
        drawn = golden.draw(imported.graph.arguments, golden.index_limits(imported.graph), request.golden_seed)
    return {port.name: array for port, array in zip(imported.inputs, drawn, strict=True)}


def _golden_outputs(
    entry: Entry,
    imported: Imported,
    lowered: Lowered,
    compiled: Mapping[str, CompiledProgram],
    inputs: Mapping[str, Array],
    cache: Cache | None,
    progress: Progress,
) -> dict[str, Array]:
    """By this host's best code, which is made for the purpose if the build has none; by the reference elsewhere."""
    progress("golden run", 0, 1)
    best = cpu.best_machine()
    target = "reference" if best is None else best.name
    if best is not None and target not in compiled:
        compiled = {**compiled, target: compile_programs([(best, lowered.program)], cache, progress)[0]}
    with _session(entry, imported, lowered, compiled, target, 1) as session:
        outputs = session.run(inputs)
    progress("golden run", 1, 1)
    return outputs


def _golden_run(
    entry: Entry, inputs: Mapping[str, Array], outputs: Mapping[str, Array]
) -> tuple[GoldenRun, tuple[Layer, ...]]:
    layers: list[Layer] = []

    def keep(kind: str, arrays: Mapping[str, Array]) -> tuple[Tensor, ...]:
        kept: list[Tensor] = []
        for position, (name, array) in enumerate(arrays.items()):
            layer = Layer(f"golden/{entry.name}/{kind}/{position:03}", TENSOR_TYPE, tensors.to_bytes(array))
            kept.append(Tensor(name, str(tensors.type_of(array)), layer.digest))
            if kind == "inputs" or len(layer.data) <= LARGE_OUTPUT:
                layers.append(layer)
        return tuple(kept)

    run = GoldenRun(entry.name, keep("inputs", inputs), keep("outputs", outputs))
    return run, tuple(layers)


# ── sessions ────────────────────────────────────────────────────────────────────────────────────────


def _session(
    entry: Entry,
    imported: Imported,
    lowered: Lowered,
    compiled: Mapping[str, CompiledProgram],
    target: str,
    threads: int,
) -> sessions.Session:
    values = [slot.initial.reshape(-1) for slot in imported.parameters]
    parameters = [sessions.Parameter(slot.name, slot.type) for slot in imported.parameters]
    executable: sessions.Executable
    if target == "reference":
        reporting = lowered.graph if lowered.checked else None
        executable = sessions.ReferenceExecutable(
            imported.graph, reporting, [slot.initial for slot in imported.parameters]
        )
    else:
        executable = sessions.open_cpu(compiled[target], values, threads)
    return sessions.Session(entry, executable, parameters)

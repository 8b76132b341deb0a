"""An entry of an artifact as it is built: graph, program, code, and what the config says of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from passes.pipeline import Lowered
from repro.artifact import sessions
from repro.artifact.canonical import sha256
from repro.artifact.config import CompiledEntry, CompiledKernel, Entry, Pass, Passes, Tensor, Value
from repro.artifact.layout import Layer
from repro.artifact.media import GRAPH_TEXT_TYPE, KERNEL_TYPE, PROGRAM_TYPE, TENSOR_TYPE
from repro.frontend import EntryGraph
from repro.ir.program import Program
from repro.ir.text import print_graph
from repro.targets import registry
from repro.targets.protocol import REFERENCE, CodeTarget, CompiledProgram, Executable


@dataclass(frozen=True, eq=False)
class BuiltEntry:
    """An entry, and what it was made from: enough to run it without reading it back. `compiled` is by code target."""

    source: EntryGraph
    lowered: Lowered
    compiled: dict[str, CompiledProgram]
    entry: Entry

    @property
    def name(self) -> str:
        return self.source.name

    def session(self, target: str, threads: int) -> sessions.Session:
        """A session of what was just built, on a runner; its state starts at the initial values."""
        slots = self.source.parameters
        executable: Executable
        if target == REFERENCE:
            executable = reference(self.source, self.lowered)
        else:
            runner = registry.runner(target)
            values = [slot.initial.reshape(-1) for slot in slots]
            executable = runner.open(self.compiled[runner.code.name], values, threads)
        return sessions.Session(self.entry, executable, [sessions.Parameter(slot.name, slot.type) for slot in slots])


def reference(source: EntryGraph, lowered: Lowered) -> sessions.ReferenceExecutable:
    """The reference of an entry; the report of indices comes from the graph that has it."""
    reporting = lowered.graph if lowered.checked else None
    initial = [slot.initial for slot in source.parameters]
    return sessions.ReferenceExecutable(source.graph, reporting, initial, source.updates)


# ── what the config says ────────────────────────────────────────────────────────────────────────────


def describe(source: EntryGraph, lowered: Lowered, weights: Sequence[Tensor]) -> Entry:
    """The entry's signature; its parameters are positions in the artifact's list of weights."""
    positions = {weight.name: position for position, weight in enumerate(weights)}
    return Entry(
        name=source.name,
        graph="sha256:" + source.graph.digest.hex(),
        inputs=tuple(Value(port.name, str(port.type)) for port in source.inputs),
        outputs=tuple(Value(port.name, str(port.type)) for port in source.outputs),
        weights=tuple(positions[slot.name] for slot in source.parameters),
        index_checks=lowered.checked,
    )


def passes_of(built: BuiltEntry) -> tuple[Passes, ...]:
    """Those that run once for all targets, then those of each target that shaped the program for itself."""
    steps = (Pass(step.name, f"sha256:{step.before}", f"sha256:{step.after}") for step in built.lowered.steps)
    shared = built.lowered.program.digest
    own = {name: compiled.program.digest for name, compiled in built.compiled.items()}
    shaped = tuple(
        Passes(built.name, name, (Pass("shape", f"sha256:{shared}", f"sha256:{digest}"),))
        for name, digest in own.items()
        if digest != shared
    )
    return (Passes(built.name, "", tuple(steps)), *shaped)


def compiled_entry(built: BuiltEntry, target: str) -> CompiledEntry:
    compiled = built.compiled[target]
    parts = zip(compiled.program.kernels, compiled.schedules, compiled.kernel_objects, strict=True)
    kernels = tuple(CompiledKernel(f"sha256:{kernel.digest}", s, sha256(code)) for kernel, s, code in parts)
    return CompiledEntry(built.name, f"sha256:{compiled.program.digest}", sha256(compiled.program_object), kernels)


def layers(built: BuiltEntry, targets: Sequence[str]) -> list[Layer]:
    """Graph, programs, kernels, constants and code. A target has a program of its own only where it shaped one."""
    program, name = built.lowered.program, built.name
    made = [Layer(f"graphs/{name}.txt", GRAPH_TEXT_TYPE, print_graph(built.source.graph).encode())]
    made += _program_layers(f"programs/{name}.txt", program)
    constants = [Layer("", TENSOR_TYPE, data) for data in program.constants]
    made += [Layer(f"constants/{each.digest[7:]}", TENSOR_TYPE, each.data) for each in constants]
    for target in targets:
        own = built.compiled[target].program
        if own.digest != program.digest:
            made += _program_layers(f"programs/{target}/{name}.txt", own)
    for target in targets:
        each = built.compiled[target]
        for kernel, code in zip(each.program.kernels, each.kernel_objects, strict=True):
            made.append(_code_layer(each.target, kernel.digest, code))
        made.append(_code_layer(each.target, name, each.program_object))
    return made


def _program_layers(title: str, program: Program) -> list[Layer]:
    kernels = (Layer(f"kernels/{kernel.digest}.txt", KERNEL_TYPE, kernel.text.encode()) for kernel in program.kernels)
    return [Layer(title, PROGRAM_TYPE, program.text.encode()), *kernels]


def _code_layer(target: CodeTarget, name: str, code: bytes) -> Layer:
    return Layer(f"code/{target.name}/{name}{target.suffix}", target.media_type, code)

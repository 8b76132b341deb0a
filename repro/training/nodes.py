"""The first node of an entry whose value is not the same on two targets.

Every node's value is made a result of the graph, so that the whole step runs as it does, with the same bits by the
contract, and shows what is in it. Nodes are compared with operands before users, depth first from the results: the
first one that differs has operands that do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from passes import pipeline
from passes.prepare import canonical_outputs
from repro.artifact import sessions
from repro.artifact.cache import Cache
from repro.artifact.compiling import compile_programs
from repro.errors import ReproError
from repro.frontend import EntryGraph
from repro.ir.graph import Graph, Locations, Value
from repro.ir.types import Array, to_face, to_storage
from repro.machines import CPUS, Machine
from repro.ops.record import evaluate
from repro.targets import cpu
from repro.training import digests
from repro.training.compare import TensorDifference, difference

LEAVES = ("argument", "parameter", "constant")
SHOWN_AT_ONCE = 512 << 20
"""Bytes of values that one run shows; a larger graph is run several times."""

RunGraph = Callable[[Graph, Locations, Sequence[Array], Sequence[Array]], Sequence[Array]]
"""The results of a graph from inputs and parameters, all as storage arrays."""


@dataclass(frozen=True)
class Operand:
    """What a node reads: which value, and its digest on either side."""

    source: str
    left: str
    right: str


@dataclass(frozen=True)
class NodeDifference:
    """The first node that differs. `source` is the ONNX node that it comes from."""

    position: int
    nodes: int
    op: str
    source: str
    value: TensorDifference
    operands: tuple[Operand, ...]


def first_difference(
    entry: EntryGraph, inputs: Mapping[str, Array], state: Mapping[str, Array], left: RunGraph, right: RunGraph
) -> NodeDifference | None:
    """Compare the values of all nodes, run from one state on one set of inputs."""
    arguments = [to_storage(inputs[port.name], port.type.dtype) for port in entry.inputs]
    parameters = [to_storage(state[slot.name], slot.type.dtype) for slot in entry.parameters]
    shown = [value for node in entry.graph.nodes if node.op not in LEAVES for value in node.results]
    done = 0
    for group in _groups(shown):
        graph = Graph(entry.graph.arguments, tuple(group))
        sides = [run(graph, entry.locations, arguments, parameters) for run in (left, right)]
        values = [dict(zip(group, map(_face, group, side), strict=True)) for side in sides]
        for position, value in enumerate(group):
            found = difference(_name(value, entry), values[0][value], values[1][value])
            if found is not None:
                reads = _operands(value, entry, arguments, parameters, left, right)
                source = str(entry.locations.get(value.node, ""))
                return NodeDifference(done + position, len(shown), value.node.op, source, found, reads)
        done += len(group)
    return None


def _groups(values: Sequence[Value]) -> Iterator[list[Value]]:
    group: list[Value] = []
    size = 0
    for value in values:
        nbytes = value.type.elements * value.dtype.bytes
        if group and size + nbytes > SHOWN_AT_ONCE:
            yield group
            group, size = [], 0
        group.append(value)
        size += nbytes
    if group:
        yield group


def _face(value: Value, array: Array) -> Array:
    return to_face(array.reshape(value.shape), value.dtype)


def _name(value: Value, entry: EntryGraph) -> str:
    """An input's or a parameter's name, or the op with its source."""
    node = value.node
    if node.op == "argument":
        return f"input {entry.inputs[node['index']].name}"
    if node.op == "parameter":
        return f"state {entry.parameters[node['identity']].name}"
    return f"{node.op} of {entry.locations.get(node, entry.name)}"


def _operands(
    value: Value,
    entry: EntryGraph,
    arguments: Sequence[Array],
    parameters: Sequence[Array],
    left: RunGraph,
    right: RunGraph,
) -> tuple[Operand, ...]:
    reads = value.node.operands
    if not reads:
        return ()
    graph = Graph(entry.graph.arguments, reads)
    sides = [run(graph, entry.locations, arguments, parameters) for run in (left, right)]
    return tuple(
        Operand(name, *(digests.of_arrays({"": _face(read, array)}) for array in pair))
        for read, name, *pair in zip(reads, (_name(read, entry) for read in reads), *sides, strict=True)
    )


# ── what runs a graph ───────────────────────────────────────────────────────────────────────────────


def on_reference(
    graph: Graph, locations: Locations, inputs: Sequence[Array], parameters: Sequence[Array]
) -> Sequence[Array]:
    return evaluate(canonical_outputs(graph), inputs, parameters)


def on_cpu(machine: Machine, threads: int, cache: Cache | None) -> RunGraph:
    """The graph compiled for a machine."""

    def run(
        graph: Graph, locations: Locations, inputs: Sequence[Array], parameters: Sequence[Array]
    ) -> Sequence[Array]:
        lowered = pipeline.run(graph, dict(locations))
        compiled = compile_programs([(machine, lowered.program)], cache, lambda *_: None)[0]
        executable = sessions.open_cpu(compiled, parameters, threads)
        try:
            return executable.run(inputs)[: len(graph.results)]
        finally:
            executable.close()

    return run


def runner(target: str, threads: int | None, cache: Cache | None) -> RunGraph:
    """By a target's name; `cpu` is this host's best."""
    if target == "reference":
        return on_reference
    machine = cpu.best_machine() if target == "cpu" else CPUS.get(target)
    if machine is None:
        raise ReproError(f"unknown target '{target}'", found=target, expected=", ".join(("reference", "cpu", *CPUS)))
    return on_cpu(machine, threads or 1, cache)

"""The first node of an entry whose value is not the same on two targets.

Every node's value is made a result of the graph, so that the whole step runs as it does, with the same bits by the
contract, and shows what is in it. Nodes are compared with operands before users, depth first from the results: the
first one that differs has operands that do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from passes import pipeline
from passes.prepare import canonical_outputs
from repro.artifact.cache import Cache
from repro.artifact.canonical import Json
from repro.artifact.compiling import compile_programs
from repro.artifact.loaded import LoadedArtifact
from repro.artifact.workers import cores
from repro.frontend import EntryGraph
from repro.frontend.imported import Port
from repro.ir.graph import Graph, Locations, Node, Value, constant_array
from repro.ir.types import Array, to_face, to_storage
from repro.ops.record import evaluate
from repro.targets import registry
from repro.targets.protocol import REFERENCE, CompiledProgram, Runner
from repro.training import digests
from repro.training.compare import TensorDifference, difference

LEAVES = ("argument", "parameter", "constant")
GIVEN = ("input", "state", "constant")
"""What rows of a trace call them."""
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
    iterations: tuple[int, ...] = ()
    """Of the loops that it stands in, the outermost first; `position` and `nodes` count in the body."""


def first_difference(
    entry: EntryGraph, inputs: Mapping[str, Array], state: Mapping[str, Array], left: RunGraph, right: RunGraph
) -> NodeDifference | None:
    """Compare the values of all nodes, run from one state on one set of inputs."""
    return _first(entry, *_stored(entry, inputs, state), left, right)


def _first(
    entry: EntryGraph, arguments: Sequence[Array], parameters: Sequence[Array], left: RunGraph, right: RunGraph
) -> NodeDifference | None:
    shown = _computed(entry)
    done = 0
    for group in _groups(shown):
        graph = Graph(entry.graph.arguments, tuple(group))
        sides = [run(graph, entry.locations, arguments, parameters) for run in (left, right)]
        values = [dict(zip(group, map(_face, group, side), strict=True)) for side in sides]
        for position, value in enumerate(group):
            found = difference(_name(value, entry), values[0][value], values[1][value])
            if found is not None:
                reads = _operands(value, entry, arguments, parameters, left, right)
                inner = None
                if value.node.op == "loop" and all(each.left == each.right for each in reads):
                    inner = _in_loop(value.node, entry, arguments, parameters, left, right)
                source = str(entry.locations.get(value.node, ""))
                outer = NodeDifference(done + position, len(shown), value.node.op, source, found, reads)
                return inner or outer
        done += len(group)
    return None


def _in_loop(
    node: Node,
    entry: EntryGraph,
    arguments: Sequence[Array],
    parameters: Sequence[Array],
    left: RunGraph,
    right: RunGraph,
) -> NodeDifference | None:
    """The first difference inside a counted loop, whose body is a graph of its own and is run once for each iteration.

    None where all iterations, run one by one, agree.
    """
    carried, fixed = node["carried"], node["carried"] + node["scanned"]
    given = left(Graph(entry.graph.arguments, node.operands), entry.locations, arguments, parameters)
    operands = [array.reshape(value.shape) for array, value in zip(given, node.operands, strict=True)]
    body = node.regions[0]
    state = operands[:carried]
    names = [f"carried {n}" for n in range(carried)] + [f"row {n}" for n in range(fixed - carried)]
    names += [f"operand {n}" for n in range(len(operands) - fixed)]
    for iteration in range(node["count"]):
        rows = [array[iteration] for array in operands[carried:fixed]]
        inputs = [np.array(iteration, np.int64), *state, *rows, *operands[fixed:]]
        sides = [run(body, entry.locations, inputs, ()) for run in (left, right)]
        if any(one.tobytes() != other.tobytes() for one, other in zip(*sides, strict=True)):
            ports = map(Port, ("iteration", *names), body.arguments)
            inner = replace(entry, graph=body, inputs=tuple(ports), parameters=())
            found = _first(inner, inputs, (), left, right)
            return None if found is None else replace(found, iterations=(iteration, *found.iterations))
        state = [array.reshape(value.shape) for array, value in zip(sides[0], body.results[:carried], strict=False)]
    return None


def _stored(
    entry: EntryGraph, inputs: Mapping[str, Array], state: Mapping[str, Array]
) -> tuple[list[Array], list[Array]]:
    """Storage arrays of an entry's arguments and parameters."""
    arguments = [to_storage(inputs[port.name], port.type.dtype) for port in entry.inputs]
    return arguments, [to_storage(state[slot.name], slot.type.dtype) for slot in entry.parameters]


def _computed(entry: EntryGraph) -> list[Value]:
    return [value for node in entry.graph.nodes if node.op not in LEAVES for value in node.results]


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
    op, source = _origin(value, entry)
    return name(op, source or entry.name)


def name(op: str, source: str) -> str:
    """How a row's value is called."""
    return f"{op} {source}" if op in ("input", "state") else f"{op} of {source}"


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


# ── for a trace ─────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Row:
    """What a trace says of a value: `op` is `input`, `state`, `constant` or the node's, `source` a name or the ONNX
    node, `reads` the rows of its operands."""

    op: str
    source: str
    type: str
    reads: tuple[int, ...]

    def json(self) -> Json:
        return [self.op, self.source, self.type, list(self.reads)]


class Recorder:
    """Digests of all values of a step, inputs, state and constants among them, in canonical order.

    A digest is that of a tensor without a name, as `Operand` has it.
    """

    def __init__(self, entry: EntryGraph, run: RunGraph) -> None:
        self._entry, self._run = entry, run
        self._values = [value for node in entry.graph.nodes for value in node.results]

    @property
    def rows(self) -> tuple[Row, ...]:
        numbers = {value: number for number, value in enumerate(self._values)}
        return tuple(
            Row(*_origin(value, self._entry), str(value.type), tuple(numbers[read] for read in value.node.operands))
            for value in self._values
        )

    def digests(self, inputs: Mapping[str, Array], state: Mapping[str, Array]) -> tuple[str, ...]:
        """By row, for a step from a state on inputs: the graph is run once for each group of values."""
        arguments, parameters = _stored(self._entry, inputs, state)
        found = {value: _leaf_digest(value, arguments, parameters) for value in self._values if _is_leaf(value)}
        for group in _groups(_computed(self._entry)):
            graph = Graph(self._entry.graph.arguments, tuple(group))
            results = self._run(graph, self._entry.locations, arguments, parameters)
            found |= {value: _digest(value, array) for value, array in zip(group, results, strict=True)}
        return tuple(found[value] for value in self._values)


def _is_leaf(value: Value) -> bool:
    return value.node.op in LEAVES


def _leaf_digest(value: Value, arguments: Sequence[Array], parameters: Sequence[Array]) -> str:
    node = value.node
    match node.op:
        case "argument":
            return _digest(value, arguments[node["index"]])
        case "parameter":
            return _digest(value, parameters[node["identity"]])
        case _:
            return _digest(value, constant_array(node))


def _digest(value: Value, array: Array) -> str:
    return digests.of_arrays({"": _face(value, array)})


def _origin(value: Value, entry: EntryGraph) -> tuple[str, str]:
    """(op, source) of a row."""
    node = value.node
    match node.op:
        case "argument":
            return "input", entry.inputs[node["index"]].name
        case "parameter":
            return "state", entry.parameters[node["identity"]].name
        case _:
            return node.op, str(entry.locations.get(node, ""))


# ── what runs a graph ───────────────────────────────────────────────────────────────────────────────


def on_reference(
    graph: Graph, locations: Locations, inputs: Sequence[Array], parameters: Sequence[Array]
) -> Sequence[Array]:
    return evaluate(canonical_outputs(graph), inputs, parameters)


def on_target(target: Runner, threads: int, cache: Cache | None) -> RunGraph:
    """The graph compiled for a target, once."""
    known: dict[bytes, CompiledProgram] = {}

    def run(
        graph: Graph, locations: Locations, inputs: Sequence[Array], parameters: Sequence[Array]
    ) -> Sequence[Array]:
        compiled = known.get(graph.digest)
        if compiled is None:
            program = pipeline.run(graph, dict(locations)).program
            compiled = known[graph.digest] = compile_programs([(target.code, program)], cache, lambda *_: None)[0]
        executable = target.open(compiled, parameters, threads)
        try:
            return executable.run(inputs)[: len(graph.results)]
        finally:
            executable.close()

    return run


def runner(target: str, threads: int | None, cache: Cache | None) -> RunGraph:
    """By a target's name; `cpu` is this host's best."""
    if target == REFERENCE:
        return on_reference
    return on_target(registry.runner(target), threads or cores(), cache)


def recorder(artifact: LoadedArtifact, entry: str, target: str, threads: int | None, cache: Cache | None) -> Recorder:
    """Of an artifact's entry, run on one of its targets."""
    return Recorder(artifact.entry_graph(entry), runner(artifact.target_name(target), threads, cache))

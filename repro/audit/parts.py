"""A part of a model as a model of its own, and the smaller parts that cuts along its axes give.

What the part's nodes read from outside are its inputs, with golden values; what depends on no input of the model stays
a constant, so that a runtime that folds constants has the same ones to fold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from onnx import ModelProto, NodeProto, ValueInfoProto, helper

from repro.artifact.tensors import type_of
from repro.audit.comparison import LEFT_OPEN
from repro.audit.flat import tensor, tensor_type
from repro.audit.model import Audited, note_qdq, qdq_of_prepared
from repro.audit.origins import Lineage
from repro.audit.records import Capture, ModelSummary
from repro.errors import InternalError
from repro.frontend.tensors import onnx_type, read_array
from repro.ir.types import I32, I64, Array, DType, parse_type, to_face, to_storage


@dataclass(frozen=True)
class Cut:
    """Axes, as (tensor, axis), that are shortened together to one range of their common extent."""

    axes: tuple[tuple[str, int], ...]
    extent: int


@dataclass(frozen=True, eq=False)
class Part:
    """Some nodes of a model. `outputs` are what it gives, with their element types; the first is what is looked at.
    `frame` is the model that it is a part of: its opsets and versions."""

    nodes: tuple[NodeProto, ...]
    inputs: Mapping[str, Array]
    weights: Mapping[str, Array]
    outputs: Mapping[str, DType]
    frame: ModelProto

    @property
    def value(self) -> str:
        return next(iter(self.outputs))

    @property
    def elements(self) -> int:
        """Of all inputs and weights: its size."""
        return sum(array.size for array in (*self.inputs.values(), *self.weights.values()))

    def proto(self) -> ModelProto:
        """The part as a model, the shapes of its outputs open."""
        outputs = [helper.make_tensor_value_info(name, onnx_type(kind), None) for name, kind in self.outputs.items()]
        graph = helper.make_graph(self.nodes, "part", [_declared(*each) for each in self.inputs.items()], outputs)
        for name, array in self.weights.items():
            dtype = type_of(array).dtype
            graph.initializer.append(tensor(name, to_storage(array, dtype), dtype))
        opsets = list(self.frame.opset_import)
        made = helper.make_model(graph, opset_imports=opsets, ir_version=self.frame.ir_version)
        note_qdq(made, qdq_of_prepared(self.frame))
        return made

    def cuts(self) -> Iterator[Cut]:
        """What may be shortened: all axes of one extent, else those of the inputs at one place, else one by one."""
        axes = [
            (name, axis, extent)
            for name, array in (*self.inputs.items(), *self.weights.items())
            if name in self.inputs or type_of(array).dtype not in (I32, I64)  # integer weights are shapes and places
            for axis, extent in enumerate(array.shape)
            if extent > 1
        ]
        ways: dict[Cut, None] = {}
        for extent in sorted({extent for _, _, extent in axes}, reverse=True):
            of_extent = [(name, axis) for name, axis, known in axes if known == extent]
            ways[Cut(tuple(of_extent), extent)] = None
            inputs = [each for each in of_extent if each[0] in self.inputs]
            for place in sorted({axis for _, axis in inputs}):
                ways[Cut(tuple(each for each in inputs if each[1] == place), extent)] = None
            ways.update({Cut((each,), extent): None for each in of_extent})
        yield from ways

    def shortened(self, cut: Cut, start: int, size: int) -> Part:
        """The part with `size` elements from `start` along the axes of a cut."""
        inputs, weights = dict(self.inputs), dict(self.weights)
        for name, axis in cut.axes:
            arrays = inputs if name in inputs else weights
            kept = tuple(
                slice(start, start + size) if each == axis else slice(None) for each in range(arrays[name].ndim)
            )
            arrays[name] = arrays[name][kept]
        return replace(self, inputs=inputs, weights=weights)


def _declared(name: str, array: Array) -> ValueInfoProto:
    return tensor_type(name, type_of(array))


def part(audited: Audited, golden: Capture, names: Set[str], value: str) -> Part:
    """The nodes of these names, and those before them whose results are no tensors, giving `value` first."""
    proto = audited.proto
    chosen = _with_hidden(audited.summary, golden, names)
    nodes = [node for node in audited.summary.nodes if node.name in chosen]
    made = {name for node in nodes for name in node.outputs}
    read = dict.fromkeys(name for node in nodes for name in node.inputs if name not in made)
    initializers = {item.name: item for item in proto.graph.initializer}
    varying = _varying(audited.summary)
    inputs: dict[str, Array] = {}
    weights: dict[str, Array] = {}
    for name in read:
        if name in initializers:
            array, dtype = read_array(initializers[name], audited.folder)
            weights[name] = to_face(array, dtype)
        else:
            known = audited.inputs[name] if name in audited.inputs else golden.arrays[name]
            (inputs if name in varying else weights)[name] = known
    inside = {name for node in nodes for name in node.inputs}
    ends = [name for node in nodes for name in node.outputs if name not in inside and name in golden.values]
    outputs = {name: parse_type(golden.values[name].type).dtype for name in dict.fromkeys((value, *ends))}
    return Part(tuple(node for node in proto.graph.node if node.name in chosen), inputs, weights, outputs, proto)


def _with_hidden(summary: ModelSummary, golden: Capture, names: Set[str]) -> set[str]:
    """With the nodes before them whose results have no value to start from."""
    made_by = Lineage(summary).producers
    chosen: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in chosen:
            continue
        chosen.add(name)
        node = next((each for each in summary.nodes if each.name == name), None)
        if node is None:
            raise InternalError(f"no node {name}")
        waiting += [
            summary.nodes[made_by[each]].name for each in node.inputs if each in made_by and each not in golden.arrays
        ]
    return chosen


def _varying(summary: ModelSummary) -> set[str]:
    """The values that depend on an input of the model, or are drawn."""
    found = set(summary.inputs)
    for node in summary.nodes:
        if node.op_type in LEFT_OPEN or found.intersection(node.inputs):
            found.update(node.outputs)
    return found


def contexts(summary: ModelSummary, nodes: Sequence[str]) -> Iterator[frozenset[str]]:
    """Nodes, and ever more of what stands around them: readers, sources, both, everything before."""
    own = frozenset(nodes)
    chosen = [node for node in summary.nodes if node.name in own]
    made = {name for node in chosen for name in node.outputs}
    read = {name for node in chosen for name in node.inputs}
    readers = frozenset(node.name for node in summary.nodes if made.intersection(node.inputs))
    sources = frozenset(node.name for node in summary.nodes if read.intersection(node.outputs))
    wider = (own, own | readers, own | sources, own | readers | sources, _ancestors(summary, own))
    yield from dict.fromkeys(wider)


def _ancestors(summary: ModelSummary, names: Iterable[str]) -> frozenset[str]:
    """The nodes and all that their results are made of."""
    needed: set[str] = set()
    found: set[str] = set(names)
    for node in reversed(summary.nodes):
        if node.name in found or needed.intersection(node.outputs):
            found.add(node.name)
            needed.update(node.inputs)
    return frozenset(found)

"""A model without what hides nodes: dimensions and set inputs fixed, local functions inlined, decided Ifs spliced."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, inliner

from repro.audit.rewiring import definitions, name_nodes, ordered, reads, splice
from repro.frontend import LoadedModel
from repro.frontend.bindings import set_value
from repro.frontend.entry import bind_inputs
from repro.frontend.importer import Importer
from repro.frontend.limits import function_key
from repro.frontend.scope import Body, Scope
from repro.frontend.tensors import onnx_type
from repro.frontend.training_info import bindings_of_infer
from repro.ir.graph import Graph, Value
from repro.ir.types import Array, DType, TensorType
from repro.numerics.host_mode import exact_arithmetic

_SPLICED_DEPTH = 41
"""Rounds of splicing; subgraphs are nested less deep than that (`repro.frontend.limits.MAX_DEPTH`)."""


@dataclass(frozen=True, eq=False)
class Flat:
    """A flat model; the static type of every tensor that its nodes make; those of its results that are no tensors."""

    loaded: LoadedModel
    inputs: dict[str, TensorType]
    types: dict[str, TensorType]
    hidden: tuple[str, ...]
    graph: Graph
    """Of the outputs, as imported: for drawing inputs."""


def flatten(
    loaded: LoadedModel,
    bind: Mapping[str, int],
    set_values: Mapping[str, Any],
    shapes: Mapping[str, Sequence[int]],
    changing: Collection[str] = (),
) -> Flat:
    """Initial values of the parameters named in `changing` decide nothing. Raises ReproError for a model that cannot be
    imported with these bindings."""
    with exact_arithmetic():
        fixed = _inlined(_fixed(loaded, bindings_of_infer(loaded.proto, bind), set_values, shapes))
        for _ in range(_SPLICED_DEPTH):
            _prune(fixed.proto.graph)
            if not _splice_decided(fixed, changing):
                break
        name_nodes(fixed.proto.graph.node)
        return _typed(fixed, changing)


def tensor_type(name: str, kind: TensorType) -> ValueInfoProto:
    """A value's declaration with static extents."""
    return helper.make_tensor_value_info(name, onnx_type(kind.dtype), kind.shape)


def tensor(name: str, array: Array, dtype: DType) -> TensorProto:
    """An initializer from a storage array."""
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return helper.make_tensor(name, onnx_type(dtype), array.shape, little.tobytes(), raw=True)


# ── dimensions, set inputs, functions ───────────────────────────────────────────────────────────────


def _fixed(
    loaded: LoadedModel, bind: Mapping[str, int], set_values: Mapping[str, Any], shapes: Mapping[str, Sequence[int]]
) -> LoadedModel:
    importer, scope = _import(loaded, ())
    ports, _ = bind_inputs(importer, scope, bind, set_values, shapes)
    types = {port.name: port.type for port in ports}
    proto = ModelProto()
    proto.CopyFrom(loaded.proto)
    del proto.training_info[:], proto.graph.input[:], proto.graph.value_info[:]
    for item in loaded.proto.graph.input:
        if item.name in set_values:
            dtype, array = set_value(item, set_values[item.name])
            proto.graph.initializer.append(tensor(item.name, array, dtype))
        else:
            proto.graph.input.append(tensor_type(item.name, types[item.name]) if item.name in types else item)
    return replace(loaded, proto=proto, content=b"")


def _inlined(loaded: LoadedModel) -> LoadedModel:
    """Without local functions; one that means other opsets than the model stays a node."""
    if not loaded.proto.functions:
        return loaded
    proto = inliner.inline_local_functions(loaded.proto)
    left = {function_key(item) for item in proto.functions}
    return replace(loaded, proto=proto, functions={key: loaded.functions[key] for key in left})


def _import(loaded: LoadedModel, changing: Collection[str]) -> tuple[Importer, Scope]:
    importer = Importer(loaded, changing=changing)
    return importer, Scope(Body.of_graph(loaded.proto.graph), loaded.opsets, {})


# ── Ifs ─────────────────────────────────────────────────────────────────────────────────────────────


def _splice_decided(loaded: LoadedModel, changing: Collection[str]) -> bool:
    """Put the branch taken in place of each If that the build decides, in place; whether there was one."""
    graph = loaded.proto.graph
    if not any(node.op_type == "If" for node in graph.node):
        return False
    importer, scope = _import(loaded, changing)
    bind_inputs(importer, scope, {}, {}, {})
    nodes: list[NodeProto] = []
    every = definitions(graph.node)
    every.update(item.name for item in (*graph.input, *graph.initializer))
    found = False
    for node in graph.node:
        taken = _taken(importer, scope, node)
        if taken is None:
            nodes.append(node)
            continue
        own = node.name or next(name for name in node.output if name)
        outside = every - definitions([node])
        outside.update(name for name in node.output)
        spliced = splice(node, helper.get_node_attr_value(node, taken), f"{own}.{taken}/", outside.__contains__)
        nodes += spliced.nodes
        graph.initializer.extend(spliced.initializers)
        found = True
    if found:
        _set_nodes(graph, nodes)
    return found


def _taken(importer: Importer, scope: Scope, node: NodeProto) -> str | None:
    """The attribute with the branch that a node takes whatever the inputs; None where only a run decides."""
    if node.op_type != "If" or node.domain not in ("", "ai.onnx") or len(node.input) != 1:
        return None
    importer.resolve(scope, node.input)
    known, condition = scope.find(node.input[0])
    value = importer.static(scope, condition) if known and isinstance(condition, Value) else None
    if value is None or value.size != 1:
        return None
    return "then_branch" if bool(value.reshape(-1)[0]) else "else_branch"


def _set_nodes(graph: GraphProto, nodes: Sequence[NodeProto]) -> None:
    copies = [NodeProto() for _ in nodes]
    for copy, node in zip(copies, nodes, strict=True):
        copy.CopyFrom(node)
    del graph.node[:]
    graph.node.extend(copies)


def _prune(graph: GraphProto) -> None:
    """Keep the nodes and initializers that the outputs need, in canonical order; in place."""
    outputs = [item.name for item in graph.output]
    _set_nodes(graph, ordered(graph.node, outputs))
    used = {*outputs, *(name for node in graph.node for name in reads(node))}
    for position in reversed(range(len(graph.initializer))):
        if graph.initializer[position].name not in used:
            del graph.initializer[position]


# ── types ───────────────────────────────────────────────────────────────────────────────────────────


def _typed(loaded: LoadedModel, changing: Collection[str]) -> Flat:
    """The types of all values, written into the model too."""
    graph = loaded.proto.graph
    importer, scope = _import(loaded, changing)
    ports, _ = bind_inputs(importer, scope, {}, {}, {})
    made = [name for node in graph.node for name in node.output if name]
    importer.resolve(scope, [*made, *(item.name for item in graph.output)])
    items = {name: scope.find(name)[1] for name in made}
    types = {name: item.type for name, item in items.items() if isinstance(item, Value)}
    shown = {item.name for item in graph.output}
    graph.value_info.extend(tensor_type(name, kind) for name, kind in types.items() if name not in shown)
    results: list[Value] = []
    for item in graph.output:
        value = scope.find(item.name)[1]
        if isinstance(value, Value):
            item.CopyFrom(tensor_type(item.name, value.type))
            results.append(value)
    inputs = {port.name: port.type for port in ports}
    hidden = tuple(name for name in made if name not in types)
    return Flat(loaded, inputs, types, hidden, Graph(tuple(inputs.values()), tuple(results)))

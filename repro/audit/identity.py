"""A model's nodes by what they are: digests of operator, attributes and subgraphs, free of names."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto

from repro.artifact.canonical import Json, encode, sha256
from repro.audit.records import ModelSummary, Node
from repro.audit.rewiring import free, ordered, reads
from repro.frontend.limits import domain_of, subgraphs

TensorDigest = Callable[[TensorProto], str]


def summary_of(model: ModelProto, name: str, digest: TensorDigest) -> ModelSummary:
    """The model without its tensors, nodes in canonical order."""
    graph = model.graph
    outputs = tuple(item.name for item in graph.output)
    opsets = {domain_of(item.domain): int(item.version) for item in model.opset_import}
    nodes = tuple(_node(node, opsets, digest) for node in ordered(graph.node, outputs))
    initializers = {item.name: digest(item) for item in graph.initializer}
    inputs = tuple(item.name for item in graph.input if item.name not in initializers)
    whole: Json = {
        "nodes": [[node.name, node.digest, list(node.inputs), list(node.outputs)] for node in nodes],
        "inputs": list(inputs),
        "outputs": list(outputs),
        "initializers": initializers,
    }
    return ModelSummary(name, sha256(encode(whole)), nodes, inputs, outputs, initializers)


def _node(node: NodeProto, opsets: Mapping[str, int], digest: TensorDigest) -> Node:
    outputs = tuple(name for name in node.output if name)
    whole = sha256(encode(_operation(node, opsets, digest)))
    return Node(node.name, node.op_type, domain_of(node.domain), reads(node), outputs, whole)


def _operation(node: NodeProto, opsets: Mapping[str, int], digest: TensorDigest) -> Json:
    domain = domain_of(node.domain)
    attributes = sorted(node.attribute, key=lambda item: item.name)
    return {
        "operator": [domain, node.op_type, opsets.get(domain, 1)],
        "attributes": [[item.name, _attribute(item, opsets, digest)] for item in attributes],
        "inputs": [bool(name) for name in node.input],
        "outputs": [bool(name) for name in node.output],
    }


def _attribute(item: AttributeProto, opsets: Mapping[str, int], digest: TensorDigest) -> Json:
    kind = AttributeProto.AttributeType.Name(item.type)
    if item.type == AttributeProto.GRAPH:
        return [kind, _graph(item.g, opsets, digest)]
    if item.type == AttributeProto.GRAPHS:
        return [kind, [_graph(graph, opsets, digest) for graph in item.graphs]]
    if item.type == AttributeProto.TENSOR:
        return [kind, _tensor(item.t, digest)]
    if item.type == AttributeProto.TENSORS:
        return [kind, [_tensor(each, digest) for each in item.tensors]]
    if item.ref_attr_name:
        return [kind, "of the function", item.ref_attr_name]
    value = onnx.helper.get_attribute_value(item)
    return [kind, [_word(each) for each in value] if isinstance(value, list | tuple) else _word(value)]


def _word(value: Any) -> Json:
    """A number, string or message as text; floats by their bits."""
    if isinstance(value, float):
        return struct.pack(">f", value).hex()
    if isinstance(value, bytes):
        return value.hex()
    return str(value) if isinstance(value, int | str) else value.SerializeToString(deterministic=True).hex()


def _tensor(item: TensorProto, digest: TensorDigest) -> Json:
    if item.data_type == TensorProto.STRING:
        return ["string", list(item.dims), [each.hex() for each in item.string_data]]
    return [TensorProto.DataType.Name(item.data_type), list(item.dims), digest(item)]


def _graph(graph: GraphProto, opsets: Mapping[str, int], digest: TensorDigest) -> Json:
    """A subgraph with its names made positions: results of nodes, inputs, initializers, what is read from outside."""
    outputs = [item.name for item in graph.output]
    places: dict[str, str] = {name: f"outside {number}" for number, name in enumerate(free(graph))}
    places |= {item.name: f"input {number}" for number, item in enumerate(graph.input)}
    tensors = {item.name: _tensor(item, digest) for item in graph.initializer}
    nodes: list[Json] = []
    for number, node in enumerate(ordered(graph.node, outputs)):
        captured = [name for inner in subgraphs(node) for name in free(inner)]
        read = [places.get(name, tensors.get(name, "")) for name in (*node.input, *captured)]
        nodes.append([_operation(node, opsets, digest), read])
        places |= {name: f"node {number} {position}" for position, name in enumerate(node.output) if name}
    return {"nodes": nodes, "outputs": [places.get(name, tensors.get(name, "")) for name in outputs]}

"""Values that ONNX Runtime keeps in blocks of channels, shown in the layout that the model has.

At its highest level, convolutions and what stands between them compute on tensors in blocks of channels (NCHWc), under
names of the runtime's own: a chain of them would be one group of fused nodes. But each such tensor is a value of the
model in another layout. Here it gets its own name back, by a reordering beside it, and what read the tensor in blocks
reads a reordering of the named value: so every node can be seen, and can be fed. Elements are moved, none is computed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, helper, numpy_helper

from repro.audit.peers.cost import shapes_of

DOMAIN = "com.microsoft.nchwc"
REORDERINGS = frozenset({"ReorderInput", "ReorderOutput"})
CHANNEL_MULTIPLE = 4
"""ReorderInput takes channels in fours; others are filled up with zeros first, as the blocks are."""

FILLED = "::filled"

_BLOCKED_NAME = re.compile(r"(.+)_nchwc(?:_token_\d+)?")
"""How the runtime calls a node in blocks: by the result that it makes."""

_ADDITIONS = frozenset({"Add", "Sum"})


@dataclass
class _Layout:
    """A lowered model taken apart: `blocked` are its tensors in blocks, `known` the model's values that they are."""

    model: ModelProto
    lowered: ModelProto
    blocked: dict[str, NodeProto] = field(default_factory=dict[str, NodeProto])
    known: dict[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        self.makers = {name: node for node in self.model.graph.node for name in node.output if name}
        self.nodes = {node.name: node for node in self.model.graph.node}
        self.readers: dict[str, list[NodeProto]] = {}
        for node in self.model.graph.node:
            for name in dict.fromkeys(node.input):
                self.readers.setdefault(name, []).append(node)


def shown_in_full(model: ModelProto, lowered: ModelProto) -> ModelProto:
    """The lowered model with its blocked tensors as values of the model, where it can be said which they are."""
    layout = _Layout(model, lowered)
    _find_blocked(layout)
    if not layout.blocked:
        return lowered
    shapes = shapes_of(model)
    layout.known = {name: value for name, value in _named(layout) if len(shapes.get(value, ())) > 2}
    return _rewritten(layout, shapes)


def _find_blocked(layout: _Layout) -> None:
    """Tensors in blocks: results of the operators for them, and of others that read one."""
    for node in layout.lowered.graph.node:
        reads_one = any(name in layout.blocked for name in node.input)
        makes_one = node.domain == DOMAIN or reads_one
        if makes_one and node.op_type != "ReorderOutput":
            layout.blocked.update(dict.fromkeys(node.output, node))


def _named(layout: _Layout) -> Iterator[tuple[str, str]]:
    """(tensor in blocks, value of the model): as the runtime itself reorders it back, else by its node's name."""
    reordered = {node.input[0]: node.output[0] for node in layout.lowered.graph.node if node.op_type == "ReorderOutput"}
    for name, node in layout.blocked.items():
        if node.op_type == "ReorderInput" and node.domain == DOMAIN:
            continue
        value = reordered.get(name) or _value_of(node, layout)
        if value in layout.makers:
            yield name, value


def _value_of(node: NodeProto, layout: _Layout) -> str | None:
    """The value that a node in blocks makes; None where that is not plain."""
    if node.domain != DOMAIN:
        own = layout.nodes.get(node.name)
        return own.output[0] if own is not None and own.op_type == node.op_type and len(own.output) == 1 else None
    called = _BLOCKED_NAME.fullmatch(node.name)
    if called is None or called[1] not in layout.makers:
        return None
    value = called[1] if len(node.input) <= 3 else _only_reader(called[1], _ADDITIONS, layout)  # with what is added
    activation = next((each.s.decode() for each in node.attribute if each.name == "activation"), None)
    if activation and value and layout.makers[value].op_type != activation:
        value = _only_reader(value, frozenset({activation}), layout)
    return value


def _only_reader(value: str, operators: frozenset[str], layout: _Layout) -> str | None:
    """The result of the node behind a value, if it is the only one and one of these."""
    readers = layout.readers.get(value, [])
    return readers[0].output[0] if len(readers) == 1 and readers[0].op_type in operators else None


def _rewritten(layout: _Layout, shapes: Mapping[str, Sequence[int]]) -> ModelProto:
    """Each known tensor is reordered to its value where it is made, and its readers read that, reordered again."""
    copy = ModelProto()
    copy.CopyFrom(layout.lowered)
    graph = copy.graph
    again = {name: f"{value}::blocks" for name, value in layout.known.items()}
    nodes: list[NodeProto] = []
    for node in graph.node:
        back = node.op_type == "ReorderOutput" and node.domain == DOMAIN and node.input[0] in layout.known
        if back and node.output[0] == layout.known[node.input[0]]:
            continue  # made anew beside the tensor, for all to read
        if not back:
            node.input[:] = [again.get(name, name) for name in node.input]
        nodes.append(node)
        for name in (each for each in node.output if each in layout.known):
            value = layout.known[name]
            nodes += _reorderings(copy, name, value, again[name], shapes[value])
    del graph.node[:]
    graph.node.extend(nodes)
    return copy


def _reorderings(model: ModelProto, tensor: str, value: str, again: str, shape: Sequence[int]) -> Iterator[NodeProto]:
    """The nodes that make a value of a tensor in blocks, and of the value such a tensor again."""
    channels = shape[1]
    back: dict[str, Any] = {"channels": channels, "channels_last": 0}
    yield helper.make_node("ReorderOutput", [tensor], [value], f"{value}::shown", domain=DOMAIN, **back)
    source, missing = value, -channels % CHANNEL_MULTIPLE
    if missing:
        zeros = np.zeros((shape[0], missing, *shape[2:]), np.float32)
        model.graph.initializer.append(numpy_helper.from_array(zeros, f"{value}::zeros"))
        source = f"{value}{FILLED}"
        yield helper.make_node("Concat", [value, f"{value}::zeros"], [source], source, axis=1)
    yield helper.make_node("ReorderInput", [source], [again], again, domain=DOMAIN, channels_last=0)

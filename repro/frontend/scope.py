"""Names and what they stand for, while a body (graph, subgraph, function) is imported."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import onnx

from repro.errors import ReproError
from repro.frontend.limits import MAX_SEQUENCE, subgraphs
from repro.ir.graph import Value, argument
from repro.ir.types import I64, TensorType
from repro.ops import add, mul, scalar

TRAINING_DOMAIN = "ai.onnx.preview.training"


def check_sequence(length: int) -> None:
    """Refuse a sequence over the limit."""
    if length > MAX_SEQUENCE:
        raise ReproError("a sequence is over the limit", found=f"{length} values", expected=f"at most {MAX_SEQUENCE}")


@dataclass(frozen=True)
class Items:
    """An ONNX sequence whose length is known: its values, in order."""

    values: tuple[Value, ...]

    def __post_init__(self) -> None:
        check_sequence(len(self.values))


Item = Value | Items | None
"""What a name stands for; None is an optional input that was left out (or an empty optional)."""


def reads(node: onnx.NodeProto) -> tuple[str, ...]:
    """The names a node reads: its inputs, and the tensor that a Gradient says to differentiate."""
    named = [item.s for item in node.attribute if item.name == "y" and item.type == onnx.AttributeProto.STRING]
    if node.op_type != "Gradient" or node.domain != TRAINING_DOMAIN:
        return tuple(node.input)
    return (*node.input, *(text.decode(errors="replace") for text in named))


def name_of(node: onnx.NodeProto) -> str:
    """A node's name or, where it has none, that of its first result; '' without results."""
    return node.name or next((name for name in node.output if name), "")


class Body:
    """The nodes of a graph or function, with the node that makes each name."""

    def __init__(
        self,
        nodes: Iterable[onnx.NodeProto],
        inputs: Sequence[str],
        outputs: Sequence[str],
        initializers: Iterable[onnx.TensorProto] = (),
    ) -> None:
        self.nodes = tuple(nodes)
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self.initializers = {tensor.name: tensor for tensor in initializers}
        self.producer: dict[str, int] = {}
        self._children: dict[int, tuple[Body, ...]] = {}
        given = {*self.inputs, *self.initializers}
        for index, node in enumerate(self.nodes):
            for name in filter(None, node.output):
                if name in self.producer or name in given:
                    what = "a node writes over what is given" if name in given else "two results have one name"
                    raise ReproError(what, node.op_type, node.name, f"'{name}' is written again", "one writer")
                self.producer[name] = index

    @classmethod
    def of_graph(cls, graph: onnx.GraphProto) -> Body:
        if graph.sparse_initializer:
            name = graph.sparse_initializer[0].values.name
            raise ReproError("sparse initializers are not supported", node=name, expected="a dense tensor")
        inputs, outputs = [item.name for item in graph.input], [item.name for item in graph.output]
        return cls(graph.node, inputs, outputs, graph.initializer)

    @classmethod
    def of_function(cls, function: onnx.FunctionProto) -> Body:
        return cls(function.node, function.input, function.output)

    def children(self, index: int) -> tuple[Body, ...]:
        """The bodies of a node's subgraphs, in the order of its attributes."""
        found = self._children.get(index)
        if found is None:
            found = self._children[index] = tuple(Body.of_graph(graph) for graph in subgraphs(self.nodes[index]))
        return found

    def reader(self, name: str) -> onnx.NodeProto | None:
        """The first node that reads a name, itself or in a subgraph; None where only an output is of this name."""
        for index, node in enumerate(self.nodes):
            if name in reads(node) or any(name in child.free for child in self.children(index)):
                return node
        return None

    @cached_property
    def free(self) -> tuple[str, ...]:
        """Names of the surroundings that this body may read, subgraphs of its own included."""
        used: dict[str, None] = {}
        for index, node in enumerate(self.nodes):
            used.update(dict.fromkeys(reads(node)))
            for child in self.children(index):
                used.update(dict.fromkeys(child.free))
        used.update(dict.fromkeys(self.outputs))
        own = {"", *self.inputs, *self.initializers, *self.producer}
        return tuple(name for name in used if name not in own)

    @cached_property
    def size(self) -> int:
        """Its nodes, those of subgraphs included."""
        return sum(1 + sum(child.size for child in self.children(index)) for index in range(len(self.nodes)))


@dataclass
class Region:
    """A closed region in the making: explicit arguments, then what it reads from outside, as it is met."""

    types: list[TensorType]
    surroundings: Scope
    is_closed: Callable[[Value], bool]
    captured: list[Value] = field(default_factory=list[Value])
    _inner: dict[Value, Value] = field(default_factory=dict[Value, Value])
    _outer: dict[Value, Value] = field(default_factory=dict[Value, Value])

    def capture(self, item: Item) -> Item:
        """An outer item as the region sees it: constants as they are, all else through an argument."""
        if item is None:
            return None
        if isinstance(item, Items):
            return Items(tuple(self.capture_value(value) for value in item.values))
        return self.capture_value(item)

    def capture_value(self, value: Value) -> Value:
        if self.is_closed(value):
            return value
        found = self._inner.get(value)
        if found is None:
            found = self._inner[value] = argument(len(self.types), value.type)
            self._outer[found] = value
            self.types.append(value.type)
            self.captured.append(value)
        return found

    def outside(self, value: Value) -> Value | None:
        """The outer value behind an argument that stands for a captured one."""
        return self._outer.get(value)


@dataclass
class Scope:
    """One body being imported: its names, its opsets, where it stands.

    `attributes` are those of the function call around it; `path` names the calls that led here.
    """

    body: Body
    opsets: Mapping[str, int]
    attributes: Mapping[str, onnx.AttributeProto]
    path: str = ""
    outer: Scope | None = None
    region: Region | None = None
    iteration: Callable[[], Value | None] | None = None
    items: dict[str, Item] = field(default_factory=dict[str, Item])

    def find(self, name: str) -> tuple[bool, Item]:
        """Whether a name is known here or around, and its item."""
        if not name:
            return True, None
        if name in self.items:
            return True, self.items[name]
        if self.outer is None or name in self.body.producer:
            return False, None
        known, item = self.outer.find(name)
        if known:
            item = self.region.capture(item) if self.region is not None else item
            self.items[name] = item
        return known, item

    def defines(self, name: str) -> bool:
        """Whether a node or initializer of this body makes the name."""
        return name in self.body.producer or name in self.body.initializers

    def around(self) -> Region | None:
        """The region that this body stands in, directly or through bodies in place; None outside of all."""
        place: Scope | None = self
        while place is not None and place.region is None:
            place = place.outer
        return None if place is None else place.region

    def inward(self, value: Value) -> Value:
        """A value from outside of every region, as this place sees it: captured by each region around it."""
        region = self.around()
        return value if region is None else region.capture_value(region.surroundings.inward(value))

    def linear_iteration(self) -> Value | None:
        """Number of the current loop iteration, over all loops around; None outside loops (rule 16)."""
        if self.iteration is not None:
            return self.iteration()
        found = self.outer.linear_iteration() if self.outer is not None else None
        return found if found is None or self.region is None else self.region.capture_value(found)


def nested_iteration(scope: Scope, region: Region | None, inner: Value, count: int | None) -> Callable[[], Value]:
    """Gives the linear number of an iteration of a loop that stands in `scope`.

    A loop of unknown count gets 2^32 numbers.
    """

    def number() -> Value:
        around = scope.linear_iteration()
        if around is None:
            return inner
        around = around if region is None else region.capture_value(around)
        return add(mul(around, scalar(count if count is not None else 1 << 32, I64)), inner)

    return number

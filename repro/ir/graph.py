"""The graph: an immutable, hash-consed DAG of core ops and composites, and its digest.

A node is (operation, attributes, operands, result types, regions). Its digest is sha256 over canonical
bytes of those, so it knows no names, no producer and no order of construction. Equal nodes are one object.
A region is a graph that sees nothing but its own arguments; the entry graph is a region too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import numpy as np

from repro.ir.types import Array, DType, TensorType

Attribute = int | bool | str | bytes | tuple["Attribute", ...]


def _encode(value: Attribute | DType) -> bytes:
    """An injective byte encoding of an attribute: a tag, a length, the content."""
    if isinstance(value, DType):
        value = value.name
    if isinstance(value, bool):
        return b"b1" if value else b"b0"
    if isinstance(value, int):
        return b"i%d;" % value
    if isinstance(value, str):
        data = value.encode()
        return b"s%d:" % len(data) + data
    if isinstance(value, bytes):
        return b"y%d:" % len(value) + value
    return b"t%d:" % len(value) + b"".join(_encode(item) for item in value)


@dataclass(frozen=True, slots=True)
class Value:
    """One result of a node."""

    node: Node
    index: int

    @property
    def type(self) -> TensorType:
        return self.node.types[self.index]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def rank(self) -> int:
        return len(self.type.shape)


class Node:
    """An operation applied to values. Build nodes with the constructors of `repro.ops`, which infer types."""

    __slots__ = ("__weakref__", "attributes", "digest", "op", "operands", "regions", "types")
    _interned: ClassVar[WeakValueDictionary[bytes, Node]] = WeakValueDictionary()

    op: str
    attributes: Mapping[str, Attribute]
    operands: tuple[Value, ...]
    types: tuple[TensorType, ...]
    regions: tuple[Graph, ...]
    digest: bytes

    def __new__(
        cls,
        op: str,
        operands: Iterable[Value],
        attributes: Mapping[str, Attribute],
        types: Iterable[TensorType],
        regions: Iterable[Graph] = (),
    ) -> Node:
        operands, types, regions = tuple(operands), tuple(types), tuple(regions)
        ordered = {name: attributes[name] for name in sorted(attributes)}
        parts = [
            _encode(op),
            _encode(tuple((name, value) for name, value in ordered.items())),
            _encode(tuple((value.node.digest, value.index) for value in operands)),
            _encode(tuple(str(kind) for kind in types)),
            _encode(tuple(region.digest for region in regions)),
        ]
        digest = hashlib.sha256(b"".join(parts)).digest()
        found = cls._interned.get(digest)
        if found is not None:
            return found
        made = object.__new__(cls)
        made.op, made.attributes, made.operands = op, ordered, operands
        made.types, made.regions, made.digest = types, regions, digest
        cls._interned[digest] = made
        return made

    def __getitem__(self, attribute: str) -> Any:
        return self.attributes[attribute]

    @property
    def results(self) -> tuple[Value, ...]:
        return tuple(Value(self, index) for index in range(len(self.types)))

    @property
    def value(self) -> Value:
        """The only result."""
        if len(self.types) != 1:
            raise TypeError(f"{self.op} has {len(self.types)} results")
        return Value(self, 0)

    def __repr__(self) -> str:
        return f"<{self.op} {' '.join(map(str, self.types))}>"


@dataclass(frozen=True, eq=False)
class Graph:
    """A closed region: argument types and results. Everything between is reached from the results."""

    arguments: tuple[TensorType, ...]
    results: tuple[Value, ...]

    @cached_property
    def digest(self) -> bytes:
        parts = [
            _encode(tuple(str(kind) for kind in self.arguments)),
            _encode(tuple((value.node.digest, value.index) for value in self.results)),
        ]
        return hashlib.sha256(b"graph" + b"".join(parts)).digest()

    @property
    def types(self) -> tuple[TensorType, ...]:
        return tuple(value.type for value in self.results)

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """Every node once, operands before users: depth first from the results, operands in order."""
        return tuple(_postorder(value.node for value in self.results))

    @cached_property
    def users(self) -> dict[Value, tuple[Node, ...]]:
        """The nodes that read each value, in order, each once; values that none reads are not in it."""
        found: dict[Value, list[Node]] = {}
        for node in self.nodes:
            for value in dict.fromkeys(node.operands):
                found.setdefault(value, []).append(node)
        return {value: tuple(nodes) for value, nodes in found.items()}


def _postorder(roots: Iterable[Node], known: Iterable[Node] = ()) -> Iterator[Node]:
    seen: set[Node] = set(known)
    for root in roots:
        stack = [(root, False)]
        while stack:
            node, ready = stack.pop()
            if ready:
                yield node
            elif node not in seen:
                seen.add(node)
                stack.append((node, True))
                stack.extend((value.node, False) for value in reversed(node.operands) if value.node not in seen)


def first_visits(graph: Graph, regions: bool = True) -> Iterator[Node]:
    """Nodes in canonical order: first visit of a depth-first walk from the results, regions included if asked."""
    seen: set[Node] = set()
    stack = [value.node for value in reversed(graph.results)]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        yield node
        for region in node.regions if regions else ():
            yield from first_visits(region)
        stack.extend(value.node for value in reversed(node.operands))


def argument(index: int, kind: TensorType) -> Value:
    """Argument `index` of the graph around it."""
    return Node("argument", (), {"index": index}, (kind,)).value


def parameter(identity: int | str, kind: TensorType) -> Value:
    """A tensor with an identity and an initial value that stands outside the graph."""
    return Node("parameter", (), {"identity": identity}, (kind,)).value


def constant(array: Array, dtype: DType) -> Value:
    """A constant from a storage array: dtype, shape and raw little-endian bits."""
    data = np.ascontiguousarray(array, dtype=dtype.storage)
    kind = TensorType(dtype, tuple(np.shape(array)))
    return Node("constant", (), {"data": data.tobytes()}, (kind,)).value


def constant_array(node: Node) -> Array:
    """The storage array of a constant node (read-only)."""
    kind = node.types[0]
    return np.frombuffer(node["data"], dtype=kind.dtype.storage).reshape(kind.shape)


# ── rewriting ───────────────────────────────────────────────────────────────────────────────────────

Locations = dict[Node, str]
"""Source of a node: 'OnnxOp node_name'. Beside the graph; in no digest."""

Rewrite = Callable[[Node, tuple[Value, ...]], tuple[Value, ...] | None]
"""Given a node and its rewritten operands: its new results, or None to keep it as it is."""


def rebuild(node: Node, operands: tuple[Value, ...], regions: tuple[Graph, ...] | None = None) -> Node:
    """The node on other operands of the same types."""
    kept = node.regions if regions is None else regions
    if operands == node.operands and kept is node.regions:
        return node
    return Node(node.op, operands, node.attributes, node.types, kept)


def rewrite(
    graph: Graph,
    rule: Rewrite,
    locations: Locations | None = None,
    regions: bool = True,
    kept: Sequence[Node] = (),
) -> Graph:
    """The graph with `rule` applied to every node, operands first; regions first of all, if asked.

    A new node without a location takes that of the node it stands for. `kept` are nodes that stay as they are, and what
    only they lead to.
    """
    mapped: dict[Value, Value] = {value: value for node in kept for value in node.results}
    for node in _postorder((value.node for value in graph.results), kept) if kept else graph.nodes:
        operands = tuple(mapped[value] for value in node.operands)
        inner = tuple(rewrite(region, rule, locations) for region in node.regions) if regions else node.regions
        unchanged = all(new.digest == old.digest for new, old in zip(inner, node.regions, strict=True))
        fresh = rebuild(node, operands, None if unchanged else inner)
        results = rule(fresh, fresh.operands) or fresh.results
        for old, new in zip(node.results, results, strict=True):
            if old.type != new.type:
                raise TypeError(f"rewriting {node} changed its type to {new.type}")
            mapped[old] = new
        if locations is not None and node in locations:
            _inherit(results, operands, locations[node], locations)
    return Graph(graph.arguments, tuple(mapped[value] for value in graph.results))


def _inherit(results: tuple[Value, ...], stop: tuple[Value, ...], source: str, locations: Locations) -> None:
    known = {value.node for value in stop}
    stack = [value.node for value in results]
    while stack:
        node = stack.pop()
        if node in known or node in locations:
            continue
        known.add(node)
        locations[node] = source
        stack.extend(value.node for value in node.operands)


def substitute(graph: Graph, arguments: tuple[Value, ...]) -> tuple[Value, ...]:
    """The results of a region with its arguments replaced: inlining."""
    mapped: dict[Value, Value] = {}
    for node in graph.nodes:
        if node.op == "argument":
            new: tuple[Value, ...] = (arguments[node["index"]],)
        else:
            new = rebuild(node, tuple(mapped[value] for value in node.operands)).results
        mapped.update(zip(node.results, new, strict=True))
    return tuple(mapped[value] for value in graph.results)


@dataclass(frozen=True)
class Canonical:
    """A graph with numbered identities, and which old identity each number was."""

    graph: Graph
    parameters: tuple[str | int, ...]
    random: tuple[str | int, ...]


def canonicalise(graph: Graph, locations: Locations | None = None) -> Canonical:
    """Number parameters and random nodes by canonical order; only what the results reach remains."""
    parameters: dict[str | int, int] = {}
    random: dict[str | int, int] = {}
    for node in first_visits(graph):
        if node.op == "parameter":
            parameters.setdefault(node["identity"], len(parameters))
        if node.op == "random_bits":
            random.setdefault(node["identity"], len(random))

    def renumber(node: Node, operands: tuple[Value, ...]) -> tuple[Value, ...] | None:
        numbers = {"parameter": parameters, "random_bits": random}.get(node.op)
        if numbers is None:
            return None
        attributes = {**node.attributes, "identity": numbers[node["identity"]]}
        return Node(node.op, operands, attributes, node.types).results

    return Canonical(rewrite(graph, renumber, locations), tuple(parameters), tuple(random))

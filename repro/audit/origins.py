"""Where two runs of a model part: nodes that make different values from equal ones, and differences in what was given.

A node whose result differs is an origin only if all that it read is equal; below it, differences are passed on. Where
an executor fuses nodes, the values between them are not shown: the walk from a value back to what it was made of goes
through them, and their nodes are one group. A run shows the first origins only, because nothing below one gets equal
inputs. So each group is also run by itself on golden values (`Capture.fed`), which shows the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property

from repro.audit.records import Capture, Kind, ModelSummary, Node, Record, Value


@dataclass(frozen=True, eq=False)
class Side:
    """One capture of a comparison, under the name that it has there, and the record that it stands in."""

    name: str
    capture: Capture
    record: Record

    @property
    def is_golden(self) -> bool:
        return self.capture is self.record.golden

    @cached_property
    def values(self) -> Mapping[str, Value]:
        """What may be compared: where showing values changed the served outputs, those outputs alone."""
        capture = self.capture
        return {**capture.values, **capture.served} if capture.faithful else capture.served

    @cached_property
    def cuts(self) -> Set[str]:
        """The values at which the executor's nodes were cut apart to be fed: those that it has in golden's type."""
        golden = self.record.golden.values
        return {name for name, value in self.capture.values.items() if golden.get(name, value).type == value.type}

    @property
    def fed(self) -> Mapping[str, Value]:
        """Golden nodes make golden values of golden values, however they are grouped."""
        if self.is_golden:
            return self.values
        return self.capture.fed if self.capture.faithful else {}


# ── groups of nodes ─────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Group:
    """Nodes by position, and the shown values and leaves that they read from outside."""

    nodes: frozenset[int]
    sources: frozenset[str]


@dataclass(frozen=True, eq=False)
class Lineage:
    """What each value of a model is made by. A value without a node is a leaf: an input or an initializer. So is a
    constant that no side shows: its node computes nothing that could drift."""

    model: ModelSummary

    @cached_property
    def producers(self) -> Mapping[str, int]:
        return {name: position for position, node in enumerate(self.model.nodes) for name in node.outputs if name}

    @cached_property
    def names(self) -> Set[str]:
        """Every value of the model; an executor may show others, of its own making."""
        return self.producers.keys() | set(self.model.inputs) | self.model.initializers.keys()

    def ordered(self, names: Iterable[str]) -> list[str]:
        """Values in canonical order: those of the leaves first, then by node and place among its outputs."""
        places = {name: place for place, name in enumerate(self.producers)}
        return sorted(names, key=lambda name: (places.get(name, -1), name))

    def group(self, value: str, shown: Set[str]) -> Group:
        """The nodes that make a value out of shown values and leaves."""
        nodes: set[int] = set()
        sources: set[str] = set()
        waiting = [self.producers[value]]
        while waiting:
            position = waiting.pop()
            if position in nodes:
                continue
            nodes.add(position)
            for name in self.model.nodes[position].inputs:
                if name in shown or name not in self.producers or self._is_constant(name):
                    sources.add(name)
                else:
                    waiting.append(self.producers[name])
        return Group(frozenset(nodes), frozenset(sources))

    def _is_constant(self, value: str) -> bool:
        return self.model.nodes[self.producers[value]].op_type == "Constant"


# ── what was given ──────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Changes:
    """How two records differ before anything runs: in leaves by name, in nodes with other attributes (left and right),
    in nodes of other operators or wiring, and in leaves that only one side has."""

    weights: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    attributes: tuple[tuple[Node, Node], ...] = ()
    graph: tuple[Node, ...] = ()
    graph_leaves: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.leaves or self.nodes)

    @cached_property
    def leaves(self) -> frozenset[str]:
        """Inputs and initializers that are not the same."""
        return frozenset((*self.weights, *self.inputs, *self.graph_leaves))

    @property
    def nodes(self) -> tuple[Node, ...]:
        return (*(node for node, _ in self.attributes), *self.graph)

    @cached_property
    def values(self) -> frozenset[str]:
        """What changed nodes make, on either side."""
        return frozenset(name for node in self.nodes for name in node.outputs)


def changes(left: Record, right: Record) -> Changes:
    """Nodes are told apart by the value that they make first; their own names say nothing about what is computed."""
    if left is right:
        return Changes()
    one, other = left.model, right.model
    nodes = [{made(node): node for node in model.nodes} for model in (one, other)]
    shared = [(node, nodes[1][name]) for name, node in nodes[0].items() if name in nodes[1]]
    attributes = [(a, b) for a, b in shared if a.digest != b.digest and _wiring(a) == _wiring(b)]
    graph = [a for a, b in shared if _wiring(a) != _wiring(b)]
    graph += [node for name, node in nodes[0].items() if name not in nodes[1]]
    graph += [node for name, node in nodes[1].items() if name not in nodes[0]]
    leaves = [{*model.inputs, *model.initializers} for model in (one, other)]
    return Changes(
        weights=tuple(_unequal(one.initializers, other.initializers)),
        inputs=tuple(_unequal(left.inputs, right.inputs)),
        attributes=tuple(attributes),
        graph=tuple(graph),
        graph_leaves=tuple(sorted(leaves[0] ^ leaves[1])),
    )


def made(node: Node) -> str:
    """The value that a node is known by: the first that it makes."""
    return next((name for name in node.outputs if name), node.name)


def _wiring(node: Node) -> tuple[str, str, tuple[str, ...], tuple[str, ...]]:
    return node.domain, node.op_type, node.inputs, node.outputs


def _unequal(one: Mapping[str, object], other: Mapping[str, object]) -> Iterator[str]:
    return (name for name, value in one.items() if name in other and value != other[name])


# ── origins ─────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Found:
    """An origin before it is measured: the group, what it read, and the first value that it made different."""

    nodes: frozenset[int]
    sources: frozenset[str]
    value: str
    fed: bool

    @property
    def kind(self) -> Kind:
        return Kind.NODE if len(self.nodes) == 1 else Kind.FUSED


@dataclass(frozen=True, eq=False)
class Comparison:
    """Two sides, value by value."""

    left: Side
    right: Side
    lineage: Lineage
    changed: Changes

    @cached_property
    def compared(self) -> list[str]:
        """Values that both show, in canonical order."""
        both = self.left.values.keys() & self.right.values.keys()
        return self.lineage.ordered(both & self.lineage.names)

    @cached_property
    def differing(self) -> list[str]:
        return [name for name in self.compared if self.left.values[name] != self.right.values[name]]

    def found(self) -> list[Found]:
        """All origins, in canonical order; groups that share nodes are one."""
        return self._merged([*self._in_the_run(), *self._when_fed()])

    def _in_the_run(self) -> Iterator[Found]:
        shown = set(self.compared)
        unequal = {*self.differing, *self.changed.leaves, *(self.changed.values - shown)}
        for value in self.differing:
            if value not in self.lineage.producers:
                continue
            group = self.lineage.group(value, shown)
            if not group.sources & unequal and not self._was_changed(group):
                yield Found(group.nodes, group.sources, value, fed=False)

    def _when_fed(self) -> Iterator[Found]:
        """Only groups that both sides were fed alike: from different golden values, or other cuts, nothing follows."""
        left, right = self.left, self.right
        for value in self.fed_alike():
            if left.fed[value] == right.fed[value]:
                continue
            group = self._fed_group(value)
            if group and not self._was_changed(group) and self._equal_golden(group.sources):
                yield Found(group.nodes, group.sources, value, fed=True)

    def fed_alike(self) -> list[str]:
        """Values that both sides made of golden ones."""
        if self.left.is_golden and self.right.is_golden:
            return []
        names = self.left.fed.keys() & self.right.fed.keys()
        return self.lineage.ordered(name for name in names if name in self.lineage.producers)

    def _fed_group(self, value: str) -> Group | None:
        """The group that was fed, if it is the same on both sides; golden's is whatever the other's is."""
        groups = [self.lineage.group(value, side.cuts) for side in (self.left, self.right) if not side.is_golden]
        return groups[0] if all(group == groups[0] for group in groups) else None

    def _equal_golden(self, sources: Set[str]) -> bool:
        if sources & self.changed.leaves:
            return False
        one, other = (side.record.golden for side in (self.left, self.right))
        return one is other or all(one.values.get(name) == other.values.get(name) for name in sources)

    def _was_changed(self, group: Group) -> bool:
        made = (name for place in group.nodes for name in self.lineage.model.nodes[place].outputs)
        return any(name in self.changed.values for name in made)

    def _merged(self, found: Sequence[Found]) -> list[Found]:
        """One origin for the groups that share nodes: any of these may be what drifts. What the run shows leads."""
        merged: list[list[Found]] = []
        for each in found:
            touching = [members for members in merged if any(other.nodes & each.nodes for other in members)]
            merged = [members for members in merged if members not in touching]
            merged.append([*(member for members in touching for member in members), each])
        order = {each: place for place, each in enumerate(found)}
        joined = {min(members, key=order.__getitem__): members for members in merged}
        made = {
            first.value: Found(
                nodes=frozenset[int]().union(*(member.nodes for member in members)),
                sources=frozenset[str]().union(*(member.sources for member in members)),
                value=first.value,
                fed=first.fed,
            )
            for first, members in joined.items()
        }
        return [made[value] for value in self.lineage.ordered(made)]

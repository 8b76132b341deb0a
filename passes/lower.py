"""Graph to program: a kernel for every stored value, a step for every piece of control flow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from passes.building import Builder, KernelBuilder, Place
from passes.fuse import Fusion, fuse
from passes.plan import plan
from passes.scans import reversed_results, reverses, same_rows
from repro.errors import InternalError
from repro.ir import index as ix
from repro.ir.expressions import Expr, const, load
from repro.ir.graph import Graph, Node, Value, constant_array
from repro.ir.program import INPUT, OUTPUT, PARAMETER, Branch, CountedLoop, Program, Step, While
from repro.ir.types import Array, DType, TensorType
from repro.ops.record import Access, Axes, ByElement, ByNests, Nest, record


class _Region:
    """Lowers one graph: values to places, nodes to steps."""

    def __init__(
        self, builder: Builder, graph: Graph, arguments: Sequence[Place | int], parameters: Mapping[int, Place]
    ) -> None:
        self.builder, self.graph = builder, graph
        self.arguments, self.parameters = arguments, parameters
        self.fusion: Fusion = fuse(graph)
        self.turned = reversed_results(graph)
        self.places: dict[Value, Place] = {}
        self.counters: dict[Value, int] = {}
        self.steps: list[Step] = []

    # values ─────────────────────────────────────────────────────────────────────────────────────────

    def element(self, kernel: KernelBuilder, value: Value) -> Access:
        def at(index: tuple[Expr, ...]) -> Expr:
            key = (value, index)
            found = kernel.known.get(key)
            if found is None:
                found = kernel.known[key] = self._element(kernel, value, index)
            return found

        return at

    def _element(self, kernel: KernelBuilder, value: Value, index: tuple[Expr, ...]) -> Expr:
        if value in self.counters:
            return kernel.counter(self.counters[value])
        if value.node.op == "constant":
            uniform = _uniform(constant_array(value.node), value.dtype)
            if uniform is not None:
                return uniform
            return kernel.load(self.place(value), index)
        if value in self.places:
            return kernel.load(self.places[value], index)
        return self.inline(kernel, value, index)

    def inline(self, kernel: KernelBuilder, value: Value, index: tuple[Expr, ...]) -> Expr:
        lowering = record(value.node).lowering
        if not isinstance(lowering, ByElement):
            raise InternalError(f"{value.node} is read before it is stored")
        operands = tuple(self.element(kernel, operand) for operand in value.node.operands)
        return lowering.element(value.node, value.index, index, operands, kernel.axes)

    def place(self, value: Value) -> Place:
        """The place of a value, which is stored now if it was not."""
        if value not in self.places:
            if value.node.op == "constant":
                self.places[value] = self.builder.constant(value.type, value.node["data"])
            else:
                target = self.builder.temporary(value.type)
                self.store(value, target)
                self.places[value] = target
        return self.places[value]

    # kernels ────────────────────────────────────────────────────────────────────────────────────────

    def store(self, value: Value, target: Place) -> None:
        """Append the kernel that computes a value into a place."""
        if not value.type.elements:
            return
        kernel = KernelBuilder(self.builder)
        chain = self.fusion.epilogues.get(value, (value,)) if value not in self.places else (value,)
        axes = tuple(kernel.axes.fresh(extent) for extent in chain[0].shape)
        index: tuple[Expr, ...] = axes
        head = chain[0]
        computed = value in self.places or value.node.op == "constant" or value in self.counters
        found = self._element(kernel, head, index) if computed else self.inline(kernel, head, index)
        kernel.known[head, index] = found
        for link in chain[1:]:
            lowering = record(link.node).lowering
            if isinstance(lowering, ByElement) and lowering.moves and lowering.forward is not None:
                index = lowering.forward(link.node, index)
            else:
                found = self.inline(kernel, link, index)
            kernel.known[link, index] = found
        nest = Nest(axes, 0, ix.linear(index, value.shape), found)
        self.steps.extend(kernel.calls(nest, target))

    def store_nests(self, value: Value, target: Place, lowering: ByNests, settled: Value | None) -> None:
        """Append the loop nests of an op that writes in an order of its own; `settled` stands for what they write."""
        kernel = KernelBuilder(self.builder)
        for nest in self._nests(kernel, value, target, lowering):
            made = nest if settled is None else replace(nest, value=_settled(settled.node, nest, kernel.axes))
            self.steps.extend(kernel.calls(made, target))

    def _nests(self, kernel: KernelBuilder, value: Value, target: Place, lowering: ByNests) -> Sequence[Nest]:
        def result(offset: Expr) -> Expr:
            return load(value.dtype, kernel.local(target.buffer), kernel.offset(target, offset))

        operands = tuple(self.element(kernel, operand) for operand in value.node.operands)
        return lowering.nests(value.node, operands, result, kernel.axes)

    # nodes ──────────────────────────────────────────────────────────────────────────────────────────

    def lower(self, targets: Sequence[Place]) -> list[Step]:
        """Steps that leave the graph's results in the given places."""
        wanted: dict[Value, Place] = {}
        for value, target in zip(self.graph.results, targets, strict=True):
            if not _bound(value):
                wanted.setdefault(value, target)
        for node in self.graph.nodes:
            self.node(node, wanted)
        for value, target in zip(self.graph.results, targets, strict=True):
            if self.places.get(value) is not target:
                self.store(value, target)
        return self.steps

    def node(self, node: Node, wanted: dict[Value, Place]) -> None:
        if node.op == "argument":
            bound = self.arguments[node["index"]]
            if isinstance(bound, int):
                self.counters[node.value] = bound
            else:
                self.places[node.value] = bound
        elif node.op == "parameter":
            self.places[node.value] = self.parameters[node["identity"]]
        elif node.op in _CONTROL:
            targets = self.targets(node, wanted)
            _CONTROL[node.op](self, node, targets)
            ends = [self.turned.get(value, value) for value in node.results]
            self.places.update(zip(ends, targets, strict=True))
        elif node.op != "constant" and node.results[0] not in self.places:
            self.plain(node, wanted)

    def targets(self, node: Node, wanted: Mapping[Value, Place]) -> list[Place]:
        """Where control flow leaves its results, or the reverse of these: whole buffers, whose rows loops write."""
        found: dict[Value, Place] = {}
        same = same_rows(node, self.turned)
        for value in node.results:
            target = wanted.get(self.turned.get(value, value))
            if target is None or target.loop is not None:
                target = found[same[value]] if value in same else self.builder.temporary(value.type)
            found[value] = target
        return [found[value] for value in node.results]

    def sequence(self, value: Value) -> tuple[Place, bool]:
        """What a loop reads by rows: its place, and whether from the last row on."""
        backwards = value not in self.places and value not in self.fusion.stored and reverses(value.node)
        return self.whole(self.place(value.node.operands[0] if backwards else value)), backwards

    def plain(self, node: Node, wanted: dict[Value, Place]) -> None:
        lowering = record(node).lowering
        for value in node.results:
            if value not in self.fusion.stored or value in self.places:
                continue
            settled = self.settled(value, lowering)
            target = wanted.get(settled or value) or self.builder.temporary(value.type)
            if isinstance(lowering, ByNests):
                self.store_nests(value, target, lowering, settled)
            else:
                self.store(value, target)
            self.places[value] = self.places[settled or value] = target

    def settled(self, value: Value, lowering: object) -> Value | None:
        """What alone is made of a value that nests write at places of their own, if that only settles its bits."""
        if not isinstance(lowering, ByNests) or lowering.running or value in self.graph.results:
            return None
        users = self.graph.users.get(value, ())
        rule = record(users[0]).lowering if len(users) == 1 else None
        return users[0].value if isinstance(rule, ByElement) and rule.settles else None

    def copy(self, source: Place, target: Place) -> None:
        """Append a copy between two places of one type."""
        if not target.type.elements:
            return
        kernel = KernelBuilder(self.builder)
        axis = kernel.axes.fresh(target.type.elements)
        flat = replace(source, type=TensorType(source.type.dtype, (source.type.elements,)))
        self.steps.extend(kernel.calls(Nest((axis,), 0, axis, kernel.load(flat, (axis,))), target))

    def whole(self, place: Place) -> Place:
        """The place, copied to a buffer of its own if it is a row of a scanned value."""
        if place.loop is None:
            return place
        target = self.builder.temporary(place.type)
        self.copy(place, target)
        return target

    def inner(self, graph: Graph, arguments: Sequence[Place | int], targets: Sequence[Place]) -> tuple[Step, ...]:
        return tuple(_Region(self.builder, graph, arguments, {}).lower(targets))


def _settled(node: Node, nest: Nest, axes: Axes) -> Expr:
    lowering = record(node).lowering
    assert isinstance(lowering, ByElement)
    return lowering.element(node, 0, nest.axes, (lambda _: nest.value,), axes)


def _bound(value: Value) -> bool:
    return value.node.op in ("argument", "parameter", "constant")


def _uniform(array: Array, dtype: DType) -> Expr | None:
    """The constant expression of a tensor whose elements have one bit pattern."""
    if not array.size:
        return None
    bits = np.ascontiguousarray(array).reshape(-1).view(f"u{dtype.bytes}")
    if array.size > 1 and bool(np.any(bits != bits[0])):
        return None
    return const(dtype, int(bits[0]))


# ── control flow ────────────────────────────────────────────────────────────────────────────────────


def _lower_loop(region: _Region, node: Node, targets: Sequence[Place]) -> None:
    carried, behind = node["carried"], node["carried"] + node["scanned"]
    places = [region.place(value) for value in node.operands[:carried]]
    for source, target in zip(places, targets[:carried], strict=True):
        region.copy(source, target)
    sequences = [region.sequence(value) for value in node.operands[carried:behind]]
    fixed = [region.place(value) for value in node.operands[behind:]]
    depth = len(region.builder.loops)
    region.builder.loops.append(node["count"])
    rows = [_row(place, depth, backwards) for place, backwards in sequences]
    arguments: list[Place | int] = [depth, *targets[:carried], *rows, *fixed]
    region.builder.changing.append((len(region.builder.buffers), frozenset(target.buffer for target in targets)))
    fresh = [region.builder.temporary(target.type) for target in targets[:carried]]
    stacked = zip(node.results[carried:], targets[carried:], strict=True)
    left = {target: _row(target, depth, value in region.turned) for value, target in stacked}
    body = _Region(region.builder, node.regions[0], arguments, {})
    body.lower((*fresh, *(left[target] for target in targets[carried:])))
    for source, target in zip(fresh, targets, strict=False):
        body.copy(source, target)
    region.builder.changing.pop()
    region.builder.loops.pop()
    region.steps.append(CountedLoop(node["count"], tuple(body.steps)))


def _row(place: Place, depth: int, backwards: bool) -> Place:
    return Place(place.buffer, TensorType(place.type.dtype, place.type.shape[1:]), depth, backwards)


def _lower_while(region: _Region, node: Node, targets: Sequence[Place]) -> None:
    places = [region.place(value) for value in node.operands]
    for source, target in zip(places, targets, strict=False):
        region.copy(source, target)
    depth = len(region.builder.loops)
    region.builder.loops.append(node["limit"])
    arguments: list[Place | int] = [depth, *targets, *places[len(targets) :]]
    region.builder.changing.append((len(region.builder.buffers), frozenset(target.buffer for target in targets)))
    fresh = [region.builder.temporary(target.type) for target in targets]
    body = _Region(region.builder, node.regions[0], arguments, {})
    body.lower(fresh)
    for source, target in zip(fresh, targets, strict=True):
        body.copy(source, target)
    region.builder.changing.pop()
    region.builder.loops.pop()
    region.steps.append(While(targets[0].buffer, node["limit"], tuple(body.steps)))


def _lower_branch(region: _Region, node: Node, targets: Sequence[Place]) -> None:
    condition, *operands = (region.place(value) for value in node.operands)
    condition = region.whole(condition)
    sides = [region.inner(side, operands, targets) for side in node.regions]
    region.steps.append(Branch(condition.buffer, *sides))


_CONTROL: dict[str, Callable[[_Region, Node, Sequence[Place]], None]] = {
    "loop": _lower_loop,
    "while": _lower_while,
    "branch": _lower_branch,
}


def lower(graph: Graph) -> Program:
    """The program of an entry: inputs are the graph's arguments, outputs its results."""
    builder = Builder()
    inputs = [
        Place(builder.buffer(kind.dtype, kind.elements, INPUT, position), kind)
        for position, kind in enumerate(graph.arguments)
    ]
    kinds = {node["identity"]: node.types[0] for node in graph.nodes if node.op == "parameter"}
    parameters = {
        identity: Place(
            builder.buffer(kinds[identity].dtype, kinds[identity].elements, PARAMETER, identity), kinds[identity]
        )
        for identity in sorted(kinds)
    }
    outputs = [
        Place(builder.buffer(value.dtype, value.type.elements, OUTPUT, position), value.type)
        for position, value in enumerate(graph.results)
    ]
    steps = _Region(builder, graph, inputs, parameters).lower(outputs)
    buffers, arena = plan(tuple(builder.buffers), tuple(steps))
    return Program(tuple(builder.kernel_list), buffers, tuple(builder.constants), tuple(steps), arena)

"""Graph to program: a kernel for every stored value, a step for every piece of control flow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from passes import operands
from passes.collapse import collapse, roots, split
from passes.fuse import Fusion, fuse
from passes.loop_bodies import MANY
from passes.plan import plan
from passes.rename import renumber_buffers, renumber_scalars, substitute
from passes.scans import reversed_results, reverses, same_rows
from repro.errors import InternalError
from repro.ir import index as ix
from repro.ir.contraction import find
from repro.ir.expressions import Expr, Load, Scalar, const, load, topological
from repro.ir.graph import Graph, Node, Value, constant_array
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.program import (
    CONSTANT,
    INPUT,
    OUTPUT,
    PARAMETER,
    TEMPORARY,
    Branch,
    Buffer,
    Call,
    CountedLoop,
    Program,
    Step,
    While,
)
from repro.ir.types import I64, Array, DType, TensorType
from repro.ops.record import Access, Axes, ByElement, ByNests, Nest, record


@dataclass(frozen=True)
class Place:
    """Where a stored value lies: a buffer, and for a row of a scanned one the loop whose counter picks it, `backwards`
    from the last row on."""

    buffer: int
    type: TensorType
    loop: int | None = None
    backwards: bool = False


@dataclass
class Builder:
    """The program under construction, shared by all its regions."""

    buffers: list[Buffer] = field(default_factory=list[Buffer])
    kernels: dict[str, int] = field(default_factory=dict[str, int])
    kernel_list: list[Kernel] = field(default_factory=list[Kernel])
    constants: dict[bytes, int] = field(default_factory=dict[bytes, int])
    loops: list[int] = field(default_factory=list[int])
    """Extents of the loops around the step being built."""
    changing: list[tuple[int, frozenset[int]]] = field(default_factory=list[tuple[int, frozenset[int]]])
    """What each of these loops may write: the buffers from a number on, which are made in it, and its results."""

    def buffer(self, dtype: DType, elements: int, role: str, position: int) -> int:
        self.buffers.append(Buffer(dtype, elements, role, position))
        return len(self.buffers) - 1

    def temporary(self, kind: TensorType) -> Place:
        return Place(self.buffer(kind.dtype, kind.elements, TEMPORARY, 0), kind)

    def constant(self, kind: TensorType, data: bytes) -> Place:
        known = self.constants.get(data)
        position = len(self.constants) if known is None else known
        self.constants.setdefault(data, position)
        return Place(self.buffer(kind.dtype, kind.elements, CONSTANT, position), kind)

    def kernel(self, kernel: Kernel) -> int:
        position = self.kernels.setdefault(kernel.digest, len(self.kernel_list))
        if position == len(self.kernel_list):
            self.kernel_list.append(kernel)
        return position


class _KernelBuilder:
    """Numbers the buffers and loop counters that one kernel uses, by first use."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self.buffers: dict[int, int] = {}
        self.scalars: dict[int, int] = {}
        self.axes = Axes(0)
        self.known: dict[tuple[Value, tuple[Expr, ...]], Expr] = {}

    def local(self, buffer: int) -> int:
        return self.buffers.setdefault(buffer, len(self.buffers))

    def counter(self, loop: int) -> Expr:
        position = self.scalars.setdefault(loop, len(self.scalars))
        return Scalar(I64, (position, self.builder.loops[loop]), ())

    def offset(self, place: Place, offset: Expr) -> Expr:
        if place.loop is None:
            return offset
        row = self.counter(place.loop)
        if place.backwards:
            row = ix.add(ix.number(self.builder.loops[place.loop] - 1), ix.scale(row, -1))
        return ix.add(ix.scale(row, place.type.elements), offset)

    def load(self, place: Place, index: Sequence[Expr]) -> Expr:
        offset = self.offset(place, ix.linear(index, place.type.shape))
        return load(place.type.dtype, self.local(place.buffer), offset)

    def calls(self, nest: Nest, target: Place) -> list[Call]:
        """The call of a nest's kernel, behind those of kernels that compute awkward operands of a contraction."""
        nest = collapse(replace(nest, offset=self.offset(target, nest.offset)))
        found: list[Call] = []
        for side in (0, 1):
            contraction = find(_bare(nest))
            if contraction is None or not operands.awkward(contraction, side, self.invariant(contraction.terms[side])):
                continue
            invariant = self.invariant(contraction.terms[side])
            tile = operands.tiled(contraction, side) if invariant else None
            if tile is not None:
                nest = nest if tile.extent == operands.TILE else split(nest, tile, operands.TILE)
                contraction = find(_bare(nest)) or contraction
            term, axes = contraction.terms[side], operands.places(contraction, side, tile is not None)
            packed = self.builder.temporary(TensorType(term.dtype, tuple(axis.extent for axis in axes)))
            place = ix.linear(axes, packed.type.shape)
            found.append(self._call(collapse(Nest(axes, 0, place, term)), packed))
            read = load(term.dtype, self.local(packed.buffer), place)
            nest = collapse(replace(nest, value=substitute(nest.value, term, read)))
        return [*found, self._call(nest, target)]

    def invariant(self, term: Expr) -> bool:
        """Whether a loop of many iterations stands around the kernel, and all give the term the same value."""
        if not self.builder.changing or self.builder.loops[-1] < MANY:
            return False
        first, written = self.builder.changing[-1]
        numbers = {local: number for number, local in self.buffers.items()}
        parts = list(topological([term]))
        read = [numbers[each.buffer] for each in parts if isinstance(each, Load)]
        counts = any(isinstance(each, Scalar) for each in parts)
        return not counts and all(buffer < first and buffer not in written for buffer in read)

    def _call(self, nest: Nest, target: Place) -> Call:
        """Buffers are renumbered by first use in the nest alone."""
        used = dict.fromkeys(expr.buffer for expr in topological(roots(nest)) if isinstance(expr, Load))
        used.setdefault(self.local(target.buffer))
        renumbered = {local: position for position, local in enumerate(used)}
        stored = renumbered[self.local(target.buffer)]
        numbers = {local: number for number, local in self.buffers.items()}
        buffers = tuple(numbers[local] for local in used)
        owned = [self.builder.buffers[number] for number in buffers]
        parameters = tuple(
            BufferParameter(buffer.dtype, buffer.elements, position == stored) for position, buffer in enumerate(owned)
        )
        loops = list(self.scalars)
        counters = sorted({each.position for each in topological(roots(nest)) if isinstance(each, Scalar)})
        flat = renumber_scalars(roots(nest), {position: number for number, position in enumerate(counters)})
        offset, value, *when = renumber_buffers(flat, renumbered)
        store = Store(stored, offset, value, when[0] if when else None)
        used_loops = tuple(loops[position] for position in counters)
        extents = tuple(self.builder.loops[loop] for loop in used_loops)
        kernel = Kernel(parameters, extents, nest.axes, nest.serial, (store,))
        return Call(self.builder.kernel(kernel), buffers, used_loops)


def _bare(nest: Nest) -> Kernel:
    """The nest as a kernel without buffers: enough to look at its shape."""
    return Kernel((), (), nest.axes, nest.serial, (Store(0, nest.offset, nest.value, nest.when),))


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

    def element(self, kernel: _KernelBuilder, value: Value) -> Access:
        def at(index: tuple[Expr, ...]) -> Expr:
            key = (value, index)
            found = kernel.known.get(key)
            if found is None:
                found = kernel.known[key] = self._element(kernel, value, index)
            return found

        return at

    def _element(self, kernel: _KernelBuilder, value: Value, index: tuple[Expr, ...]) -> Expr:
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

    def inline(self, kernel: _KernelBuilder, value: Value, index: tuple[Expr, ...]) -> Expr:
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
        kernel = _KernelBuilder(self.builder)
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
        kernel = _KernelBuilder(self.builder)
        for nest in self._nests(kernel, value, target, lowering):
            made = nest if settled is None else replace(nest, value=_settled(settled.node, nest, kernel.axes))
            self.steps.extend(kernel.calls(made, target))

    def _nests(self, kernel: _KernelBuilder, value: Value, target: Place, lowering: ByNests) -> Sequence[Nest]:
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
        users = [node for node in self.graph.nodes if value in node.operands]
        rule = record(users[0]).lowering if len(users) == 1 else None
        return users[0].value if isinstance(rule, ByElement) and rule.settles else None

    def copy(self, source: Place, target: Place) -> None:
        """Append a copy between two places of one type."""
        if not target.type.elements:
            return
        kernel = _KernelBuilder(self.builder)
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

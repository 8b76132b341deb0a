"""Reverse-mode differentiation of a graph, by the gradient rules of the op records.

The order of every addition is part of the contract (docs/numerics.md, rule 13): the contributions to one value are
added left to right in the canonical order of its consumers, a consumer's own in the order of its operands; a
cotangent that a value was given as a result comes before them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from repro.errors import InternalError
from repro.ir.graph import Graph, Node, Value, argument, first_visits
from repro.ir.types import F32
from repro.ops import add, convert_to, fill
from repro.ops.composite_gradients import steps_by_readers
from repro.ops.record import NotDifferentiable, RegionGradient, Step, record

Place = tuple[int, int]
"""Where a contribution comes from: the consumer's canonical position, and which of its operands."""


def cotangents(
    results: Sequence[tuple[Value, Value]], wrt: Sequence[Value], steps: Sequence[Step] = ()
) -> tuple[Value | None, ...]:
    """The cotangents of `wrt`, given pairs of a value and its cotangent; None where no path leads.

    A value of `wrt` may be any float value of the graph. Values of `wrt` are not cut off from each other: if one is
    computed from another, the cotangent of the latter counts the paths through the former. `steps` give stretches
    of the graph a formula of their own.
    """
    for value, cotangent in results:
        if value.type != cotangent.type:
            raise TypeError(f"the cotangent of a value {value.type} has the type {cotangent.type}")
    return _Walk(Graph((), tuple(value for value, _ in results)), wrt, steps).run(results)


class _Walk:
    """One walk from the results of a graph back to the values asked for."""

    def __init__(self, graph: Graph, wrt: Sequence[Value], steps: Sequence[Step]) -> None:
        self.graph, self.wrt = graph, wrt
        self.steps = {step.result: step for step in (*steps_by_readers(graph), *steps)}
        self.position = {node: place for place, node in enumerate(first_visits(graph, regions=False))}
        self.live = _live_values(graph, wrt, self.steps)
        self.arrived: dict[Value, list[tuple[Place, Value]]] = {}

    def run(self, results: Sequence[tuple[Value, Value]]) -> tuple[Value | None, ...]:
        for order, (value, cotangent) in enumerate(results):
            if value in self.live:
                self.arrived.setdefault(value, []).append(((-1, order), cotangent))
        totals: dict[Value, Value] = {}
        for node in reversed(self.graph.nodes):
            known = {value: self._total(value) for value in node.results if value in self.arrived}
            totals.update(known)
            if known:
                self._pass_on(node, known)
        return tuple(totals.get(value) for value in self.wrt)

    def _total(self, value: Value) -> Value:
        """((c1 + c2) + c3) ... in canonical order; narrow floats are added in f32 and rounded once (rule 3)."""
        parts = [cotangent for _, cotangent in sorted(self.arrived.pop(value), key=lambda entry: entry[0])]
        if len(parts) == 1:
            return parts[0]
        wide = value.dtype if value.dtype.computes else F32
        total = convert_to(parts[0], wide)
        for part in parts[1:]:
            total = add(total, convert_to(part, wide))
        return convert_to(total, value.dtype)

    def _pass_on(self, node: Node, known: dict[Value, Value]) -> None:
        for value in [value for value in known if value in self.steps]:
            step = self.steps[value]
            self._arrive(node, step.sources, step.rule(known.pop(value)))
        if known and any(operand in self.live for operand in node.operands):
            given = tuple(known.get(value) or fill(0, value.type) for value in node.results)
            self._arrive(node, node.operands, _by_rule(node, given))

    def _arrive(self, node: Node, operands: Sequence[Value], made: Sequence[Value | None]) -> None:
        for slot, (operand, cotangent) in enumerate(zip(operands, made, strict=True)):
            if cotangent is None or operand not in self.live:
                continue
            if cotangent.type != operand.type:
                found, wanted = cotangent.type, operand.type
                raise InternalError(f"gradient of {node}: operand {slot} is {wanted}, its cotangent {found}")
            self.arrived.setdefault(operand, []).append(((self.position[node], slot), cotangent))


def _live_values(graph: Graph, wrt: Iterable[Value], steps: Mapping[Value, Step]) -> set[Value]:
    """The float values through which a cotangent may reach `wrt`."""
    live = {value for value in wrt if value.dtype.is_float}
    for node in graph.nodes:
        open_way = not isinstance(record(node).gradient, NotDifferentiable)
        for value in node.results:
            step = steps.get(value)
            sources = step.sources if step else node.operands if open_way else ()
            if value.dtype.is_float and any(source in live for source in sources):
                live.add(value)
    return live


def _by_rule(node: Node, given: tuple[Value, ...]) -> tuple[Value | None, ...]:
    match record(node).gradient:
        case RegionGradient(rule):
            return rule(node, given, cotangents)
        case NotDifferentiable() as refused:
            raise InternalError(f"a cotangent reached {node}: {refused.reason}")
        case rule:
            return rule(node, given)


# ── why there is no gradient ────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Obstacle:
    """A node that a value reaches and through which no gradient comes back."""

    node: Node
    reason: str


def obstacles(results: Sequence[Value], value: Value) -> tuple[Obstacle, ...]:
    """The nodes that end the paths from a value to the results, in canonical order: why its cotangent is None."""
    graph = Graph((), tuple(results))
    reached, found = {value}, dict[Node, str]()
    for node in graph.nodes:
        met = [slot for slot, operand in enumerate(node.operands) if operand in reached]
        if not met:
            continue
        reason = _refusal(node, met)
        if reason:
            found[node] = reason
        else:
            reached.update(result for result in node.results if result.dtype.is_float)
    order = {node: place for place, node in enumerate(first_visits(graph, regions=False))}
    return tuple(Obstacle(node, found[node]) for node in sorted(found, key=order.__getitem__))


Marks = dict[Value, Obstacle | None]
"""Values from which floats lead to results, each with a node of unknown gradient on one of these paths, if any is."""


def left_out(results: Sequence[Value], wrt: Sequence[Value]) -> tuple[Obstacle | None, ...]:
    """For each value of `wrt`, a node of unknown gradient on a path of floats from it to the results: its cotangent
    would count the other paths alone."""
    graph = Graph((), tuple(results))
    if not _holds_unknown(graph):
        return (None,) * len(wrt)
    marks = _marks(graph, dict.fromkeys(results))
    return tuple(marks.get(value) for value in wrt)


def _holds_unknown(graph: Graph) -> bool:
    return any(_is_unknown(node) or any(map(_holds_unknown, node.regions)) for node in graph.nodes)


def _is_unknown(node: Node) -> bool:
    rule = record(node).gradient
    return isinstance(rule, NotDifferentiable) and rule.unknown


def _marks(graph: Graph, marks: Marks) -> Marks:
    """Those of all values of a graph, from those of its results."""
    marks = {value: found for value, found in marks.items() if value.dtype.is_float}
    for node in reversed(graph.nodes):
        behind = [marks[value] for value in node.results if value in marks]
        rule = record(node).gradient
        if not behind or (isinstance(rule, NotDifferentiable) and not rule.unknown):
            continue
        if node.regions and (isinstance(rule, RegionGradient) or _is_unknown(node)):
            _merge(marks, _marks_of_regions(node, marks))
        else:
            found = next(filter(None, behind), None)
            _merge(marks, ((operand, found) for operand in node.operands))
    return marks


def _merge(marks: Marks, more: Iterable[tuple[Value, Obstacle | None]]) -> None:
    for value, found in more:
        if value.dtype.is_float:
            marks[value] = marks.get(value) or found


def _marks_of_regions(node: Node, marks: Marks) -> Iterator[tuple[Value, Obstacle | None]]:
    """Of a node's operands. What an iteration gives of its state is what the next one reads; a counter, or a condition,
    stands beside the operands."""
    carried = int(node["carried"]) if node.op in ("loop", "while") else 0
    lost = Obstacle(node, cast(NotDifferentiable, record(node).gradient).reason) if _is_unknown(node) else None
    for region in node.regions:
        arguments = [argument(index, kind) for index, kind in enumerate(region.arguments)]
        ahead = len(arguments) - len(node.operands)
        given: Marks = {}
        _merge(
            given,
            (
                (inner, marks[outer])
                for inner, outer in zip(region.results, node.results, strict=True)
                if outer in marks
            ),
        )
        while True:
            inside, before = _marks(region, given), dict(given)
            _merge(
                given,
                (
                    (region.results[at], inside[arguments[at + 1]])
                    for at in range(carried)
                    if arguments[at + 1] in inside
                ),
            )
            if given == before:
                break
        for place, outer in enumerate(node.operands):
            if place + ahead >= 0 and arguments[place + ahead] in inside:
                yield outer, lost or inside[arguments[place + ahead]]


def _refusal(node: Node, slots: Sequence[int]) -> str:
    """Why no cotangent comes back to any of these operands; empty where one does."""
    refused = record(node).gradient
    if isinstance(refused, NotDifferentiable):
        return refused.reason
    if not any(result.dtype.is_float for result in node.results):
        return "its result is no float"
    made = _by_rule(node, node.results)  # the results stand for their cotangents: only types matter here
    if any(made[slot] is not None for slot in slots):
        return ""
    if node.op != "composite":
        return "none of its results depends on this operand smoothly"
    region = node.regions[0]
    inner = [each for slot in slots for each in obstacles(region.results, argument(slot, region.arguments[slot]))]
    return f"{inner[0].node.op} in it: {inner[0].reason}" if inner else "it is piecewise constant"

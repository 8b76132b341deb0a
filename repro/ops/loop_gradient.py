"""Reverse mode through a counted loop: the same loop with more of its values kept, then one that runs backwards.

The first keeps, stacked, each iteration's carried values and the results of its reductions and functions, as far as
the second needs them; everything else an iteration computed is computed again. (`passes.sharing` makes one of it and
the loop that the model runs.) Going backwards, the carried values' cotangents are carried.

What does not change in the loop gets a sum over the iterations. A dot's operand: one dot with K = (iteration ascending,
row), rule 8. All its other uses together: added up iteration by iteration from the last, starting from its. Several
dots and the rest are added in the order of the dots in the region, the rest at the end.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from repro.ir.graph import Graph, Node, Value, argument, first_visits, rebuild, rewrite, substitute
from repro.ir.types import F32, I64, TensorType
from repro.ops.arithmetic import add, convert_to, sub
from repro.ops.contraction import gradient_of_left, gradient_of_right
from repro.ops.movement import fill, reverse
from repro.ops.record import ByElement, ByExpansion, Differentiate, RegionGradient, make, record
from repro.ops.structure import scalar


def loop_gradient(node: Node, cotangents: tuple[Value, ...], differentiate: Differentiate) -> tuple[Value | None, ...]:
    """See the module's text."""
    step = _one_step(node, differentiate)
    return _run_backwards(node, cotangents, step, _stacks(node, _kept(node, step)), differentiate)


def _arguments(node: Node) -> tuple[Value, ...]:
    return tuple(argument(index, kind) for index, kind in enumerate(node.regions[0].arguments))


@dataclass(frozen=True)
class _Parts:
    """The region's arguments by role: the iteration, then as many carried, scanned and fixed ones."""

    carried: tuple[Value, ...]
    scanned: tuple[Value, ...]
    fixed: tuple[Value, ...]


def _parts(node: Node) -> _Parts:
    arguments, carried = _arguments(node), 1 + node["carried"]
    scanned = carried + node["scanned"]
    return _Parts(arguments[1:carried], arguments[carried:scanned], arguments[scanned:])


# ── one iteration, backwards ────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class _Dot:
    """A dot of the region with one operand that does not change in the loop: a fixed argument, or computed of such."""

    node: Node
    side: int
    """Which operand that is."""
    other: Value
    """The other one, composites opened."""

    @property
    def fixed(self) -> Value:
        return self.node.operands[self.side]


@dataclass(frozen=True)
class _Step:
    """Cotangents of an iteration's arguments, as values over the region's arguments and its results' cotangents.

    `slopes` stands for the latter, by the number of the result. `fixed` leaves out what the dots contribute;
    `dots` pairs each dot with the cotangent of its result.
    """

    slopes: Mapping[int, Value]
    carried: Mapping[Value, Value]
    scanned: Mapping[Value, Value]
    fixed: Mapping[Value, Value]
    dots: tuple[tuple[_Dot, Value], ...]

    @property
    def values(self) -> tuple[Value, ...]:
        every = (self.carried, self.scanned, self.fixed)
        return (*(value for part in every for value in part.values()), *(value for _, value in self.dots))


def _one_step(node: Node, differentiate: Differentiate) -> _Step:
    body, parts = node.regions[0], _parts(node)
    slopes, free = dict[int, Value](), len(body.arguments)
    for number, kind in enumerate(body.types):
        if kind.dtype.is_float:
            slopes[number] = argument(free, kind)
            free += 1
    dots = _dots(body, parts)
    copies = {dot.node: argument(free + number, dot.fixed.type) for number, dot in enumerate(dots)}
    apart = _with_operands(body, dots, copies)
    pairs = [(apart[body.results[number]], slope) for number, slope in slopes.items()]
    floats = [[v for v in part if v.dtype.is_float] for part in (parts.carried, parts.scanned, parts.fixed)]
    wanted = [value for part in floats for value in part] + [apart[dot.node.value] for dot in dots]
    found = differentiate(pairs, wanted)
    names = {copies[dot.node]: dot.fixed for dot in dots}
    live = [(value, cotangent) for value, cotangent in zip(wanted, found, strict=True) if cotangent is not None]
    renamed = replaced([cotangent for _, cotangent in live], names)
    made = {value: cotangent for (value, _), cotangent in zip(live, renamed, strict=True)}
    carried, scanned, fixed = ({value: made[value] for value in part if value in made} for part in floats)
    of_dots = tuple((dot, made[apart[dot.node.value]]) for dot in dots if apart[dot.node.value] in made)
    return _opened_step(_Step(slopes, carried, scanned, fixed, of_dots))


def _opened_step(step: _Step) -> _Step:
    """The step with composites opened, so that what their gradients read of them is a value of the iteration too."""
    values = (*step.values, *(dot.other for dot, _ in step.dots))
    made = iter(_opened(Graph((), values)).results)
    carried, scanned, fixed = ({v: next(made) for v in part} for part in (step.carried, step.scanned, step.fixed))
    slopes = [next(made) for _ in step.dots]
    dots = tuple((replace(dot, other=next(made)), slope) for (dot, _), slope in zip(step.dots, slopes, strict=True))
    return _Step(step.slopes, carried, scanned, fixed, dots)


def _opened(graph: Graph) -> Graph:
    """The graph with what the regions of composites compute in their place."""

    def rule(node: Node, operands: tuple[Value, ...]) -> tuple[Value, ...] | None:
        op = record(node)
        if not (isinstance(op.gradient, RegionGradient) and isinstance(op.lowering, ByExpansion)):
            return None
        return substitute(_opened(node.regions[0]), operands)

    return rewrite(graph, rule, regions=False)


def _dots(body: Graph, parts: _Parts) -> tuple[_Dot, ...]:
    """In canonical order."""
    changing = _depending(body, lambda value: value not in parts.fixed)
    weighing = _depending(body, lambda value: value in parts.fixed and value.dtype.is_float)
    found: list[_Dot] = []
    for node in first_visits(body, regions=False):
        if node.op == "dot" and node.types[0].dtype.is_float:
            sides = [side for side, operand in enumerate(node.operands) if operand not in changing]
            if len(sides) == 1 and node.operands[sides[0]] in weighing:
                found.append(_Dot(node, sides[0], node.operands[1 - sides[0]]))
    return tuple(found)


def _depending(body: Graph, on: Callable[[Value], bool]) -> set[Value]:
    """The values that depend on one of some arguments."""
    found: set[Value] = set()
    for node in body.nodes:
        if any(value in found for value in node.operands) or (node.op == "argument" and on(node.value)):
            found.update(node.results)
    return found


def _with_operands(body: Graph, dots: Iterable[_Dot], copies: Mapping[Node, Value]) -> dict[Value, Value]:
    """The region's values, each dot reading a copy of its operand that nothing else reads."""
    sides, mapped = {dot.node: dot.side for dot in dots}, dict[Value, Value]()
    for node in body.nodes:
        operands = [mapped[value] for value in node.operands]
        if node in sides:
            operands[sides[node]] = copies[node]
        mapped.update(zip(node.results, rebuild(node, tuple(operands)).results, strict=True))
    return mapped


def replaced(values: Sequence[Value], new: Mapping[Value, Value]) -> tuple[Value, ...]:
    """The values with others in place of some that they are computed from."""
    mapped = dict(new)
    for node in _reached(values, new):
        results = rebuild(node, tuple(mapped[value] for value in node.operands)).results
        for old, made in zip(node.results, results, strict=True):
            mapped.setdefault(old, made)
    return tuple(mapped[value] for value in values)


def _reached(values: Iterable[Value], stop: Iterable[Value]) -> list[Node]:
    """The nodes that the values are computed by, operands first, none behind a value of `stop`."""
    ends, seen, order = set(stop), set[Node](), list[Node]()
    stack = [(value, False) for value in reversed(tuple(values))]
    while stack:
        value, ready = stack.pop()
        if ready:
            order.append(value.node)
        elif value not in ends and value.node not in seen:
            seen.add(value.node)
            stack.append((value, True))
            stack.extend((operand, False) for operand in reversed(value.node.operands))
    return order


# ── what is kept of the iterations ──────────────────────────────────────────────────────────────────


def _is_kept(node: Node, changing: set[Value]) -> bool:
    """Whether a result is kept rather than computed again: reductions, all that is more than one expression, and
    functions of what changes in the loop, such as a gate: what these are computed of is then often not needed."""
    op = record(node)
    if node.op in ("argument", "constant"):
        return False
    return not isinstance(op.lowering, ByElement) or op.lowering.reduces or (op.expensive and node.value in changing)


def _kept(node: Node, step: _Step) -> tuple[Value, ...]:
    """Values of an iteration that running backwards reads from memory, in the region's order."""
    body, parts = _opened(node.regions[0]), _parts(node)
    changing = _depending(body, lambda value: value not in parts.fixed)
    own = [value for inner in body.nodes for value in inner.results if _is_kept(inner, changing)]
    others = [dot.other for dot, _ in step.dots if dot.other not in parts.scanned]
    needed = {operand for reached in _reached(step.values, own) for operand in reached.operands}
    needed |= {*step.values, *others}
    carried = [value for value in parts.carried if value in needed]
    computed = (value for inner in body.nodes for value in inner.results if value not in carried)
    wanted = {*others, *(value for value in own if value in needed)} - {*parts.carried, *parts.scanned}
    return (*carried, *(value for value in computed if value in wanted))


def _stacks(node: Node, kept: Sequence[Value]) -> dict[Value, Value]:
    """The loop run with the kept values stacked: [iteration, ...] of each."""
    if not kept:
        return {}
    body = node.regions[0]
    fuller = Graph(body.arguments, (*body.results, *kept))
    again = make("loop", *node.operands, regions=(fuller,), **node.attributes)
    return dict(zip(kept, again.results[len(body.results) :], strict=True))


# ── the loop that runs backwards ────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class _Taken:
    """What the loop backwards takes, by role: pairs of a value of the step (None: of none) and the loop's operand."""

    carried: tuple[tuple[Value | None, Value], ...]
    scanned: tuple[tuple[Value | None, Value], ...]
    fixed: tuple[tuple[Value | None, Value], ...]

    def types(self) -> tuple[TensorType, ...]:
        rows = (TensorType(value.dtype, value.shape[1:]) for _, value in self.scanned)
        return (
            TensorType(I64, ()),
            *(value.type for _, value in self.carried),
            *rows,
            *(value.type for _, value in self.fixed),
        )


def _wide(kind: TensorType) -> TensorType:
    """Narrow floats are added in f32 and rounded once (rule 3)."""
    return kind if kind.dtype.computes else TensorType(F32, kind.shape)


def _taken(node: Node, cotangents: Sequence[Value], step: _Step, stacks: Mapping[Value, Value]) -> _Taken:
    parts, carried = _parts(node), node["carried"]
    operand = dict(zip(_arguments(node)[1:], node.operands, strict=True))
    needed = {value for reached in _reached(step.values, stacks) for value in reached.operands} | {*step.values}
    states = [(slope, cotangents[number]) for number, slope in step.slopes.items() if number < carried]
    totals = [(None, fill(-0.0, _wide(value.type))) for value in step.fixed]
    rows = [(slope, cotangents[number]) for number, slope in step.slopes.items() if number >= carried]
    rows += [(value, operand[value]) for value in parts.scanned]
    rows += list(stacks.items())
    backwards = ((value, reverse(sequence, (0,))) for value, sequence in rows if value in needed)
    fixed = ((value, operand[value]) for value in parts.fixed if value in needed)
    return _Taken((*states, *totals), tuple(backwards), tuple(fixed))


def _body_backwards(node: Node, step: _Step, taken: _Taken) -> Graph:
    """Carried: the states' cotangents and the totals of what is fixed. Stacked: those of rows, and of dots' results."""
    kinds, parts = taken.types(), _parts(node)
    own = [argument(index, kind) for index, kind in enumerate(kinds)]
    stands = [value for value, _ in (*taken.carried, *taken.scanned, *taken.fixed)]
    new = {value: mine for value, mine in zip(stands, own[1:], strict=True) if value is not None}
    new[_arguments(node)[0]] = sub(scalar(node["count"] - 1, I64), own[0])
    made = dict(zip(step.values, replaced(step.values, new), strict=True))
    states = [parts.carried[number] for number in step.slopes if number < node["carried"]]
    totals = own[1 + len(states) : 1 + len(taken.carried)]
    results = [made[step.carried[value]] if value in step.carried else fill(0, value.type) for value in states]
    for total, value in zip(totals, step.fixed.values(), strict=True):
        results.append(add(total, convert_to(made[value], total.dtype)))
    results += [made[value] for value in step.scanned.values()]
    results += [made[value] for _, value in step.dots]
    return Graph(kinds, tuple(results))


def _run_backwards(
    node: Node,
    cotangents: Sequence[Value],
    step: _Step,
    stacks: Mapping[Value, Value],
    differentiate: Differentiate,
) -> tuple[Value | None, ...]:
    """The operands' cotangents."""
    taken, parts = _taken(node, cotangents, step, stacks), _parts(node)
    operands = [value for _, value in (*taken.carried, *taken.scanned, *taken.fixed)]
    region = _body_backwards(node, step, taken)
    sizes = {"count": node["count"], "carried": len(taken.carried), "scanned": len(taken.scanned)}
    results = iter(make("loop", *operands, regions=(region,), **sizes).results)
    found: dict[Value, Value] = {}
    for number in step.slopes:
        if number < node["carried"]:
            found[parts.carried[number]] = next(results)
    totals = {value: next(results) for value in step.fixed}
    found.update({value: reverse(next(results), (0,)) for value in step.scanned})
    sequences = {**dict(zip(_arguments(node)[1:], node.operands, strict=True)), **stacks}
    shares: dict[Value, list[Value]] = {}
    for dot, _ in step.dots:
        g = reverse(next(results), (0,))
        total = _over_iterations(dot, g, sequences[dot.other])
        for value, share in _behind_the_dot(node, dot.fixed, total, differentiate).items():
            shares.setdefault(value, []).append(share)
    for value in parts.fixed:
        of_value = [*shares.get(value, []), *([totals[value]] if value in totals else [])]
        if of_value:
            found[value] = convert_to(functools.reduce(add, of_value), value.dtype)
    return tuple(found.get(value) for value in _arguments(node)[1:])


def _over_iterations(dot: _Dot, g: Value, other: Value) -> Value:
    """One dot with K = (iteration, row): both operands with the iterations in front."""
    if dot.side == 0:
        return gradient_of_left(dot.node, g, other, iterated=True)
    return gradient_of_right(dot.node, other, g, iterated=True)


def _behind_the_dot(node: Node, value: Value, g: Value, differentiate: Differentiate) -> dict[Value, Value]:
    """From the cotangent of a value that does not change in the loop to those of the fixed arguments it is made of."""
    arguments = _arguments(node)
    slope = argument(len(arguments), value.type)
    wanted = [fixed for fixed in _parts(node).fixed if fixed.dtype.is_float]
    found = differentiate([(value, slope)], wanted)
    outside = {**dict(zip(arguments[1:], node.operands, strict=True)), slope: g}
    live = [(fixed, share) for fixed, share in zip(wanted, found, strict=True) if share is not None]
    shares = replaced([share for _, share in live], outside)
    return dict(zip((fixed for fixed, _ in live), shares, strict=True))

"""Indices out of range are defined (rule 6) and reported: a hidden output says which op met one first.

The report is i64[nodes, COLUMNS]. A region gives the rows of its own nodes as one more result. A loop carries them: of
each row the first iteration that found something is kept. A branch has the rows of both sides; those of the side that
did not run are zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from repro.errors import InternalError
from repro.ir.graph import Graph, Locations, Node, Value, argument, rebuild, substitute
from repro.ir.types import I32, I64, TensorType
from repro.ops import (
    broadcast,
    compare,
    concatenate,
    convert_to,
    elementwise,
    fill,
    gather,
    integers,
    is_constant,
    make,
    reduce_axes,
    reshape,
    select,
    slice_,
)

COLUMNS = 3
"""Of a row of the report: whether an index was out of range, its position, its value."""


@dataclass(frozen=True)
class Checked:
    """A graph whose last result is the report i64[len(sources), COLUMNS], and the source of each row."""

    graph: Graph
    sources: tuple[str, ...]


def check_indices(graph: Graph, locations: Locations | None = None, around: str | None = None) -> Checked:
    """Add the report for every gather and scatter by computed indices, in regions too; none, no further result.

    `around` is the source of the op that a region belongs to: of its nodes without a location, too.
    """
    known = locations or {}
    mapped: dict[Value, Value] = {}
    reports: list[Value] = []
    sources: list[str] = []
    for node in graph.nodes:
        made = rebuild(node, tuple(mapped[value] for value in node.operands))
        results = made.results
        if _is_checked(node):
            reports.append(_row(made))
            sources.append(known.get(node, around or node.op))
        elif node.regions:
            sides = [check_indices(region, known, known.get(node, around)) for region in node.regions]
            inside = tuple(source for side in sides for source in side.sources)
            if inside:
                results, report = _reporting(made, sides)
                reports.append(report)
                sources.extend(inside)
        mapped.update(zip(node.results, results, strict=True))
    if not reports:
        return Checked(graph, ())
    results = tuple(mapped[value] for value in graph.results)
    return Checked(Graph(graph.arguments, (*results, concatenate(reports, 0))), tuple(sources))


# ── one node ────────────────────────────────────────────────────────────────────────────────────────


def _is_checked(node: Node) -> bool:
    if node.op not in ("gather", "scatter") or "inside" in node.attributes:
        return False
    indices = node.operands[1]
    return not is_constant(indices) and bool(indices.type.elements) and _can_leave(indices)


def _can_leave(indices: Value) -> bool:
    """Whether the indices depend on anything that is not known when the model is built."""
    return any(node.op in ("argument", "parameter", "loop", "while", "branch") for node in Graph((), (indices,)).nodes)


def _row(node: Node) -> Value:
    shape, axes = node.operands[0].shape, node["axes"]
    indices = node.operands[1]
    extents = broadcast(integers([shape[axis] for axis in axes]), indices.shape, (indices.rank - 1,))
    zero = fill(0, TensorType(I64, indices.shape))
    bad = elementwise("or", compare("lt", indices, zero), compare("ge", indices, extents))
    flat = reshape(bad, (indices.type.elements,))
    marks = convert_to(flat, I32)
    found = convert_to(reduce_axes("or", flat, (0,)), I64)
    position = reduce_axes("argmax", marks, (0,))
    value = gather(reshape(indices, (indices.type.elements,)), reshape(position, (1, 1)), (0,))
    parts: Sequence[Value] = (reshape(found, (1,)), reshape(position, (1,)), value)
    return reshape(concatenate(parts, 0), (1, COLUMNS))


# ── nodes with regions ──────────────────────────────────────────────────────────────────────────────

Reporting = tuple[tuple[Value, ...], Value]
"""The results of a node as they were, and its report."""


def _reporting(node: Node, sides: Sequence[Checked]) -> Reporting:
    """A node made to report what its regions do."""
    if node.op not in _CONTROL:
        raise InternalError(f"{node} has regions, and no rule for their report of indices")
    return _CONTROL[node.op](node, sides)


def _nothing(rows: int) -> Value:
    return fill(0, TensorType(I64, (rows, COLUMNS)))


def _first(before: Value, now: Value) -> Value:
    """Of each row the one before, if that found something."""
    rows = before.shape[0]
    flags = reshape(slice_(before, (0, 0), (rows, 1)), (rows,))
    found = compare("ne", flags, fill(0, flags.type))
    return select(broadcast(found, before.shape, (0,)), before, now)


def _loop(node: Node, sides: Sequence[Checked]) -> Reporting:
    """A loop, counted or not: the report is its last carried value."""
    [inner] = sides
    carried: int = node["carried"]
    kinds = list(inner.graph.arguments)
    kinds.insert(1 + carried, inner.graph.types[-1])  # the first argument is the counter
    arguments = [argument(index, kind) for index, kind in enumerate(kinds)]
    before = arguments.pop(1 + carried)
    *results, now = substitute(inner.graph, tuple(arguments))
    results.insert(carried, _first(before, now))
    operands = list(node.operands)
    operands.insert(carried, _nothing(len(inner.sources)))
    attributes = {**node.attributes, "carried": carried + 1}
    made = list(make(node.op, *operands, regions=(Graph(tuple(kinds), tuple(results)),), **attributes).results)
    report = made.pop(carried)
    return tuple(made), report


def _branch(node: Node, sides: Sequence[Checked]) -> Reporting:
    """The report is the last result of both sides: the rows of the first, then those of the second."""
    results, count = len(node.types), [len(side.sources) for side in sides]
    regions: list[Graph] = []
    for place, side in enumerate(sides):
        rows = [_nothing(each) for each in count]
        if side.sources:
            rows[place] = side.graph.results[-1]
        report = concatenate([part for part in rows if part.shape[0]], 0)
        regions.append(Graph(side.graph.arguments, (*side.graph.results[:results], report)))
    made = make(node.op, *node.operands, regions=regions, **node.attributes).results
    return made[:-1], made[-1]


_CONTROL: dict[str, Callable[[Node, Sequence[Checked]], Reporting]] = {"loop": _loop, "while": _loop, "branch": _branch}

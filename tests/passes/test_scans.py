"""Loops over reversed sequences, and results reversed or stacked twice: no copies, and the same bits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from passes import pipeline
from passes.scans import reverses
from repro.autodiff import cotangents
from repro.ir.expressions import Apply
from repro.ir.graph import Graph, Value, argument
from repro.ir.program import Call, CountedLoop
from repro.ir.types import F32, TensorType
from repro.ops import add, broadcast, composite, div, elementwise, evaluate, fill, loop, mul, neg, reverse, transpose
from tests.running import assert_same_everywhere

STEPS, WIDE = 5, 7
ROW, ROWS = TensorType(F32, (3, WIDE)), TensorType(F32, (STEPS, 3, WIDE))


def running(x: Value, h: Value) -> Sequence[Value]:
    """The last product, the products, those twice, and their sums with the rows."""

    def body(_: Value, h: Value, row: Value) -> Sequence[Value]:
        after = mul(h, row)
        return after, after, after, add(after, row)

    return loop(STEPS, (h,), (x,), (), body)


def graph_of(kind: str) -> Graph:
    x, h = argument(0, ROWS), argument(1, ROW)
    if kind == "of another":
        made = running(reverse(running(x, h)[1], (0,)), h)
    else:
        made = running(reverse(x, (0,)), h)
    last, first, second, sums = made
    turned = [reverse(value, (0,)) for value in (first, second, sums)]
    if kind == "read both ways":
        return Graph((ROWS, ROW), (last, first, *turned))
    if kind == "once":
        return Graph((ROWS, ROW), (last, first, turned[1], turned[2]))
    return Graph((ROWS, ROW), (last, mul(turned[0], x), add(turned[1], x), turned[2]))


@pytest.mark.parametrize("kind", ["plain", "once", "read both ways", "of another"])
def test_the_bits_stay(kind: str) -> None:
    graph = graph_of(kind)
    random = np.random.default_rng(5)
    inputs = [np.asarray(random.standard_normal(each.shape), np.float32) for each in graph.arguments]
    assert_same_everywhere(pipeline.run(graph).program, inputs, evaluate(graph, inputs))


def test_nothing_is_copied() -> None:
    program = pipeline.run(graph_of("plain")).program
    at = next(place for place, step in enumerate(program.steps) if isinstance(step, CountedLoop))
    assert at == 1, "before the loop stands the copy of what it carries alone"
    written = {
        buffer.elements
        for step in program.steps
        if isinstance(step, Call)
        for buffer in program.kernels[step.kernel].buffers
        if buffer.writable and not any(isinstance(e, Apply) for e in program.kernels[step.kernel].expressions)
    }
    assert ROWS.elements not in written


def test_what_reverses_rows() -> None:
    x = argument(0, ROWS)
    assert reverses(reverse(x, (0,)).node)
    assert not any(
        reverses(each.node) for each in (reverse(x, (1,)), reverse(x, (0, 1)), transpose(x, (0, 2, 1)), neg(x))
    )


def gate(x: Value) -> Value:
    return composite("Gate", (x,), _gate).value


def _gate(x: Value) -> Value:
    return div(fill(1, x.type), add(fill(1, x.type), elementwise("exp", neg(x))))


def test_functions_of_an_iteration_are_computed_once() -> None:
    """Those inside a composite too: a gradient reads what the forward loop kept of them."""

    def body(_: Value, h: Value, row: Value, w: Value) -> Sequence[Value]:
        after = mul(gate(add(h, row)), elementwise("tanh", mul(row, broadcast(w, row.shape, (1,)))))
        return (after,)

    kinds = (ROWS, ROW, TensorType(F32, (WIDE,)), ROW)
    x, h, w, g = (argument(n, kind) for n, kind in enumerate(kinds))
    last = loop(STEPS, (h,), (x,), (w,), body)[0]
    found = [each for each in cotangents([(last, g)], [x, h, w]) if each is not None]
    graph = Graph(kinds, (last, *found))
    steps = pipeline.run(graph).graph.nodes
    loops = [node for node in steps if node.op == "loop"]
    assert len(loops) == 2
    assert [sum(inner.op in ("exp", "tanh") for inner in node.regions[0].nodes) for node in loops] == [2, 0]
    random = np.random.default_rng(6)
    inputs = [np.asarray(random.standard_normal(kind.shape), np.float32) for kind in kinds]
    assert_same_everywhere(pipeline.run(graph).program, inputs, evaluate(graph, inputs))

"""Loops that a gradient runs again are run once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from passes import pipeline
from passes.sharing import share_loops
from repro.autodiff import cotangents
from repro.ir.graph import Graph, Node, Value, argument
from repro.ir.types import F32, TensorType
from repro.numerics.contract import chain
from repro.numerics.sums import reduce_reference
from repro.ops import add, canonical_nan, composite, dot, elementwise, evaluate, loop, mul, transpose
from repro.targets import cpu
from tests.running import run_on_cpu

STEPS, ROWS, WIDE = 7, 90, 5
KINDS = (
    TensorType(F32, (STEPS, ROWS, WIDE)),
    TensorType(F32, (ROWS, WIDE)),
    TensorType(F32, (WIDE, WIDE)),
    TensorType(F32, (STEPS, ROWS, WIDE)),
)


def cell(x: Value, h: Value, weights: Value, turned: bool = False) -> Sequence[Value]:
    def body(_: Value, h: Value, row: Value, weights: Value) -> Sequence[Value]:
        weights = transpose(weights, (1, 0)) if turned else weights
        after = elementwise("tanh", add(row, dot(h, weights, ((1,), (0,)))))
        return after, after

    return loop(STEPS, (h,), (x,), (weights,), body)


def trained(wrapped: bool, turned: bool = False) -> Graph:
    """A recurrent cell's outputs and the cotangents of its operands."""
    x, h, weights, g = (argument(n, kind) for n, kind in enumerate(KINDS))
    if wrapped:
        last, rows = composite("Cell", (x, h, weights), cell).results
    else:
        last, rows = cell(x, h, weights, turned)
    found = cotangents([(rows, g)], (x, h, weights))
    results = [value for value in found if value is not None]
    assert len(results) == 3
    return Graph(KINDS, tuple(canonical_nan(value) for value in (last, rows, *results)))


def drawn() -> list[np.ndarray]:
    random = np.random.default_rng(3)
    return [np.asarray(random.standard_normal(kind.shape) * 0.4, np.float32) for kind in KINDS]


def loops(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if node.op == "loop"]


def test_forward_and_gradient_share_a_loop_and_no_bit_changes() -> None:
    graph = trained(wrapped=False)
    shared = share_loops(graph)
    assert (len(loops(graph)), len(loops(shared))) == (3, 2)
    before, after = (evaluate(made, drawn()) for made in (graph, shared))
    assert [array.tobytes() for array in before] == [array.tobytes() for array in after]


def test_a_composite_shares_its_loop_too() -> None:
    graph = trained(wrapped=True)
    lowered = pipeline.run_checked(graph, drawn(), [])
    assert len(loops(lowered.graph)) == 2
    machine = cpu.best_machine()
    assert machine is not None
    for mine, reference in zip(run_on_cpu(graph, drawn(), [], machine), evaluate(graph, drawn()), strict=True):
        assert mine.tobytes() == reference.tobytes()


def test_loops_over_other_operands_stay_apart() -> None:
    x, h, weights, g = (argument(n, kind) for n, kind in enumerate(KINDS))
    first, second = cell(x, h, weights)[1], cell(g, h, weights)[1]
    graph = Graph(KINDS, (mul(first, second),))
    assert share_loops(graph).digest == graph.digest


def test_weights_that_the_loop_turns_round_are_weights_still() -> None:
    """A transpose of what does not change does not change either: the contraction is the same, its gradient turned."""
    turned, plain = (share_loops(trained(wrapped=False, turned=turned)) for turned in (True, False))
    inputs = drawn()
    inputs[2] = np.ascontiguousarray(inputs[2].T)
    found, expected = evaluate(turned, inputs)[4], evaluate(plain, drawn())[4]
    assert found.tobytes() == np.ascontiguousarray(expected.T).tobytes()
    assert [node.op for node in turned.nodes].count("dot") == 1


def test_recurrent_weights_have_one_contraction_over_iterations_and_rows() -> None:
    """Rule 8: K = (iteration ascending, row); 630 terms, so two panels of it."""
    x, h, weights, g = drawn()
    graph = share_loops(trained(wrapped=False))
    [product] = [node for node in graph.nodes if node.op == "dot"]
    before, slopes = (value for value in product.operands)
    inner = Graph(KINDS, (before, slopes))
    states, of_dots = evaluate(inner, [x, h, weights, g])
    assert states.shape == (STEPS, ROWS, WIDE)
    assert states[0].tobytes() == h.tobytes()
    left, right = (array.reshape(STEPS * ROWS, WIDE).T for array in (states, of_dots))
    expected = reduce_reference("fma", chain(), [left[:, None, :], right[None, :, :]])
    assert evaluate(graph, [x, h, weights, g])[4].tobytes() == np.ascontiguousarray(expected).tobytes()
    assert all(
        node.op != "dot" or node["left_contract"] != (0,) for loop in loops(graph) for node in loop.regions[0].nodes
    )

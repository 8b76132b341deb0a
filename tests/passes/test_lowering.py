"""Lowering's own promises: memory that is never shared while live, epilogues, passes that keep bits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import passes.pipeline as pipeline
from passes.fuse import fuse
from passes.lower import lower
from passes.pipeline import run_checked
from passes.plan import ALIGNMENT, plan
from repro.errors import InternalError
from repro.ir.graph import Graph, Value, argument
from repro.ir.program import TEMPORARY, Buffer, Call
from repro.ir.types import F32, I64, TensorType
from repro.ops import (
    add,
    broadcast,
    compare,
    div,
    elementwise,
    fill,
    gather,
    iota,
    matmul,
    maximum,
    mul,
    reduce_axes,
    reshape,
    scatter,
    select,
    sub,
    transpose,
)
from repro.ops.record import evaluate
from repro.targets import cpu, interpreter
from tests.running import assert_same_everywhere, run_on_cpu
from tests.targets.test_reduction_orders import mixed


@given(st.lists(st.tuples(st.integers(1, 300), st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=14))
@settings(max_examples=200, deadline=None)
def test_live_temporaries_never_share_bytes(lives: list[tuple[int, int, int]]) -> None:
    buffers = tuple(Buffer(F32, size, TEMPORARY, 0) for size, _, _ in lives)
    spans = [(min(a, b), max(a, b)) for _, a, b in lives]
    steps = tuple(
        Call(0, tuple(n for n, (first, last) in enumerate(spans) if time in (first, last))) for time in range(13)
    )
    planned, arena = plan(buffers, steps)
    for n, left in enumerate(planned):
        assert left.position % ALIGNMENT == 0
        assert left.position + left.nbytes <= arena
        for m in range(n):
            right = planned[m]
            overlap_time = spans[n][0] <= spans[m][1] and spans[m][0] <= spans[n][1]
            apart = left.position + left.nbytes <= right.position or right.position + right.nbytes <= left.position
            assert apart or not overlap_time


def test_a_bias_and_a_relu_ride_on_their_dot() -> None:
    x, w, b = TensorType(F32, (6, 8)), TensorType(F32, (8, 10)), TensorType(F32, (10,))
    total = add(matmul(argument(0, x), argument(1, w)), broadcast(argument(2, b), (6, 10), (1,)))
    program = lower(Graph((x, w, b), (maximum(total, fill(0.0, total.type)),)))
    assert len(program.kernels) == 1
    assert program.arena_bytes == 0


def test_an_epilogue_may_be_moved_one_to_one() -> None:
    x, w = TensorType(F32, (6, 8)), TensorType(F32, (8, 12))
    product = matmul(argument(0, x), argument(1, w))
    heads = transpose(reshape(elementwise("neg", product), (2, 3, 4, 3)), (2, 0, 3, 1))
    graph = Graph((x, w), (heads,))
    assert len(fuse(graph).epilogues) == 1
    assert len(lower(graph).kernels) == 1
    generator = np.random.default_rng(0)
    arrays = [np.asarray(generator.standard_normal(kind.shape), np.float32) for kind in (x, w)]
    plain = -(arrays[0].astype(np.float64) @ arrays[1]).reshape(2, 3, 4, 3).transpose(2, 0, 3, 1)
    np.testing.assert_allclose(
        interpreter.run(lower(graph), arrays)[0].reshape(plain.shape), plain, rtol=1e-5, atol=1e-5
    )


def test_an_epilogue_under_a_new_shape_is_read_by_several_and_computed_once() -> None:
    """A dot of two axes, whose elements are those of a layer of three: what rides on it asks for them twice."""
    x, w = TensorType(F32, (6, 8)), TensorType(F32, (8, 12))
    layer = reshape(add(matmul(argument(0, x), argument(1, w)), fill(0.5, TensorType(F32, (6, 12)))), (2, 3, 12))
    graph = Graph((x, w), (reshape(mul(layer, elementwise("tanh", mul(layer, layer))), (6, 12)),))
    assert len(lower(graph).kernels) == 1
    generator = np.random.default_rng(0)
    arrays = [np.asarray(generator.standard_normal(kind.shape), np.float32) for kind in (x, w)]
    assert_same_everywhere(lower(graph), arrays, evaluate(graph, arrays, []))


def test_one_instruction_with_a_number_is_computed_again() -> None:
    """Not stored for two readers; a division is for three, and so is a sum of two arrays."""
    kind = TensorType(F32, (40, 30))
    dot = matmul(argument(0, TensorType(F32, (40, 8))), argument(1, TensorType(F32, (8, 30))))
    x = elementwise("erf", dot)
    half = div(x, fill(1.5, kind))

    def stores(value: Value, *readers: Value) -> bool:
        graph = Graph((*(TensorType(F32, shape) for shape in ((40, 8), (8, 30))), kind), (x, *readers))
        results = run_checked(graph, [mixed(t.elements).reshape(t.shape) for t in graph.arguments], [])
        assert results.program.kernels
        return value in fuse(graph).stored

    def read(value: Value) -> tuple[Value, ...]:
        return elementwise("erf", value), elementwise("exp", value)

    assert not stores(half, *read(half))
    assert stores(half, *read(half), elementwise("tanh", half))
    scaled = mul(x, fill(1.5, kind))
    assert not stores(scaled, *read(scaled), elementwise("tanh", scaled))
    sum_ = add(x, argument(2, kind))
    assert stores(sum_, *read(sum_))
    number = compare("ne", fill(2.0, kind), fill(2.0, kind))
    assert not stores(number, *(select(number, each, x) for each in read(scaled))), "what no array goes into"
    assert stores(scaled, elementwise("erf", scaled), matmul(scaled, transpose(scaled, (1, 0)))), "a dot reads it often"


def test_few_cheap_instructions_with_what_is_near_are_computed_again() -> None:
    """Three, of one stored array and values for each channel, for sums and elements alike; not four, no division, and
    nothing as large."""
    kind, few = TensorType(F32, (4, 3, 8, 9)), TensorType(F32, (3,))
    x = elementwise("erf", argument(0, kind))
    a, b = (broadcast(argument(number, few), kind.shape, (1,)) for number in (1, 2))

    def stores(value: Value) -> bool:
        results = x, elementwise("erf", value), reduce_axes("add", value, (0, 2, 3)), elementwise("exp", value)
        graph = Graph((kind, few, few), results)
        run_checked(graph, [mixed(t.elements).reshape(t.shape) for t in graph.arguments], [])
        return value in fuse(graph).stored

    deviations = sub(x, a)
    scaled = mul(deviations, b)
    assert not stores(deviations)
    assert not stores(scaled)
    assert not stores(maximum(scaled, fill(0.0, kind)))
    assert stores(maximum(add(scaled, b), fill(0.0, kind))), "four"
    assert stores(div(deviations, b)), "a division"
    assert stores(add(x, elementwise("erf", x))), "two arrays"


@pytest.mark.parametrize(("inner", "kernels"), [(4, 1), (5, 2)])
def test_a_sum_of_few_terms_is_computed_in_one_of_few(inner: int, kernels: int) -> None:
    x, weights = argument(0, TensorType(F32, (6, 3, inner))), argument(1, TensorType(F32, (6, 3)))
    total = reduce_axes("add", mul(weights, reduce_axes("add", mul(x, x), (2,))), (1,))
    graph = Graph((x.type, weights.type), (total,))
    assert len(lower(graph).kernels) == kernels
    random = np.random.default_rng(0)
    given = [random.standard_normal(kind.shape).astype(np.float32) for kind in graph.arguments]
    run_checked(graph, given, [])
    assert_same_everywhere(pipeline.run(graph).program, given, evaluate(graph, given))


def test_debug_mode_runs_the_reference_around_each_pass() -> None:
    table, where = TensorType(F32, (5, 3)), TensorType(I64, (4, 1))
    graph = Graph((table, where), (gather(argument(0, table), argument(1, where), (0,)),))
    arrays = [np.arange(15, dtype=np.float32).reshape(5, 3), np.array([[0], [4], [9], [1]])]
    lowered = run_checked(graph, arrays, ())
    assert [step.name for step in lowered.steps] == ["canonical-outputs", "expand", "check-indices", "lower"]
    report = interpreter.run(lowered.program, arrays)[1]
    assert report.tolist() == [1, 2, 9]


def test_a_pass_that_changes_a_bit_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def planted(graph: Graph, _: object) -> Graph:
        return Graph(graph.arguments, tuple(add(value, value) for value in graph.results))

    table = (pipeline.GRAPH_PASSES[0], replace(pipeline.GRAPH_PASSES[1], run=planted))
    monkeypatch.setattr(pipeline, "GRAPH_PASSES", table)
    of = TensorType(F32, (3,))
    with pytest.raises(InternalError, match="expand changed the bits"):
        run_checked(Graph((of,), (argument(0, of),)), [np.ones(3, np.float32)], ())


def test_a_scatter_of_nothing_changes_nothing() -> None:
    table, where, updates = TensorType(F32, (5, 3)), TensorType(I64, (0, 1)), TensorType(F32, (0, 3))
    arguments = [argument(number, kind) for number, kind in enumerate((table, where, updates))]
    graph = Graph((table, where, updates), (scatter("add", *arguments, axes=(0,)),))
    arrays = [np.arange(15, dtype=np.float32).reshape(5, 3), np.zeros((0, 1), np.int64), np.zeros((0, 3), np.float32)]
    assert interpreter.run(lower(graph), arrays)[0].tobytes() == arrays[0].tobytes()
    machine = cpu.best_machine()
    assert machine is not None
    assert run_on_cpu(graph, arrays, (), machine)[0].tobytes() == arrays[0].tobytes()


@pytest.mark.parametrize("combiner", ["add", "argmax"])
def test_an_axis_of_one_value_that_a_sum_leaves_out_is_zero(combiner: str) -> None:
    """A kernel reads no axis that neither it nor its reductions have, as the places of a tensor did here."""
    graph = Graph((), (reduce_axes(combiner, iota((1, 3), 0), (0, 1)),))
    program = pipeline.run(graph).program
    for kernel in program.kernels:
        assert all(store.value.free <= frozenset(kernel.axes) for store in kernel.stores)
    assert interpreter.run(program, [])[0].tolist() == [0]

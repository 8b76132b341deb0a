"""Indices out of range inside loops and branches are reported like those outside of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from passes import pipeline
from passes.checks import check_indices
from repro.artifact import entries
from repro.artifact.config import Tensor
from repro.artifact.sessions import Parameter, Session
from repro.autodiff import cotangents
from repro.errors import ReproError
from repro.frontend import EntryGraph
from repro.ir.graph import Graph, Locations, Node, Value, argument
from repro.ir.types import BOOL, F32, I64, Array, TensorType
from repro.ops import (
    add,
    branch,
    compare,
    elementwise,
    evaluate,
    fill,
    gather,
    loop,
    maximum,
    minimum,
    mul,
    reshape,
    scalar,
    scatter,
    while_,
)  # fmt: skip
from repro.runtime.session import CpuExecutable
from repro.targets import cpu
from repro.train_step import TrainOptions
from repro.train_step.losses import SoftmaxCrossEntropy
from tests.running import assert_same_everywhere, executable
from tests.train_step.digits import step_of
from tests.train_step.test_shards import CASES

TABLE = TensorType(F32, (4, 3))
ROWS = np.arange(12, dtype=np.float32).reshape(4, 3)
NONE = (0, 0, 0)
Row = tuple[int, ...]


def graph_of(kinds: Sequence[TensorType], make: Callable[..., Sequence[Value]]) -> Graph:
    return Graph(tuple(kinds), tuple(make(*(argument(n, kind) for n, kind in enumerate(kinds)))))


def indices_type(*shape: int) -> TensorType:
    return TensorType(I64, shape)


def picked(table: Value, row: Value) -> Value:
    """Rows of the table by a row of indices."""
    return gather(table, reshape(row, (*row.shape, 1)), (0,))


@functools.cache
def compiled(graph: Graph) -> CpuExecutable:
    """The code of a graph with its report, for one thread: it holds no others that would have to be ended."""
    machine = cpu.best_machine()
    assert machine is not None
    return executable(pipeline.run(graph).program, machine)


def reported(graph: Graph, inputs: Sequence[Array], locations: Locations | None = None) -> dict[str, list[Row]]:
    """By source the rows of the report, zeros for those that found nothing. Compiled code has the reference's bits."""
    lowered = pipeline.run_checked(graph, inputs, [], locations)
    expected = evaluate(lowered.graph, inputs)
    found = compiled(graph).run(inputs)
    assert [mine.tobytes() for mine in found] == [value.tobytes() for value in expected]
    rows: dict[str, list[Row]] = {}
    for source, row in zip(lowered.checked, expected[-1].tolist(), strict=True):
        rows.setdefault(source, []).append(tuple(row) if row[0] else NONE)
    return rows


# ── graphs ──────────────────────────────────────────────────────────────────────────────────────────


def in_a_loop(table: Value, start: Value, indices: Value) -> Sequence[Value]:
    """With carried, scanned, fixed and stacked values, so that each keeps its place."""

    def body(i: Value, total: Value, row: Value, table: Value) -> Sequence[Value]:
        found = picked(table, row)
        return add(total, found), mul(found, found), add(i, scalar(1, I64))

    return loop(3, (start,), (indices,), (table,), body)


def in_a_nested_loop(table: Value, start: Value, indices: Value) -> Sequence[Value]:
    def body(_: Value, total: Value, rows: Value, table: Value) -> Sequence[Value]:
        return in_a_loop(table, total, rows)[:1]

    return loop(2, (start,), (indices,), (table,), body)


def in_a_while(table: Value, start: Value, indices: Value, count: Value) -> Sequence[Value]:
    """Takes the rows of indices one by one, as many as `count` says."""

    def body(i: Value, _: Value, total: Value, table: Value, indices: Value, count: Value) -> Sequence[Value]:
        row = reshape(gather(indices, reshape(i, (1, 1)), (0,)), (2,))
        return compare("lt", add(i, scalar(1, I64)), count), add(total, picked(table, row))

    return while_((compare("gt", count, scalar(0, I64)), start), (table, indices, count), body)[1:]


def in_a_branch(condition: Value, table: Value, indices: Value) -> Sequence[Value]:
    """One gather on the first side; one and a scatter on the second."""

    def then(table: Value, row: Value) -> Sequence[Value]:
        return (picked(table, row),)

    def otherwise(table: Value, row: Value) -> Sequence[Value]:
        moved = add(row, row)
        updates = picked(table, moved)
        return (picked(scatter("add", table, reshape(row, (2, 1)), updates, (0,)), moved),)

    return branch(condition, (table, indices), then, otherwise)


def a_branch_in_a_loop(start: Value, table: Value, indices: Value) -> Sequence[Value]:
    """Iterations 0 and 2 take the second side, iteration 1 the first."""

    def body(i: Value, total: Value, row: Value, table: Value) -> Sequence[Value]:
        odd = compare("eq", i, scalar(1, I64))
        return (add(total, in_a_branch(odd, table, row)[0]),)

    return loop(3, (start,), (indices,), (table,), body)


def scattering(table: Value, indices: Value) -> Sequence[Value]:
    def body(_: Value, table: Value, row: Value) -> Sequence[Value]:
        return (scatter("add", table, reshape(row, (2, 1)), picked(table, elementwise("abs", row)), (0,)),)

    return loop(2, (table,), (indices,), (), body)


START = TensorType(F32, (2, 3))
BEGIN = np.ones((2, 3), np.float32)
GOOD = [[0, 3], [1, 2], [2, 2]]


def array(values: object) -> Array:
    return np.asarray(values, np.int64)


# ── what is reported ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("indices", "row"),
    [(GOOD, NONE), ([[0, 3], [1, 7], [-1, 0]], (1, 1, 7)), ([[4, -9], [9, 9], [0, 0]], (1, 0, 4))],
)
def test_a_counted_loop_reports_its_first_bad_iteration(indices: object, row: Row) -> None:
    graph = graph_of((TABLE, START, indices_type(3, 2)), in_a_loop)
    assert reported(graph, (ROWS, BEGIN, array(indices))) == {"gather": [row]}


@pytest.mark.parametrize(
    ("indices", "row"),
    [
        ([GOOD, GOOD], NONE),
        ([[[0, 1], [0, 1], [0, 8]], [[7, 7], [7, 7], [7, 7]]], (1, 1, 8)),
        ([GOOD, [[0, 1], [-5, 6], [5, 5]]], (1, 0, -5)),
    ],
)
def test_a_nested_loop_reports_the_first_of_all_iterations(indices: object, row: Row) -> None:
    graph = graph_of((TABLE, START, indices_type(2, 3, 2)), in_a_nested_loop)
    assert reported(graph, (ROWS, BEGIN, array(indices))) == {"gather": [row]}


@pytest.mark.parametrize(("count", "by_row", "by_counter"), [(0, NONE, NONE), (1, NONE, NONE), (3, (1, 1, 5), NONE)])
def test_a_while_reports_the_iterations_that_ran(count: int, by_row: Row, by_counter: Row) -> None:
    graph = graph_of((TABLE, START, indices_type(3, 2), indices_type()), in_a_while)
    inputs = (ROWS, BEGIN, array([[0, 1], [0, 5], [-1, 0]]), array(count))
    assert reported(graph, inputs) == {"gather": [by_counter, by_row]}


def test_a_while_that_runs_too_far_reports_its_counter() -> None:
    graph = graph_of((TABLE, START, indices_type(3, 2), indices_type()), in_a_while)
    assert reported(graph, (ROWS, BEGIN, array(GOOD), array(5))) == {"gather": [(1, 0, 3), NONE]}


@pytest.mark.parametrize(
    ("condition", "indices", "gathers", "scatters"),
    [
        (True, [0, 3], [NONE, NONE, NONE], NONE),
        (True, [0, 5], [(1, 1, 5), NONE, NONE], NONE),
        (False, [0, 1], [NONE, NONE, NONE], NONE),
        (False, [2, 0], [NONE, (1, 0, 4), (1, 0, 4)], NONE),
        (False, [0, 5], [NONE, (1, 1, 10), (1, 1, 10)], (1, 1, 5)),
    ],
)
def test_a_branch_reports_the_side_that_ran(
    condition: bool, indices: object, gathers: list[Row], scatters: Row
) -> None:
    graph = graph_of((TensorType(BOOL, ()), TABLE, indices_type(2)), in_a_branch)
    inputs = (np.asarray(condition), ROWS, array(indices))
    assert reported(graph, inputs) == {"gather": gathers, "scatter": [scatters]}


def test_a_branch_in_a_loop_reports_each_side_by_itself() -> None:
    graph = graph_of((START, TABLE, indices_type(3, 2)), a_branch_in_a_loop)
    found = reported(graph, (BEGIN, ROWS, array([[0, 1], [9, 1], [0, 6]])))
    assert found == {"gather": [(1, 0, 9), (1, 1, 12), (1, 1, 12)], "scatter": [(1, 1, 6)]}
    found = reported(graph, (BEGIN, ROWS, array([[0, 1], [3, 2], [1, 0]])))
    assert found == {"gather": [NONE] * 3, "scatter": [NONE]}


def test_a_scatter_in_a_loop_is_reported() -> None:
    graph = graph_of((TABLE, indices_type(2, 2)), scattering)
    found = reported(graph, (ROWS, array([[0, 1], [2, -3]])))
    assert found == {"gather": [NONE], "scatter": [(1, 1, -3)]}


# ── sources, graphs that stay ───────────────────────────────────────────────────────────────────────


def gathers_of(graph: Graph) -> list[Node]:
    inner = [node for owner in graph.nodes for region in owner.regions for node in gathers_of(region)]
    return [node for node in graph.nodes if node.op == "gather"] + inner


def test_rows_have_the_sources_of_their_nodes_or_of_the_op_around() -> None:
    def outside_and_inside(table: Value, start: Value, indices: Value) -> Sequence[Value]:
        first = picked(table, reshape(indices, (6,)))
        return first, *in_a_loop(table, start, indices)

    graph = graph_of((TABLE, START, indices_type(3, 2)), outside_and_inside)
    outside, inside = gathers_of(graph)
    [owner] = [node for node in graph.nodes if node.op == "loop"]
    inputs = (ROWS, BEGIN, array([[0, 1], [2, 6], [0, 0]]))
    known = {outside: "Gather a", inside: "Gather b", owner: "Loop c"}
    assert reported(graph, inputs, dict(known)) == {"Gather a": [(1, 3, 6)], "Gather b": [(1, 1, 6)]}
    del known[inside]
    assert reported(graph, inputs, known) == {"Gather a": [(1, 3, 6)], "Loop c": [(1, 1, 6)]}


def test_loops_without_indices_stay_as_they_are() -> None:
    def make(x: Value, indices: Value) -> Sequence[Value]:
        twice = loop(2, (x,), (), (), lambda _, c: (add(c, c),))[0]
        return (picked(twice, indices),)

    graph = graph_of((TABLE, indices_type(2)), make)
    checked = check_indices(graph)
    assert checked.sources == ("gather",)
    assert [n.digest for n in checked.graph.nodes if n.op == "loop"] == [
        n.digest for n in graph.nodes if n.op == "loop"
    ]
    plain = Graph(graph.arguments, (graph.nodes[-1].operands[0],))
    assert check_indices(plain).graph is plain


# ── training steps ──────────────────────────────────────────────────────────────────────────────────


def sessions_of(source: EntryGraph) -> tuple[Session, ...]:
    """A step by the reference and by compiled code."""
    machine = cpu.best_machine()
    assert machine is not None
    lowered = pipeline.run(source.graph, dict(source.locations), source.updates)
    made = executable(lowered.program, machine, 2)
    for slot, tensor in enumerate(source.parameters):
        made.set_parameter(slot, tensor.initial)
    entry = entries.describe(source, lowered, [Tensor(slot.name, str(slot.type), "") for slot in source.parameters])
    names = [Parameter(slot.name, slot.type) for slot in source.parameters]
    return tuple(Session(entry, run, names) for run in (entries.reference(source, lowered), made))


PARTS = {
    "microbatches": TrainOptions(SoftmaxCrossEntropy(), accumulation=2),
    "shards": TrainOptions(SoftmaxCrossEntropy(), shards=2),
    "microbatches of shards": TrainOptions(SoftmaxCrossEntropy(), accumulation=2, shards=2),
}


@pytest.mark.parametrize("name", PARTS)
def test_a_label_out_of_range_is_reported_from_parts_of_a_batch(name: str) -> None:
    options = PARTS[name]
    source = step_of("digits_mlp", options).entry
    x, labels = (port.type for port in source.inputs)
    rows = labels.elements // (options.accumulation * options.shards)
    given = {source.inputs[0].name: np.ones(x.shape, np.float32), "labels": np.arange(labels.elements) % 10}
    for session in sessions_of(source):
        with session:
            assert np.isfinite(session.run(given)["loss"])
            for place in (0, labels.elements - 1):
                wrong = np.where(np.arange(labels.elements) == place, 99, given["labels"])
                with pytest.raises(ReproError, match="an index is out of range") as caught:
                    session.run({**given, "labels": wrong})
                position = 2 * (place % rows) + 1  # of pairs (row, label), in the part of the batch
                assert caught.value.op == "loss"
                assert caught.value.found == f"index 99 at position {position} of the indices"


def test_an_embedding_index_out_of_range_is_reported_at_its_node_from_shards() -> None:
    case = CASES["duplicate indices"]
    source = case.step(case.options).entry
    assert case.options.shards > 1
    indices, labels = case.data()
    names = [port.name for port in source.inputs]
    wrong = indices.copy()
    wrong[-1] = 3
    for session in sessions_of(source):
        with session:
            assert np.isfinite(session.run(dict(zip(names, (indices, labels), strict=True)))["loss"])
            with pytest.raises(ReproError, match="an index is out of range") as caught:
                session.run(dict(zip(names, (wrong, labels), strict=True)))
            assert (caught.value.op, caught.value.node) == ("Gather", "h")
            assert caught.value.found == f"index 3 at position {case.rows - 1} of the indices"


# ── indices that cannot leave ───────────────────────────────────────────────────────────────────────


def gradient_at(inside: bool) -> Graph:
    """Rows of a table at clamped indices, the table's cotangent, and the cotangent of that."""

    def make(table: Value, indices: Value, given: Value, further: Value) -> Sequence[Value]:
        clamped = minimum(maximum(indices, fill(0, indices.type)), fill(3, indices.type))
        rows = gather(table, clamped, (0,), inside)
        [once] = cotangents([(rows, given)], [table])
        assert once is not None
        [twice] = cotangents([(once, further)], [given])
        assert twice is not None
        return rows, once, twice

    return graph_of((TABLE, indices_type(5, 1), TensorType(F32, (5, 3)), TABLE), make)


def test_gradients_of_indices_that_cannot_leave_are_not_asked_as_they_run() -> None:
    random = np.random.default_rng(0)
    inputs = [
        ROWS,
        np.array([[-7], [2], [2], [1 << 40], [1]]),
        *(random.random(s, np.float32) for s in ((5, 3), (4, 3))),
    ]
    asked, free = gradient_at(False), gradient_at(True)
    assert len(check_indices(asked).sources) > 3
    assert not check_indices(free).sources
    assert len(pipeline.run(free).program.kernels) < len(pipeline.run(asked).program.kernels)
    assert_same_everywhere(pipeline.run(free).program, inputs, evaluate(asked, inputs))

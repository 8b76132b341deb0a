"""Compiled programs of random graphs give the reference's bytes, on every machine that this host runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from passes import pipeline
from passes.row_blocks import row_blocks
from passes.schedule import schedule
from repro.ir.graph import Graph, Value, argument
from repro.ir.schedule import Schedule
from repro.ir.types import F32, I64, Array, TensorType
from repro.ops import canonical_nan, convolution, scatter, slice_
from repro.ops.record import evaluate
from repro.runtime.session import CpuExecutable
from repro.targets import cpu
from tests import compiled
from tests.passes.test_row_blocks import EAGER
from tests.running import run_on_cpu
from tests.targets.native import HERE, differences
from tests.targets.random_graphs import Case, cases
from tests.targets.test_random_schedules import schedules

UNDISTURBED = settings(
    deadline=None,
    print_blob=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
"""Of tests that draw whole programs. Under CI=true each draws the same ones every time, as Hypothesis means it, so
that no change is refused for an older fault; elsewhere they are always others, and in the long tests many."""


def described(case: Case) -> str:
    """The graph in a form from which a plain test can be written."""
    lines = [f"seed {case.seed}, wildness {case.wildness}, ranges {case.limits}"]
    numbers = {node: position for position, node in enumerate(case.graph.nodes)}
    for node, position in numbers.items():
        operands = " ".join(f"%{numbers[v.node]}.{v.index}" for v in node.operands)
        attributes = {name: value for name, value in node.attributes.items() if name != "data"}
        lines.append(f"%{position} = {node!r} {attributes} ({operands})")
    return "\n".join([*lines, "results " + " ".join(f"%{numbers[v.node]}.{v.index}" for v in case.graph.results)])


def compare(case: Case, found: Sequence[Array], wanted: Sequence[Array], where: str) -> None:
    for position, (value, left, right) in enumerate(zip(case.graph.results, found, wanted, strict=False)):
        if left.tobytes() != right.tobytes():
            places = differences(value.dtype, left.reshape(-1), right.reshape(-1))
            raise AssertionError(f"{where}: result {position} {value.type} differs: {places}\n{described(case)}")


def check(case: Case, data: st.DataObject) -> None:
    """Every machine, by the cost model's schedules and by random ones, on one, two and five threads."""
    inputs = case.inputs()
    wanted = evaluate(case.graph, inputs)
    program = pipeline.run(case.graph).program
    if data.draw(st.booleans()):
        program = row_blocks(program, EAGER)
        note(program.text)
    for machine in HERE:
        chosen = [schedule(kernel, machine) for kernel in program.kernels]
        if data.draw(st.booleans()):
            chosen = [_small_items(one) for one in chosen]
        elif data.draw(st.booleans()):
            chosen = [data.draw(schedules(kernel)) for kernel in program.kernels]
        pairs = zip(program.kernels, chosen, strict=True)
        objects = [compiled.compile_kernel(kernel.text, one, machine) for kernel, one in pairs]
        code = cpu.Code([*objects, compiled.compile_program(program, chosen, machine)])
        note(f"{machine.name}: {[one.text for one in chosen]}")
        for threads in (1, 2, 5):
            runner = CpuExecutable(program, code, threads)
            found = runner.run(inputs)
            runner.close()
            compare(case, found, wanted, f"{machine.name}, {threads} threads")


def _small_items(chosen: Schedule) -> Schedule:
    """Items of a few outputs, so that every thread has some."""
    if chosen.tile is not None:
        return chosen
    return Schedule(chosen.vector_axis, chosen.vector_width, max(1, min(chosen.block, 24)), None, chosen.inner)


@given(case=cases(), data=st.data())
@settings(UNDISTURBED, max_examples=20)
def test_random_graphs_give_the_references_bits(case: Case, data: st.DataObject) -> None:
    check(case, data)


@pytest.mark.full
@given(case=cases(most=14), data=st.data())
@settings(UNDISTURBED, max_examples=600)
def test_many_random_graphs_give_the_references_bits(case: Case, data: st.DataObject) -> None:
    check(case, data)


# ── what was found, minimised ───────────────────────────────────────────────────────────────────────


def graph_bits(kinds: Sequence[TensorType], build: Callable[..., Value], inputs: Sequence[Array]) -> None:
    """One result of the operands: every machine gives the reference's bytes."""
    value = build(*(argument(index, kind) for index, kind in enumerate(kinds)))
    graph = Graph(tuple(kinds), (canonical_nan(value),))
    wanted = evaluate(graph, inputs)[0]
    for machine in HERE:
        found = run_on_cpu(graph, inputs, [], machine)[0]
        assert found.tobytes() == wanted.tobytes(), machine.name


@pytest.mark.parametrize(("points", "columns"), [(0, 5), (3, 0), (0, 0)])
def test_scatter_of_no_updates(points: int, columns: int) -> None:
    """Its second nest has no iterations."""
    kinds = [TensorType(F32, (4, 5)), TensorType(I64, (2, points, 1)), TensorType(F32, (2, points, columns))]
    inputs = [np.zeros(kind.shape, kind.dtype.storage) for kind in kinds]
    graph_bits(kinds, lambda t, i, u: scatter("add", slice_(t, (0, 0), (4, columns)), i, u, (0,)), inputs)


@pytest.mark.parametrize("columns", [1, 2])
def test_a_padded_weight_gradient_of_a_column_of_taps(columns: int) -> None:
    """Taps lie across the lines of its pictures: their presence is another matter than that of taps along lines."""
    kinds = [TensorType(F32, (2, 1, 4, 8)), TensorType(F32, (4, 1, 4, 8))]
    inputs = [np.random.default_rng(n).standard_normal(kind.shape).astype(np.float32) for n, kind in enumerate(kinds)]
    graph_bits(kinds, lambda x, y: convolution(x, y, (3, columns), (1, 1), (1, 1), (-1, 0), (1, 1), 1), inputs)


@pytest.mark.parametrize("columns", [2, 4])
def test_a_dilated_convolution_over_the_whole_width(columns: int) -> None:
    """Its vectors run across the lines of its picture, and so do taps that are not the last: those along lines are."""
    kinds = [TensorType(F32, (1, 1, 33, columns)), TensorType(F32, (2, 1, 5, columns))]
    inputs = [np.random.default_rng(n).standard_normal(kind.shape).astype(np.float32) for n, kind in enumerate(kinds)]
    graph_bits(kinds, lambda x, w: convolution(x, w, (25, 1), (1, 1), (2, 1), (0, 0), (1, 1), 1), inputs)

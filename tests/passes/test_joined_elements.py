"""Elementwise calls as one where both results are stored: fewer calls, and the reference's bytes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import passes.joined_elements as pass_under_test
from passes import pipeline
from passes.joined_elements import LEAST, joined_elements
from passes.prepare import canonical_outputs
from passes.row_blocks import Limits, row_blocks
from passes.sequences import Touched
from repro.ir.graph import Graph, Value, argument
from repro.ir.loops import Kernel
from repro.ir.program import INPUT, OUTPUT, Call, Program, RowBlocks, walk
from repro.ir.types import BOOL, F32, TensorType
from repro.ops import add, broadcast, div, elementwise, loop, mul, reduce_axes, sub, transpose
from repro.ops.record import evaluate
from tests.passes.random_programs import Maker
from tests.running import assert_same_everywhere, interpreted

KIND, ROW = TensorType(F32, (24, 96)), TensorType(F32, (24,))
EAGER = Limits(near_bytes=1 << 12, worth_bytes=1, fewest_blocks=2, even_blocks=2, fewest_rows=1)


def down(row: Value) -> Value:
    return broadcast(row, KIND.shape, (0,))


def scaled_and_shifted() -> Graph:
    """What is standardized, and what a scale and a shift make of it."""
    x, deviation, scale = argument(0, KIND), argument(1, ROW), argument(2, ROW)
    standardized = div(x, down(deviation))
    return Graph((KIND, ROW, ROW), (standardized, add(mul(standardized, down(scale)), x)))


def one_after_another() -> Graph:
    x = argument(0, KIND)
    first = elementwise("erf", x)
    second = mul(elementwise("tanh", mul(first, x)), x)
    third = elementwise("exp", sub(second, first))
    return Graph((KIND,), (first, second, third))


def inside_a_loop() -> Graph:
    def body(_: Value, state: Value, x: Value) -> list[Value]:
        slope = elementwise("erf", mul(state, x))
        return [mul(slope, state), slope]

    x = argument(0, KIND)
    return Graph((KIND,), tuple(loop(3, (x,), (), (x,), body)))


def of_a_norm() -> Graph:
    """Deviations, standardized values and what is made of them: the deviations are the block's own."""
    x = argument(0, KIND)
    deviations = sub(x, down(reduce_axes("add", x, (1,))))
    spread = elementwise("sqrt", reduce_axes("add", mul(deviations, deviations), (1,)))
    standardized = div(deviations, down(spread))
    return Graph((KIND, ROW), (spread, standardized, mul(standardized, down(argument(1, ROW)))))


def in_another_order() -> Graph:
    """The second reads what another iteration of the first made."""
    x = argument(0, TensorType(F32, (48, 48)))
    first = elementwise("erf", x)
    return Graph((x.type,), (first, mul(transpose(first, (1, 0)), x)))


def few() -> Graph:
    x = argument(0, TensorType(F32, (LEAST - 1,)))
    first = elementwise("erf", x)
    return Graph((x.type,), (first, mul(first, x)))


def behind_a_sum() -> Graph:
    """The second also reads what a sum makes of all of the first."""
    x = argument(0, KIND)
    first = elementwise("erf", x)
    return Graph((KIND,), (first, mul(first, broadcast(reduce_axes("add", first, (0, 1)), KIND.shape, ()))))


def elements(program: Program) -> list[Kernel]:
    kernels = [program.kernels[step.kernel] for step in walk(program.steps) if isinstance(step, Call)]
    return [kernel for kernel in kernels if len(kernel.axes) and kernel.stores and not kernel.serial]


def stores(program: Program) -> list[int]:
    return [len(kernel.stores) for kernel in elements(program)]


def inputs_of(graph: Graph) -> list[np.ndarray]:
    """Of many sizes, with zeros of both signs, a NaN and an infinity."""
    random = np.random.default_rng(9)
    given = [
        (random.standard_normal(k.shape) * 2.0 ** random.integers(-6, 4, k.shape)).astype(F32.storage)
        for k in graph.arguments
    ]
    for array in given:
        array.flat[1:7] = 0.0, -0.0, np.nan, np.inf, -np.inf, 1e-42
    return given


@pytest.mark.parametrize(
    ("make", "joined"), [(scaled_and_shifted, [2]), (one_after_another, [3]), (inside_a_loop, [1, 2, 1, 1])]
)
def test_both_results_are_stored_by_one_call_with_the_references_bytes(
    make: Callable[[], Graph], joined: list[int]
) -> None:
    graph = make()
    inputs = inputs_of(graph)
    before = pipeline.run(graph).program
    after = joined_elements(before)
    assert max(stores(before)) == 1
    assert stores(after) == joined
    assert_same_everywhere(after, inputs, evaluate(canonical_outputs(graph), inputs, ()))


@pytest.mark.parametrize("make", [in_another_order, few, behind_a_sum])
def test_what_is_not_there_yet_or_near_anyhow_stays_apart(make: Callable[[], Graph]) -> None:
    """The second result is stored by a call of its own; the first may be with the output that is copied from it."""
    program = joined_elements(pipeline.run(make()).program)
    last = [step for step in walk(program.steps) if isinstance(step, Call)][-1]
    written = [program.buffers[last.buffers[store.buffer]] for store in program.kernels[last.kernel].stores]
    assert [(each.role, each.position) for each in written] == [(OUTPUT, 1)]


def test_blocks_of_rows_hold_calls_of_several_results() -> None:
    graph = of_a_norm()
    inputs = inputs_of(graph)
    joined = joined_elements(pipeline.run(graph).program)
    program = row_blocks(joined, EAGER)
    (blocks,) = (step for step in program.steps if isinstance(step, RowBlocks))
    assert max(len(program.kernels[call.kernel].stores) for call in blocks.body) == 2
    assert_same_everywhere(program, inputs, evaluate(canonical_outputs(graph), inputs, ()))


def random_run(seed: int) -> tuple[Program, list[np.ndarray]]:
    program, generator = Maker(seed).program(), np.random.default_rng(seed)
    kinds = [buffer for buffer in program.buffers if buffer.role == INPUT]
    floats = [generator.standard_normal(kind.elements).astype(np.float32) for kind in kinds]
    return program, [array > 0 if kind.dtype is BOOL else array for kind, array in zip(kinds, floats, strict=True)]


def same_results(seed: int) -> bool:
    program, inputs = random_run(seed)
    return interpreted(joined_elements(program), inputs) == interpreted(program, inputs)


@pytest.mark.parametrize("seed", range(60))
def test_random_programs_compute_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pass_under_test, "LEAST", 1)
    assert same_results(seed)


def test_random_programs_are_joined_and_a_call_that_comes_too_early_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: were no step in between asked, calls would read what is not there yet."""
    monkeypatch.setattr(pass_under_test, "LEAST", 1)
    assert sum(joined_elements(program) is not program for program, _ in map(random_run, range(60))) >= 20
    monkeypatch.setattr(Touched, "before", lambda first, then: False)
    assert not all(map(same_results, range(60)))

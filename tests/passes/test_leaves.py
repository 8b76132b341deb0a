"""Long sums of few outputs cut into leaves: calls whose items threads share out, and the reference's bytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import passes.leaves as pass_under_test
from passes import pipeline
from passes.leaves import leaves
from passes.plan import plan
from passes.schedule import schedule
from repro.errors import InternalError
from repro.ir.graph import Graph, argument
from repro.ir.program import CountedLoop, Program, walk
from repro.ir.types import F16, F32, F64, I32, Array, DType, TensorType
from repro.ops import broadcast, convert_to, loop, mul, reduce_axes
from repro.ops.record import evaluate
from repro.targets import interpreter
from repro.targets.llvm.kernel import work_items
from tests.running import executable
from tests.targets.native import HERE, same

MACHINES = pytest.mark.parametrize("machine", HERE, ids=lambda m: m.name)
LEAF = 4096
CASES: Sequence[tuple[str, DType, tuple[int, ...], tuple[int, ...], int]] = (
    ("add", F32, (16 * LEAF,), (0,), 16),
    ("add", F32, (16 * LEAF + 1,), (0,), 17),
    ("add", F32, (40 * LEAF + 77,), (0,), 41),
    ("add", F32, (3, 8 * LEAF + 5), (1,), 9),
    ("add", F32, (2 * LEAF + 33, 10), (0,), 3),
    ("add", F32, (2 * LEAF, 96), (0,), 2),
    ("add", F32, (64, 4, 1024), (0, 2), 16),
    ("add", F32, (2, 3 * LEAF, 2, 4), (1, 3), 3),
    ("mul", F64, (16 * LEAF + 9,), (0,), 17),
    ("add", F16, (17 * LEAF,), (0,), 17),
    ("max", F32, (17 * LEAF + 3,), (0,), 18),
    ("add", I32, (17 * LEAF + 3,), (0,), 18),
)
"""Combiner, type, shape, reduced axes; leaves of an output."""


def sums(combiner: str, dtype: DType, shape: tuple[int, ...], axes: tuple[int, ...]) -> Graph:
    kind = TensorType(dtype, shape)
    x = argument(0, kind) if dtype.computes else convert_to(argument(0, kind), F32)
    return Graph((kind,), (reduce_axes(combiner, x, axes),))


def values(dtype: DType, shape: tuple[int, ...]) -> Array:
    """Of many sizes, subnormals and zeros of both signs among them; one NaN and infinities where there are rows."""
    random = np.random.default_rng(5)
    if dtype is I32:
        return random.integers(-(2**31), 2**31, shape, np.int32)
    found = random.standard_normal(shape) * 2.0 ** random.integers(-6, 7, shape)
    found[random.random(shape) < 0.1] = -0.0
    found = found.astype(dtype.storage)
    if dtype is F32:
        found[random.random(shape) < 0.1] *= np.float32(1e-42)
    if len(shape) > 1:
        last = found.reshape(-1, shape[-1])
        last[0, 0], last[-1, -1] = np.inf, np.nan
    return found


@pytest.mark.parametrize(("combiner", "dtype", "shape", "axes", "count"), CASES)
def test_sums_of_leaves_are_items_and_the_bits_are_the_references(
    combiner: str, dtype: DType, shape: tuple[int, ...], axes: tuple[int, ...], count: int
) -> None:
    graph = sums(combiner, dtype, shape, axes)
    whole = pipeline.run(graph).program
    cut = leaves(whole)
    assert len(cut.steps) in (len(whole.steps) + 1, len(whole.steps) + 2)
    given = values(dtype, shape)
    (wanted,) = evaluate(graph, (given,))
    for machine in HERE:
        assert max(work_items(k, schedule(k, machine)) for k in cut.kernels) >= min(count - 1, 8)
        for threads in (1, 3):
            made = executable(cut, machine, threads)
            found = made.run([given.reshape(-1)])[0]
            made.close()
            assert same(graph.results[0].dtype, found, wanted.reshape(-1)), (machine.name, threads)


@pytest.mark.parametrize("given", [np.nan, np.inf, -0.0, 1e-45])
def test_edge_values_on_both_sides_of_a_leaf(given: float) -> None:
    """The interpreter's bits too; the total of negative zeros alone is one."""
    graph = sums("add", F32, (16 * LEAF + 1,), (0,))
    cut = leaves(pipeline.run(graph).program)
    array = np.full(16 * LEAF + 1, -0.0, np.float32)
    array[[LEAF - 1, LEAF, 16 * LEAF]] = given
    (wanted,) = evaluate(graph, (array,))
    assert same(F32, interpreter.run(cut, [array])[0][0], wanted.reshape(-1))


def test_two_sums_in_one_kernel_are_both_cut() -> None:
    kind = TensorType(F32, (16 * LEAF,))
    x = argument(0, kind)
    graph = Graph((kind,), (mul(reduce_axes("add", x, (0,)), reduce_axes("max", x, (0,))),))
    cut = leaves(pipeline.run(graph).program)
    given = values(F32, kind.shape)
    made = executable(cut, HERE[0], 2)
    assert same(F32, made.run([given])[0], evaluate(graph, (given,))[0].reshape(-1))
    made.close()


def test_in_a_loop_the_temporary_stays_within_the_iteration() -> None:
    kind, one = TensorType(F32, (3, 16 * LEAF)), TensorType(F32, ())
    made = loop(3, (argument(1, one),), (argument(0, kind),), (), lambda _, s, x: [mul(s, reduce_axes("add", x, (0,)))])
    graph = Graph((kind, one), tuple(made))
    cut = leaves(pipeline.run(graph).program)
    assert any(isinstance(step, CountedLoop) and len(step.body) > 1 for step in walk(cut.steps))
    given = values(F32, kind.shape), np.float32(2)
    runner = executable(cut, HERE[0], 2)
    found = runner.run([given[0].reshape(-1), np.array([2], np.float32)])[0]
    runner.close()
    assert same(F32, found, evaluate(graph, (given[0], np.array(2, np.float32)))[0].reshape(-1))


@pytest.mark.parametrize(
    ("shape", "axes"), [((LEAF,), (0,)), ((9, 8 * LEAF), (1,)), ((2, 5000, 3, 11), (1, 3)), ((40, 1000), (0,))]
)
def test_what_is_short_or_many_or_in_no_runs_stays(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    program = pipeline.run(sums("add", F32, shape, axes)).program
    assert leaves(program) is program


def test_channels_that_read_a_value_each_stay() -> None:
    """What lies side by side is one value for each output, not its terms: outputs are no columns."""
    kind, few = TensorType(F32, (32, 64, 32, 32)), TensorType(F32, (64,))
    scaled = mul(argument(0, kind), broadcast(argument(1, few), kind.shape, (1,)))
    program = pipeline.run(Graph((kind, few), (reduce_axes("add", scaled, (0, 2, 3)),))).program
    assert leaves(program) is program


def test_a_temporary_is_a_leafth_of_what_is_summed() -> None:
    cut: Program = leaves(pipeline.run(sums("add", F32, (64 * LEAF,), (0,))).program)
    assert cut.arena_bytes == 64 * 4 == plan(cut.buffers, cut.steps)[1]


def test_a_sum_of_leaves_that_forgets_the_last_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted fault: there is no place for the last leaf."""
    monkeypatch.setattr(pass_under_test._Cut, "leaves", property(lambda cut: cut.whole))
    graph = sums("add", F32, (16 * LEAF + 99,), (0,))
    with pytest.raises(InternalError, match="stores elements 16 to 16 of 16"):
        leaves(pipeline.run(graph).program)

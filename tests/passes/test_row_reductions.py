"""Reductions of the same rows as one call: fewer calls, and the reference's bytes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from passes import pipeline
from passes.row_reductions import reduces_rows, row_reductions
from repro.ir.expressions import Reduce
from repro.ir.graph import Graph, Value, argument
from repro.ir.loops import Kernel
from repro.ir.program import Call, Program, walk
from repro.ir.types import F32, TensorType
from repro.ops import broadcast, elementwise, loop, mul, reduce_axes, reverse, sub
from repro.ops.record import evaluate
from tests.running import assert_same_everywhere

ROWS, LONG = 24, 96


def wide(value: Value, shape: tuple[int, ...]) -> Value:
    return broadcast(value, shape, tuple(range(len(shape) - 1)))


def over_rows(combiner: str, x: Value) -> Value:
    return reduce_axes(combiner, x, (len(x.shape) - 1,))


def exponentials(shape: tuple[int, ...] = (ROWS, LONG)) -> Graph:
    """Of each row its maximum and the logarithm of the sum of exponentials, as a cross-entropy has them."""
    kind = TensorType(F32, shape)
    x = argument(0, kind)
    top = over_rows("max", x)
    found = elementwise("log", over_rows("add", elementwise("exp", sub(x, wide(top, shape)))))
    return Graph((kind,), (top, found))


def moments() -> Graph:
    """A sum, the sum of squares about it, and the sum of what lies further than that: three, one of another."""
    kind = TensorType(F32, (ROWS, LONG))
    x = argument(0, kind)
    first = over_rows("add", x)
    apart = sub(x, wide(first, kind.shape))
    second = over_rows("add", mul(apart, apart))
    third = over_rows("add", elementwise("max", sub(mul(x, x), wide(second, kind.shape)), x))
    return Graph((kind,), (first, second, third))


def inside_a_loop() -> Graph:
    kind, start = TensorType(F32, (ROWS, LONG)), TensorType(F32, (ROWS,))

    def body(_: Value, state: Value, x: Value) -> list[Value]:
        scaled = mul(x, wide(state, kind.shape))
        top = over_rows("max", scaled)
        return [sub(over_rows("add", elementwise("tanh", sub(scaled, wide(top, kind.shape)))), top)]

    return Graph((kind, start), tuple(loop(3, (argument(1, start),), (), (argument(0, kind),), body)))


def other_rows() -> Graph:
    """Each sum is of what is taken from another row's maximum."""
    kind = TensorType(F32, (ROWS, LONG))
    x = argument(0, kind)
    top = over_rows("max", x)
    found = over_rows("add", elementwise("exp", sub(x, wide(reverse(top, (0,)), kind.shape))))
    return Graph((kind,), (top, found))


def other_values() -> Graph:
    """The second goes over rows that the first does not read."""
    kind = TensorType(F32, (ROWS, LONG))
    x, y = argument(0, kind), argument(1, kind)
    top = over_rows("max", x)
    return Graph((kind, kind), (top, over_rows("add", mul(y, wide(top, kind.shape)))))


def over_channels(shape: tuple[int, ...], sums: int = 4) -> Graph:
    """Sums of each channel, of the same values and of products of them, as a batch norm's gradient has them."""
    kind, axes = TensorType(F32, shape), tuple(axis for axis in range(len(shape)) if axis != 1)
    x, y, scale = argument(0, kind), argument(1, kind), argument(2, TensorType(F32, shape[1:2]))
    scaled = mul(x, broadcast(scale, shape, (1,)))
    terms = [x, mul(x, y), scaled, mul(scaled, y), mul(y, y), sub(x, y), mul(x, x), elementwise("max", x, y)]
    return Graph((kind, kind, scale.type), tuple(reduce_axes("add", term, axes) for term in terms[:sums]))


def of_each_other() -> Graph:
    """Rows that are not near: a sum, and what is computed from it, which goes over them again."""
    kind = TensorType(F32, (3, 8192))
    x = argument(0, kind)
    first = over_rows("add", x)
    apart = sub(x, wide(first, kind.shape))
    return Graph((kind,), (first, over_rows("add", mul(apart, apart))))


def calls(program: Program) -> list[Kernel]:
    return [program.kernels[step.kernel] for step in walk(program.steps) if isinstance(step, Call)]


def random_inputs(graph: Graph) -> list[np.ndarray]:
    generator = np.random.default_rng(4)
    return [generator.standard_normal(kind.shape).astype(np.float32) for kind in graph.arguments]


def reductions(kernel: Kernel) -> int:
    return sum(isinstance(expr, Reduce) for expr in kernel.expressions)


SHAPES = [(2, 100), (3, 64), (5, 97), (2, 3, 4, 1000), (7, 4096)]


@pytest.mark.parametrize("make", [moments, *(lambda s=shape: exponentials(s) for shape in SHAPES)])
def test_rows_are_reduced_by_one_call_with_the_references_bytes(make: Callable[[], Graph]) -> None:
    graph = make()
    inputs = random_inputs(graph)
    before = pipeline.run(graph).program
    after = row_reductions(before)
    assert [reductions(kernel) for kernel in calls(before) if reduces_rows(kernel)] == [1] * len(graph.results)
    (together,) = (kernel for kernel in calls(after) if reductions(kernel))
    assert reductions(together) == len(together.stores) == len(graph.results)
    assert_same_everywhere(after, inputs, evaluate(graph, inputs, ()))


def test_what_nothing_else_reads_is_not_stored() -> None:
    graph = inside_a_loop()
    inputs = random_inputs(graph)
    before = pipeline.run(graph).program
    after = row_reductions(before)
    assert len([kernel for kernel in calls(before) if reductions(kernel)]) == 2
    (together,) = (kernel for kernel in calls(after) if reductions(kernel))
    assert reductions(together) == 2 and len(together.stores) == 1
    assert_same_everywhere(after, inputs, evaluate(graph, inputs, ()))


def test_rows_that_are_not_finite_keep_their_bits() -> None:
    graph = exponentials((6, 128))
    (x,) = random_inputs(graph)
    x[0, 5], x[1, 7], x[2], x[3, 100] = np.nan, np.inf, -np.inf, -np.inf
    assert_same_everywhere(row_reductions(pipeline.run(graph).program), [x], evaluate(graph, [x], ()))


CHANNELS = [
    (4, 3, 8, 16),
    (32, 3, 4, 4),
    (9, 3, 2, 12),
    (8, 3, 32, 32),
    (2, 5, 4096),
    (5, 4, 7, 7),
    (3, 2, 3000),
    (70, 40),
    (300, 64),
    (1, 6, 64),
]


@pytest.mark.parametrize("shape", CHANNELS)
@pytest.mark.parametrize("sums", [2, 4, 8])
def test_sums_of_the_same_values_are_one_call_with_the_references_bytes(shape: tuple[int, ...], sums: int) -> None:
    graph = over_channels(shape, sums)
    inputs = random_inputs(graph)
    before = pipeline.run(graph).program
    after = row_reductions(before)
    assert [reductions(kernel) for kernel in calls(before)] == [1] * sums
    assert [len(kernel.stores) for kernel in calls(after) if reductions(kernel)] == [sums]
    assert_same_everywhere(after, inputs, evaluate(graph, inputs, ()))


@pytest.mark.parametrize("make", [other_rows, other_values, of_each_other, lambda: exponentials((ROWS, 63))])
def test_calls_over_other_rows_stay_apart(make: Callable[[], Graph]) -> None:
    program = pipeline.run(make()).program
    assert len([kernel for kernel in calls(program) if reductions(kernel)]) == 2
    assert row_reductions(program) is program

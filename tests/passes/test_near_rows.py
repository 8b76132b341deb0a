"""Rows that are computed again where they are read: one kernel where there were two, and the reference's bytes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import passes.near_rows as pass_under_test
from passes import pipeline
from passes.near_rows import near_rows
from passes.plan import plan
from repro.ir import index as ix
from repro.ir.expressions import Expr, Lanes, Reduce, apply, load, reduce
from repro.ir.graph import Graph, Value, argument
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.program import INPUT, OUTPUT, TEMPORARY, Buffer, Call, CountedLoop, Program, walk
from repro.ir.types import F32, TensorType
from repro.machines import Machine
from repro.ops import broadcast, div, elementwise, loop, mul, reduce_axes, sub
from repro.ops.record import evaluate
from repro.targets.cpu.target import FAMILY
from tests.running import assert_same_everywhere, interpreted
from tests.targets.native import HERE

ROWS, LONG = 24, 96


def wide(value: Value, shape: tuple[int, ...]) -> Value:
    return broadcast(value, shape, tuple(range(len(shape) - 1)))


def total(x: Value) -> Value:
    return wide(reduce_axes("add", x, (len(x.shape) - 1,)), x.shape)


def norm(x: Value) -> Value:
    """Deviations over the root of the sum of their squares."""
    d = sub(x, total(x))
    return div(d, elementwise("sqrt", total(mul(d, d))))


def softmax(length: int = LONG, power: int = 1) -> Graph:
    """Exponentials over the sum of their powers."""
    kind = TensorType(F32, (ROWS, length))
    x = argument(0, kind)
    e = elementwise("exp", sub(x, wide(reduce_axes("max", x, (1,)), x.shape)))
    return Graph((kind,), (div(e, total(mul(e, e) if power == 2 else e)),))


def norms(shape: tuple[int, ...] = (ROWS, LONG)) -> Graph:
    kind = TensorType(F32, shape)
    return Graph((kind,), (norm(argument(0, kind)),))


def weighted() -> Graph:
    """As the gradient of a norm begins: a product, its sum, and the sum of its products."""
    kind, scale = TensorType(F32, (ROWS, LONG)), TensorType(F32, (LONG,))
    h = mul(argument(0, kind), broadcast(argument(2, scale), kind.shape, (1,)))
    n = argument(1, kind)
    return Graph((kind, kind, scale), (sub(sub(h, total(h)), mul(n, total(mul(h, n)))),))


def inside_a_loop() -> Graph:
    kind = TensorType(F32, (ROWS, LONG))
    return Graph((kind,), tuple(loop(3, (argument(0, kind),), (), (), lambda _, state: [norm(state)])))


def calls(program: Program) -> list[Kernel]:
    return [program.kernels[step.kernel] for step in walk(program.steps) if isinstance(step, Call)]


def random_inputs(graph: Graph) -> list[np.ndarray]:
    generator = np.random.default_rng(4)
    return [generator.standard_normal(kind.shape).astype(np.float32) for kind in graph.arguments]


@pytest.mark.parametrize("make", [norms, weighted, inside_a_loop, lambda: norms((2, 3, 4, 100)), softmax])
def test_two_kernels_become_one_with_the_references_bytes(make: Callable[[], Graph]) -> None:
    graph = make()
    inputs = random_inputs(graph)
    before = pipeline.run(graph).program
    after = near_rows(before)
    assert len(calls(after)) == len(calls(before)) - 1
    assert max(sum(isinstance(expr, Reduce) for expr in kernel.expressions) for kernel in calls(after)) == 2
    assert after.arena_bytes <= before.arena_bytes
    assert_same_everywhere(after, inputs, evaluate(graph, inputs, ()))


def test_numbers_of_axes_stay_unique() -> None:
    for kernel in calls(near_rows(pipeline.run(norms()).program)):
        bound = [axis.number for expr in kernel.expressions if isinstance(expr, Reduce) for axis in expr.axes]
        assert len({*bound, *(axis.number for axis in kernel.axes)}) == len(bound) + len(kernel.axes)


def kept() -> Graph:
    """What is stored is a result too."""
    kind = TensorType(F32, (ROWS, LONG))
    d = sub(argument(0, kind), total(argument(0, kind)))
    return Graph((kind,), (d, div(d, elementwise("sqrt", total(mul(d, d))))))


def test_a_sum_s_terms_are_kept_where_they_are_dear() -> None:
    (exponentials,), (deviations,) = (calls(near_rows(pipeline.run(make()).program)) for make in (softmax, norms))
    found = pass_under_test.kept(exponentials)
    assert found is not None
    assert found[1] in exponentials.expressions
    assert pass_under_test.kept(deviations) is None


DEAR = (lambda: softmax(power=2), lambda: softmax(4100), lambda: softmax(32))
"""Not the sum's terms themselves, too many to keep, too few to be worth it."""


@pytest.mark.parametrize("make", [*DEAR, kept, lambda: norms((ROWS, 8200)), lambda: norms((ROWS, 32))])
def test_what_costs_more_or_is_wanted_elsewhere_stays(make: Callable[[], Graph]) -> None:
    program = pipeline.run(make()).program
    assert len(calls(program)) >= 2
    assert near_rows(program) is program


# ── order ───────────────────────────────────────────────────────────────────────────────────────────

SIZE = ROWS * LONG
ROW, COLUMN, TERM = ix.axis(0, ROWS), ix.axis(1, LONG), ix.axis(2, LONG)


def kernel(value: Callable[[Expr], Expr], axes: tuple[Expr, ...] = (ROW, COLUMN)) -> Kernel:
    place = ix.linear((ROW, COLUMN), (ROWS, LONG))
    buffers = (BufferParameter(F32, SIZE, False), BufferParameter(F32, SIZE, True))
    return Kernel(buffers, (), (ROW, COLUMN), 0, (Store(1, place, value(place)),))


def at(place: Expr) -> Expr:
    return load(F32, 0, place)


COPY = kernel(at)
SQUARE = kernel(lambda place: apply("mul", at(place), at(place)))
LESS_ITS_SUM = kernel(
    lambda place: apply(
        "sub", at(place), reduce("add", Lanes(32, 4096), [TERM], [at(ix.linear((ROW, TERM), (ROWS, LONG)))])
    )
)


def program(*steps: Call | CountedLoop) -> Program:
    """Buffers: two inputs, two temporaries, an output."""
    buffers = (
        *(Buffer(F32, SIZE, INPUT, number) for number in (0, 1)),
        *(Buffer(F32, SIZE, TEMPORARY, 0) for _ in range(2)),
        Buffer(F32, SIZE, OUTPUT, 0),
    )
    planned, arena = plan(buffers, steps)
    return Program((COPY, SQUARE, LESS_ITS_SUM), planned, (), steps, arena)


def both_inputs() -> list[np.ndarray]:
    generator = np.random.default_rng(4)
    return [generator.standard_normal(SIZE).astype(np.float32) for _ in range(2)]


def overwritten() -> Program:
    """What the first kernel reads is written again before the rows are computed."""
    return program(Call(0, (0, 2)), Call(1, (2, 3)), Call(0, (1, 2)), Call(2, (3, 4)))


def test_what_was_read_before_it_changed_is_not_read_again() -> None:
    assert near_rows(made := overwritten()) is made
    free = program(Call(0, (0, 2)), Call(1, (2, 3)), Call(2, (3, 4)))
    assert len(calls(near_rows(free))) == 2
    assert interpreted(near_rows(free), both_inputs()) == interpreted(free, both_inputs())


def test_a_call_that_overtakes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault."""
    monkeypatch.setattr(pass_under_test._NearRows, "_may_wait", lambda self, touching: True)
    assert interpreted(near_rows(overwritten()), both_inputs()) != interpreted(overwritten(), both_inputs())


@pytest.mark.parametrize("machine", HERE, ids=lambda machine: machine.name)
def test_the_cpu_targets_run_it(machine: Machine) -> None:
    before = pipeline.run(norms((512, 1024))).program
    (code,) = (each for each in FAMILY.built if each.name == machine.name)
    assert len(calls(code.shape(before))) == len(calls(before)) - 1

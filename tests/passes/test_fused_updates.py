"""Weights updated on the totals of their gradients' dots: when, and that the state after it is the reference's."""

from __future__ import annotations

from collections.abc import Sequence
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import passes.fused_updates as pass_under_test
from passes import pipeline
from passes.fused_updates import fused_updates
from passes.prepare import canonical_outputs
from repro.ir.contraction import find
from repro.ir.graph import Graph, Value, argument, parameter
from repro.ir.program import Call, Commit, Program
from repro.ir.types import BF16, F32, Array, TensorType, to_storage
from repro.ops import (
    add,
    broadcast,
    compare,
    convert_to,
    div,
    elementwise,
    fill,
    iota,
    matmul,
    maximum,
    mul,
    reduce_axes,
    reshape,
    scalar,
    select,
    slice_,
    sub,
    transpose,
)
from repro.ops.record import evaluate
from repro.targets import interpreter
from tests.running import executable
from tests.targets.native import HERE

State = Sequence[Value]
SPECIAL = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, -1e-45, 1e38], np.float32)


def times(number: float, x: Value) -> Value:
    return mul(broadcast(scalar(number, x.dtype), x.shape, ()), x)


def sgd(state: State, g: Value) -> list[Value]:
    return [sub(state[0], times(0.1, g))]


def momentum(state: State, g: Value) -> list[Value]:
    velocity = add(times(0.9, state[1]), g)
    return [sub(state[0], times(0.1, velocity)), velocity]


def adam(state: State, g: Value) -> list[Value]:
    w, m, v = state
    first = add(m, times(0.1, sub(g, m)))
    second = add(times(0.99, v), mul(times(0.01, g), g))
    spread = add(elementwise("sqrt", second), broadcast(scalar(1e-8, F32), w.shape, ()))
    return [sub(w, times(0.1, div(first, spread))), first, second]


OPTIMIZERS = {"sgd": (sgd, 1), "momentum": (momentum, 2), "adam": (adam, 3)}


class Step:
    """One layer's step: x[k, m] and dy[k, n] give dw[m, n], or its transpose; dx is an output that reads the old w."""

    def __init__(self, m: int, n: int, k: int, optimizer: str = "sgd", turned: bool = False) -> None:
        update, held = OPTIMIZERS[optimizer]
        self.kinds = (TensorType(F32, (m, n)),) * held
        self.arguments = (TensorType(F32, (k, m)), TensorType(F32, (k, n)))
        self.x, self.dy = (argument(number, kind) for number, kind in enumerate(self.arguments))
        self.state = [parameter(slot, kind) for slot, kind in enumerate(self.kinds)]
        self.hot = elementwise("tanh", self.x)
        """What the dot multiplies is computed, so that it has to be kept."""
        dots = matmul(transpose(self.hot, (1, 0)), self.dy), matmul(transpose(self.dy, (1, 0)), self.hot)
        self.gradient = transpose(dots[1], (1, 0)) if turned else dots[0]
        self.next_values = update(self.state, self.gradient)
        self.outputs = [matmul(self.dy, transpose(self.state[0], (1, 0)))]

    @property
    def program(self) -> Program:
        first = len(self.outputs)
        updates = tuple((slot, first + slot) for slot in range(len(self.next_values)))
        return pipeline.run(Graph(self.arguments, (*self.outputs, *self.next_values)), updates=updates).program

    def drawn(self, seed: int, special: bool) -> tuple[list[Array], list[Array]]:
        draw = np.random.default_rng(seed)
        kinds = (*self.arguments, *self.kinds)
        arrays = [to_storage(draw.standard_normal(kind.shape).astype(kind.dtype.face), kind.dtype) for kind in kinds]
        for array in arrays if special else ():
            array.reshape(-1)[draw.integers(0, array.size, 3)] = draw.choice(SPECIAL, 3)
        return arrays[: len(self.arguments)], arrays[len(self.arguments) :]


def fused(program: Program) -> int:
    """How many of the commit's calls are dots."""
    commit = program.steps[-1]
    assert isinstance(commit, Commit)
    return sum(find(program.kernels[step.kernel]) is not None for step in commit.body if isinstance(step, Call))


def check(step: Step, special: bool = False, threads: Sequence[int] = (1, 2)) -> None:
    """Two runs of the fused program, in the interpreter and as code, against the reference."""
    program = fused_updates(step.program)
    inputs, start = step.drawn(5, special)
    graph = canonical_outputs(Graph(step.arguments, (*step.outputs, *step.next_values)))
    wanted, state = list[list[bytes]](), start
    for _ in range(2):
        results = evaluate(graph, inputs, state)
        state = list(results[len(step.outputs) :])
        wanted.append([array.tobytes() for array in results])
    held = [array.copy() for array in start]
    for each in wanted:
        outputs = interpreter.run(program, inputs, held)
        assert [array.tobytes() for array in (*outputs, *held)] == each
    for machine in HERE:
        for count in threads:
            made = executable(program, machine, count)
            for slot, array in enumerate(start):
                made.bind_parameter(slot, array)
            for each in wanted:
                outputs = made.run(inputs)
                after = [made.parameter(slot) for slot in range(len(start))]
                assert [array.tobytes() for array in (*outputs, *after) if array is not None] == each
            made.close()


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_an_update_goes_into_the_gradients_dot(optimizer: str, turned: bool) -> None:
    """And the gradient has no memory any more. Odd extents, one panel."""
    step = Step(53, 37, 9, optimizer, turned)
    program = step.program
    made = fused_updates(program)
    assert fused(program) == 0
    assert fused(made) == 1
    assert made.arena_bytes < program.arena_bytes
    check(step, special=True)


@pytest.mark.parametrize("turned", [False, True])
def test_an_update_that_depends_on_indices(turned: bool) -> None:
    """A square weight held lower triangular, by a gradient that others read too: axes of both have the same numbers."""
    step = Step(16, 16, 24, "momentum", turned)
    mask = compare("ge", iota((16, 16), 0), iota((16, 16), 1))
    weight, velocity = step.next_values
    step.next_values = [select(mask, weight, fill(0.0, weight.type)), velocity]
    check(step)


def test_several_panels() -> None:
    step = Step(29, 37, 530, "momentum")
    assert fused(fused_updates(step.program)) == 0, "what it multiplies takes more than the gradient"
    step.gradient = matmul(transpose(step.x, (1, 0)), step.dy)
    step.next_values = momentum(step.state, step.gradient)
    assert fused(fused_updates(step.program)) == 1, "inputs are there anyhow"
    check(step, threads=(1, 3))


@given(
    st.sampled_from([1, 7, 16, 33, 70]), st.sampled_from([5, 16, 32, 61]), st.sampled_from([1, 2, 5]),
    st.sampled_from(list(OPTIMIZERS)), st.booleans(), st.booleans(),
)  # fmt: skip
@settings(max_examples=5, deadline=None)
def test_any_layer(m: int, n: int, k: int, optimizer: str, turned: bool, special: bool) -> None:
    check(Step(m, n, k, optimizer, turned), special, threads=(3,))


def test_a_gradient_that_somebody_else_reads_is_stored() -> None:
    clipped, given_back = Step(53, 37, 9), Step(53, 37, 9)
    norm = reduce_axes("add", mul(clipped.gradient, clipped.gradient), (0, 1))
    clipped.next_values = sgd(clipped.state, mul(clipped.gradient, broadcast(norm, clipped.gradient.shape, ())))
    given_back.outputs.append(given_back.gradient)
    for step in (clipped, given_back):
        assert fused(fused_updates(step.program)) == 0
        check(step, threads=(2,))


def test_what_a_dot_reads_is_not_written_before_it() -> None:
    """A weight multiplied by itself, and one by another, which is updated first."""
    step = Step(53, 53, 9, "momentum")
    w, v = step.state
    step.next_values = [sub(w, matmul(w, w)), v]
    assert fused(fused_updates(step.program)) == 0
    check(step, threads=(2,))
    step.next_values = [sub(w, matmul(v, v)), add(v, w)]
    assert fused(fused_updates(step.program)) == 0
    check(step, threads=(2,))


def test_a_shared_weight_takes_one_of_its_dots() -> None:
    step = Step(53, 37, 9, "adam")
    other = matmul(transpose(maximum(step.x, times(-1.0, step.x)), (1, 0)), step.dy)
    step.next_values = adam(step.state, add(other, step.gradient))
    assert fused(fused_updates(step.program)) == 1
    check(step, threads=(2,))


def test_an_update_at_another_place_is_apart() -> None:
    """The update reads the gradient transposed: in the order in which it lies."""
    step = Step(40, 40, 9)
    step.next_values = [sub(step.state[0], add(step.gradient, transpose(step.gradient, (1, 0))))]
    assert fused(fused_updates(step.program)) == 0
    check(step, threads=(2,))


def test_narrow_weights() -> None:
    """The update rounds to bf16."""
    step = Step(53, 37, 9)
    w = parameter(0, TensorType(BF16, (53, 37)))
    wide = convert_to(w, F32)
    step.kinds, step.outputs = (w.type,), [mul(step.x, step.x)]
    step.next_values = [convert_to(sub(wide, times(0.1, step.gradient)), BF16)]
    assert fused(fused_updates(step.program)) == 1
    check(step, threads=(2,))


def test_a_commit_stays_short() -> None:
    """Dots beyond what nobody needs to stop run before it."""
    step = Step(53, 37, 9)
    with mock.patch.object(pass_under_test, "MOST_MULTIPLY_ADDS", 53 * 37 * 9 - 1):
        assert fused(fused_updates(step.program)) == 0
    with mock.patch.object(pass_under_test, "MOST_MULTIPLY_ADDS", 53 * 37 * 9):
        assert fused(fused_updates(step.program)) == 1


@pytest.mark.parametrize("rows", [1, 20])
def test_an_update_by_some_of_the_dots_outputs_is_apart(rows: int) -> None:
    """The first rows of them, at the places that the weight has: its own rows behind those are padding, say."""
    step = Step(53, 37, 9)
    kind = TensorType(F32, (rows, 37))
    step.kinds, step.state, step.outputs = (kind,), [parameter(0, kind)], []
    step.next_values = sgd(step.state, slice_(step.gradient, (0, 0), kind.shape))
    assert fused(fused_updates(step.program)) == 0
    check(step, threads=(2,))


def test_an_update_by_one_of_the_dots_outputs_is_apart() -> None:
    """The same one for all elements."""
    step = Step(53, 37, 9)
    one = reshape(slice_(step.gradient, (0, 0), (1, 1)), ())
    step.next_values = sgd(step.state, broadcast(one, step.gradient.shape, ()))
    assert fused(fused_updates(step.program)) == 0
    check(step, threads=(2,))

"""A train step as a program with state: dot, add, select, reduce, broadcast and their gradients, from the records."""

from __future__ import annotations

import numpy as np
import pytest

from passes.pipeline import run
from repro.ir.graph import Graph, Value, argument, parameter
from repro.ir.types import F32, Array, TensorType
from repro.ops import add, broadcast, compare, dot, fill, matmul, mul, record, reduce_axes, scalar, select, sub
from repro.targets import cpu, interpreter
from tests.running import executable

ROWS, WIDE, HIDDEN, OUT = 12, 20, 33, 5
SHAPES = ((WIDE, HIDDEN), (HIDDEN,), (HIDDEN, OUT))


def gradients(loss: Value, wanted: list[Value]) -> list[Value]:
    """Reverse mode by the records' rules; several cotangents of a value are added in order of their users."""
    cotangents: dict[Value, Value] = {loss: fill(1.0, loss.type)}
    for node in reversed(Graph((), (loss,)).nodes):
        if node.results[0] not in cotangents or not node.operands:
            continue
        rule = record(node).gradient
        if not callable(rule):
            continue
        for operand, cotangent in zip(node.operands, rule(node, (cotangents[node.results[0]],)), strict=True):
            if cotangent is not None:
                known = cotangents.get(operand)
                cotangents[operand] = cotangent if known is None else add(known, cotangent)
    return [cotangents[value] for value in wanted]


def train_step() -> Graph:
    """loss and the parameters after one step of gradient descent on a two-layer network with squared error."""
    kinds = [TensorType(F32, shape) for shape in SHAPES]
    w1, b1, w2 = (parameter(slot, kind) for slot, kind in enumerate(kinds))
    x = argument(0, TensorType(F32, (ROWS, WIDE)))
    target = argument(1, TensorType(F32, (ROWS, OUT)))
    hidden = add(matmul(x, w1), broadcast(b1, (ROWS, HIDDEN), (1,)))
    active = select(compare("gt", hidden, fill(0.0, hidden.type)), hidden, fill(0.0, hidden.type))
    error = sub(dot(active, w2, ((1,), (0,))), target)
    loss = reduce_axes("add", mul(error, error), (0, 1))
    rate = scalar(0.001, F32)
    stepped = [
        sub(value, mul(broadcast(rate, value.shape, ()), slope))
        for value, slope in zip((w1, b1, w2), gradients(loss, [w1, b1, w2]), strict=True)
    ]
    return Graph((x.type, target.type), (loss, *stepped))


UPDATES = ((0, 1), (1, 2), (2, 3))


def data() -> tuple[list[Array], list[Array]]:
    generator = np.random.default_rng(7)
    state = [np.asarray(generator.standard_normal(shape) * 0.3, np.float32) for shape in SHAPES]
    inputs = [np.asarray(generator.standard_normal(shape), np.float32) for shape in ((ROWS, WIDE), (ROWS, OUT))]
    return inputs, state


def by_numpy(inputs: list[Array], state: list[Array]) -> tuple[float, list[Array]]:
    """The same step in float64, written by hand."""
    x, target = (array.astype(np.float64) for array in inputs)
    w1, b1, w2 = (array.astype(np.float64) for array in state)
    hidden = x @ w1 + b1
    active = np.where(hidden > 0, hidden, 0.0)
    error = active @ w2 - target
    slope = 2 * error
    back = np.where(hidden > 0, slope @ w2.T, 0.0)
    after = [w1 - 0.001 * x.T @ back, b1 - 0.001 * back.sum(0), w2 - 0.001 * active.T @ slope]
    return float((error * error).sum()), after


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_steps_on_the_cpu_equal_steps_of_the_interpreter(threads: int) -> None:
    machine = cpu.best_machine()
    assert machine is not None
    inputs, state = data()
    step = run(train_step(), updates=UPDATES)
    made = executable(step.program, machine, threads)
    for slot, value in enumerate(state):
        made.set_parameter(slot, value)
    losses: list[float] = []
    for _ in range(4):
        wide_loss, wide_state = by_numpy(inputs, state)
        (expected,) = interpreter.run(step.program, inputs, state)
        found = made.run(inputs)
        assert [loss.tobytes() for loss in found] == [expected.tobytes()]
        for slot, reference in enumerate(state):
            mine = made.parameter(slot)
            assert mine is not None
            assert mine.tobytes() == reference.tobytes()
        losses.append(float(found[0][0]))
        np.testing.assert_allclose(found[0], wide_loss, rtol=1e-5)
        for narrow, wide in zip(state, wide_state, strict=True):
            np.testing.assert_allclose(narrow, wide, rtol=1e-4, atol=1e-6)
    made.close()
    assert losses == sorted(losses, reverse=True)
    assert len(losses) == 4

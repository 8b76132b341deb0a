"""Shorter loop bodies: calls before the loop, merged calls, operands laid out once; and the same bits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from passes.loop_bodies import MANY
from passes.pipeline import run
from repro.ir.contraction import find
from repro.ir.graph import Graph, Value, argument
from repro.ir.program import Call, CountedLoop, Program
from repro.ir.schedule import ContractionTile, Schedule
from repro.ir.types import F32, Array, TensorType
from repro.machines import CPUS, Machine
from repro.ops import add, broadcast, dot, elementwise, mul, sub, transpose
from repro.ops.loops import loop
from repro.ops.record import evaluate
from repro.targets import cpu, interpreter
from repro.targets.llvm.tiling import shape_of
from tests.reference import reference
from tests.running import run_on_cpu
from tests.targets.native import run_kernel

ROWS, COUNT = 5, 17


def recurrent(wide: int, turned: bool) -> Graph:
    """h' = tanh(h W + s s + c), c' = (c - h') h, and the rows of h', over COUNT iterations."""
    state, weight, scale = TensorType(F32, (ROWS, wide)), TensorType(F32, (wide, wide)), TensorType(F32, (wide,))
    kinds = (state, state, weight, scale)

    def body(_: Value, h: Value, c: Value, weights: Value, scale: Value) -> Sequence[Value]:
        weights = transpose(weights, (1, 0)) if turned else weights
        spread = broadcast(mul(scale, scale), state.shape, (1,))
        after = elementwise("tanh", add(add(dot(h, weights, ((1,), (0,))), spread), c))
        return after, mul(sub(c, after), h), after

    h, c, weights, scale_ = (argument(number, kind) for number, kind in enumerate(kinds))
    return Graph(kinds, tuple(loop(COUNT, (h, c), (), (weights, scale_), body)))


def drawn(graph: Graph) -> list[Array]:
    random = np.random.default_rng(3)
    return [np.asarray(random.standard_normal(kind.shape) * 0.4, np.float32) for kind in graph.arguments]


def body_of(program: Program) -> tuple[list[Call], CountedLoop]:
    """The calls ahead of the only loop, and the loop."""
    (place,) = [at for at, step in enumerate(program.steps) if isinstance(step, CountedLoop)]
    step = program.steps[place]
    assert isinstance(step, CountedLoop)
    return [each for each in program.steps[:place] if isinstance(each, Call)], step


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("wide", [20, 32, 64, 96])
def test_a_recurrent_cell_is_a_dot_and_one_kernel_and_has_the_same_bits(wide: int, turned: bool) -> None:
    graph = recurrent(wide, turned)
    program = run(graph).program
    _, step = body_of(program)
    kernels = [program.kernels[call.kernel] for call in step.body if isinstance(call, Call)]
    assert len(kernels) == len(step.body) == 2
    assert find(kernels[0]) is not None and len(kernels[1].stores) >= 3
    expected = [array.tobytes() for array in evaluate(graph, drawn(graph))]
    assert [array.tobytes() for array in interpreter.run(program, drawn(graph))] == expected
    for machine in CPUS.values():
        if cpu.runs_here(machine) is None:
            for threads in (1, 2, 5):
                found = run_on_cpu(graph, drawn(graph), [], machine, threads)
                assert [array.tobytes() for array in found] == expected, (machine.name, threads)


def test_weights_are_laid_out_once_in_tiles_that_need_no_packing() -> None:
    program = run(recurrent(64, True)).program
    ahead, step = body_of(program)
    call = step.body[0]
    assert isinstance(call, Call)
    written = {each.buffers[-1] for each in ahead}
    assert written & set(call.buffers), "the dot reads what a call ahead of the loop wrote"
    kernel = program.kernels[call.kernel]
    wide, narrow = (Schedule(None, width, 1, ContractionTile(4, 2, 8, 64)) for width in (16, 8))
    assert shape_of(kernel, wide).direct and shape_of(kernel, narrow).direct
    assert not shape_of(kernel, Schedule(None, 4, 1, ContractionTile(4, 3, 8, 64))).direct, "tiles of 12 columns"


@pytest.mark.parametrize("tile", [(4, 2, 8, 64, 1), (3, 1, 3, 32, 2), (14, 2, 64, 32, 4), (5, 3, 5, 48, 1)])
@pytest.mark.parametrize("width", [4, 8, 16])
def test_any_tiles_over_such_weights_give_the_same_bits(tile: tuple[int, int, int, int, int], width: int) -> None:
    program = run(recurrent(96, True)).program
    call = body_of(program)[1].body[0]
    assert isinstance(call, Call)
    kernel = program.kernels[call.kernel]
    random = np.random.default_rng(8)
    buffers = [random.standard_normal(each.elements).astype(np.float32) for each in kernel.buffers]
    wanted = reference(kernel, buffers)
    machine = best()
    found = run_kernel(kernel, buffers, machine, Schedule(None, width, 1, ContractionTile(*tile)), 2)
    assert [array.tobytes() for array in found] == [array.tobytes() for array in wanted]


def best() -> Machine:
    machine = cpu.best_machine()
    assert machine is not None
    return machine


def test_loops_of_few_iterations_are_left_alone() -> None:
    """What is computed once before such a loop would live through all of its body, for little."""
    x = argument(0, TensorType(F32, (ROWS, 4)))

    def body(_: Value, h: Value, scale: Value) -> Sequence[Value]:
        return (mul(add(h, mul(scale, scale)), h),)

    def program(count: int) -> Program:
        return run(Graph((x.type, x.type), tuple(loop(count, (x,), (), (argument(1, x.type),), body)))).program

    assert len(body_of(program(MANY))[1].body) < len(body_of(program(MANY - 1))[1].body)


def test_a_carried_value_that_is_the_same_each_time_is_not_known_in_the_first_iteration() -> None:
    """c' = s s is computed before the loop; c takes it at the end of an iteration, and not before the first."""
    kind = TensorType(F32, (ROWS, 4))

    def body(_: Value, h: Value, c: Value, scale: Value) -> Sequence[Value]:
        return add(mul(h, c), scale), mul(scale, scale)

    h, c, scale = (argument(number, kind) for number in range(3))
    graph = Graph((kind,) * 3, tuple(loop(MANY, (h, c), (), (scale,), body)))
    expected = [array.tobytes() for array in evaluate(graph, drawn(graph))]
    assert [array.tobytes() for array in interpreter.run(run(graph).program, drawn(graph))] == expected
    assert [array.tobytes() for array in run_on_cpu(graph, drawn(graph), [], best(), 2)] == expected

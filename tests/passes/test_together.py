"""Elements of the same places by one iteration: which axes go, and the same bytes on every target."""

from __future__ import annotations

import numpy as np
import pytest

from passes import pipeline
from passes.lower import lower
from passes.prepare import expand
from passes.schedule import schedule
from passes.together import MOST, together
from repro.ir.expressions import Load
from repro.ir.graph import Graph, Value, argument
from repro.ir.types import F32, I64, Array, TensorType
from repro.machines import CPUS, Machine
from repro.ops import broadcast, compare, fill, reverse, select, sort
from repro.ops.arithmetic import add, elementwise
from repro.ops.exchange import exchange
from repro.ops.record import evaluate
from tests.running import assert_same_everywhere
from tests.targets import test_gpu_graphs, test_tpu_codegen


def kernel_shape(value: Value) -> list[tuple[int, int, int]]:
    """Axes, stores and loads of each kernel of a value's program."""
    kernels = pipeline.run(Graph((argument(0, _operand(value)).type,), (value,))).program.kernels
    return [(len(k.axes), len(k.stores), sum(isinstance(e, Load) for e in k.expressions)) for k in kernels]


def _operand(value: Value) -> TensorType:
    node = value.node
    while node.op != "argument":
        node = node.operands[0].node
    return node.types[0]


def keys(*shape: int) -> Value:
    return argument(0, TensorType(I64, shape))


def test_four_steps_read_and_write_sixteen_elements_once() -> None:
    value = exchange(keys(3, 2, 5, 2, 2, 2, 7), (1, 3, 4, 5), (1,))
    assert kernel_shape(value) == [(3, 16, 16)]


def test_no_more_elements_than_registers_hold() -> None:
    value = exchange(keys(2, 2, 2, 2, 2, 7), (0, 1, 2, 3, 4))
    assert kernel_shape(value) == [(2, MOST, 2 * MOST)]


@pytest.mark.parametrize("machine", CPUS.values(), ids=CPUS)
@pytest.mark.parametrize("bits", [1, 2, 3, 4])
def test_registers_hold_a_vector_of_every_place(machine: Machine, bits: int) -> None:
    """Of keys in the near caches; at least one register of each. What lies further away is written by whole lines."""

    def width(rows: int) -> int:
        value = exchange(keys(1, *[2] * bits, rows), list(range(1, 1 + bits)))
        (kernel,) = pipeline.run(Graph((argument(0, _operand(value)).type,), (value,))).program.kernels
        assert len(kernel.stores) == 1 << bits
        return schedule(kernel, machine).vector_width

    registers = -(-width(64) // machine.lanes(64)) << bits
    assert registers < machine.registers or width(64) == machine.lanes(64)
    assert width(64) <= machine.lanes(32) <= width(1 << 16)


def test_what_shares_no_places_stays() -> None:
    assert kernel_shape(broadcast(keys(9), (2, 9), (1,)))[0][1] == 1  # each is written twice, and computed by no other
    assert kernel_shape(add(keys(2, 9), keys(2, 9)))[0][1] == 1


def test_partners_of_any_op_are_computed_together() -> None:
    given = argument(0, TensorType(F32, (4, 2, 40)))
    value = add(elementwise("neg", given), reverse(given, (1,)))
    assert kernel_shape(value) == [(2, 2, 2)]
    _check(value, [np.random.default_rng(1).standard_normal((4, 2, 40)).astype(np.float32)])


@pytest.mark.parametrize(
    ("shape", "count"),
    [((1, 70), 70), ((17, 21), 21), ((3, 100), 2), ((2, 50, 5), 50), ((20, 40), 3)],
)
@pytest.mark.parametrize("kind", [F32, I64])
def test_sorts_have_the_same_bytes_on_every_target(shape: tuple[int, ...], count: int, kind: object) -> None:
    draw = np.random.default_rng(len(shape))
    of = TensorType(F32 if kind is F32 else I64, shape)
    given = draw.integers(-9, 9, shape).astype(of.dtype.storage)
    if of.dtype is F32:
        given[draw.random(shape) < 0.1] = np.nan
        given[draw.random(shape) < 0.1] = -0.0
    _check(sort(argument(0, of), 1, True, count)[1], [given])


def _check(value: Value, given: list[Array]) -> None:
    graph = Graph((_operand(value),), (value,))
    wanted, program = evaluate(graph, given), pipeline.run(graph).program
    assert any(len(kernel.stores) > 1 for kernel in program.kernels)
    assert_same_everywhere(program, given, wanted)
    assert test_gpu_graphs.run(program, given)[0].tobytes() == wanted[0].tobytes()
    for name in test_tpu_codegen.CHIPS:
        assert test_tpu_codegen.run(program, given, name)[0].tobytes() == wanted[0].tobytes()


def test_a_program_that_shares_nothing_is_itself() -> None:
    given = argument(0, TensorType(F32, (2, 9)))
    program = lower(expand(Graph((given.type,), (add(given, given),))))
    assert program.kernels
    assert together(program) is program


@pytest.mark.parametrize(("op", "end"), [("eq", -(1 << 63)), ("lt", (1 << 63) - 1), ("ge", -(1 << 62) - 10)])
def test_what_a_model_compares_is_not_decided_beforehand(op: str, end: int) -> None:
    """Numbers as far out as there are any, where one iteration computes a row and its partner."""
    kind = TensorType(I64, (2, 8))
    x = argument(0, kind)
    graph = Graph((kind,), (select(compare(op, x, fill(end, kind)), x, reverse(x, (0,))),))
    given = np.stack([np.full(8, end), np.full(8, (-(1 << 63), 5)[op == "eq"])])
    program = pipeline.run(graph).program
    assert [len(kernel.stores) for kernel in program.kernels] == [2]
    assert_same_everywhere(program, [given], evaluate(graph, [given], ()))

"""State written over the old one: what goes into the commit, in which order, and what a run that is refused leaves."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from passes.pipeline import run
from repro.ir.graph import Graph, Value, argument, parameter
from repro.ir.program import OUTPUT, TEMPORARY, Call, Commit, Program, walk
from repro.ir.types import F32, I64, Array, TensorType
from repro.machines import Machine
from repro.ops import add, fill, gather, mul, reduce_axes, scatter, sub, transpose
from repro.ops.record import evaluate
from repro.targets import cpu, interpreter
from tests.running import executable

SIZE = 1030
KIND = TensorType(F32, (SIZE,))
SQUARE = TensorType(F32, (32, 32))
Build = Callable[..., Sequence[Value]]


def machine() -> Machine:
    found = cpu.best_machine()
    assert found is not None
    return found


def program_of(next_values: Sequence[Value], kinds: Sequence[TensorType], arguments: Sequence[TensorType]) -> Program:
    updates = tuple((slot, 1 + slot) for slot in range(len(next_values)))
    loss = reduce_axes("add", parameter(0, kinds[0]), tuple(range(len(kinds[0].shape))))
    return run(Graph(tuple(arguments), (loss, *next_values)), updates=updates).program


def commit(program: Program) -> Commit:
    found = program.steps[-1]
    assert isinstance(found, Commit)
    assert not any(isinstance(step, Commit) for step in walk((*program.steps[:-1], *found.body)))
    return found


def check(next_values: Sequence[Value], kinds: Sequence[TensorType], arguments: Sequence[TensorType] = ()) -> Program:
    """Three steps as code (1, 2, 5 threads) and in the interpreter, against the reference on arrays of its own."""
    program = program_of(next_values, kinds, arguments)
    draw = np.random.default_rng(4)
    start = [draw.standard_normal(kind.shape).astype(np.float32) for kind in kinds]
    inputs = [draw.standard_normal(kind.shape).astype(np.float32) for kind in arguments]
    graph = Graph(tuple(arguments), tuple(next_values))
    states = [start]
    for _ in range(3):
        states.append(list(evaluate(graph, inputs, states[-1])))
    held = [array.copy() for array in start]
    for after in states[1:]:
        assert len(interpreter.run(program, inputs, held)) == 1
        assert [array.tobytes() for array in held] == [array.tobytes() for array in after]
    for threads in (1, 2, 5):
        made = executable(program, machine(), threads)
        for slot, array in enumerate(start):
            made.bind_parameter(slot, array)
        for after in states[1:]:
            made.run(inputs)
            found = [made.parameter(slot) for slot in range(len(kinds))]
            assert [array.tobytes() for array in found if array is not None] == [array.tobytes() for array in after]
        made.close()
        assert [array.tobytes() for array in start] == [array.tobytes() for array in states[0]], "the caller's arrays"
    return program


def waiting(program: Program) -> int:
    """Temporaries that the commit reads: next values, or the part of them that was computed before it."""
    calls = [step for step in commit(program).body if isinstance(step, Call)]
    assert calls
    buffers = {buffer for call in calls for buffer in call.buffers}
    return sum(program.buffers[buffer].role == TEMPORARY for buffer in buffers)


def test_what_is_computed_by_element_is_computed_over_the_old_value() -> None:
    """Momentum: the velocity first, then the weight, which reads it."""
    x, w, v = argument(0, KIND), parameter(0, KIND), parameter(1, KIND)
    velocity = add(mul(v, v), x)
    program = check((sub(w, velocity), velocity), (KIND, KIND), (KIND,))
    assert program.written == {0, 1}
    assert waiting(program) == 0
    assert [buffer.role for buffer in program.buffers].count(OUTPUT) == 1


def test_values_that_change_places_are_computed_before() -> None:
    """Each reads the other's old value: one of them must wait in a temporary."""
    a, b = parameter(0, KIND), parameter(1, KIND)
    program = check((sub(b, a), mul(a, b)), (KIND, KIND))
    assert waiting(program) == 1


def test_a_value_read_elsewhere_than_where_it_is_written_is_copied() -> None:
    w = parameter(0, SQUARE)
    program = check((add(transpose(w, (1, 0)), w),), (SQUARE,))
    assert waiting(program) == 1


def test_sums_are_no_part_of_the_commit() -> None:
    """A dot in the commit could not be stopped; and so is what only it makes possible."""
    from repro.ops import matmul

    w = parameter(0, SQUARE)
    program = check((matmul(w, w),), (SQUARE,))
    assert waiting(program) == 1
    twice = add(w, w)
    program = check((twice, matmul(twice, twice)), (SQUARE, SQUARE))
    kernels = [program.kernels[step.kernel] for step in commit(program).body if isinstance(step, Call)]
    assert kernels
    assert not any("reduce" in kernel.text for kernel in kernels)


def test_one_value_for_two_tensors() -> None:
    w = parameter(0, KIND)
    program = check((add(w, w), add(w, w)), (KIND, KIND))
    assert program.written == {0, 1}


@st.composite
def updates(draw: st.DrawFn) -> list[Value]:
    """Next values of three tensors, each from any of the old and the new ones."""
    old: list[Value] = [parameter(slot, KIND) for slot in range(3)]
    known = [*old, argument(0, KIND)]
    for _ in range(draw(st.integers(1, 6))):
        op = draw(st.sampled_from([add, sub, mul]))
        known.append(op(draw(st.sampled_from(known)), draw(st.sampled_from(known))))
    return [draw(st.sampled_from(known)) for _ in range(3)]


@settings(max_examples=25, deadline=None)
@given(updates())
def test_any_updates(next_values: list[Value]) -> None:
    check(next_values, (KIND,) * 3, (KIND,))


# ── runs that change nothing ────────────────────────────────────────────────────────────────────────


def refusing() -> tuple[Program, tuple[str, ...]]:
    """A table whose picked rows are added to it, and a count of the steps."""
    table, count = parameter(0, TensorType(F32, (50, 4))), parameter(1, TensorType(F32, ()))
    picks = argument(0, TensorType(I64, (6, 1)))
    rows = gather(table, picks, (0,))
    results = (reduce_axes("add", rows, (0, 1)), scatter("add", table, picks, rows, (0,)), add(count, count))
    lowered = run(Graph((picks.type,), results), updates=((0, 1), (1, 2)))
    return lowered.program, lowered.checked


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_an_index_out_of_range_leaves_the_state_as_it_was(threads: int) -> None:
    program, checked = refusing()
    assert checked and commit(program).refused is not None
    made = executable(program, machine(), threads)
    start = [np.arange(200, dtype=np.float32), np.ones(1, np.float32)]
    for slot, array in enumerate(start):
        made.set_parameter(slot, array)

    def state() -> list[Array]:
        return [array.copy() for slot in (0, 1) if (array := made.parameter(slot)) is not None]

    for picks, refused in (([1, 2, 50, 3, 3, 0], True), ([1, 2, 49, 3, 3, 0], False), ([-60, 0, 0, 0, 0, 0], True)):
        before = state()
        report = made.run([np.asarray(picks, np.int64).reshape(6, 1)])[-1].reshape(-1, 3)
        assert bool(report[:, 0].any()) == refused
        assert all(np.array_equal(a, b) for a, b in zip(before, state(), strict=True)) == refused
    made.close()


def test_a_budget_repeats_nothing_that_reads_state_already_written() -> None:
    """The commit reads values behind the writes of others: no call may be repeated in between."""
    from passes.recompute import recompute
    from tests.passes.symbolic import terms
    from tests.passes.test_recompute import trained

    program = trained("nano_gpt").program
    for percent in (70, 50):
        after = recompute(program, program.arena_bytes * percent // 100)
        assert len(after.steps) > len(program.steps)
        assert terms(after) == terms(program)


def test_a_stop_while_state_is_written_is_not_heard() -> None:
    """The code looks at the stop flag up to the commit, and not behind it."""
    from passes.schedule import schedule
    from repro.targets.llvm import program as programs

    w = parameter(0, KIND)
    program = program_of((add(w, w),), (KIND,), ())
    text = programs.emit(program, [schedule(kernel, machine()) for kernel in program.kernels], machine())
    inside = text[text.index("define i32") :]
    barriers, looks = inside.count("call i1 @barrier"), inside.count("label %finish")
    calls = sum(isinstance(step, Call) for step in commit(program).body)
    assert calls > 0
    assert looks == barriers - calls + 1, "one behind each barrier up to the commit, and the function's own way out"


def test_a_sum_that_is_begun_and_added_to_is_not_torn_apart() -> None:
    """Zeros, then a scatter onto them, then the commit reads: the zeros stay ahead of the scatter."""
    kind = TensorType(F32, (50, 4))
    table, picks, rows = parameter(0, kind), argument(0, TensorType(I64, (6, 1))), argument(1, TensorType(F32, (6, 4)))
    summed = scatter("add", fill(0.0, kind), picks, rows, (0,))
    after = sub(table, mul(summed, summed))
    graph = Graph((picks.type, rows.type), (reduce_axes("add", rows, (0, 1)), after))
    program = run(graph, updates=((0, 1),)).program
    draw = np.random.default_rng(6)
    given = [draw.integers(0, 50, (6, 1)), draw.standard_normal((6, 4)).astype(np.float32)]
    start = draw.standard_normal((50, 4)).astype(np.float32)
    expected = evaluate(graph, given, [start])[1]
    held = start.copy()
    interpreter.run(program, given, [held])
    assert held.tobytes() == expected.tobytes()

"""A long sequence of steps is cut into functions: the same bits, stopped where it was, none of them long."""

from __future__ import annotations

import ctypes
import re

import numpy as np
import pytest

from passes.schedule import schedule
from repro.ir import index as ix
from repro.ir.expressions import apply, load
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.program import INPUT, OUTPUT, PARAMETER, TEMPORARY, Buffer, Call, Commit, Program
from repro.ir.types import F32
from repro.machines import Machine
from repro.targets import interpreter
from repro.targets.llvm import program as programs
from repro.targets.llvm import steps, toolchain
from repro.targets.llvm.context import STOP
from tests.targets.native import HERE, executable
from tests.targets.test_native_programs import countdown, elementwise, f32, rotation, run

SIZE = 1 << 16
"""Elements of a buffer: several items of work."""
MACHINES = pytest.mark.parametrize("machine", HERE, ids=lambda m: m.name)
TWICE = elementwise(SIZE, 1, lambda x: apply("add", x, x))
HALF_LESS = elementwise(SIZE, 1, lambda x: apply("sub", x, f32(0.5)))


def emitted(program: Program, machine: Machine, profile: bool = False) -> str:
    return programs.emit(program, [schedule(kernel, machine) for kernel in program.kernels], machine, profile)


@MACHINES
@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("most", [1, 2])
@pytest.mark.parametrize("made", [rotation(333), countdown(100)], ids=["loop", "while and branch"])
def test_parts_change_no_bit(made: Program, machine: Machine, threads: int, most: int, monkeypatch) -> None:
    monkeypatch.setattr(steps, "STEPS_OF_A_FUNCTION", most)
    assert "@steps0" in emitted(made, machine)
    (given,) = (each for each in made.buffers if each.role == INPUT)
    inputs = [np.arange(given.elements, dtype=np.float32) % 7]
    runner, found = run(made, inputs, machine, threads)
    assert found[0].tobytes() == interpreter.run(made, inputs)[0].tobytes()
    runner.close()


def backwards() -> Kernel:
    """y[i] <- x[size - 1 - i] - 0.5: threads need what others wrote."""
    i = ix.axis(0, SIZE)
    there = ix.add(ix.number(SIZE - 1), ix.scale(i, -1))
    store = Store(1, i, apply("sub", load(F32, 0, there), f32(0.5)))
    return Kernel((BufferParameter(F32, SIZE, False), BufferParameter(F32, SIZE, True)), (), (i,), 0, (store,))


LESS = backwards()


def ladder(calls: int, less: Kernel = LESS) -> Program:
    """x twice, less a half, twice, less a half, …: from the input through two temporaries to the output."""
    roles = ((INPUT, 0), (OUTPUT, 0), (TEMPORARY, 0), (TEMPORARY, 4 * SIZE))
    places = [0, *(2 + at % 2 for at in range(calls - 1)), 1]
    steps = tuple(Call(at % 2, (places[at], places[at + 1])) for at in range(calls))
    return Program((TWICE, less), tuple(Buffer(F32, SIZE, *role) for role in roles), (), steps, 8 * SIZE)


@MACHINES
@pytest.mark.parametrize("profile", [False, True])
def test_no_function_is_long(machine: Machine, profile: bool) -> None:
    text = emitted(ladder(100), machine, profile)
    functions = re.split(r"^define ", text, flags=re.MULTILINE)[1:]
    calls = [len(re.findall(r"call void @k", each)) for each in functions]
    assert sum(calls) == 100
    assert max(calls) == steps.STEPS_OF_A_FUNCTION
    assert toolchain.object_code(text, machine)


@MACHINES
def test_as_many_barriers_as_calls(machine: Machine) -> None:
    """And whatever a barrier or a part says is heard: a step that stops ends all functions around it."""
    text = emitted(ladder(100), machine)
    parts = -(-100 // steps.STEPS_OF_A_FUNCTION)
    assert text.count("call i1 @barrier") == 100
    assert len(re.findall(r"br i1 %v\d+, label %finish", text)) == 100 + parts


@MACHINES
def test_one_barrier_a_part_where_threads_keep_to_themselves(machine: Machine) -> None:
    text = emitted(ladder(100, HALF_LESS), machine)
    assert text.count("call i1 @barrier") == -(-100 // steps.STEPS_OF_A_FUNCTION)


def entered(program: Program, machine: Machine, state: np.ndarray, inputs: list[np.ndarray]) -> int:
    """What the program says when somebody asks it to stop before it begins."""
    runner = executable(program, machine, [schedule(kernel, machine) for kernel in program.kernels])
    runner.bind_parameter(0, state)
    for position, value in enumerate(inputs):
        runner.buffers.bind_input(position, value)
    runner.buffers.fresh_outputs()
    runner._context[:192] = 0
    runner._context[STOP] = 1
    said = runner.code.enter(ctypes.c_void_p(runner._context.ctypes.data), 0, 1)
    held = runner.parameter(0)
    assert held is not None
    state[:] = held
    runner.close()
    return said


@MACHINES
@pytest.mark.parametrize("most", [1, 2, 100])
def test_a_commit_is_not_stopped_in_parts(machine: Machine, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "STEPS_OF_A_FUNCTION", most)
    buffers = (Buffer(F32, SIZE, PARAMETER, 0), Buffer(F32, SIZE, TEMPORARY, 0))
    there, back = Call(0, (0, 1)), Call(0, (1, 0))
    committed = Program((TWICE,), buffers, (), (Commit(None, (there, back, there, back)),), 4 * SIZE)
    state = np.ones(SIZE, np.float32)
    assert entered(committed, machine, state, []) == 0
    assert (state == 16).all()
    first = Program((TWICE,), buffers, (), (there, Commit(None, (back, there, back))), 4 * SIZE)
    state = np.ones(SIZE, np.float32)
    assert entered(first, machine, state, []) == 1
    assert (state == 1).all(), "stopped behind the first call"

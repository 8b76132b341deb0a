"""Threads take pieces of each other's shares: every item runs once, whoever is late is waited for by a piece, and the
bits and the times of calls are those of fixed shares."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from passes.schedule import schedule
from repro.ir import index as ix
from repro.ir.expressions import Scalar, apply, load
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.program import PARAMETER, Buffer, Call, CountedLoop, Program, RowBlocks
from repro.ir.schedule import Schedule
from repro.ir.types import F32, I64
from repro.machines import Machine
from repro.runtime.session import CpuExecutable
from repro.targets.cpu.counting import Counted, Variant
from repro.targets.llvm import kernel as kernels
from repro.targets.llvm import pieces
from repro.targets.llvm.context import BUFFERS
from tests import compiled
from tests.targets.native import HERE, executable
from tests.targets.test_native_programs import f32

MACHINES = pytest.mark.parametrize("machine", HERE, ids=lambda m: m.name)
SIZES = (70_001, 1, 4176, 33_333, 300)
"""Elements of the buffers that calls count in: many pieces, one item, blocks of rows, odd ends, less than a piece."""


def counter(size: int) -> Kernel:
    """x[i] <- x[i] + 1: an item that runs twice, or never, leaves another number."""
    i = ix.axis(0, size)
    return Kernel(
        (BufferParameter(F32, size, True),), (), (i,), 0, (Store(0, i, apply("add", load(F32, 0, i), f32(1.0))),)
    )


BLOCKS, BLOCK = (8, 9), 58


def block_counter() -> Kernel:
    """x[s, t, i] <- x[s, t, i] + 1, of one block of rows."""
    i, s, t = ix.axis(0, BLOCK), Scalar(I64, (0, BLOCKS[0]), ()), Scalar(I64, (1, BLOCKS[1]), ())
    at = ix.add(ix.scale(ix.add(ix.scale(s, BLOCKS[1]), t), BLOCK), i)
    store = Store(0, at, apply("add", load(F32, 0, at), f32(1.0)))
    return Kernel((BufferParameter(F32, 8 * 9 * BLOCK, True),), BLOCKS, (i,), 0, (store,))


def counting(times: int) -> Program:
    """All buffers counted up, as calls that leave each other alone; then so many times, each before the next; one of
    them by blocks of rows."""
    buffers = tuple(Buffer(F32, size, PARAMETER, number) for number, size in enumerate(SIZES))
    calls = tuple(Call(number, (number,)) for number in range(len(SIZES)))
    blocks = RowBlocks(BLOCKS, (Call(len(SIZES), (SIZES.index(8 * 9 * BLOCK),), (0, 1)),))
    first = tuple(call for call in calls if call.kernel != SIZES.index(8 * 9 * BLOCK))
    again = CountedLoop(times, (*calls, *calls))
    return Program((*map(counter, SIZES), block_counter()), buffers, (), (*first, blocks, again), 0)


def chosen(program: Program, machine: Machine) -> list[Schedule]:
    return [schedule(kernel, machine) for kernel in program.kernels]


def zeros(runner: CpuExecutable) -> None:
    for position, size in enumerate(SIZES):
        runner.set_parameter(position, np.zeros(size, np.float32))


@MACHINES
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("work", [1, 1000, pieces.PIECE])
def test_every_item_runs_once(machine: Machine, threads: int, work: int, monkeypatch) -> None:
    monkeypatch.setattr(pieces, "PIECE", work)
    program = counting(21)
    runner = executable(program, machine, chosen(program, machine), threads)
    for _ in range(3):  # each run finds nothing taken, however many meetings the one before had
        zeros(runner)
        runner.run([])
        held = [array for p in range(len(SIZES)) if (array := runner.parameter(p)) is not None]
        assert [np.unique(array).tolist() for array in held] == [[43.0]] * len(SIZES)
    runner.close()


def late(runner: CpuExecutable, done, seconds: float = 20.0) -> bool:
    """Whether one thread of two, while the other has not come yet, gets everything done."""
    runner._context[:BUFFERS] = 0
    first = threading.Thread(target=runner._thread, args=(0,))
    first.start()
    end = time.monotonic() + seconds
    while not done() and time.monotonic() < end:
        time.sleep(0.001)
    found = done()
    runner._thread(1)
    first.join()
    return found


def alone(machine: Machine) -> CpuExecutable:
    """One call of many pieces by two threads."""
    size = SIZES[0]
    program = Program((counter(size),), (Buffer(F32, size, PARAMETER, 0),), (), (Call(0, (0,)),), 0)
    runner = executable(program, machine, [Schedule(0, 4, 1024)], 2)
    runner.set_parameter(0, np.zeros(size, np.float32))
    return runner


@MACHINES
def test_a_late_thread_is_not_waited_for(machine: Machine, monkeypatch) -> None:
    monkeypatch.setattr(pieces, "PIECE", 1000)
    runner = alone(machine)
    for run in range(1, 4):
        assert late(runner, lambda run=run: (runner.parameter(0) == run).all())
    runner.close()


def test_fixed_shares_would_be_found(monkeypatch) -> None:
    """The test above tells: with nothing but shares of their own, half of the items wait for the late thread."""
    monkeypatch.setattr(pieces, "piece", lambda items, work: items)
    runner = alone(HERE[0])
    assert not late(runner, lambda: (runner.parameter(0) == 1).all(), 0.3)
    assert (runner.parameter(0) == 1).all()
    runner.close()


@pytest.mark.parametrize("threads", [1, 2])
def test_times_are_those_of_their_calls(threads: int, monkeypatch) -> None:
    """Calls that are shared out by pieces stand behind the others in the code; their rows do not."""
    monkeypatch.setattr(pieces, "PIECE", 1000)
    program, machine = counting(1), HERE[0]
    schedules = chosen(program, machine)
    shared = [
        pieces.piece(items, 2 * size // how.vector_width) < items
        for kernel, how, size in zip(program.kernels, schedules, SIZES, strict=False)
        if (items := kernels.work_items(kernel, how))
    ]
    assert any(shared), "some calls are shared out by pieces"
    assert not all(shared), "and some are not"
    objects = tuple(
        compiled.compile_kernel(k.text, s, machine) for k, s in zip(program.kernels, schedules, strict=True)
    )
    variant = Variant(tuple(each.text for each in schedules), objects)
    values = [np.zeros(size, np.float32) for size in SIZES]
    with Counted(program, [variant], values, machine, threads) as counted:
        spent = np.min([counted.run(0, []).kernels for _ in range(5)], axis=0)
    assert spent[:-1].argmax() == SIZES.index(max(SIZES))
    assert (spent > 0).all()

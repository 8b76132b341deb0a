"""Threads that wait in native code run every run, once each, however long ago the last one was, and end."""

from __future__ import annotations

import gc
import os
import threading
import time

import numpy as np
import pytest

from passes import pipeline
from repro.errors import ReproError
from repro.ir.graph import Graph, argument
from repro.ir.types import F32, Array, TensorType
from repro.ops import add, mul, reduce_axes
from repro.runtime.session import CpuExecutable
from tests.running import executable
from tests.targets.native import HERE

KIND = TensorType(F32, (64, 512))


def made(threads: int) -> CpuExecutable:
    """(x + x) * (x + x), and its sums along rows: calls with meetings in between."""
    x = argument(0, KIND)
    squares = mul(add(x, x), add(x, x))
    return executable(
        pipeline.run(Graph((KIND,), (squares, reduce_axes("add", squares, (0,))))).program, HERE[0], threads
    )


def given(number: int) -> Array:
    return np.full(KIND.shape, number, np.float32)


def check(runner: CpuExecutable, number: int) -> None:
    squares, sums = runner.run([given(number)])
    assert (squares == 4 * number**2).all()
    assert (sums == 4 * number**2 * 64).all()


def others() -> int:
    """Threads of crews that have not ended."""
    return sum(thread.name.startswith("repro-crew") for thread in threading.enumerate())


def ended() -> bool:
    """Whether there are none within seconds."""
    end = time.monotonic() + 20
    while others() and time.monotonic() < end:
        time.sleep(0.01)
    return not others()


@pytest.mark.parametrize("threads", [2, 3, 7])
def test_every_run_is_run_whether_threads_spin_or_sleep(threads: int) -> None:
    """Pauses around the time at which a thread goes to sleep, and much longer ones."""
    runner = made(threads)
    pauses = np.random.default_rng(0).choice([0, 0, 2e-5, 5e-5, 1e-4, 2e-4, 5e-3], 400)
    for number, pause in enumerate(pauses):
        check(runner, number % 50)
        if pause:
            time.sleep(pause)
    runner.close()


def test_crews_of_several_threads_do_not_disturb_each_other() -> None:
    failures: list[BaseException] = []

    def many() -> None:
        try:
            runner = made(3)
            for number in range(100):
                check(runner, number % 50)
            runner.close()
        except BaseException as error:
            failures.append(error)

    callers = [threading.Thread(target=many) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(120)
    assert not failures
    assert not any(caller.is_alive() for caller in callers)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_run_is_of_the_code_at_hand(threads: int) -> None:
    """Schedules are compared by programs whose code is exchanged between runs: all threads run the one at hand."""
    x = argument(0, KIND)
    doubled = add(x, x)
    programs = [pipeline.run(Graph((KIND,), (op(doubled, doubled),))).program for op in (mul, add)]
    runner, other = (executable(program, HERE[0], threads) for program in programs)
    assert others() == 2 * (threads - 1), "crews run them"
    codes = runner.code, other.code
    for number in range(1, 40):
        runner.code = codes[number % 2]
        (found,) = runner.run([given(number)])
        assert (found == (4 * number if number % 2 else 4 * number**2)).all()
    runner.close()
    other.close()


@pytest.mark.parametrize("runs", [0, 1, 3])
def test_closed_and_forgotten_crews_end(runs: int) -> None:
    gc.collect()
    assert ended(), "of other tests"
    for forgotten in (False, True):
        runner = made(4)
        for number in range(runs):
            check(runner, number)
        assert others() == 3
        if not forgotten:
            runner.close()
            runner.close()
        del runner
        gc.collect()
        assert ended()


def test_a_forked_process_has_no_crew() -> None:
    runner = made(2)
    check(runner, 1)
    child = os.fork()
    if not child:  # no assertion here: its process would go on with the tests
        try:
            runner.run([given(1)])
        except ReproError as error:
            os._exit(17 if "another process" in str(error) else 18)
        os._exit(19)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 17
    check(runner, 2)
    runner.close()

"""Kernels that write past the caches go through memory as what they read lies in it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from passes import streams
from passes.legality import refusal
from passes.lower import lower
from passes.schedule import schedule
from repro.ir.graph import Graph, argument
from repro.ir.program import Program
from repro.ir.types import F32, TensorType
from repro.machines import CPUS, Machine
from repro.ops import add, transpose
from repro.ops.record import evaluate
from repro.targets.llvm import kernel as kernels
from repro.targets.llvm import toolchain
from tests.targets.native import HERE, executable

SHAPE = (2, 32, 3, 16)
"""Batch, tokens, heads, and a run of one line."""


def _lowered(permutation: tuple[int, ...], *beside: TensorType) -> tuple[Graph, Program]:
    """An argument's transpose, and what is added to it, as one kernel."""
    kind = TensorType(F32, SHAPE)
    found = transpose(argument(0, kind), permutation)
    for number, each in enumerate(beside, 1):
        found = add(found, argument(number, each))
    graph = Graph((kind, *beside), (found,))
    program = lower(graph)
    assert len(program.kernels) == 1
    return graph, program


def _here(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Any size is far, and goes past the caches."""
    monkeypatch.setattr(streams, "STREAMED_BYTES", 1)
    return replace(machine, l2_bytes=1024)


@pytest.mark.parametrize("machine", HERE, ids=lambda machine: machine.name)
@pytest.mark.parametrize("threads", [1, 3])
def test_items_follow_what_is_read(machine: Machine, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, program = _lowered((0, 2, 1, 3))
    chosen = schedule(program.kernels[0], _here(machine, monkeypatch))
    assert chosen.order == ((0, 2, 1) if machine.fence else ())
    given = np.arange(np.prod(SHAPE), dtype=np.float32).reshape(SHAPE)
    runner = executable(program, machine, [chosen], threads)
    [found] = runner.run([given])
    runner.close()
    assert found.tobytes() == evaluate(graph, [given])[0].tobytes()


@pytest.mark.parametrize("machine", [each for each in CPUS.values() if each.fence], ids=lambda machine: machine.name)
def test_stores_of_one_vector_a_row_go_past_the_caches(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the code too: LLVM may forget it of a loop of one turn."""
    _, program = _lowered((0, 2, 1, 3))
    (kernel,) = program.kernels
    chosen = schedule(kernel, _here(machine, monkeypatch))
    assembly, _ = toolchain.assembly(kernels.emit(kernel, chosen, machine), machine)
    assert "vmovnt" in assembly


@pytest.mark.parametrize("machine", HERE, ids=lambda machine: machine.name)
def test_other_kernels_keep_their_order(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert schedule(_lowered((0, 2, 1, 3))[1].kernels[0], machine).order == (), "it stays in the caches"
    far = _here(machine, monkeypatch)
    assert schedule(_lowered((0, 2, 1, 3), TensorType(F32, (2, 3, 32, 16)))[1].kernels[0], far).order == (), (
        "no order is that of both"
    )
    assert schedule(_lowered((0, 1, 3, 2))[1].kernels[0], far).order == (), "squares have an order of their own"


def test_an_order_has_every_axis_once() -> None:
    (kernel,) = _lowered((0, 2, 1, 3))[1].kernels
    chosen = schedule(kernel, HERE[0])
    assert refusal(kernel, replace(chosen, order=(2, 0, 1))) is None
    for wrong in ((0, 1), (0, 1, 3), (0, 1, 1), (0, 1, 2, 3)):
        assert refusal(kernel, replace(chosen, order=wrong)) is not None

"""Sums of several outputs at a time: each has the bits that it has alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from passes.lower import lower
from passes.schedule import schedule
from repro.ir.graph import Graph, argument
from repro.ir.loops import Kernel
from repro.ir.schedule import Schedule
from repro.ir.types import F32, TensorType
from repro.machines import Machine
from repro.ops import mul, reduce_axes, sub
from repro.ops.record import evaluate
from repro.targets.llvm import beside, reductions
from repro.targets.llvm.body import Body
from repro.targets.llvm.grid import Grid
from repro.targets.llvm.text import Function
from tests.targets.native import HERE, executable

SHAPES = {
    "one leaf": (4, 6, 64),
    "a last leaf that is not full": (70, 7, 64),
    "leaves of leaves": (2100, 3, 2, 64),
    "fewer outputs than go together": (70, 2, 64),
}


def _graph(shape: tuple[int, ...], squares: bool = True) -> Graph:
    """The sum of each channel's squares, less its values, or of these: pictures in front of it, their pixels behind."""
    kind = TensorType(F32, shape)
    x = argument(0, kind)
    others = (0, *range(2, len(shape)))
    return Graph((kind,), (reduce_axes("add", sub(mul(x, x), x) if squares else x, others),))


def _rows(*shape: int) -> Graph:
    kind = TensorType(F32, shape)
    return Graph((kind,), (reduce_axes("add", argument(0, kind), (len(shape) - 1,)),))


def _plan(kernel: Kernel, chosen: Schedule, machine: Machine) -> beside.Together | None:
    return beside.plan(kernel, Grid(kernel, chosen), Body(Function(), kernel, reductions.emit, machine))


@pytest.mark.parametrize("machine", HERE, ids=lambda machine: machine.name)
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("name", SHAPES)
def test_sums_have_the_references_bits(name: str, threads: int, machine: Machine) -> None:
    graph = _graph(SHAPES[name])
    program, far = lower(graph), replace(machine, l1_bytes=64)
    chosen = [schedule(kernel, far) for kernel in program.kernels]
    plans = map(_plan, program.kernels, chosen, [far] * len(chosen))
    assert any(each is not None and each.count > 1 for each in plans)
    given = np.random.default_rng(7).standard_normal(SHAPES[name]).astype(np.float32)
    runner = executable(program, far, chosen, threads)
    [found] = runner.run([given])
    runner.close()
    assert found.tobytes() == evaluate(graph, [given])[0].tobytes()


@pytest.mark.parametrize("machine", HERE, ids=lambda machine: machine.name)
@pytest.mark.parametrize(("shape", "near", "together"), [
    ((70, 7, 64), False, True),
    ((70, 7, 64), True, False),
    ((70, 7, 60), False, False),
    ((70, 7, 2048), False, False),
])  # fmt: skip
def test_only_short_runs_that_are_not_near(
    shape: tuple[int, ...], near: bool, together: bool, machine: Machine
) -> None:
    (kernel,) = lower(_graph(shape)).kernels
    here = replace(machine, l1_bytes=1 << 30 if near else 64)
    assert (_plan(kernel, Schedule(None, 1, 1), here) is not None) == together


FAR_APART = {
    "rows": _rows(1030, 96),
    "fewer rows than lie between those of a time": _rows(13, 64),
    "rows of leaves": _rows(37, 9024),
    "rows of two axes": _rows(5, 70, 160),
}
IN_RUNS = {
    "one leaf": _graph((64, 5, 64), squares=False),
    "leaves in turn, more outputs than go together": _graph((256, 70, 64), squares=False),
    "a last leaf that is not full": _graph((70, 40, 64), squares=False),
    "terms that are computed": _graph((256, 7, 64)),
    "more leaves than lanes": _graph((2304, 2, 64), squares=False),
    "more leaves than lanes, one at a time": _graph((2112, 2, 64), squares=False),
}


@pytest.mark.parametrize("machine", HERE, ids=lambda machine: machine.name)
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("name", [*FAR_APART, *IN_RUNS])
def test_sums_that_are_read_in_several_places_at_once(name: str, threads: int, machine: Machine) -> None:
    graph = {**FAR_APART, **IN_RUNS}[name]
    far = replace(machine, l1_bytes=64, l2_bytes=64, streams=4, registers=32)
    program = lower(graph)
    chosen = [schedule(kernel, far) for kernel in program.kernels]
    plans = [each for each in map(_plan, program.kernels, chosen, [far] * len(chosen)) if each is not None]
    assert any(each.apart > 0 if name in FAR_APART else each.kept is not None for each in plans)
    [kind] = graph.arguments
    given = np.random.default_rng(7).standard_normal(kind.shape).astype(np.float32)
    runner = executable(program, far, chosen, threads)
    [found] = runner.run([given])
    runner.close()
    assert found.tobytes() == evaluate(graph, [given])[0].tobytes()

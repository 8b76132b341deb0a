"""Rows that are read across the axis that lies together in memory: their reductions are computed once, to the same
bits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from passes import pipeline
from passes.vectors import choose
from repro.ir.expressions import Reduce
from repro.ir.graph import Graph, Value, argument
from repro.ir.loops import Kernel
from repro.ir.types import F32, TensorType
from repro.machines import Machine
from repro.ops import broadcast_to, canonical_nan, div, elementwise, reduce_keep, sub, transpose
from repro.ops.record import evaluate
from tests.running import run_on_cpu
from tests.targets.native import HERE

MACHINES = pytest.mark.parametrize("machine", HERE, ids=lambda m: m.name)


def _less(combiner: str) -> Callable[[Value], Value]:
    return lambda x: sub(x, broadcast_to(reduce_keep(combiner, x, (2,)), x.shape))


def _softmax(x: Value) -> Value:
    power = elementwise("exp", _less("max")(x))
    return div(power, broadcast_to(reduce_keep("add", power, (2,)), x.shape))


ROWS = {"sum": _less("add"), "max": _less("max"), "softmax": _softmax}


def graph_of(make: Callable[[Value], Value], shape: tuple[int, int, int]) -> Graph:
    kind = TensorType(F32, shape)
    return Graph((kind,), (canonical_nan(make(transpose(argument(0, kind), (0, 2, 1)))),))


def computed_again(kernel: Kernel, machine: Machine) -> list[Reduce]:
    """Reductions that a vector computes for several elements each, inside of the loops over others that they serve."""
    position = choose(kernel, machine).vector_axis
    if position is None:
        return []
    parallel, along = frozenset(kernel.axes[kernel.serial :]), kernel.axes[position]
    found = (each for each in kernel.expressions if isinstance(each, Reduce))
    return [each for each in found if along in each.free and not parallel <= each.free]


@MACHINES
@pytest.mark.parametrize("shape", [(2, 384, 16), (1, 64, 3136), (8, 512, 49), (3, 40, 33)], ids=str)
@pytest.mark.parametrize("name", ROWS)
def test_no_reduction_is_computed_for_each_element(name: str, shape: tuple[int, int, int], machine: Machine) -> None:
    """Vectors along the axis that is read best would do so."""
    program = pipeline.run(graph_of(ROWS[name], shape)).program
    assert [each for kernel in program.kernels for each in computed_again(kernel, machine)] == []


@MACHINES
@pytest.mark.parametrize("shape", [(2, 96, 16), (1, 20, 67), (3, 300, 5)], ids=str)
@pytest.mark.parametrize("name", ROWS)
def test_their_bits(name: str, shape: tuple[int, int, int], machine: Machine) -> None:
    graph, x = graph_of(ROWS[name], shape), np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    x[0, 3, 2], x[0, 7, 4] = np.nan, np.inf
    (wanted,), (found, *_) = evaluate(graph, [x], []), run_on_cpu(graph, [x], [], machine)
    assert found.tobytes() == wanted.tobytes()

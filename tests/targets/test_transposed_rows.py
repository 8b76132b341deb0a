"""Rows whose elements lie apart in memory are put side by side before they are reduced; the bits are the same."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from passes import pipeline
from repro.ir import index as ix
from repro.ir.expressions import Axis, Load, Reduce
from repro.ir.graph import Graph, Value, argument
from repro.ir.loops import Kernel
from repro.ir.program import Program, RowBlocks, walk
from repro.ir.types import F32, TensorType
from repro.machines import Machine
from repro.ops import broadcast_to, canonical_nan, div, elementwise, mul, reduce_keep, reshape, sub, transpose
from repro.ops.record import evaluate
from repro.targets import registry
from tests.running import executable
from tests.targets.native import HERE

MACHINES = pytest.mark.parametrize("machine", HERE, ids=lambda m: m.name)


def _less(combiner: str) -> Callable[[Value], Value]:
    return lambda x: sub(x, broadcast_to(reduce_keep(combiner, x, (2,)), x.shape))


def _softmax(x: Value) -> Value:
    power = elementwise("exp", _less("max")(x))
    return div(power, broadcast_to(reduce_keep("add", power, (2,)), x.shape))


ROWS = {"sum": _less("add"), "max": _less("max"), "softmax": _softmax}


def turned(x: Value) -> Value:
    return transpose(x, (0, 2, 1))


def scaled(x: Value) -> Value:
    """Read twice by what follows."""
    return mul(turned(x), turned(elementwise("abs", x)))


def by_pairs(x: Value) -> Value:
    """Two neighbours of a row lie side by side, and the next two elsewhere."""
    images, channels, pixels = x.shape
    return reshape(transpose(reshape(x, (images, channels // 2, pixels, 2)), (0, 2, 1, 3)), (images, pixels, channels))


def graph_of(
    make: Callable[[Value], Value], shape: tuple[int, int, int], before: Callable[[Value], Value] = turned
) -> Graph:
    kind = TensorType(F32, shape)
    return Graph((kind,), (canonical_nan(make(before(argument(0, kind)))),))


def shaped(graph: Graph, machine: Machine) -> Program:
    return registry.runner(machine.name).code.shape(pipeline.run(graph).program)


def apart(kernel: Kernel, axis: Axis) -> list[Load]:
    """Loads of elements that lie apart along an axis."""
    loads = (each for each in kernel.expressions if isinstance(each, Load))
    return [each for each in loads if ix.coefficient(each.offset, axis) not in (0, 1)]


@MACHINES
@pytest.mark.parametrize("before", [turned, scaled, by_pairs], ids=lambda f: f.__name__)
@pytest.mark.parametrize("shape", [(2, 384, 16), (1, 64, 3136), (8, 512, 49)], ids=str)
@pytest.mark.parametrize("name", ROWS)
def test_rows_are_put_side_by_side(
    name: str, shape: tuple[int, int, int], before: Callable[[Value], Value], machine: Machine
) -> None:
    kernels = shaped(graph_of(ROWS[name], shape, before), machine).kernels
    found = [(kernel, each) for kernel in kernels for each in kernel.expressions if isinstance(each, Reduce)]
    assert found
    assert [
        load for kernel, each in found for axis in (*each.axes, kernel.axes[-1]) for load in apart(kernel, axis)
    ] == []


@MACHINES
@pytest.mark.parametrize("shape", [(8, 512, 196), (1, 64, 3136), (16, 512, 49)], ids=str)
def test_a_block_of_rows_has_whole_lines(shape: tuple[int, int, int], machine: Machine) -> None:
    """What is written for one block is read by lines, which hold elements of several rows."""
    program = shaped(graph_of(_softmax, shape), machine)
    (blocks,) = (step for step in walk(program.steps) if isinstance(step, RowBlocks))
    first, _ = (program.kernels[call.kernel] for call in blocks.body)
    assert apart(first, first.axes[-1])
    (read,) = {
        axis for load in apart(first, first.axes[-1]) for axis in load.free if ix.coefficient(load.offset, axis) == 1
    }
    assert read.extent >= 16


@MACHINES
@pytest.mark.parametrize("before", [turned, scaled, by_pairs], ids=lambda f: f.__name__)
@pytest.mark.parametrize("shape", [(2, 96, 16), (1, 20, 67), (3, 300, 5), (8, 512, 49)], ids=str)
@pytest.mark.parametrize("name", ROWS)
def test_their_bits(name: str, shape: tuple[int, int, int], before: Callable[[Value], Value], machine: Machine) -> None:
    graph, x = graph_of(ROWS[name], shape, before), np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    x[0, 3, 2], x[0, 7, 4] = np.nan, np.inf
    (wanted,), made = evaluate(graph, [x], []), executable(shaped(graph, machine), machine, 2)
    found = made.run([x.reshape(-1)])[0].tobytes()
    made.close()
    assert found == wanted.tobytes()

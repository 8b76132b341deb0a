"""Reductions that serve their own row are computed in its kernel: fewer passes over memory, the reference's bits."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from passes.lower import lower
from passes.pipeline import run
from repro.frontend import import_model, load_source
from repro.ir.contraction import find
from repro.ir.expressions import Reduce
from repro.ir.graph import Graph, Value, argument
from repro.ir.loops import Kernel
from repro.ir.types import F32, TensorType
from repro.machines import CPUS
from repro.ops import broadcast, div, elementwise, matmul, mul, reduce_axes, sub, transpose
from repro.ops.record import evaluate
from repro.targets import cpu
from tests.running import run_on_cpu

MACHINES = [machine for machine in CPUS.values() if cpu.runs_here(machine) is None]


def wide(value: Value, shape: tuple[int, ...]) -> Value:
    return broadcast(value, shape, tuple(range(len(shape) - 1)))


def softmax(x: Value) -> Value:
    last = (len(x.shape) - 1,)
    e = elementwise("exp", sub(x, wide(reduce_axes("max", x, last), x.shape)))
    return div(e, wide(reduce_axes("add", e, last), x.shape))


def reductions(kernel: Kernel) -> int:
    return sum(isinstance(expr, Reduce) for expr in kernel.expressions)


def same_bits(graph: Graph) -> None:
    generator = np.random.default_rng(5)
    arrays = [generator.standard_normal(kind.shape).astype(np.float32) for kind in graph.arguments]
    expected = evaluate(graph, arrays, ())
    for machine in MACHINES:
        for threads in (1, 3):
            for one, other in zip(run_on_cpu(graph, arrays, (), machine, threads), expected, strict=True):
                assert one.tobytes() == other.tobytes(), machine.name


@pytest.mark.parametrize("shape", [(7, 64), (3, 5, 100), (2, 8192)])
def test_softmax_is_two_kernels_of_rows(shape: tuple[int, ...]) -> None:
    kind = TensorType(F32, shape)
    graph = Graph((kind,), (softmax(argument(0, kind)),))
    kernels = lower(graph).kernels
    assert [reductions(kernel) for kernel in kernels] == [1, 1]
    assert all(len(kernel.axes) >= 2 for kernel in kernels), "each writes whole rows"
    same_bits(graph)


@pytest.mark.parametrize("shape", [(40, 10), (2, 8200)])
def test_very_short_and_very_long_rows_are_reduced_apart(shape: tuple[int, ...]) -> None:
    kind = TensorType(F32, shape)
    graph = Graph((kind,), (softmax(argument(0, kind)),))
    assert [reductions(kernel) for kernel in lower(graph).kernels].count(1) == 2
    assert len(lower(graph).kernels) == 4
    same_bits(graph)


def test_sums_along_other_axes_are_reduced_apart() -> None:
    kind = TensorType(F32, (80, 96))
    x = argument(0, kind)
    columns = broadcast(reduce_axes("add", x, (0,)), kind.shape, (1,))
    graph = Graph((kind,), (mul(x, columns),))
    assert len(lower(graph).kernels) == 2
    same_bits(graph)


def test_no_reduction_is_computed_inside_a_contraction() -> None:
    kinds = (TensorType(F32, (24, 128)), TensorType(F32, (128, 80)))
    x, w = (argument(number, kind) for number, kind in enumerate(kinds))
    centred = sub(x, wide(reduce_axes("add", x, (1,)), x.shape))
    product = matmul(centred, w)
    added = sub(product, wide(reduce_axes("add", product, (1,)), product.shape))
    graph = Graph(kinds, (matmul(transpose(added, (1, 0)), centred),))
    kernels = lower(graph).kernels
    dots = [kernel for kernel in kernels if find(kernel) is not None]
    assert len(dots) == 2
    assert all(reductions(kernel) == 1 for kernel in kernels), "its own, and no other's"
    same_bits(graph)


def test_a_loss_does_not_write_the_probabilities_that_it_does_not_pick() -> None:
    node = helper.make_node("SoftmaxCrossEntropyLoss", ["x", "labels"], ["loss"])
    inputs = [
        helper.make_tensor_value_info("x", 1, (64, 256)),
        helper.make_tensor_value_info("labels", 7, (64,)),
    ]
    graph = helper.make_graph([node], "loss", inputs, [helper.make_tensor_value_info("loss", 1, ())])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    imported = import_model(load_source(model))
    program = run(imported.graph, imported.locations).program
    large = [kernel for kernel in program.kernels if kernel.buffers[kernel.stores[0].buffer].elements == 64 * 256]
    assert not large, "x less its greatest is computed where it is summed and where it is picked"

"""Operands of contractions that are computed once, values under new shapes, axes that no index divides: the kernels say
what was meant, and the bits are the reference's."""

from __future__ import annotations

import numpy as np
import pytest

from passes.lower import lower
from passes.pipeline import run
from repro.ir.contraction import find
from repro.ir.expressions import IndexOp, Load
from repro.ir.graph import Graph, argument
from repro.ir.loops import Kernel
from repro.ir.types import F32, TensorType
from repro.machines import CPUS
from repro.ops import (
    add,
    broadcast,
    concatenate,
    convolution,
    dot,
    fill,
    matmul,
    maximum,
    reduce_axes,
    reshape,
    slice_,
    transpose,
)
from repro.ops.record import evaluate
from repro.targets import cpu
from tests.running import run_on_cpu

MACHINES = [machine for machine in CPUS.values() if cpu.runs_here(machine) is None]


def tensor(*shape: int) -> TensorType:
    return TensorType(F32, shape)


def conditional(kernel: Kernel) -> bool:
    return any(isinstance(expr, Load) and expr.when is not None for expr in kernel.expressions)


def divides(kernel: Kernel) -> bool:
    return any(isinstance(expr, IndexOp) for expr in kernel.expressions)


def same_bits(graph: Graph, threads: int = 2) -> None:
    generator = np.random.default_rng(3)
    arrays = [generator.standard_normal(kind.shape).astype(np.float32) for kind in graph.arguments]
    expected = evaluate(graph, arrays, ())
    for machine in MACHINES:
        for one, other in zip(run_on_cpu(graph, arrays, (), machine, threads), expected, strict=True):
            assert one.tobytes() == other.tobytes(), machine.name


def pieces(width: int) -> tuple[tuple[TensorType, ...], Graph]:
    """What the gradient of a split is: three pieces side by side, read by two dots and a sum."""
    kinds = (tensor(40, width), tensor(40, width), tensor(40, width), tensor(3 * width, 24), tensor(40, 24))
    a, b, c, right, left = (argument(number, kind) for number, kind in enumerate(kinds))
    joined = concatenate((a, b, c), 1)
    doubled = reshape(add(joined, joined), (40, 3 * width))
    results = (matmul(doubled, right), matmul(transpose(left, (1, 0)), doubled), reduce_axes("add", doubled, (0,)))
    return kinds, Graph(kinds, results)


def test_what_several_dots_read_under_a_new_shape_is_stored_once() -> None:
    _, graph = pieces(32)
    kernels = lower(graph).kernels
    assert sum(conditional(kernel) for kernel in kernels) == 1, "the concatenation alone chooses"
    assert [find(kernel) is not None for kernel in kernels if conditional(kernel)] == [False]
    same_bits(graph)


def test_an_awkward_operand_has_a_kernel_of_its_own() -> None:
    kinds = (tensor(40, 48, 9), tensor(40 * 9, 600))
    weights = reshape(transpose(argument(0, kinds[0]), (1, 0, 2)), (48, 360))
    graph = Graph(kinds, (matmul(weights, argument(1, kinds[1])),))
    kernels = lower(graph).kernels
    assert [find(kernel) is not None for kernel in kernels] == [False, True]
    strided = (tensor(48, 7, 60), tensor(60, 600))
    steps = Graph(strided, (dot(argument(0, strided[0]), argument(1, strided[1]), ((2,), (0,))),))
    assert len(lower(steps).kernels) == 1, "rows of 60 terms are read as they lie"
    same_bits(graph)


@pytest.mark.parametrize("side", [0, 1])
def test_an_operand_that_is_read_behind_the_products_too(side: int) -> None:
    """A column of a matrix, repeated along the terms for one side and added to the sums."""
    kinds = (tensor(64, 5), tensor(512, 64))
    column = reshape(slice_(argument(0, kinds[0]), (0, 0), (64, 1)), (64,))
    repeated, other = broadcast(column, (64, 64), (0,)), argument(1, kinds[1])
    operands = (repeated, other) if side == 0 else (other, repeated)
    products = dot(*operands, ((1,), (1,)))
    graph = Graph(kinds, (add(products, broadcast(column, products.shape, (side,))),))
    assert [find(kernel) is not None for kernel in lower(graph).kernels] == [False, True]
    same_bits(graph)


def test_weights_that_lie_as_they_are_read_are_not_copied() -> None:
    kinds = (tensor(8, 32, 10, 10), tensor(24, 32, 3, 3))
    image, weights = (argument(number, kind) for number, kind in enumerate(kinds))
    graph = Graph(kinds, (convolution(image, weights, (10, 10), (1, 1), (1, 1), (-1, -1)),))
    assert [find(kernel) is not None for kernel in lower(graph).kernels] == [True]
    same_bits(graph)


def test_an_input_gradient_of_a_convolution_turns_its_weights_once() -> None:
    kinds = (tensor(4, 32, 10, 10), tensor(32, 24, 3, 3))
    swapped = transpose(argument(1, kinds[1]), (1, 0, 2, 3))
    graph = Graph(kinds, (convolution(argument(0, kinds[0]), swapped, (10, 10), (1, 1), (1, 1), (-1, -1)),))
    kernels = lower(graph).kernels
    assert [find(kernel) is not None for kernel in kernels] == [False, True]
    same_bits(graph)


@pytest.mark.parametrize(("m", "n", "k"), [(33, 20, 70), (5, 64, 513), (300, 270, 40), (4, 3, 9)])
def test_columns_are_what_the_store_writes_side_by_side(m: int, n: int, k: int) -> None:
    kinds = (tensor(k, m), tensor(k, n))
    product = dot(argument(0, kinds[0]), argument(1, kinds[1]), ((0,), (0,)))
    graph = Graph(kinds, (transpose(product, (1, 0)),))
    (kernel,) = lower(graph).kernels
    found = find(kernel)
    assert found is not None
    if m > 3:
        assert [axis.extent for axis in found.columns] == [m]
    same_bits(graph)


def test_a_move_through_shapes_divides_no_index() -> None:
    kinds = (tensor(4, 6, 32, 16),)
    heads = transpose(argument(0, kinds[0]), (0, 2, 1, 3))
    rows = reshape(maximum(heads, fill(0.0, heads.type)), (128, 96))
    graph = Graph(kinds, (rows,))
    assert not any(divides(kernel) for kernel in run(graph).program.kernels)
    same_bits(graph)

"""Gradients of convolutions: rule 8 by the letter, phases, tiles, and what is not finite."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from passes import pipeline
from passes.schedule import schedule
from repro.ir.graph import Graph, Node, Value, argument
from repro.ir.types import F32, F64, Array
from repro.numerics.numpy_fma import fma_f32
from repro.ops import (
    OPS,
    canonical_nan,
    convolution,
    evaluate,
    reverse,
)
from repro.ops.convolutions import _input_gradient
from repro.targets import cpu
from tests.ops.gradient_cases import Build, Case, agrees, backward, error_of, forward, operands
from tests.running import run_on_cpu


def convolved(*parameters: Sequence[int], groups: int = 1) -> Build:
    return lambda x, w: convolution(x, w, *parameters, groups=groups)


CONVOLUTIONS = {
    "padded": Case(((2, 4, 9, 8), (6, 4, 3, 3)), convolved((9, 8), (1, 1), (1, 1), (-1, -1))),
    "strided": Case(((2, 4, 9, 8), (6, 4, 3, 3)), convolved((5, 4), (2, 2), (1, 1), (-1, -1))),
    "pointwise strided": Case(((2, 4, 9, 8), (6, 4, 1, 1)), convolved((5, 4), (2, 2), (1, 1), (0, 0))),
    "strides beyond the taps": Case(((2, 3, 11, 9), (4, 3, 2, 3)), convolved((4, 3), (3, 3), (1, 1), (-1, 0))),
    "grouped": Case(((2, 4, 9, 8), (6, 2, 3, 2)), convolved((7, 4), (1, 2), (2, 1), (-1, 0), groups=2)),
    "depthwise": Case(((2, 4, 7, 8), (8, 1, 3, 3)), convolved((4, 4), (2, 2), (1, 1), (-1, -1), groups=4)),
    "dilated and strided": Case(((1, 3, 17), (5, 3, 4)), convolved((5,), (2,), (3,), (-1,))),
    "common factor": Case(((1, 3, 23), (2, 3, 4)), convolved((5,), (4,), (2,), (-1,))),
    "volume": Case(((1, 2, 5, 6, 4), (3, 2, 2, 3, 2)), convolved((4, 3, 3), (1, 2, 1), (1,) * 3, (0, -1, 0))),
    "transposed": Case(((2, 4, 5, 4), (3, 4, 3, 3)), convolved((11, 9), (1, 1), (-1, -1), (1, 1), (2, 2))),
    "transposed, grouped": Case(
        ((2, 4, 5, 4), (6, 2, 3, 2)), convolved((11, 5), (1, 1), (-1, -2), (1, 1), (2, 1), groups=2)
    ),
    "panels": Case(((2, 70, 5, 5), (66, 70, 3, 3)), convolved((3, 3), (2, 2), (1, 1), (-1, -1))),
    "rows longer than panels": Case(((1, 2, 3, 530), (2, 2, 3, 3)), convolved((3, 530), (1, 1), (1, 1), (-1, -1))),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolution(name: str) -> None:
    agrees(CONVOLUTIONS[name])


def test_phases_give_the_bits_of_one_convolution() -> None:
    """Leaving out what a stride makes absent changes nothing; three blocks of panels, the last not full."""
    shapes = ((1, 2, 8, 7), (520, 2, 3, 3))
    case = Case(shapes, convolved((4, 4), (2, 2), (1, 1), (-1, -1)))
    graph = backward(case, F32)
    [node] = {value.node for value in forward(case, F32).results}
    g = argument(2, node.types[0])
    whole = Graph(graph.arguments, (_input_gradient(node, g),))
    parts = Graph(graph.arguments, graph.results[:1])
    inputs = [*operands(case, F32), np.asarray(np.random.default_rng(3).standard_normal(g.shape), np.float32)]
    assert evaluate(parts, inputs)[0].tobytes() == evaluate(whole, inputs)[0].tobytes()
    assert parts.digest != whole.digest


def test_the_weight_gradient_runs_over_batch_and_pixels_in_panels_of_rows() -> None:
    """Rule 8 by the letter: one output element, term by term."""
    images, size = 3, 20
    case = Case(((images, 2, size, size), (3, 2, 3, 3)), convolved((size, size), (1, 1), (1, 1), (-1, -1)))
    x, w = operands(case, F32)
    g = np.asarray(np.random.default_rng(4).standard_normal((images, 3, size, size)), np.float32)
    found = evaluate(backward(case, F32), [x, w, g])[1]
    panel_terms = 512 // size * size
    panels: list[Array] = []
    terms = [(n, i, j) for n in range(images) for i in range(size) for j in range(size)]
    for start in range(0, len(terms), panel_terms):
        total = np.asarray(0, np.float32)
        for n, i, j in terms[start : start + panel_terms]:
            row, column = i + 0 - 1, j + 2 - 1  # tap (0, 2)
            if 0 <= row < size and 0 <= column < size:
                total = fma_f32(np.asarray(g[n, 1, i, j]), np.asarray(x[n, 1, row, column]), total)
        panels.append(total)
    assert len(panels) == 3
    assert found[1, 1, 0, 2].tobytes() == (panels[0] + panels[1] + panels[2] + np.float32(0)).tobytes()


@pytest.mark.parametrize("name", ["padded", "strided", "pointwise strided", "dilated and strided", "panels"])
def test_gradients_of_convolutions_run_in_register_tiles(name: str) -> None:
    machine = cpu.best_machine()
    assert machine is not None
    kernels = pipeline.run(backward(CONVOLUTIONS[name], F32)).program.kernels
    contractions = [kernel for kernel in kernels if "chain(" in kernel.text]
    assert len(contractions) >= 2
    assert all(schedule(kernel, machine).tile is not None for kernel in contractions)


def test_a_wrong_rule_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    case = CONVOLUTIONS["strided"]
    right = OPS["convolution"]

    def shifted(node: Node, cotangents: tuple[Value, ...]) -> tuple[Value | None, ...]:
        assert callable(right.gradient)
        dx, dw = right.gradient(node, cotangents)
        assert dw is not None
        return dx, reverse(dw, (3,))

    monkeypatch.setitem(OPS, "convolution", replace(right, gradient=shifted))
    assert error_of(case, backward(case, F64)) > 1e-3


@pytest.mark.parametrize("name", ["padded", "strided", "dilated and strided", "transposed"])
def test_what_is_not_finite_meets_no_absent_term(name: str) -> None:
    case, machine = CONVOLUTIONS[name], cpu.best_machine()
    assert machine is not None
    graph = backward(case, F32)
    graph = Graph(graph.arguments, tuple(canonical_nan(value) for value in graph.results))
    random = np.random.default_rng(6)
    inputs = [*operands(case, F32), np.asarray(random.standard_normal(graph.arguments[-1].shape), np.float32)]
    for array in inputs:
        flat = array.reshape(-1)
        flat[0], flat[-1], flat[random.integers(flat.size)] = np.inf, np.nan, 3e38
    expected = evaluate(graph, inputs)
    assert any(np.isfinite(array).any() for array in expected)
    assert not all(np.isfinite(array).all() for array in expected)
    for mine, reference in zip(run_on_cpu(graph, inputs, [], machine), expected, strict=True):
        assert mine.tobytes() == reference.tobytes()


def any_convolution(random: np.random.Generator) -> Case:
    """Of any rank, strides, dilations, holes, padding and groups, forward or transposed, with some present term."""

    def draw(low: int, high: int, count: int) -> list[int]:
        return [int(n) for n in random.integers(low, high + 1, count)]

    while True:
        rank, [groups, channels, filters] = 1 + draw(0, 1, 1)[0], draw(1, 3, 3)
        spatial, taps, output = draw(1, 9, rank), draw(1, 4, rank), draw(1, 6, rank)
        strides, steps, holes, offsets = draw(1, 4, rank), draw(1, 3, rank), draw(1, 3, rank), draw(-3, 1, rank)
        if draw(0, 1, 1) == [0]:
            holes = [1] * rank
        if draw(0, 3, 1) == [0]:
            steps, offsets = [-step for step in steps], [-offset for offset in offsets]
        case = Case(
            ((2, channels * groups, *spatial), (filters * groups, channels, *taps)),
            convolved(output, strides, steps, offsets, holes, groups=groups),
        )
        if evaluate(forward(case, F64), [np.ones(shape) for shape in case.shapes])[0].any():
            return case


@pytest.mark.parametrize("seed", range(12))
def test_convolutions_of_any_kind(seed: int) -> None:
    case = any_convolution(np.random.default_rng(seed))
    assert error_of(case, backward(case, F64)) < 1e-7

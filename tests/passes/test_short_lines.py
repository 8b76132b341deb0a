"""Rows of a few outputs side by side in a longer line: the reference's bytes, where offsets allow it."""

from __future__ import annotations

import numpy as np
import pytest

from passes import pipeline
from passes.short_lines import short_lines
from repro.ir.graph import Graph, argument
from repro.ir.types import F32, Array, TensorType
from repro.ops import add, reduce_axes
from repro.ops.record import evaluate
from repro.ops.windows import window_reduce
from tests.running import assert_same_everywhere

EDGES = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-42, 1.0, -3.5], np.float32)
LANES = 16


def values(shape: tuple[int, ...], every: int) -> Array:
    random = np.random.default_rng(2)
    made = random.standard_normal(shape).astype(np.float32).reshape(-1)
    made[::every] = EDGES[random.integers(0, EDGES.size, made[::every].size)]
    return made.reshape(shape)


def pooled(combiner: str, rows: int, extent: int, window: int, stride: int) -> Graph:
    kind, low = TensorType(F32, (rows, extent)), window // 2
    x = argument(0, kind)
    made = window_reduce(combiner, x, (1, window), (1, stride), (1, 1), (0, low), (0, low))
    return Graph((kind,), (made,))


@pytest.mark.parametrize("combiner", ["max", "min"])
@pytest.mark.parametrize(
    ("rows", "extent", "window", "stride", "line"),
    [
        (32, 14, 3, 2, 16 * 7), (48, 8, 3, 2, 16 * 4), (24, 7, 3, 1, 8 * 7), (12, 13, 5, 1, 4 * 13),
        (16, 7, 3, 1, 16 * 7), (32, 9, 3, 2, 5), (7, 7, 3, 1, 7), (32, 16, 3, 1, 16),
    ],
)  # fmt: skip
def test_rows_are_a_line_where_offsets_take_them_as_one(
    combiner: str, rows: int, extent: int, window: int, stride: int, line: int
) -> None:
    graph = pooled(combiner, rows, extent, window, stride)
    program = pipeline.run(graph).program
    longer = short_lines(program, LANES)
    assert longer.kernels[0].axes[-1].extent == line
    assert (longer is program) == (line < LANES or extent >= LANES)
    for every in (1, 3, 1 << 20):
        given = values((rows, extent), every)
        assert_same_everywhere(longer, [given], evaluate(pipeline.run(graph).graph, [given])[:1])


def test_sums_and_rows_that_are_reduced_stay() -> None:
    """A sum's order has lanes of its own; the extreme of columns reads them apart."""
    kind = TensorType(F32, (16, 5, 7))
    x = argument(0, kind)
    for made in (reduce_axes("add", x, (1,)), reduce_axes("max", x, (1,)), add(x, x)):
        program = pipeline.run(Graph((kind,), (made,))).program
        assert short_lines(program, LANES) is program

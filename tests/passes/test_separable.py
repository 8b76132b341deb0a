"""Extremes of overlapping windows along one axis after another: fewer terms, and the reference's bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import passes.separable as pass_under_test
from passes import pipeline
from passes.plan import plan
from passes.row_blocks import Limits, row_blocks
from passes.separable import separable
from repro.ir.expressions import Reduce
from repro.ir.graph import Graph, argument
from repro.ir.program import LOCAL, CountedLoop, Program, RowBlocks, walk
from repro.ir.types import F32, F64, U8, Array, DType, TensorType
from repro.ops import convert_to, elementwise, loop
from repro.ops.record import evaluate
from repro.ops.windows import window_reduce
from repro.targets.cpu.target import FAMILY
from tests.running import assert_same_everywhere

EDGES = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-42, -1e-42, 1.0, 1.0, -3.5])
LANES = 16

Windows = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""Extents, strides, dilations, padding before and behind."""
SAME: Windows = ((1, 1, 5, 5), (1, 1, 1, 1), (1, 1, 1, 1), (0, 0, 2, 2), (0, 0, 2, 2))
HALVED: Windows = ((1, 1, 3, 3), (1, 1, 2, 2), (1, 1, 1, 1), (0, 0, 1, 1), (0, 0, 1, 1))
CASES: dict[str, tuple[DType, str, tuple[int, ...], Windows, int]] = {
    "same": (F32, "max", (2, 3, 11, 20), SAME, 2),
    "least": (F32, "min", (2, 3, 20, 13), SAME, 2),
    "halved": (F32, "max", (3, 4, 14, 14), HALVED, 2),
    "one line more": (F32, "max", (2, 3, 15, 9), HALVED, 2),
    "doubles": (F64, "max", (2, 3, 9, 40), SAME, 2),
    "bytes": (U8, "max", (2, 3, 9, 40), SAME, 2),
    "volumes": (
        F32, "max", (2, 2, 6, 7, 9), ((1, 1, 3, 3, 3), (1,) * 5, (1,) * 5, (0, 0, 1, 1, 1), (0, 0, 1, 1, 1)), 3,
    ),
    "no padding": (F32, "max", (2, 3, 12, 21), ((1, 1, 4, 5), (1,) * 4, (1,) * 4, (0,) * 4, (0,) * 4), 2),
    "dilated": (F32, "max", (2, 3, 17, 19), ((1, 1, 4, 4), (1,) * 4, (1, 1, 3, 2), (0, 0, 3, 4), (0, 0, 3, 4)), 1),
    "dilated at a stride": (
        F32, "max", (2, 3, 17, 19), ((1, 1, 4, 4), (1, 1, 2, 2), (1, 1, 2, 2), (0, 0, 3, 3), (0, 0, 3, 3)), 2,
    ),
    "padding alone": (F32, "max", (2, 3, 5, 5), ((1, 1, 4, 4), (1,) * 4, (1,) * 4, (0, 0, 6, 6), (0, 0, 6, 6)), 2),
    "apart": (F32, "max", (2, 3, 12, 12), ((1, 1, 3, 3), (1, 1, 3, 3), (1,) * 4, (0,) * 4, (0,) * 4), 1),
    "of sums": (F32, "add", (2, 3, 11, 20), SAME, 1),
    "places": (F32, "argmax", (2, 3, 11, 20), SAME, 1),
    "one axis": (F32, "max", (2, 3, 11, 20), ((1, 1, 1, 5), (1,) * 4, (1,) * 4, (0, 0, 0, 2), (0, 0, 0, 2)), 1),
}  # fmt: skip
"""Type, combiner, shape, windows, and how many calls there are behind the pass."""


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pass_under_test, "WORTH", 1)


def pooled(dtype: DType, combiner: str, shape: tuple[int, ...], windows: Windows) -> Graph:
    kind = TensorType(dtype, shape)
    return Graph((kind,), (window_reduce(combiner, argument(0, kind), *windows),))


def values(dtype: DType, shape: tuple[int, ...], every: int = 5) -> Array:
    """Every so manieth of them an edge one."""
    random = np.random.default_rng(0)
    if not dtype.is_float:
        return random.integers(0, 255, shape).astype(dtype.storage)
    made = random.standard_normal(shape).reshape(-1)
    made[::every] = EDGES[random.integers(0, EDGES.size, made[::every].size)]
    return made.reshape(shape).astype(dtype.storage)


def lowered(graph: Graph) -> Program:
    return pipeline.run(graph).program


@pytest.mark.parametrize("name", CASES)
def test_windows_are_cut_where_they_overlap_and_the_bits_are_the_references(name: str) -> None:
    dtype, combiner, shape, windows, calls = CASES[name]
    graph = pooled(dtype, combiner, shape, windows)
    canonical = pipeline.run(graph).graph
    cut = separable(lowered(graph), LANES)
    assert len(cut.steps) == calls
    reduces = [e for kernel in cut.kernels for e in kernel.expressions if isinstance(e, Reduce)]
    assert all(len(each.axes) == 1 for each in reduces) == (calls > 1 or name == "one axis")
    for every in (1, 5, 1 << 20):
        given = values(dtype, shape, every)
        assert_same_everywhere(cut, [given], evaluate(canonical, [given])[:1])


@pytest.mark.parametrize("given", [np.nan, np.inf, -np.inf, -0.0, 1e-45])
def test_a_picture_of_edge_values(given: float) -> None:
    """Zeros of the other sign among them: -0 < +0, and NaN wins."""
    for combiner in ("min", "max"):
        graph = pooled(F32, combiner, (1, 2, 9, 40), SAME)
        x = np.full((1, 2, 9, 40), given, np.float32)
        x[0, 0, 4, 7] = x[0, 0, 3, 30] = 0.0
        canonical = pipeline.run(graph).graph
        assert_same_everywhere(separable(lowered(graph), LANES), [x], evaluate(canonical, [x])[:1])


@pytest.mark.parametrize(("size", "stride"), [(5, 1), (3, 2), (3, 1), (13, 1)])
def test_against_pytorch_in_float64(size: int, stride: int) -> None:
    torch: Any = pytest.importorskip("torch")
    shape, pad = (2, 8, 20, 20), size // 2
    pads = (0, 0, pad, pad)
    graph = pooled(F32, "max", shape, ((1, 1, size, size), (1, 1, stride, stride), (1,) * 4, pads, pads))
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    wanted = torch.nn.functional.max_pool2d(torch.from_numpy(x.astype(np.float64)), size, stride, pad).numpy()
    assert_same_everywhere(separable(lowered(graph), LANES), [x], [wanted.astype(np.float32)])


def test_what_is_computed_inside_is_computed_once_a_place() -> None:
    kind = TensorType(F32, (2, 3, 11, 20))
    inside = elementwise("neg", argument(0, kind))
    graph = Graph((kind,), (elementwise("abs", window_reduce("max", inside, *SAME)),))
    cut = separable(lowered(graph), LANES)
    assert len(cut.steps) == 2
    given = values(F32, kind.shape)
    assert_same_everywhere(cut, [given], evaluate(pipeline.run(graph).graph, [given])[:1])


def test_long_lines_at_a_stride_stay_whole() -> None:
    """Of as many terms as windows have."""
    long = pooled(F32, "max", (1, 2, 16, 64), HALVED)
    assert len(separable(lowered(long), 16).steps) == 2
    whole = lowered(long)
    assert separable(whole, 4) is whole


def test_in_a_loop_rows_are_read_and_written_by_its_counter() -> None:
    kind = TensorType(F32, (3, 1, 2, 9, 20))
    graph = Graph((kind,), loop(3, (), (argument(0, kind),), (), lambda _, x: [window_reduce("max", x, *SAME)]))
    whole = lowered(graph)
    before, after = ([s for s in walk(p.steps) if isinstance(s, CountedLoop)] for p in (whole, separable(whole, LANES)))
    assert len(after[0].body) == len(before[0].body) + 1
    given = values(F32, kind.shape)
    wanted = evaluate(pipeline.run(graph).graph, [given])
    assert_same_everywhere(separable(whole, LANES), [given], wanted[:1])


def test_both_calls_run_in_blocks_of_rows() -> None:
    """Though the second reads beyond its rows but for its condition."""
    graph = pooled(F32, "max", (4, 4, 16, 20), SAME)
    made = row_blocks(
        separable(lowered(graph), LANES), Limits(near_bytes=1 << 12, worth_bytes=1, fewest_blocks=2, even_blocks=2)
    )
    (step,) = made.steps
    assert isinstance(step, RowBlocks) and len(step.body) == 2
    assert any(buffer.role == LOCAL for buffer in made.buffers) and made.arena_bytes == 0
    given = values(F32, (4, 4, 16, 20))
    assert_same_everywhere(made, [given], evaluate(pipeline.run(graph).graph, [given])[:1])


@pytest.mark.parametrize(("shape", "windows"), [((2, 16, 20, 20), SAME), ((4, 32, 14, 14), HALVED)])
def test_the_targets_take_it_and_memory_is_planned(shape: tuple[int, ...], windows: Windows) -> None:
    graph = pooled(F32, "max", shape, windows)
    given, canonical = values(F32, shape), pipeline.run(graph).graph
    for runner in FAMILY.runners:
        shaped = runner.code.shape(lowered(graph))
        assert len([e for k in shaped.kernels for e in k.expressions if isinstance(e, Reduce)]) == 2
        assert plan(shaped.buffers, shaped.steps) == (shaped.buffers, shaped.arena_bytes)
        assert_same_everywhere(shaped, [given], evaluate(canonical, [given])[:1])


def test_a_program_without_windows_is_itself() -> None:
    kind = TensorType(F32, (4, 4))
    program = lowered(Graph((kind,), (convert_to(argument(0, kind), F64),)))
    assert separable(program, LANES) is program

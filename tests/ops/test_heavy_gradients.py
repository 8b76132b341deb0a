"""Gradients of reductions, windows, gather, scatter and sort."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from passes import pipeline
from repro.ir.types import F32, Array, DType
from repro.ir.work import program_operations
from repro.ops import (
    cumulative,
    evaluate,
    gather,
    matmul,
    reduce_axes,
    scatter,
    sort,
    take_along_axis,
    window_reduce,
    windows,
)
from repro.ops.structure import iota
from tests.ops.gradient_cases import Build, Case, agrees, backward, operands

# ── reductions ──────────────────────────────────────────────────────────────────────────────────────


def reduced(combiner: str, *axes: int) -> Build:
    return lambda x: reduce_axes(combiner, x, axes)


def over_windows(combiner: str, *parameters: Sequence[int]) -> Build:
    return lambda x: window_reduce(combiner, x, *parameters)


WITH_ZEROS = np.array([[1.5, 0.0, -2.0, 0.5], [0.0, 3.0, 0.0, 1.0], [2.0, -1.0, 0.5, 3.0]])
POOLS: dict[str, tuple[Sequence[int], ...]] = {  # window, strides, dilations, low, high
    "apart": ((1, 1, 2, 2), (1, 1, 2, 2), (1,) * 4, (0,) * 4, (0, 0, 0, 1)),
    "gaps": ((1, 1, 2, 1), (1, 1, 3, 2), (1,) * 4, (0, 0, 1, 0), (0, 0, 1, 1)),
    "overlapping": ((1, 1, 3, 3), (1, 1, 2, 2), (1,) * 4, (0, 0, 1, 1), (0, 0, 1, 1)),
    "uneven": ((1, 1, 3, 2), (1, 1, 2, 1), (1,) * 4, (0, 0, 1, 1), (0, 0, 1, 0)),
    "dilated": ((1, 1, 2, 3), (1, 1, 1, 2), (1, 1, 3, 2), (0, 0, 1, 2), (0, 0, 2, 1)),
    "all axes": ((2, 2, 3, 4), (1, 1, 2, 3), (1,) * 4, (0, 1, 0, 1), (1, 0, 0, 2)),
    "many": ((1, 1, 7, 6), (1,) * 4, (1,) * 4, (0, 0, 3, 3), (0, 0, 3, 2)),
    "in the padding": ((1, 1, 1, 2), (1, 1, 1, 1), (1, 1, 1, 9), (0, 0, 0, 2), (0, 0, 0, 6)),
}
REDUCTIONS = {
    "add": Case(((5, 70),), reduced("add", 1)),
    "add, several axes": Case(((3, 6, 7),), reduced("add", 0, 2)),
    "mul": Case(((3, 6, 5),), reduced("mul", 0, 2)),
    "mul of one": Case(((3, 1),), reduced("mul", 1)),
    "mul with zeros": Case(((3, 4),), reduced("mul", 1), exact=(WITH_ZEROS,)),
    "max": Case(((3, 6, 7),), reduced("max", 0, 2), spread=0.01),
    "min": Case(((6, 7),), reduced("min", 1), spread=0.01),
    "running add": Case(((4, 9, 3),), lambda x: cumulative("add", x, 1)),
    "running mul": Case(((4, 9, 3),), lambda x: cumulative("mul", x, 1)),
    "running mul with zeros": Case(((3, 4),), lambda x: cumulative("mul", x, 1), exact=(WITH_ZEROS,)),
    "windows over elements apart": Case(
        ((2, 5, 4),),
        lambda x: window_reduce("add", x, (1, 3, 2), (1, 2, 1), (1, 1, 2), (0, 1, 1), (0, 2, 0), (1, 3, 2)),
    ),
    **{
        f"windows {combiner}, {name}": Case(((2, 3, 9, 8),), over_windows(combiner, *parameters), spread=0.01)
        for combiner in ("add", "max", "min")
        for name, parameters in POOLS.items()
        if (combiner, name) != ("min", "many")
    },
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name: str) -> None:
    agrees(REDUCTIONS[name])


def cotangents_of(case: Case, dtype: DType, *inputs: Array) -> Array:
    return evaluate(backward(case, dtype), list(inputs))[0]


def test_a_tie_goes_to_the_first_position() -> None:
    x = np.array([[1, 3, 3, 2], [-0.0, 0.0, -1, 0.0], [np.nan, 7, np.nan, 8]], np.float32)
    g = np.array([2, 4, 8], np.float32)
    case = Case((x.shape,), reduced("max", 1))
    assert cotangents_of(case, F32, x, g).tolist() == [[0, 2, 0, 0], [4, 0, 0, 0], [8, 0, 0, 0]]
    windows = Case((x.shape,), over_windows("max", (1, 2), (1, 1), (1, 1), (0, 0), (0, 0)))
    g = np.array([[1, 2, 4]] * 3, np.float32)
    assert cotangents_of(windows, F32, x, g).tolist() == [[0, 3, 4, 0], [1, 2, 0, 4], [1, 0, 6, 0]]


@pytest.mark.parametrize("name", ["overlapping", "all axes", "in the padding"])
def test_looking_for_windows_and_scattering_them_give_the_same_bits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(((2, 3, 9, 8),), over_windows("max", *POOLS[name]), spread=0.01)
    looked = backward(case, F32)
    monkeypatch.setattr(windows, "MOST_CANDIDATES", 0)
    scattered = backward(case, F32)
    assert looked.digest != scattered.digest
    g = np.asarray(np.random.default_rng(5).standard_normal(looked.arguments[-1].shape), np.float32)
    g.reshape(-1)[::3] = -0.0
    inputs = [*operands(case, F32), g]
    assert evaluate(looked, inputs)[0].tobytes() == evaluate(scattered, inputs)[0].tobytes()


@pytest.mark.parametrize("name", ["apart", "gaps"])
def test_windows_that_do_not_overlap_need_no_sum(name: str) -> None:
    """Spread out, their cotangents are the bits of the window sum that they stand for."""
    case = Case(((2, 3, 9, 8),), over_windows("add", *POOLS[name]))
    window, strides, _, low, high = POOLS[name]
    spread = backward(case, F32)
    g = np.asarray(np.random.default_rng(5).standard_normal(spread.arguments[-1].shape), np.float32)
    expected = np.full((2, 3, 9 + low[2] + high[2], 8 + low[3] + high[3]), -0.0, np.float32)
    for n, c, i, j in np.ndindex(*g.shape):
        top, left = i * strides[2], j * strides[3]
        expected[n, c, top : top + window[2], left : left + window[3]] += g[n, c, i, j]
    kept = expected[:, :, low[2] : low[2] + 9, low[3] : low[3] + 8]
    assert evaluate(spread, [*operands(case, F32), g])[0].tobytes() == np.ascontiguousarray(kept).tobytes()
    assert "window_reduce" not in {node.op for node in spread.nodes}


# ── indexing and sorting ────────────────────────────────────────────────────────────────────────────


def points(*shape: int, until: int, seed: int = 0, below: int = -1) -> Array:
    """Indices with repetitions, some of them out of range."""
    return np.random.default_rng(seed).integers(below, until + 1, shape)


def gathered(*axes: int) -> Build:
    return lambda x, indices: gather(x, indices, axes)


def scattered(combiner: str, *axes: int) -> Build:
    return lambda x, updates, indices: scatter(combiner, x, indices, updates, axes)


INDEXING = {
    "gather": Case(((7, 5, 3),), gathered(1), (points(4, 2, 1, until=5),)),
    "gather, two axes": Case(((7, 5, 3),), gathered(2, 0), (points(9, 2, until=3),)),
    "gather elements": Case(((4, 3),), gathered(0, 1), (points(6, 2, until=3),)),
    "take along an axis": Case(((4, 6),), lambda x, i: take_along_axis(x, i, 1), (points(4, 9, until=5, below=0),)),
    **{
        f"scatter {combiner}": Case(((7, 5), (9, 5)), scattered(combiner, 0), (points(9, 1, until=7),), spread=0.03)
        for combiner in ("set", "add", "mul", "min", "max")
    },
    **{
        f"scatter {combiner}, two axes": Case(
            ((3, 4, 2), (3, 4, 4)), scattered(combiner, 2, 0), (points(3, 4, 2, until=3),), spread=0.03
        )
        for combiner in ("set", "add", "mul", "min", "max")
    },
    "scatter mul with zeros": Case(
        ((4,), (6,)),
        scattered("mul", 0),
        (np.array([[0], [0], [1], [2], [2], [1]]),),
        exact=(np.array([2.0, 0.0, 3.0, 5.0]), np.array([0.0, 3.0, 2.0, 0.0, 0.0, 1.5])),
    ),
    "sort": Case(((3, 20),), lambda x: sort(x, 1)[0], spread=0.01),
    "sort, descending": Case(((9, 4),), lambda x: sort(x, 0, descending=True)[0], spread=0.01),
}


@pytest.mark.parametrize("name", INDEXING)
def test_indexing(name: str) -> None:
    agrees(INDEXING[name])


def test_an_embedding_adds_in_ascending_order_from_the_first_contribution() -> None:
    case = Case(((4, 1),), gathered(0), (np.array([[2], [0], [2], [2], [9], [3]]),))
    g = np.array([[1e8], [-0.0], [1], [-1e8], [5], [7]], np.float32)
    found = evaluate(backward(case, F32), [np.zeros((4, 1), np.float32), *case.given, g])[0]
    assert found.tobytes() == np.array([[-0.0], [0.0], [0.0], [7.0]], np.float32).tobytes()


def test_the_gradient_of_an_embedding_is_linear_in_its_indices() -> None:
    def work(count: int) -> int:
        case = Case(((50, 8),), gathered(0), (np.zeros((count, 1), np.int64),))
        return program_operations(pipeline.run(backward(case, F32)).program)

    assert work(4000) < 2.5 * work(2000)


def test_of_equal_updates_the_first_takes_the_cotangent() -> None:
    x, updates = np.array([1, 5, 0], np.float32), np.array([3, 3, 5, 0.0], np.float32)
    indices = np.array([[0], [0], [1], [2]])
    case = Case((x.shape, updates.shape), scattered("max", 0), (indices,))
    found = evaluate(backward(case, F32), [x, updates, indices, np.array([2, 4, 8], np.float32)])
    assert [array.tolist() for array in found] == [[0, 4, 8], [2, 0, 0, 0]]


@pytest.mark.parametrize("shape", [(0, 3), (4, 0)])
def test_operands_without_elements(shape: tuple[int, int]) -> None:
    builds: list[Build] = [
        reduced("max", 0) if shape[0] else reduced("max", 1) if shape[1] else reduced("add", 0),
        lambda x: sort(x, 1)[0],
        lambda x: cumulative("add", x, 0),
        lambda x: gather(x, iota((0, 1), 0), (0,)),
    ]
    for build in builds:
        graph = backward(Case((shape,), build), F32)
        inputs = [np.zeros(kind.shape, np.float32) for kind in graph.arguments]
        assert evaluate(graph, inputs)[0].shape == shape


# ── dot ─────────────────────────────────────────────────────────────────────────────────────────────


def test_leading_axes_flatten_in_a_weight_gradient() -> None:
    """Rule 8: K = (leading axes, row), 1200 terms, in one contraction."""
    random = np.random.default_rng(2)
    x, w, g = (np.asarray(random.standard_normal(shape), np.float32) for shape in ((4, 300, 3), (3, 5), (4, 300, 5)))
    stacked = evaluate(backward(Case((x.shape, w.shape), matmul), F32), [x, w, g])[1]
    flat = evaluate(backward(Case(((1200, 3), w.shape), matmul), F32), [x.reshape(1200, 3), w, g.reshape(1200, 5)])[1]
    apart = sum(
        evaluate(backward(Case((x[0].shape, w.shape), matmul), F32), [a, w, b])[1] for a, b in zip(x, g, strict=True)
    )
    assert stacked.tobytes() == flat.tobytes()
    assert stacked.tobytes() != np.asarray(apart).tobytes()

"""Gradients of contractions, reductions, indexing, sorting and control flow.

Each rule is held against central differences of the reference in f64, and its graph in f32, compiled, against the
reference's bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from passes import pipeline
from passes.schedule import schedule
from repro.ir.graph import Graph, Node, Value, argument
from repro.ir.types import BOOL, F32, F64, I64, Array, DType, TensorType
from repro.ir.work import program_operations
from repro.numerics.numpy_fma import fma_f32
from repro.ops import (
    OPS,
    add,
    branch,
    broadcast,
    canonical_nan,
    compare,
    concatenate,
    convolution,
    cumulative,
    dot,
    elementwise,
    evaluate,
    fill,
    gather,
    loop,
    mul,
    reduce_axes,
    reshape,
    reverse,
    scalar,
    scatter,
    select,
    slice_,
    sort,
    sub,
    take_along_axis,
    transpose,
    window_reduce,
    windows,
)
from repro.ops.convolutions import _input_gradient
from repro.ops.structure import iota
from repro.targets import cpu
from tests.running import run_on_cpu

Build = Callable[..., Value]


def reverse_mode(pairs: Sequence[tuple[Value, Value]], wanted: Sequence[Value]) -> tuple[Value | None, ...]:
    from repro.autodiff import cotangents

    return cotangents(pairs, wanted)


@dataclass(frozen=True)
class Case:
    """A function of float operands (by shape) and of given integer arrays."""

    shapes: tuple[tuple[int, ...], ...]
    build: Build
    given: tuple[Array, ...] = ()
    spread: float = 0.0
    """Least distance between any two values of the operands: no step of a difference changes which is greater."""
    scale: float = 1.0
    exact: tuple[Array, ...] = field(default=())
    """Operands that are not drawn."""


def operands(case: Case, dtype: DType) -> list[Array]:
    random = np.random.default_rng(len(case.shapes) + sum(sum(shape) for shape in case.shapes))
    drawn: list[Array] = []
    for shape in case.shapes:
        if case.spread:
            size = int(np.prod(shape))
            values = (random.permutation(size) - size / 2 + 0.3) * case.spread
        else:
            values = random.standard_normal(shape) * case.scale
        drawn.append(np.asarray(values.reshape(shape), dtype.storage))
    for position, array in enumerate(case.exact):
        drawn[position] = np.asarray(array, dtype.storage)
    return drawn


def kinds_of(case: Case, dtype: DType) -> list[TensorType]:
    given = [TensorType(_dtype_of(array), array.shape) for array in case.given]
    return [*(TensorType(dtype, shape) for shape in case.shapes), *given]


def _dtype_of(array: Array) -> DType:
    return BOOL if array.dtype == np.bool_ else I64


def forward(case: Case, dtype: DType) -> Graph:
    kinds = kinds_of(case, dtype)
    return Graph(tuple(kinds), (case.build(*(argument(n, kind) for n, kind in enumerate(kinds))),))


def backward(case: Case, dtype: DType) -> Graph:
    """The operands' cotangents, of the operands and the result's cotangent."""
    graph = forward(case, dtype)
    [result] = graph.results
    arguments = [argument(n, kind) for n, kind in enumerate(graph.arguments)]
    g = argument(len(arguments), result.type)
    wanted = arguments[: len(case.shapes)]
    found = reverse_mode([(result, g)], wanted)
    values: list[Value] = []
    for value, operand in zip(found, wanted, strict=True):
        assert value is not None, "no path"
        assert value.type == operand.type
        values.append(value)
    return Graph((*graph.arguments, result.type), tuple(values))


def by_differences(case: Case, arrays: list[Array], directions: list[Array], g: Array) -> float:
    """<g, df(directions)> by central differences with Richardson's step, in f64."""
    graph = forward(case, F64)

    def at(step: float) -> float:
        moved = [array + step * direction for array, direction in zip(arrays, directions, strict=True)]
        [result] = evaluate(graph, [*moved, *case.given])
        finite = np.isfinite(result)  # the extreme of a window without elements is infinite, whatever they are
        return float((result[finite] * g[finite]).sum())

    def slope(step: float) -> float:
        return (at(step) - at(-step)) / (2 * step)

    step = 1e-4
    return (4 * slope(step / 2) - slope(step)) / 3


def error_of(case: Case, graph: Graph) -> float:
    """Relative error of the rule's derivative along one random direction."""
    random = np.random.default_rng(11)
    arrays = operands(case, F64)
    directions = [random.standard_normal(array.shape) for array in arrays]
    g = random.standard_normal(graph.arguments[-1].shape)
    found = evaluate(graph, [*arrays, *case.given, g])
    along = sum(float((one * direction).sum()) for one, direction in zip(found, directions, strict=True))
    scale = sum(float(np.abs(one * direction).sum()) for one, direction in zip(found, directions, strict=True))
    expected = by_differences(case, arrays, directions, g)
    assert scale > 0, "a gradient that is zero throughout says nothing"
    return abs(along - expected) / scale


def agrees(case: Case) -> None:
    assert error_of(case, backward(case, F64)) < 1e-7
    machine = cpu.best_machine()
    assert machine is not None
    narrow = backward(case, F32)
    graph = Graph(narrow.arguments, tuple(canonical_nan(value) for value in narrow.results))
    g = np.asarray(np.random.default_rng(12).standard_normal(narrow.arguments[-1].shape), np.float32)
    inputs = [*operands(case, F32), *case.given, g]
    expected = evaluate(graph, inputs)
    for mine, reference in zip(run_on_cpu(graph, inputs, [], machine), expected, strict=True):
        assert mine.tobytes() == reference.tobytes()


# ── convolution ─────────────────────────────────────────────────────────────────────────────────────


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


# ── control flow ────────────────────────────────────────────────────────────────────────────────────


def both_sides(x: Value, y: Value, condition: Value) -> Value:
    def then(a: Value, b: Value) -> Sequence[Value]:
        return mul(a, b), elementwise("exp", a)

    def otherwise(a: Value, _: Value) -> Sequence[Value]:
        return mul(a, a), a

    product, other = branch(condition, (x, y), then, otherwise)
    return add(product, mul(other, other))


def running_mean(x: Value, rate: Value) -> Value:
    """Carried, scanned and fixed operands, the iteration's number, a result of each kind."""

    def body(i: Value, total: Value, row: Value, rate: Value) -> Sequence[Value]:
        even = compare("eq", elementwise("and", i, scalar(1, I64)), scalar(0, I64))
        step = select(broadcast(even, row.shape, ()), mul(row, rate), mul(row, row))
        after = add(mul(total, total), step)
        return after, mul(after, row)

    total = slice_(x, (0, 0), (1, x.shape[1]))
    last, rows = loop(5, (reshape(total, x.shape[1:]),), (x,), (rate,), body)
    return concatenate((rows, reshape(last, (1, *last.shape))), 0)


def recurrent(x: Value, h: Value, weights: Value, bias: Value) -> Value:
    """h' = tanh(x + h.W + b), every h shown; the weights are read by a second dot and elsewhere too."""

    def body(_: Value, h: Value, row: Value, weights: Value, bias: Value) -> Sequence[Value]:
        product = add(dot(h, weights, ((1,), (0,))), broadcast(bias, h.shape, (1,)))
        after = elementwise("tanh", add(row, product))
        seen = dot(weights, mul(after, h), ((0,), (1,)))
        return after, add(after, transpose(mul(seen, fill(0.1, seen.type)), (1, 0)))

    last, rows = loop(x.shape[0], (h,), (x,), (weights, bias), body)
    return add(rows, broadcast(mul(last, last), rows.shape, (1, 2)))


def nested(x: Value, weights: Value) -> Value:
    """A loop in a loop, around a branch."""

    def inner(i: Value, state: Value, row: Value, weights: Value) -> Sequence[Value]:
        [grown] = branch(
            compare("lt", i, scalar(2, I64)),
            (state, weights),
            lambda a, w: (mul(a, w),),
            lambda a, w: (add(a, elementwise("exp", w)),),
        )
        return (add(grown, mul(row, row)),)

    def outer(_: Value, state: Value, rows: Value, weights: Value) -> Sequence[Value]:
        [after] = loop(4, (state,), (rows,), (weights,), inner)
        return after, mul(after, state)

    return loop(3, (fill(0.5, weights.type),), (x,), (weights,), outer)[1]


def counting(x: Value) -> Value:
    """An integer that is carried decides; the float state passes through unchanged at times."""

    def body(_: Value, left: Value, state: Value) -> Sequence[Value]:
        go = compare("gt", left, scalar(0, I64))
        after = select(broadcast(go, state.shape, ()), mul(state, state), state)
        return sub(left, scalar(1, I64)), after

    return loop(6, (scalar(2, I64), x), (), (), body)[1]


TRUE, FALSE = np.array(True), np.array(False)
CONTROL = {
    "branch, one side": Case(((4,), (4,)), both_sides, (TRUE,)),
    "branch, other side": Case(((4,), (4,)), both_sides, (FALSE,)),
    "loop": Case(((5, 3), (3,)), running_mean, scale=0.5),
    "loop with dots": Case(((6, 4, 5), (4, 5), (5, 5), (5,)), recurrent, scale=0.5),
    "nested loops": Case(((3, 4, 2), (2,)), nested, scale=0.5),
    "an integer is carried": Case(((3,),), counting),
}


@pytest.mark.parametrize("name", CONTROL)
def test_control_flow(name: str) -> None:
    agrees(CONTROL[name])


# ── the checks themselves, and corners ──────────────────────────────────────────────────────────────


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

"""Functions whose gradient is held against central differences of the reference in f64; in f32, compiled, against the
reference's bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from repro.autodiff import cotangents
from repro.ir.graph import Graph, Value, argument
from repro.ir.types import BOOL, F32, F64, I64, Array, DType, TensorType
from repro.ops import canonical_nan, evaluate
from repro.targets import cpu
from tests.running import run_on_cpu

Build = Callable[..., Value]


@dataclass(frozen=True)
class Case:
    """A function of float operands (by shape) and of given integer arrays."""

    shapes: tuple[tuple[int, ...], ...]
    build: Build
    given: tuple[Array, ...] = ()
    spread: float = 0.0
    """Distance between an operand's values, so that no step of a difference changes which is greater."""
    scale: float = 1.0
    exact: tuple[Array, ...] = field(default=())
    """Operands that are not drawn."""


def operands(case: Case, dtype: DType) -> list[Array]:
    random = np.random.default_rng(len(case.shapes) + sum(sum(shape) for shape in case.shapes))
    drawn: list[Array] = []
    for number, shape in enumerate(case.shapes, 1):
        if case.spread:
            size = int(np.prod(shape))
            values = (random.permutation(size) - size // 2 + number / (len(case.shapes) + 2)) * case.spread
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
    found = cotangents([(result, g)], wanted)
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

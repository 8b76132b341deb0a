"""Sorting by each of its roads, against a plain stable sort of rule 5's order."""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np
import pytest

from passes import pipeline
from passes.lower import lower
from passes.prepare import expand
from repro.ir.graph import Graph, argument
from repro.ir.types import BY_NAME, Array, TensorType
from repro.ir.work import program_operations
from repro.machines import CPUS
from repro.ops import sort
from repro.ops.record import evaluate
from repro.ops.sort_rows import FEW, FEWEST, LANES, STEPS
from repro.targets import cpu, interpreter
from tests.running import run_on_cpu

SHAPES = {
    "one element": ((2, 1), 1, 1),
    "two elements": ((1, 2), 1, 2),
    "one step of all": ((1, 1 << STEPS), 1, 1 << STEPS),
    "no whole power": ((3, 37), 1, 37),
    "just too few for blocks": ((2, 4 * FEW), 1, 4),
    "just enough for blocks": ((2, 4 * FEW + 1), 1, 4),
    "lanes of an axis of its own": ((2, 449), 1, 449),
    "whole power": ((1, 512), 1, 512),
    "few lanes": ((500, 3), 0, 500),
    "lanes of another axis": ((2, 450, 20), 1, 450),
    "rows side by side": ((LANES, 100), 1, 100),
    "rows and columns side by side": ((7, 41, 3), 1, 41),
    "part of a network": ((1, 700), 1, 600),
    "blocks, one level": ((2, FEWEST + 3), 1, 2),
    "as many as blocks are formed for": ((3, 8 * FEW), 1, 8),
    "blocks and a rest": ((2, 1003), 1, 5),
    "blocks of many rows": ((3 * LANES, 130), 1, 3),
    "blocks beside others": ((2, 333, 3), 1, 4),
    "blocks, then many": ((1, 4801), 1, 600),
}
KINDS = ("f32", "f64", "i32", "i64", "u8", "u32", "u64", "bool")


def elements(kind: str, shape: tuple[int, ...]) -> Array:
    """Many ties; of floats NaNs of both signs and other bits, zeros, infinities, subnormals; integers to the ends."""
    rng = np.random.default_rng(math.prod(shape))
    dtype = BY_NAME[kind].storage
    if dtype.kind == "f":
        odd = [
            np.nan,
            -np.nan,
            np.inf,
            -np.inf,
            0.0,
            -0.0,
            np.finfo(dtype).smallest_subnormal,
            -1.5,
            np.finfo(dtype).max,
        ]
        made = np.where(rng.random(shape) < 0.5, rng.choice(odd, shape), rng.standard_normal(shape)).astype(dtype)
        whole = made.view(f"u{dtype.itemsize}")
        whole[np.isnan(made)] += rng.integers(0, 9, np.count_nonzero(np.isnan(made))).astype(whole.dtype)
        return made
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    info = np.iinfo(dtype)
    ends = np.array([info.min, info.max, info.max // 2, info.max // 2 + 1], dtype)
    near = rng.integers(0, 40, shape).astype(dtype)
    return np.where(rng.random(shape) < 0.3, rng.choice(ends, shape), near)


def order(row: Array, descending: bool) -> list[int]:
    """Places of a row by comparing elements as rule 5 says, one pair at a time."""
    values = row.tolist()

    def compared(i: int, j: int) -> int:
        a, b = values[i], values[j]
        if a != a or b != b:
            found = int(a != a) - int(b != b)
        else:
            found = (a > b) - (a < b)
        return -found if descending else found

    return sorted(range(len(values)), key=functools.cmp_to_key(compared))


def expected(given: Array, axis: int, count: int, descending: bool) -> tuple[Array, Array]:
    rows = np.moveaxis(given, axis, -1)
    places = np.array([order(row, descending)[:count] for row in rows.reshape(-1, rows.shape[-1])], np.int64)
    places = np.moveaxis(places.reshape(*rows.shape[:-1], count), -1, axis)
    return np.take_along_axis(given, places, axis), places


def sorting(kind: str, name: str, descending: bool) -> Graph:
    shape, axis, count = SHAPES[name]
    of = TensorType(BY_NAME[kind], shape)
    return Graph((of,), sort(argument(0, of), axis, descending, count))


def _cases() -> list[tuple[str, str, bool]]:
    """Every shape in f32, every type over a few of them."""
    some = ("no whole power", "few lanes", "blocks and a rest")
    every = [("f32", name, descending) for name in SHAPES for descending in (False, True)]
    return every + [(kind, name, kind < "i") for kind in KINDS[1:] for name in some]


@pytest.mark.parametrize(("kind", "name", "descending"), _cases())
def test_every_road_gives_the_stable_order(kind: str, name: str, descending: bool) -> None:
    graph, (shape, axis, count) = sorting(kind, name, descending), SHAPES[name]
    given = elements(kind, shape)
    values, places = expected(given, axis, count, descending)
    for found in (evaluate(graph, [given]), evaluate(expand(graph), [given])):
        assert found[1].tobytes() == places.tobytes()
        assert found[0].tobytes() == values.tobytes()
    lowered = interpreter.run(lower(expand(graph)), [given])
    assert [each.tobytes() for each in lowered] == [values.tobytes(), places.tobytes()]


NATIVE = ("few lanes", "whole power", "rows side by side", "blocks and a rest", "blocks of many rows")
ALWAYS = {*(("f32", name) for name in NATIVE[:4]), ("u64", NATIVE[0]), ("u64", NATIVE[4])}
"""What is run for every change."""


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        pytest.param(*case, marks=() if case in ALWAYS else pytest.mark.full)
        for case in itertools.product(("f32", "u64"), NATIVE)
    ],
)
def test_native_code_gives_the_stable_order(kind: str, name: str) -> None:
    machines = [machine for machine in CPUS.values() if cpu.runs_here(machine) is None]
    assert machines
    graph, (shape, axis, count) = sorting(kind, name, True), SHAPES[name]
    given = elements(kind, shape)
    for machine in machines:
        _, places = run_on_cpu(graph, [given], [], machine, threads=2)[:2]
        assert places.tobytes() == expected(given, axis, count, True)[1].tobytes()


WORK = [
    ("f32", 1 << 16, 50, 25),
    ("i64", 1 << 16, 50, 35),
    ("f32", 1 << 14, 1 << 14, 3 * 14 * 15 // 2),
    ("f32", 300, 300, 2 * 3 * 9 * 10 // 2),
]


@pytest.mark.parametrize(("kind", "extent", "count", "each"), WORK)
def test_work_grows_with_the_elements(kind: str, extent: int, count: int, each: int) -> None:
    """Operations for each element: few of a selection, of a sort those of (log² n + log n) / 2 exchanges, where n is
    the next power of two."""
    of = TensorType(BY_NAME[kind], (1, extent))
    program = pipeline.run(Graph((of,), sort(argument(0, of), 1, True, count))).program
    assert extent < program_operations(program) < each * extent

"""Each order of reduction in native code, against models written straight from the contract's words."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest

from passes.schedule import schedule
from passes.vectors import POSITIONS_BESIDE
from repro.ir import index as ix
from repro.ir.expressions import Chain, Exact, Expr, Lanes, Order, Sequential, apply, load, reduce
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.schedule import Schedule
from repro.ir.types import BOOL, F32, F64, I32, I64, U8, Array, DType
from repro.machines import CPUS, Machine
from repro.numerics.host_mode import exact_arithmetic
from repro.numerics.numpy_fma import fma_f32
from repro.targets.llvm import kernel as kernels
from tests.reference import reference
from tests.targets.native import HERE, differences, run_kernel, same

EVERY = pytest.mark.parametrize("machine", CPUS.values(), ids=lambda m: m.name)
MACHINES = pytest.mark.parametrize("machine", HERE, ids=lambda m: m.name)


def lanes_model(values: Array, operation: Callable[[Any, Any], Any] = np.add) -> Any:
    """Rule 10 for one list of values, one operation at a time."""
    if len(values) > 4096:
        leaves = [lanes_model(values[at : at + 4096], operation) for at in range(0, len(values), 4096)]
        return lanes_model(np.array(leaves, values.dtype), operation)
    identity = values.dtype.type(-0.0 if operation is np.add else 1)
    lanes = [identity] * 32
    for number, value in enumerate(values):
        lanes[number % 32] = value if number < 32 else operation(lanes[number % 32], value)
    for half in (16, 8, 4, 2, 1):
        lanes = [operation(lanes[lane], lanes[lane + half]) for lane in range(half)]
    return lanes[0]


def chain_model(a: Array, b: Array, panel: int = 512, panels_per_block: int = 8) -> Array:
    """Rule 7 for rows of operands [..., K]."""
    blocks: list[Array] = []
    for block in range(0, a.shape[-1], panel * panels_per_block):
        panels: list[Array] = []
        for start in range(block, min(block + panel * panels_per_block, a.shape[-1]), panel):
            accumulator = np.zeros(a.shape[:-1], np.float32)
            for k in range(start, min(start + panel, a.shape[-1])):
                accumulator = fma_f32(a[..., k], b[..., k], accumulator)
            panels.append(accumulator)
        blocks.append(_added(panels))
    return _added(blocks) + np.float32(0)


def _added(parts: list[Array]) -> Array:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def mixed(count: int, dtype: DType = F32, seed: int = 0) -> Array:
    """Values of very different sizes, so that another order gives other bits."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(count) * np.exp(rng.uniform(-8, 8, count))).astype(dtype.storage)


def rows_kernel(rows: int, count: int, dtype: DType, combiner: str, order: Order, across: bool) -> Kernel:
    """out[r] <- reduction of x[r, i], or of x[i, r] where lanes go across."""
    r, i = ix.axis(0, rows), ix.axis(1, count)
    place = ix.add(ix.scale(i, rows), r) if across else ix.add(ix.scale(r, count), i)
    value = reduce(combiner, order, [i], [load(dtype, 0, place)])
    buffers = (BufferParameter(dtype, rows * count, False), BufferParameter(value.dtype, rows, True))
    return Kernel(buffers, (), (r,), 0, (Store(1, r, value),))


def run_rows(kernel: Kernel, values: Array, machine, width: int) -> Array:
    rows = kernel.axes[0].extent
    empty = np.zeros(rows, kernel.buffers[1].dtype.storage)
    return run_kernel(kernel, [values, empty], machine, Schedule(0, width, rows))[1]


@MACHINES
@pytest.mark.parametrize("across", [False, True], ids=["along", "across"])
@pytest.mark.parametrize("count", [1, 5, 31, 32, 33, 64, 100, 1000, 4096, 4097, 9000])
def test_sums_in_lanes(machine, across: bool, count: int) -> None:
    rows = 11
    values = mixed(rows * count)
    table = values.reshape(count, rows).T if across else values.reshape(rows, count)
    wanted = np.array([lanes_model(row) for row in table], np.float32)
    found = run_rows(rows_kernel(rows, count, F32, "add", Lanes(32, 4096), across), values, machine, 8 if across else 1)
    assert same(F32, found, wanted), differences(F32, found, wanted)


@MACHINES
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("across", [False, True], ids=["along", "across"])
def test_products_in_lanes(machine, across: bool, dtype: DType) -> None:
    rows, count = 9, 70
    values = (1 + mixed(rows * count, dtype) * 1e-5).astype(dtype.storage)
    table = values.reshape(count, rows).T if across else values.reshape(rows, count)
    wanted = np.array([lanes_model(row, np.multiply) for row in table], dtype.storage)
    found = run_rows(rows_kernel(rows, count, dtype, "mul", Lanes(32, 4096), across), values, machine, 4)
    assert same(dtype, found, wanted), differences(dtype, found, wanted)


@MACHINES
def test_leaves_nest_twice(machine) -> None:
    """A small leaf shows the nesting that the contract's own has only above 16 million values."""
    count, order = 32 * 32 * 32 + 77, Lanes(4, 32)
    values = mixed(count)

    def nested(values: Array) -> Any:
        if len(values) > 32:
            return nested(np.array([nested(values[at : at + 32]) for at in range(0, len(values), 32)], np.float32))
        lanes = [np.float32(-0.0)] * 4
        for number, value in enumerate(values):
            lanes[number % 4] = lanes[number % 4] + value
        return (lanes[0] + lanes[2]) + (lanes[1] + lanes[3])

    found = run_rows(rows_kernel(1, count, F32, "add", order, False), values, machine, 1)
    assert same(F32, found, np.array([nested(values)]))


@MACHINES
@pytest.mark.parametrize("across", [False, True], ids=["along", "across"])
def test_signs_of_zero_in_sums(machine, across: bool) -> None:
    """Absent lanes are -0.0: a sum of -0.0 alone stays -0.0."""
    values = np.full(9 * 5, -0.0, np.float32)
    found = run_rows(rows_kernel(9, 5, F32, "add", Lanes(32, 4096), across), values, machine, 8)
    assert np.signbit(found).all() and (found == 0).all()


@MACHINES
@pytest.mark.parametrize("order", [Lanes(32, 4096), Chain(512, 8), Sequential()], ids=["lanes", "chain", "sequential"])
def test_empty_sums_are_positive_zero(machine, order: Order) -> None:
    r, i = ix.axis(0, 9), ix.axis(1, 0)
    term = load(F32, 0, i)
    value = reduce("fma", order, [i], [term, term]) if isinstance(order, Chain) else reduce("add", order, [i], [term])
    kernel = Kernel((BufferParameter(F32, 0, False), BufferParameter(F32, 9, True)), (), (r,), 0, (Store(1, r, value),))
    found = run_kernel(kernel, [np.zeros(0, np.float32), np.ones(9, np.float32)], machine, Schedule(0, 8, 9))[1]
    assert same(F32, found, np.zeros(9, np.float32))


@MACHINES
@pytest.mark.parametrize("width", [1, 8])
def test_running_sum_is_one_accumulator(machine, width: int) -> None:
    rows, count = 10, 300
    values = mixed(rows * count)
    table = values.reshape(rows, count)
    wanted = table[:, 0].copy()
    for column in range(1, count):
        wanted = wanted + table[:, column]
    found = run_rows(rows_kernel(rows, count, F32, "add", Sequential(), False), values, machine, width)
    assert same(F32, found, wanted)


@MACHINES
@pytest.mark.parametrize("count", [1, 511, 512, 513, 4096, 4097, 9000])
@pytest.mark.parametrize("width", [1, 8])
def test_chains(machine, count: int, width: int) -> None:
    rows = 9
    a, b = mixed(rows * count, seed=1), mixed(count, seed=2)
    r, k = ix.axis(0, rows), ix.axis(1, count)
    value = reduce("fma", Chain(512, 8), [k], [load(F32, 0, ix.add(ix.scale(r, count), k)), load(F32, 1, k)])
    sizes = (BufferParameter(F32, rows * count, False), BufferParameter(F32, count, False))
    kernel = Kernel((*sizes, BufferParameter(F32, rows, True)), (), (r,), 0, (Store(2, r, value),))
    with exact_arithmetic():
        wanted = chain_model(a.reshape(rows, count), np.broadcast_to(b, (rows, count)))
    found = run_kernel(kernel, [a, b, np.zeros(rows, np.float32)], machine, Schedule(0, width, rows))[2]
    assert same(F32, found, wanted), differences(F32, found, wanted)


@MACHINES
@pytest.mark.parametrize("dtype", [F32, I32, U8, F64], ids=str)
@pytest.mark.parametrize("combiner", ["min", "max", "argmax", "argmin", "add", "mul", "and", "or"])
@pytest.mark.parametrize("across", [False, True], ids=["along", "across"])
def test_exact_orders(machine, dtype: DType, combiner: str, across: bool) -> None:
    if dtype.is_float and combiner in ("add", "mul", "and", "or"):
        combiner = {"add": "min", "mul": "max", "and": "argmin", "or": "argmax"}[combiner]
    rows, count = 13, 75
    rng = np.random.default_rng(3)
    values = rng.integers(-4, 4, rows * count).astype(dtype.storage)
    if dtype.is_float:
        values[rng.integers(0, values.size, 60)] = np.nan
        values[rng.integers(0, values.size, 200)] = -0.0
        values[: 4 * count] = np.abs(values[: 4 * count])
        values[count : 2 * count] = np.nan
    check(rows_kernel(rows, count, dtype, combiner, Exact(), across), [values], machine, 8)


SPECIAL = {
    "a NaN": (1.0, np.nan),
    "a zero of the other sign": (-0.0, 0.0),
    "a negative zero": (0.0, -0.0),
    "an infinity": (-3.0, np.inf),
    "a negative infinity": (-3.0, -np.inf),
    "a negative zero above all": (-1.0, -0.0),
    "a zero below all": (1.0, 0.0),
}


@MACHINES
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("combiner", ["min", "max", "argmin", "argmax"])
@pytest.mark.parametrize("count", [32, 100, 160])
def test_one_value_decides_an_extreme_wherever_it_stands(machine, dtype: DType, combiner: str, count: int) -> None:
    """A NaN wins and -0 < +0 (for positions -0 = +0), in whole steps of vectors and in what is left over: row r differs
    at place r."""
    grids = [np.where(np.eye(count, dtype=np.bool_), special, other) for other, special in SPECIAL.values()]
    uniform = np.repeat(np.array([0.0, -0.0, np.nan, np.inf, -np.inf])[:, None], count, axis=1)
    values = np.concatenate([*grids, uniform]).astype(dtype.storage)
    kernel = rows_kernel(len(values), count, dtype, combiner, Exact(), False)
    check(kernel, [values.reshape(-1)], machine, 1)


@MACHINES
@pytest.mark.parametrize("dtype", [F32, F64, I32, I64, U8], ids=str)
@pytest.mark.parametrize("combiner", ["argmin", "argmax"])
def test_the_first_of_equal_terms_counts(machine, dtype: DType, combiner: str) -> None:
    """Two of the furthest in each row, in each third lane and another, in whole steps and in what is left over."""
    count = 2 * 64 * 4 + 7 if dtype is U8 else 2 * 16 * 4 + 7
    places = list(combinations(range(0, count, 3), 2))
    values = np.full((len(places), count), 3 if combiner == "argmax" else 5, dtype.storage)
    for row, pair in enumerate(places):
        values[row, pair] = 4
    wanted = np.array([first for first, _ in places])
    found = run_rows(rows_kernel(len(places), count, dtype, combiner, Exact(), False), values.reshape(-1), machine, 1)
    assert np.array_equal(found, wanted)


@EVERY
@pytest.mark.parametrize("dtype", [F32, F64, U8], ids=str)
def test_positions_go_along_where_as_many_terms_as_vectors_side_by_side(machine: Machine, dtype: DType) -> None:
    """And across else, where rows are read in order so."""
    fewest = max(POSITIONS_BESIDE * machine.lanes(dtype.bits), machine.reduction_lanes)
    kind = {F32: "float", F64: "double", U8: "i8"}[dtype]
    for count in (fewest - 1, fewest, fewest + 3):
        kernel = rows_kernel(64, count, dtype, "argmax", Exact(), False)
        code = kernels.emit(kernel, Schedule(None, 1, 1), machine)
        compared = re.search(rf"cmp u?gt <{machine.lanes(dtype.bits)} x {kind}>", code) is not None
        assert compared == (count >= fewest)
        if dtype is F32:
            assert (schedule(kernel, machine).vector_axis is None) == (count >= fewest)


@MACHINES
@pytest.mark.parametrize("shape", [(4, 32), (3, 50), (64, 3), (130, 1)], ids=str)
def test_positions_over_two_axes(machine, shape: tuple[int, int]) -> None:
    """Vectors that cross the ends of rows."""
    r, i, j = ix.axis(0, 5), ix.axis(1, shape[0]), ix.axis(2, shape[1])
    value = reduce("argmax", Exact(), [i, j], [load(F32, 0, ix.linear((r, i, j), (5, *shape)))])
    size = 5 * shape[0] * shape[1]
    buffers = (BufferParameter(F32, size, False), BufferParameter(value.dtype, 5, True))
    values = np.random.default_rng(7).integers(0, 50, size).astype(np.float32)
    check(Kernel(buffers, (), (r,), 0, (Store(1, r, value),)), [values], machine, 1)


@MACHINES
@pytest.mark.parametrize("combiner", ["min", "max", "and", "or"])
@pytest.mark.parametrize("across", [False, True], ids=["along", "across"])
def test_exact_booleans(machine, combiner: str, across: bool) -> None:
    values = np.random.default_rng(1).integers(0, 9, 13 * 75) > 0
    check(rows_kernel(13, 75, BOOL, combiner, Exact(), across), [values], machine, 8)


def window(combiner: str, order: Order, lanes_inside: bool) -> Kernel:
    """A padded 3 x 5 window over a 7 x 21 picture: absent terms, two reduced axes."""
    height, width = 7, 21
    y, x, i, j = ix.axis(0, height), ix.axis(1, width), ix.axis(2, 3), ix.axis(3, 5)
    row, column = ix.add(y, i, ix.number(-1)), ix.add(x, j, ix.number(-2))
    inside = ix.both(ix.inside(row, height), ix.inside(column, width))
    term = load(F32, 0, ix.add(ix.scale(row, width), column), inside)
    terms: list[Expr] = [term, load(F32, 1, ix.add(ix.scale(i, 5), j))] if combiner == "fma" else [term]
    value = reduce(combiner, order, [i, j], terms, inside)
    buffers = [BufferParameter(F32, height * width, False), BufferParameter(F32, 15, False)]
    out = BufferParameter(value.dtype, height * width, True)
    store = Store(2, ix.add(ix.scale(y, width), x), value)
    return Kernel((*buffers, out), (), (y, x), 0, (store,))


@MACHINES
@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize(
    ("combiner", "order"),
    [
        ("add", Lanes(32, 4096)),
        ("add", Lanes(4, 8)),
        ("add", Sequential()),
        ("max", Exact()),
        ("argmax", Exact()),
        ("fma", Chain(512, 8)),
        ("fma", Chain(5, 2)),
    ],
    ids=str,
)
def test_windows_with_absent_terms(machine, combiner: str, order: Order, lanes: int) -> None:
    values = mixed(7 * 21)
    values[40:47] = [np.inf, -np.inf, np.nan, -0.0, 0.0, -0.0, 1e-42]
    check(window(combiner, order, False), [values, mixed(15, seed=4)], machine, lanes, axis=1)


@MACHINES
@pytest.mark.parametrize("shape", list(product([3, 64], [7, 32, 49])), ids=str)
def test_sums_over_two_separated_axes(machine, shape: tuple[int, int]) -> None:
    """Statistics of a picture per channel: the flattened index counts for lanes."""
    batch, inner = shape
    channels = 5
    c, n, i = ix.axis(0, channels), ix.axis(1, batch), ix.axis(2, inner)
    place = ix.add(ix.scale(n, channels * inner), ix.scale(c, inner), i)
    value = reduce("add", Lanes(32, 4096), [n, i], [load(F32, 0, place)])
    sizes = (BufferParameter(F32, batch * channels * inner, False), BufferParameter(F32, channels, True))
    kernel = Kernel(sizes, (), (c,), 0, (Store(1, c, value),))
    values = mixed(batch * channels * inner)
    wanted = values.reshape(batch, channels, inner).transpose(1, 0, 2).reshape(channels, -1)
    models = np.array([lanes_model(row) for row in wanted])
    for lanes in (1, 4):
        found = run_kernel(kernel, [values, np.zeros(channels, np.float32)], machine, Schedule(0, lanes, channels))[1]
        assert same(F32, found, models)


@MACHINES
@pytest.mark.parametrize("lanes", [1, 8])
def test_a_reduction_inside_a_reduction(machine, lanes: int) -> None:
    """A softmax row: the greatest, then a sum of what depends on it, then each element."""
    rows, count = 6, 50
    r, x, q = ix.axis(0, rows), ix.axis(1, count), ix.axis(2, count)
    own, other = (load(F32, 0, ix.add(ix.scale(r, count), axis)) for axis in (x, q))
    greatest = reduce("max", Exact(), [q], [other])
    distance = apply("sub", other, greatest)
    total = reduce("add", Lanes(32, 4096), [q], [apply("mul", distance, distance)])
    value = apply("div", apply("sub", own, greatest), total)
    store = Store(1, ix.add(ix.scale(r, count), x), value)
    sizes = (BufferParameter(F32, rows * count, False), BufferParameter(F32, rows * count, True))
    check(Kernel(sizes, (), (r, x), 0, (store,)), [mixed(rows * count)], machine, lanes, axis=1)


def check(kernel: Kernel, inputs: list[Array], machine, width: int, axis: int = 0) -> None:
    """Native against the interpreter of the loop IR."""
    outputs = [np.zeros(b.elements, b.dtype.storage) for b in kernel.buffers[len(inputs) :]]
    wanted = reference(kernel, [*inputs, *outputs])
    for block in (kernel.axes[axis].extent, 6):
        found = run_kernel(kernel, [*inputs, *outputs], machine, Schedule(axis, width, block), threads=2)
        for buffer, left, right in zip(kernel.buffers, found, wanted, strict=True):
            assert same(buffer.dtype, left, right), differences(buffer.dtype, left, right)

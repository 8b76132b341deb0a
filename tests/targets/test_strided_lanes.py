"""Lanes that lie few elements apart, and reductions of few terms, as compiled code: the bits of the reference."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np
import pytest

from passes.vectors import MOST_APART
from repro.ir import index as ix
from repro.ir.expressions import load
from repro.ir.graph import Graph, Value, argument
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.schedule import Schedule
from repro.ir.types import BOOL, F32, F64, I8, I64, Array, TensorType
from repro.ops import gather, slice_, transpose
from repro.ops.convolutions import convolution
from repro.ops.record import evaluate
from repro.ops.windows import window_reduce
from tests.running import run_on_cpu
from tests.targets.native import HERE, run_kernel, same

MACHINES = pytest.mark.parametrize("machine", HERE, ids=lambda m: m.name)
EDGES = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-42, -1e-42, 1.0, 1.0, -3.5], np.float32)


def edged(shape: tuple[int, ...], every: int = 5) -> Array:
    """Normal values, every so manieth of them an edge one."""
    random = np.random.default_rng(0)
    made = random.standard_normal(shape).astype(np.float32).reshape(-1)
    made[::every] = EDGES[random.integers(0, EDGES.size, made[::every].size)]
    return made.reshape(shape)


def check(value: Value, inputs: list[Array], machine, threads: int = 1) -> None:
    graph = Graph(tuple(TensorType(F32, array.shape) for array in inputs), (value,))
    (wanted,), (found, *_) = evaluate(graph, inputs, []), run_on_cpu(graph, inputs, [], machine, threads)
    assert same(value.dtype, found, wanted)


@MACHINES
@pytest.mark.parametrize(
    ("combiner", "window", "stride", "low"),
    [
        ("max", 3, 2, 1), ("max", 2, 2, 0), ("min", 2, 5, 0), ("add", 3, 2, 1), ("add", 5, 4, 2), ("add", 7, 1, 3),
        ("argmax", 3, 2, 1), ("argmin", 3, 3, 1),
    ],
)  # fmt: skip
def test_pooling_at_strides(machine, combiner: str, window: int, stride: int, low: int) -> None:
    x = argument(0, TensorType(F32, (2, 3, 11, 39)))
    pads = (0, 0, low, low)
    made = window_reduce(combiner, x, (1, 1, window, window), (1, 1, stride, stride), (1,) * 4, pads, pads)
    check(made, [edged((2, 3, 11, 39))], machine, threads=1 + stride % 3)


@MACHINES
def test_windows_of_padding_alone(machine) -> None:
    x = argument(0, TensorType(F32, (3, 40)))
    for combiner in ("max", "add", "argmax"):
        made = window_reduce(combiner, x, (1, 2), (1, 2), (1, 6), (0, 7), (0, 8))
        check(made, [edged((3, 40))], machine)


def test_a_sum_of_few_terms_has_an_order() -> None:
    """Else the sums above would prove nothing: one term after another gives other bits."""
    x = argument(0, TensorType(F32, (1, 64)))
    made = window_reduce("add", x, (1, 9), (1, 2), (1, 1), (0, 0), (0, 0))
    given = np.random.default_rng(1).standard_normal((1, 64)).astype(np.float32)
    (found,) = evaluate(Graph((x.type,), (made,)), [given], [])
    plain = np.zeros_like(found)
    for tap in range(9):
        plain += given[:, tap : tap + 2 * found.shape[1] : 2]
    assert plain.tobytes() != found.tobytes()


@MACHINES
@pytest.mark.parametrize(
    ("dtype", "step"), [*((F32, step) for step in range(2, MOST_APART + 2)), (F64, 3), (I64, 2), (I8, 4), (BOOL, 2)]
)
def test_every_so_manieth_element(machine, dtype, step: int) -> None:
    size = 67 * step
    given = np.random.default_rng(2).integers(0, 2 if dtype is BOOL else 100, size).astype(dtype.storage)
    kind = TensorType(dtype, (size,))
    graph = Graph((kind,), (slice_(argument(0, kind), (step - 1,), (size,), (step,)),))
    (found, *_) = run_on_cpu(graph, [given], [], machine)
    assert found.tobytes() == given[step - 1 :: step].tobytes()


@MACHINES
@pytest.mark.parametrize("step", range(2, MOST_APART + 1))
def test_nothing_behind_the_last_element_is_read(machine, step: int) -> None:
    """The input ends with the last element that is taken, and behind it nothing may be read."""
    count, page = 64, mmap.PAGESIZE
    size = step * (count - 1) + 1
    size += -size % 4  # so that it begins with a multiple of 16 bytes, and is read where it lies
    memory = mmap.mmap(-1, 2 * page)
    start = ctypes.addressof(whole := ctypes.c_char.from_buffer(memory))
    given = np.frombuffer(memory, np.float32, size, page - 4 * size)
    given[:] = np.arange(size)
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(start + page), ctypes.c_size_t(page), 0) == 0
    first = size - 1 - step * (count - 1)
    kind = TensorType(F32, (size,))
    graph = Graph((kind,), (slice_(argument(0, kind), (first,), (size,), (step,)),))
    (found, *_) = run_on_cpu(graph, [given], [], machine)
    assert found.tobytes() == given[first::step].tobytes()
    assert libc.mprotect(ctypes.c_void_p(start + page), ctypes.c_size_t(page), 3) == 0
    del whole


@MACHINES
@pytest.mark.parametrize("step", range(2, MOST_APART + 2))
@pytest.mark.parametrize("dtype", [F32, F64, I64, I8, BOOL], ids=str)
def test_stores_leave_what_lies_between(machine, dtype, step: int) -> None:
    """Whole vectors of places and a tail; nothing but every so manieth element is written, and each is."""
    count, i = 67, ix.axis(0, 67)
    held = BufferParameter(dtype, step * count, True)
    place = ix.add(ix.scale(i, step), ix.number(step - 1))
    kernel = Kernel((BufferParameter(dtype, count, False), held), (), (i,), 0, (Store(1, place, load(dtype, 0, i)),))
    random = np.random.default_rng(3)
    given, before = (random.integers(0, 2 if dtype is BOOL else 100, n).astype(dtype.storage) for n in (67, 67 * step))
    _, found = run_kernel(kernel, [given, before], machine, Schedule(0, max(2, machine.lanes(dtype.bits)), 1))
    before[step - 1 :: step] = given
    assert found.tobytes() == before.tobytes()


@MACHINES
@pytest.mark.parametrize("dtype", [F32, F64, I64, I8, BOOL], ids=str)
@pytest.mark.parametrize("beyond", [0, 3])
def test_elements_from_anywhere(machine, dtype, beyond: int) -> None:
    """Along the vector axis, all of them there or not; vectors, and fewer than one."""
    random = np.random.default_rng(0)
    for count in (64, 77, 5):
        rows = random.integers(-3, 2 if dtype is BOOL else 90, (3, 50)).astype(dtype.storage)
        places = random.integers(-beyond, 50 + beyond, (count, 1))
        kinds = (TensorType(dtype, rows.shape), TensorType(I64, places.shape))
        graph = Graph(kinds, (transpose(gather(argument(0, kinds[0]), argument(1, kinds[1]), (1,)), (1, 0)),))
        (wanted,), (found, *_) = evaluate(graph, [rows, places], []), run_on_cpu(graph, [rows, places], [], machine)
        assert same(dtype, found, wanted)


@MACHINES
def test_columns_few_elements_apart(machine) -> None:
    """A convolution whose windows do not overlap, and one over every other pixel as its weights: packed both ways."""
    x, w = (2, 5, 32, 64), (19, 5, 2, 2)
    a, b = argument(0, TensorType(F32, x)), argument(1, TensorType(F32, w))
    check(convolution(a, b, (16, 32), (2, 2), (1, 1), (0, 0)), [edged(x, 97), edged(w)], machine, threads=2)
    g = (17, 2, 16, 32)
    b = argument(1, TensorType(F32, g))
    turned = (5, 2, 32, 64)
    a = argument(0, TensorType(F32, turned))
    check(convolution(a, b, (2, 2), (1, 1), (2, 2), (0, 0), panel=512), [edged(turned, 97), edged(g)], machine)


@MACHINES
@pytest.mark.parametrize(("size", "panel"), [(14, 70), (7, 35), (28, 56), (5, 15), (3, 6), (2, 6), (4, 64)])
def test_columns_whose_terms_lie_in_runs(machine, size: int, panel: int) -> None:
    """A weight gradient of one tap, and one of nine: a chain over images, each a run, which panels cut anywhere."""
    x, g = (5, 6, size, size), (5, 37, size, size)
    a, b = argument(0, TensorType(F32, x)), argument(1, TensorType(F32, g))
    turned_x, turned_g = (transpose(each, (1, 0, 2, 3)) for each in (a, b))
    for taps in (1, 3):
        made = convolution(turned_x, turned_g, (taps, taps), (1, 1), (1, 1), (-(taps // 2),) * 2, panel=panel)
        check(made, [edged(x, 97), edged(g)], machine, threads=2)
        check(made, [edged(x, 97), edged(g, 1 << 20)], machine)


@MACHINES
@pytest.mark.parametrize("combiner", ["max", "min", "add", "argmax"])
@pytest.mark.parametrize("width", [5, 16, 20, 37, 64, 200])
def test_lines_of_few_vectors_and_of_many(machine, combiner: str, width: int) -> None:
    """What is absent at both ends is known where the vectors of a line stand in the code, and asked for elsewhere."""
    for every in (3, 1):
        x = argument(0, TensorType(F32, (2, 3, 7, width)))
        made = window_reduce(combiner, x, (1, 1, 3, 5), (1,) * 4, (1,) * 4, (0, 0, 1, 2), (0, 0, 1, 2))
        check(made, [edged((2, 3, 7, width), every)], machine, threads=2)

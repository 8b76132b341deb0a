"""A thread of a large elementwise kernel takes several runs of neighbours, and asks for all before it stores any."""

from __future__ import annotations

import re

import numpy as np
import pytest

from repro.ir import index as ix
from repro.ir.expressions import Expr, apply, load
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.types import BOOL, F32, F64, I8, DType
from repro.machines import SM_80
from repro.numerics.elementary import FUNCTIONS
from repro.targets.gpu import elementwise, emit
from tests.targets.on_gpu import check_gpu

EDGES = (np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-41, -1.5)


def unary(size: int, lines: int, dtype: DType, when: Expr | None = None) -> Kernel:
    """b1 = b0 + b0, element by element; `when` may ask a third buffer of one bool."""
    i, j = ix.axis(0, lines), ix.axis(1, size)
    place = ix.linear((i, j), (lines, size)) if lines > 1 else j
    value = apply("add", load(dtype, 0, place), load(dtype, 0, place))
    buffers = [BufferParameter(dtype, lines * size, False), BufferParameter(dtype, lines * size, True)]
    if when is not None:
        buffers.append(BufferParameter(BOOL, 1, False))
    return Kernel(tuple(buffers), (), (i, j) if lines > 1 else (j,), 0, (Store(1, place, value, when),))


def function_of(name: str, size: int) -> Kernel:
    i = ix.axis(0, size)
    buffers = (BufferParameter(F32, size, False), BufferParameter(F32, size, True))
    return Kernel(buffers, (), (i,), 0, (Store(1, i, FUNCTIONS[name](load(F32, 0, i))),))


def drawn(kernel: Kernel) -> list[np.ndarray]:
    generator = np.random.default_rng(3)
    found: list[np.ndarray] = []
    for buffer in kernel.buffers:
        kind = buffer.dtype.storage
        values = generator.standard_normal(buffer.elements) * 30
        if buffer.dtype in (F32, F64):
            values[: len(EDGES)] = EDGES[: values.size]
        found.append(values.astype(kind))
    return found


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few threads there are."""
    monkeypatch.setattr(elementwise, "FULL", 1)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("lines", [1, 3])
@pytest.mark.parametrize("size", [8, 2048, 2052, 4096, 4100])
@pytest.mark.parametrize(("dtype", "runs"), [(F32, 2), (F64, 2), (I8, 4)])
def test_several_runs_give_the_bits(dtype: DType, runs: int, size: int, lines: int) -> None:
    """Where blocks are full, and where the last has less to do."""
    kernel = unary(size, lines, dtype)
    code = check_gpu(kernel, drawn(kernel))
    assert f" runs={runs} " in code.schedule
    (launch,) = code.launches
    places = lines * size // (2 if dtype is F64 else 4)
    assert (launch.grid - 1) * launch.block * runs < places <= launch.grid * launch.block * runs


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("lines", [1, 3])
@pytest.mark.parametrize("size", [7, 1023, 1365])
@pytest.mark.parametrize(("dtype", "runs"), [(F32, 8), (F64, 4)])
def test_rows_of_odd_length_one_element_at_a_time(dtype: DType, runs: int, size: int, lines: int) -> None:
    """What such rows have in common (a row's maximum, say) keeps them from being one."""
    plain = unary(size, lines, dtype)
    i = plain.axes[0]
    value = apply("add", plain.stores[0].value, load(dtype, 2, i if lines > 1 else ix.number(0)))
    buffers = (*plain.buffers, BufferParameter(dtype, lines, False))
    kernel = Kernel(buffers, (), plain.axes, 0, (Store(1, plain.stores[0].offset, value),))
    code = check_gpu(kernel, drawn(kernel))
    if lines > 1:
        assert f"width=1 runs={runs} along {size}" in code.schedule


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("kept", [False, True])
def test_a_verdict_holds_for_all_runs(kept: bool) -> None:
    kernel = unary(2052, 1, F32, load(BOOL, 2, ix.number(0)))
    x, y, _ = drawn(kernel)
    assert " runs=2 " in check_gpu(kernel, [x, y, np.array([kept])]).schedule


@pytest.mark.usefixtures("always")
def test_in_place() -> None:
    """Each element is read by the thread that writes it."""
    i = ix.axis(0, 3000)
    value = apply("add", load(F32, 0, i), load(F32, 0, i))
    kernel = Kernel((BufferParameter(F32, 3000, True),), (), (i,), 0, (Store(0, i, value),))
    assert " runs=2 " in check_gpu(kernel, drawn(kernel)).schedule


@pytest.mark.usefixtures("always")
def test_runs_are_read_before_any_is_stored() -> None:
    text = emit(unary(2048, 1, F32), SM_80).ptx
    accesses = re.findall(r"\b(ld|st)\.global\.\S*v4\S*", text)
    assert accesses == ["ld", "ld", "st", "st"]


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("size", [2048, 2052, 4100])
@pytest.mark.parametrize("name", ["exp", "tanh", "erf", "sin", "log"])
def test_runs_of_a_function_are_read_before_its_branches(name: str, size: int) -> None:
    """Two, where values are not plain."""
    kernel = function_of(name, size)
    code = check_gpu(kernel, drawn(kernel))
    assert f"width=4 runs=2 along {size}" in code.schedule
    steps = re.findall(r"\b(ld\.global\.nc\.v4|fma|bra)\b", emit(function_of(name, 4096), SM_80).ptx)
    assert steps.index("fma") > 1 and steps[:2] == ["ld.global.nc.v4"] * 2


def test_few_threads_or_two_operands_take_one_run() -> None:
    assert "runs" not in emit(unary(4096, 1, F32), SM_80).schedule
    assert "runs" in emit(unary(4 * elementwise.FULL, 1, F32), SM_80).schedule
    size = 4 * elementwise.FULL
    i = ix.axis(0, size)
    value = apply("add", load(F32, 0, i), load(F32, 1, i))
    buffers = tuple(BufferParameter(F32, size, number == 2) for number in range(3))
    assert "runs" not in emit(Kernel(buffers, (), (i,), 0, (Store(2, i, value),)), SM_80).schedule

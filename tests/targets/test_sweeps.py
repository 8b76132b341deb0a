"""Sums of columns, swept row by row: the same bits as one sum after another."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from passes.legality import refusal
from passes.schedule import schedule
from passes.sweeps import sums
from passes.variants import variants
from repro.ir import index as ix
from repro.ir.expressions import Lanes, apply, const, load, reduce
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.program import INPUT, OUTPUT, Buffer, Call, Program
from repro.ir.types import F32, Array
from repro.machines import CPUS
from repro.machines.machine import LINE_BYTES
from repro.runtime.buffers import PROMISED, aligned
from repro.targets.llvm.kernel import emit
from repro.targets.llvm.sweeps import SHORT, Layout
from tests.reference import reference
from tests.targets.native import HERE, executable, run_kernel, same
from tests.targets.test_reduction_orders import lanes_model

MACHINES = pytest.mark.parametrize("machine", HERE, ids=lambda m: m.name)
LANES = Lanes(32, 4096)


def column_sums(terms: int, columns: int) -> Kernel:
    column, term = ix.axis(0, columns), ix.axis(1, terms)
    value = reduce("add", LANES, [term], [load(F32, 0, ix.add(ix.scale(term, columns), column))])
    buffers = (BufferParameter(F32, terms * columns, False), BufferParameter(F32, columns, True))
    return Kernel(buffers, (), (column,), 0, (Store(1, column, value),))


@MACHINES
@pytest.mark.parametrize("terms", [1, 16, 17, 31, 32, 47, 96, 229, 256, 257, 300, 545, 700, 4096, 4136, 34 * 4096 + 7])
def test_sums_of_columns(machine, terms: int) -> None:
    """A leaf of few rows, of many, with lanes that are longer than others; leaves more than their lanes."""
    columns = 96
    kernel = column_sums(terms, columns)
    chosen = schedule(kernel, machine)
    assert chosen.sweep
    values = np.random.default_rng(terms).standard_normal((terms, columns)).astype(np.float32)
    values[:, 1] = -0.0
    found = run_kernel(kernel, [values.reshape(-1), np.zeros(columns, np.float32)], machine, chosen)[1]
    assert found[1].tobytes() == np.float32(-0.0).tobytes()
    for column in (0, 1, 15, 16, 50, 95):
        assert found[column].tobytes() == lanes_model(values[:, column]).tobytes(), column


@MACHINES
@pytest.mark.parametrize(("terms", "rows"), [(63, 1), (100, 2), (545, 3), (545, 16), (4096, 16), (4136, 1), (4096, 3)])
def test_any_number_of_rows_at_a_time(machine, terms: int, rows: int) -> None:
    kernel = column_sums(terms, 96)
    check(kernel, machine, replace(schedule(kernel, machine), sweep=rows), 1)


@MACHINES
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_items_side_by_side_are_swept_together(machine, threads: int) -> None:
    """Items of two iterations of an outer axis, in shares that begin and end inside of one; more columns than are swept
    at a time."""
    outer, terms, columns = 2, 70, 1200
    o, c, t = ix.axis(0, outer), ix.axis(1, columns), ix.axis(2, terms)
    place = ix.add(ix.scale(o, terms * columns), ix.scale(t, columns), c)
    value = apply("mul", reduce("add", LANES, [t], [load(F32, 0, place)]), load(F32, 1, c))
    sizes = ((outer * terms * columns, False), (columns, False), (outer * columns, True))
    buffers = tuple(BufferParameter(F32, size, writable) for size, writable in sizes)
    kernel = Kernel(buffers, (), (o, c), 0, (Store(2, ix.add(ix.scale(o, columns), c), value),))
    chosen = schedule(kernel, machine)
    assert chosen.sweep
    assert chosen.block < Layout(kernel, chosen).columns < columns
    check(kernel, machine, chosen, threads)


@MACHINES
def test_sums_that_need_sums(machine) -> None:
    """Means, squares of what is left, and sums beside them with absent terms: two readings of the rows."""
    terms, columns = 75, 64
    c, axes = ix.axis(0, columns), [ix.axis(number, terms) for number in (1, 2, 3)]
    first, second, third = (load(F32, 0, ix.add(ix.scale(axis, columns), c)) for axis in axes)
    total = reduce("add", LANES, [axes[0]], [first])
    rest = apply("sub", second, apply("mul", total, const(F32, 0x3C5A740E)))
    squares = reduce("add", LANES, [axes[1]], [apply("mul", rest, rest)])
    some = reduce("add", LANES, [axes[2]], [third], apply("gt", third, const(F32, 0)))
    stores = tuple(Store(1 + number, c, value) for number, value in enumerate((total, squares, some)))
    buffers = (BufferParameter(F32, terms * columns, False), *[BufferParameter(F32, columns, True)] * 3)
    kernel = Kernel(buffers, (), (c,), 0, stores)
    assert len(sums(kernel, c)) == 3
    chosen = schedule(kernel, machine)
    for rows in (1, 2, 3, 8):
        check(kernel, machine, replace(chosen, sweep=rows), 1)


def behind_a_line(values: Array, beyond: int) -> Array:
    """A copy that begins so many bytes behind the beginning of a line."""
    memory = aligned(values.nbytes + LINE_BYTES)[beyond:][: values.nbytes]
    memory[:] = values.view(np.uint8)
    return memory.view(values.dtype)


def runs_of_columns(outer: int, terms: int, columns: int) -> Kernel:
    o, c, t = ix.axis(0, outer), ix.axis(1, columns), ix.axis(2, terms)
    place = ix.add(ix.scale(o, terms * columns), ix.scale(t, columns), c)
    value = reduce("add", LANES, [t], [load(F32, 0, place)])
    buffers = (BufferParameter(F32, outer * terms * columns, False), BufferParameter(F32, outer * columns, True))
    return Kernel(buffers, (), (o, c), 0, (Store(1, ix.add(ix.scale(o, columns), c), value),))


@MACHINES
@pytest.mark.parametrize("shape", [(2, 70, 1200), (3, 256, 32), (2, 16, 1040), (2, 4100, 16)])
def test_rows_that_begin_within_a_line(machine, shape: tuple[int, int, int]) -> None:
    """Callers' arrays begin anywhere: vectors begin with lines, and the same columns come out, each once."""
    kernel = runs_of_columns(*shape)
    chosen = schedule(kernel, machine)
    assert chosen.sweep
    inputs, outputs = (buffer.elements for buffer in kernel.buffers)
    values = np.random.default_rng(2).standard_normal(inputs).astype(np.float32)
    wanted = reference(kernel, [values, np.zeros(outputs, np.float32)])
    buffers = (Buffer(F32, inputs, INPUT, 0), Buffer(F32, outputs, OUTPUT, 0))
    program = Program((kernel,), buffers, (), (Call(0, (0, 1)),), 0)
    for threads in (1, 3):
        made = executable(program, machine, [chosen], threads)
        for beyond in range(0, LINE_BYTES, PROMISED):
            given = behind_a_line(values, beyond)
            assert given.ctypes.data % LINE_BYTES == beyond
            assert made.run([given])[0].tobytes() == wanted[1].tobytes(), (threads, beyond)
        made.close()


def test_columns_in_front_of_a_line_are_whole_short_vectors() -> None:
    assert SHORT * F32.bytes == PROMISED


@pytest.mark.parametrize("machine", CPUS.values(), ids=lambda m: m.name)
def test_short_vectors_are_for_rows_of_whole_lines(machine) -> None:
    """Others begin anywhere in a line, so nothing is gained."""
    short = f"<{SHORT} x float>, ptr"
    for columns, expected in ((96, True), (40, False)):
        kernel = column_sums(64, columns)
        chosen = replace(schedule(kernel, machine), vector_width=8, block=8)
        assert refusal(kernel, chosen) is None
        assert (short in emit(kernel, chosen, machine)) == expected


def check(kernel: Kernel, machine, chosen, threads: int) -> None:
    assert refusal(kernel, chosen) is None
    random = np.random.default_rng(3)
    given = [random.standard_normal(buffer.elements).astype(np.float32) for buffer in kernel.buffers]
    wanted = reference(kernel, given)
    found = run_kernel(kernel, given, machine, chosen, threads)
    assert all(same(F32, left, right) for left, right in zip(found, wanted, strict=True))


@pytest.mark.parametrize("machine", CPUS.values(), ids=lambda m: m.name)
def test_what_cannot_be_swept_is_refused(machine) -> None:
    kernel = column_sums(40, 64)
    chosen = schedule(kernel, machine)
    assert chosen.sweep
    assert refusal(kernel, chosen) is None
    for wrong in (-1, 33):
        assert refusal(kernel, replace(chosen, sweep=wrong)) is not None
    assert refusal(kernel, replace(chosen, block=chosen.vector_width + 1)) is not None
    assert refusal(kernel, replace(chosen, vector_width=1)) is not None
    odd = column_sums(40, 67)
    assert not schedule(odd, machine).sweep
    assert refusal(odd, chosen) is not None
    plain = Kernel(kernel.buffers, (), kernel.axes, 0, (Store(1, kernel.axes[0], load(F32, 0, kernel.axes[0])),))
    assert refusal(plain, chosen) is not None


@pytest.mark.parametrize("machine", CPUS.values(), ids=lambda m: m.name)
def test_tuning_tries_other_rows_and_none(machine) -> None:
    kernel = column_sums(300, 128)
    found = {each.sweep for each in variants("sweep", kernel, machine, schedule(kernel, machine))}
    assert 0 in found
    assert len(found) >= 3

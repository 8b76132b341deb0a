"""Rows and runs that are asked for ahead, rows that are written past the caches: when, how far, and the same bits."""

from __future__ import annotations

import re

import numpy as np
import pytest

from passes import streams
from passes.schedule import schedule
from repro.ir import index as ix
from repro.ir.expressions import Exact, Lanes, apply, const, convert, load, reduce
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.types import F32
from repro.machines import CPUS, Machine
from repro.machines.machine import LINE_BYTES
from repro.numerics.elementary import FUNCTIONS
from repro.targets.llvm import kernel as kernels
from repro.targets.llvm import reductions
from repro.targets.llvm.body import Body
from tests.reference import reference
from tests.targets.native import HERE, run_kernel, same

EVERY = pytest.mark.parametrize("machine", CPUS.values(), ids=lambda m: m.name)
MACHINES = pytest.mark.parametrize("machine", HERE, ids=lambda m: m.name)
LANES = Lanes(32, 4096)
ASKS = "call void @llvm.prefetch"


def less_their_sums(rows: int, length: int, others: int = 0) -> Kernel:
    """Rows less their sums, times the elements of other rows."""
    r, c, t = ix.axis(0, rows), ix.axis(1, length), ix.axis(2, length)
    place, term = (ix.add(ix.scale(r, length), axis) for axis in (c, t))
    value = apply("sub", load(F32, 0, place), reduce("add", LANES, [t], [load(F32, 0, term)]))
    for number in range(1, others + 1):
        value = apply("mul", value, load(F32, number, place))
    buffers = tuple(BufferParameter(F32, rows * length, number > others) for number in range(others + 2))
    return Kernel(buffers, (), (r, c), 0, (Store(others + 1, place, value),))


def sums_of_runs(outer: int, middle: int, run: int) -> Kernel:
    m, o, r = ix.axis(0, middle), ix.axis(1, outer), ix.axis(2, run)
    place = ix.add(ix.scale(o, middle * run), ix.scale(m, run), r)
    value = reduce("add", LANES, [o, r], [load(F32, 0, place)])
    buffers = (BufferParameter(F32, outer * middle * run, False), BufferParameter(F32, middle, True))
    return Kernel(buffers, (), (m,), 0, (Store(1, m, value),))


def check(kernel: Kernel, machine: Machine, threads: int) -> None:
    random = np.random.default_rng(3)
    given = [random.standard_normal(buffer.elements).astype(np.float32) for buffer in kernel.buffers]
    wanted = reference(kernel, given)
    found = run_kernel(kernel, given, machine, threads=threads)
    assert all(same(F32, left, right) for left, right in zip(found, wanted, strict=True))


@EVERY
@pytest.mark.parametrize(("length", "others", "steps"), [(1024, 0, 2), (384, 0, 5), (384, 2, 1), (4096, 1, 1)])
def test_all_rows_that_are_on_their_way_are_a_quarter_of_a_cache(
    machine: Machine, length: int, others: int, steps: int
) -> None:
    """And never less than the next one."""
    made = less_their_sums(8, length, others)
    body = Body(kernels.Function(), made, reductions.emit, machine)
    kernels.Items(body, made, schedule(made, machine), [])
    assert body.ahead == (made.axes[0], steps)
    assert ASKS in kernels.emit(made, schedule(made, machine), machine)


@EVERY
@pytest.mark.parametrize(("rows", "writes"), [(8, False), (512, True)])
def test_rows_that_are_written_from_afar_are_asked_for_too(machine: Machine, rows: int, writes: bool) -> None:
    made = less_their_sums(rows, 1024)
    code = kernels.emit(made, schedule(made, machine), machine)
    asked = [line for line in code.splitlines() if ASKS in line]
    assert any("i32 1, i32 3, i32 1" in line for line in asked) == writes
    assert any("i32 0, i32 3, i32 1" in line for line in asked)


@EVERY
@pytest.mark.parametrize(("run", "asks"), [(64, True), (256, True), (1024, False)])
def test_short_runs_that_lie_apart_are_asked_for(machine: Machine, run: int, asks: bool) -> None:
    made = sums_of_runs(8, 6, run)
    assert (ASKS in kernels.emit(made, schedule(made, machine), machine)) == asks


@MACHINES
@pytest.mark.parametrize("shape", [(20, 5, 256), (70, 3, 64), (3, 4, 40), (4, 3, 2048)])
def test_sums_of_runs(machine: Machine, shape: tuple[int, int, int]) -> None:
    """Behind the last run there is none: what is asked for is not read."""
    check(sums_of_runs(*shape), machine, 2)


@MACHINES
@pytest.mark.parametrize("length", [64, 384, 100])
def test_rows_written_past_the_caches(machine: Machine, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "STREAMED_BYTES", 4096)
    made = less_their_sums(40, length, 1)
    text = kernels.emit(made, schedule(made, machine), machine)
    assert ("!nontemporal" in text) == (length % 16 == 0 and machine.fence != "")
    for threads in (1, 3):
        check(made, machine, threads)


@EVERY
def test_rows_of_a_large_kernel_are_written_in_whole_lines(machine: Machine) -> None:
    small, large = (schedule(less_their_sums(rows, 384), machine).vector_width for rows in (4, 2048))
    assert small == machine.lanes(32)
    assert large == max(small, LINE_BYTES // 4)


@EVERY
def test_what_lies_beyond_the_near_caches_is_asked_for_far_ahead(machine: Machine) -> None:
    """A long run, and rows that follow each other; not what is near, nor rows that lie apart."""
    elements = 2 * machine.l2_bytes // 4
    for outer, middle, run, asks in ((1, 1, elements, True), (1, elements // 256, 256, True), (1, 4, 256, False)):
        kernel = sums_of_runs(outer, middle, run)
        assert (ASKS in kernels.emit(kernel, schedule(kernel, machine), machine)) == asks


@MACHINES
def test_sums_of_what_lies_far(machine: Machine) -> None:
    check(sums_of_runs(1, machine.l2_bytes // (4 * 256) + 7, 256), machine, 2)


def scaled_columns(rows: int, length: int) -> Kernel:
    """Elements times factors that are the same for each row."""
    r, c = ix.axis(0, rows), ix.axis(1, length)
    place = ix.add(ix.scale(r, length), c)
    value = apply("mul", load(F32, 0, place), load(F32, 1, c))
    elements = (rows * length, length, rows * length)
    buffers = tuple(BufferParameter(F32, each, number == 2) for number, each in enumerate(elements))
    return Kernel(buffers, (), (r, c), 0, (Store(2, place, value),))


@EVERY
@pytest.mark.parametrize(("rows", "asks"), [(4096, True), (64, False)])
def test_elements_from_memory_are_asked_for_far_ahead(machine: Machine, rows: int, asks: bool) -> None:
    """Of those that follow each other from row to row, a line each; not of the factors that all rows share."""
    made = scaled_columns(rows, 1024)
    chosen = schedule(made, machine)
    code = kernels.emit(made, chosen, machine)
    assert code.count(ASKS) == (-(-chosen.vector_width // 16) if asks and machine.fence else 0)


@MACHINES
@pytest.mark.parametrize("length", [64, 256])
def test_elements_that_ask_far_ahead(machine: Machine, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind the last one there is nothing."""
    monkeypatch.setattr(streams, "STREAMED_BYTES", 0)
    made = scaled_columns(machine.l2_bytes // (4 * length) + 3, length)
    assert ASKS in kernels.emit(made, schedule(made, machine), machine)
    check(made, machine, 3)


def by_their_extremes(groups: int, rows: int, length: int, in_place: bool = False) -> Kernel:
    """(x - mean) / deviation where the row's greatest element is above 1, else x times the place of that element."""
    g, r, c, *axes = (ix.axis(n, e) for n, e in enumerate((groups, rows, length, *[length] * 4)))
    shape = (groups, rows, length)
    x, a, b, d, e = (load(F32, 0, ix.linear((g, r, axis), shape)) for axis in (c, *axes))
    mean = apply("div", reduce("add", LANES, [axes[0]], [a]), const(F32, np.float32(length).view(np.uint32).item()))
    away = apply("sub", b, mean)
    spread = apply("sqrt", reduce("add", LANES, [axes[1]], [apply("mul", away, away)]))
    high = apply("gt", reduce("max", Exact(), [axes[2]], [d]), const(F32, 0x3F800000))
    place = convert(reduce("argmax", Exact(), [axes[3]], [e]), F32)
    value = apply("select", high, apply("div", apply("sub", x, mean), spread), apply("mul", x, place))
    buffers = tuple(
        BufferParameter(F32, groups * rows * length, out) for out in ((True,) if in_place else (False, True))
    )
    return Kernel(buffers, (), (g, r, c), 0, (Store(len(buffers) - 1, ix.linear((g, r, c), shape), value),))


def reduces_ahead(kernel: Kernel, machine: Machine) -> bool:
    chosen = schedule(kernel, machine)
    items = kernels.Items(Body(kernels.Function(), kernel, reductions.emit, machine), kernel, chosen, [])
    return items.reduced_ahead()


FROM_MEMORY = pytest.mark.parametrize("least", [1, streams.STREAMED_BYTES], ids=["from memory", "near"])
"""Fewest bytes of a kernel that goes past the caches, as what comes from memory does."""


@MACHINES
@FROM_MEMORY
@pytest.mark.parametrize("shape", [(3, 5, 64), (2, 3, 100), (2, 2, 33), (4, 2, 384), (2, 3, 1024)])
def test_rows_reduced_while_others_are_computed(
    machine: Machine, least: int, shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several parts, some of others, of every type; more threads than rows; rows of special values among others."""
    monkeypatch.setattr(streams, "STREAMED_BYTES", least)
    made, random = by_their_extremes(*shape), np.random.default_rng(5)
    assert reduces_ahead(made, machine)
    x = random.standard_normal(shape).astype(np.float32) * np.float32(0.4)
    x[:, ::3, 7] = [np.nan]
    x[:, 1::3, 9], x[:, 2::3, :] = np.inf, -0.0
    x[0, 0] = np.float32(2.0**-149)
    given = [x.reshape(-1), np.zeros(x.size, np.float32)]
    wanted = reference(made, given)
    for threads in (1, 2, 3, 16):
        found = run_kernel(made, given, machine, threads=threads)
        assert same(F32, found[1], wanted[1])


@EVERY
def test_rows_are_reduced_ahead_where_they_stay_near_and_nothing_changes_them(machine: Machine) -> None:
    """Rows that are written where they are read, of which two fill the nearest cache, or that others are read with, are
    reduced in their turn."""
    assert reduces_ahead(by_their_extremes(2, 4, 384), machine)
    assert not reduces_ahead(by_their_extremes(2, 4, 384, in_place=True), machine)
    assert not reduces_ahead(by_their_extremes(2, 4, machine.l1_bytes // 8 + 16), machine)
    assert reduces_ahead(less_their_sums(8, 384), machine)
    assert not reduces_ahead(less_their_sums(8, 384, others=1), machine)


def shares(rows: int, length: int) -> Kernel:
    """A softmax."""
    r, c, m, t = (ix.axis(n, e) for n, e in enumerate((rows, length, length, length)))
    x, y, z = (load(F32, 0, ix.add(ix.scale(r, length), axis)) for axis in (c, m, t))
    most = reduce("max", Exact(), [m], [y])
    term, element = (FUNCTIONS["exp"](apply("sub", each, most)) for each in (z, x))
    value = apply("div", element, reduce("add", LANES, [t], [term]))
    buffers = (BufferParameter(F32, rows * length, False), BufferParameter(F32, rows * length, True))
    return Kernel(buffers, (), (r, c), 0, (Store(1, ix.linear((r, c), (rows, length)), value),))


def sums_of_exponentials(rows: int, length: int) -> Kernel:
    """A softmax's divisors: of each row two reductions, one of the other, and nothing else."""
    r, m, t = ix.axis(0, rows), ix.axis(1, length), ix.axis(2, length)
    y, z = (load(F32, 0, ix.add(ix.scale(r, length), axis)) for axis in (m, t))
    term = FUNCTIONS["exp"](apply("sub", z, reduce("max", Exact(), [m], [y])))
    buffers = (BufferParameter(F32, rows * length, False), BufferParameter(F32, rows, True))
    return Kernel(buffers, (), (r,), 0, (Store(1, r, reduce("add", LANES, [t], [term])),))


@EVERY
@pytest.mark.parametrize(("length", "steps"), [(512, 4), (1024, 2), (4096, 1), (8192, 0)])
def test_rows_that_are_only_reduced_are_asked_for(machine: Machine, length: int, steps: int) -> None:
    """By the four vectors, or lines, of a step of the reduction that reads a row first, so many rows ahead; not where a
    sum has several leaves, and a loop of its own."""
    made = sums_of_exponentials(8, length)
    code = kernels.emit(made, schedule(made, machine), machine)
    asked = re.findall(r"getelementptr float, ptr %b0, i64 (%v\d+)\n  call void @llvm.prefetch", code)
    ahead = [place for place in asked if re.search(rf"{place} = add i64 %v\d+, {length * steps}\n", code)]
    assert bool(ahead) == bool(steps)
    assert code.count(ASKS) == len(asked) == (4 if steps else 0)


@MACHINES
@pytest.mark.parametrize("shape", [(3, 64), (7, 100), (2, 1024), (3, 4200)])
def test_rows_that_are_only_reduced(machine: Machine, shape: tuple[int, int]) -> None:
    """Behind the last row there is none: what is asked for is not read."""
    for threads in (1, 2, 16):
        check(sums_of_exponentials(*shape), machine, threads)


@MACHINES
@FROM_MEMORY
@pytest.mark.parametrize("shape", [(2, 64), (2, 65), (7, 100), (4, 130)])
def test_terms_that_are_kept_until_their_elements_are_computed(
    machine: Machine, least: int, shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "STREAMED_BYTES", least)
    made, random = shares(*shape), np.random.default_rng(6)
    chosen = schedule(made, machine)
    assert 8 * shape[1] <= kernels.scratch_bytes(made, chosen) <= 8 * (shape[1] + 1024)
    assert "ptr %scratch" in kernels.emit(made, chosen, machine).partition("{")[2]
    x = random.standard_normal(shape).astype(np.float32) * np.float32(9)
    x[::3, 5], x[1::4, 7], x[2::5, -1] = -np.inf, np.nan, np.inf
    given = [x.reshape(-1), np.zeros(x.size, np.float32)]
    wanted = reference(made, given)
    for threads in (1, 2, 16):
        assert same(F32, run_kernel(made, given, machine, threads=threads)[1], wanted[1])

"""Rows whose terms a thread keeps, and quotients of a row by one division: the same bits, and what is read once."""

from __future__ import annotations

import re

import numpy as np
import pytest

from repro.ir import index as ix
from repro.ir.expressions import Axis, Exact, Expr, Lanes, Rarely, apply, load, reduce
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.types import F32, I32, Array
from repro.machines import SM_80
from repro.numerics.elementary import FUNCTIONS
from repro.ops.elementwise import canonical_nan_expr
from repro.targets.gpu import emit, rows
from repro.targets.gpu.roads import suited
from tests.targets.on_gpu import check_gpu

LINES = 5
EXTENTS = (128, 256, 1024, 1152, 132, 100)
"""Of rows: what threads keep, more than they keep, and what is not shared out evenly."""
KEPT = {extent: extent % 128 == 0 and extent <= 1024 for extent in EXTENTS}


def exponentials(extent: int, combiner: str = "max", masked: bool = False) -> Kernel:
    """e^(x - highest) of each row, of x + mask where there is one."""
    i, j, p = ix.axis(0, LINES), ix.axis(1, extent), ix.axis(2, extent)

    def term(at: Axis) -> Expr:
        x = load(F32, 0, ix.linear((i, at), (LINES, extent)))
        return apply("add", x, load(F32, 1, at)) if masked else x

    highest = reduce(combiner, Exact(), [p], [term(p)])
    value = FUNCTIONS["exp"](apply("sub", term(j), highest))
    given = [BufferParameter(F32, LINES * extent, False)]
    given += [BufferParameter(F32, extent, False)] * masked
    store = Store(len(given), ix.linear((i, j), (LINES, extent)), value)
    return Kernel((*given, BufferParameter(F32, LINES * extent, True)), (), (i, j), 0, (store,))


def shares(extent: int, made_one: bool = False) -> Kernel:
    """Each element of a row over the sum of the row, with any NaN made the canonical one."""
    i, j, q = ix.axis(0, LINES), ix.axis(1, extent), ix.axis(2, extent)
    total = reduce("add", Lanes(32, 4096), [q], [load(F32, 0, ix.linear((i, q), (LINES, extent)))])
    at = ix.linear((i, j), (LINES, extent))
    buffers = (BufferParameter(F32, LINES * extent, False), BufferParameter(F32, LINES * extent, True))
    value = apply("div", load(F32, 0, at), total)
    return Kernel(buffers, (), (i, j), 0, (Store(1, at, canonical_nan_expr(value) if made_one else value),))


def rows_of(extent: int) -> Array:
    """An ordinary row; one with a NaN; one with infinities; one of large magnitudes; one of zeros of both signs."""
    rows = np.random.default_rng(extent).standard_normal((LINES, extent)).astype(np.float32)
    rows[1, extent // 2] = np.nan
    rows[2, ::9], rows[2, 5] = -np.inf, np.inf
    rows[3] *= np.float32(60)
    rows[4] = np.where(np.arange(extent) % 2, np.float32(0.0), np.float32(-0.0))
    return rows.reshape(-1)


@pytest.mark.parametrize("masked", [False, True], ids=["plain", "masked"])
@pytest.mark.parametrize("combiner", ["max", "min"])
@pytest.mark.parametrize("extent", EXTENTS)
def test_terms_are_kept_and_bits_are_the_same(extent: int, combiner: str, masked: bool) -> None:
    kernel = exponentials(extent, combiner, masked)
    mask = [np.where(np.arange(extent) % 5, np.float32(0), np.float32(-np.inf))] if masked else []
    code = emit(kernel, SM_80)
    check_gpu(kernel, [rows_of(extent), *mask, np.zeros(LINES * extent, np.float32)], code)
    wide = len(re.findall(r"ld\.global(?:\.nc)?\.v4", code.ptx))
    if KEPT[extent]:
        assert wide == extent // 128 * (2 if masked else 1), "each element of a row is read once"


@pytest.mark.parametrize("made_one", [False, True], ids=["raw", "canonical"])
@pytest.mark.parametrize("extent", EXTENTS)
def test_quotients_of_a_row_share_a_division(extent: int, made_one: bool) -> None:
    """Of rows of one sign and of both, whose sums are of both signs too."""
    kernel = shares(extent, made_one)
    (store,) = suited(kernel, SM_80).stores
    assert isinstance(store.value, Rarely), "no NaN is looked for where the common way decides"
    code = emit(kernel, SM_80)
    for given in (np.abs(rows_of(extent)), rows_of(extent), 2 - rows_of(extent)):
        check_gpu(kernel, [given, np.zeros(LINES * extent, np.float32)], code)


def test_a_quotient_may_be_used_as_it_is_and_as_an_output() -> None:
    extent = 128
    made = shares(extent, made_one=True)
    (store,), (i, j) = made.stores, made.axes
    raw = shares(extent).stores[0].value
    other = Store(2, store.offset, apply("add", raw, raw))
    kernel = Kernel((*made.buffers, BufferParameter(F32, LINES * extent, True)), (), (i, j), 0, (store, other))
    empty = np.zeros(LINES * extent, np.float32)
    check_gpu(kernel, [rows_of(extent), empty, empty.copy()], emit(kernel, SM_80))


@pytest.mark.parametrize("scale", [2.0**-149, 2.0**-140, 2.0**-110, 1.0, 2.0**110])
def test_quotients_by_unusual_sums(scale: float) -> None:
    """Subnormal terms, sums below 1, and sums beyond 2^100 are divided."""
    extent = 128
    terms = (np.random.default_rng(1).integers(0, 9, LINES * extent) * scale).astype(np.float32)
    check_gpu(shares(extent), [terms, np.zeros(LINES * extent, np.float32)], emit(shares(extent), SM_80))


def test_a_quotient_of_quotients() -> None:
    """By the row's sum, and that by the sum of its squares: each shares its division."""
    extent = 128
    i, j, q, p = ix.axis(0, LINES), ix.axis(1, extent), ix.axis(2, extent), ix.axis(3, extent)
    at = ix.linear((i, j), (LINES, extent))
    each, other = (load(F32, 0, ix.linear((i, axis), (LINES, extent))) for axis in (q, p))
    total = reduce("add", Lanes(32, 4096), [q], [each])
    squares = reduce("add", Lanes(32, 4096), [p], [apply("mul", other, other)])
    value = apply("div", apply("div", load(F32, 0, at), total), squares)
    buffers = (BufferParameter(F32, LINES * extent, False), BufferParameter(F32, LINES * extent, True))
    kernel = Kernel(buffers, (), (i, j), 0, (Store(1, at, value),))
    found = [e for e in suited(kernel, SM_80).expressions if isinstance(e, Rarely)]
    assert len(found) == 2
    check_gpu(kernel, [np.abs(rows_of(extent)), np.zeros(LINES * extent, np.float32)], emit(kernel, SM_80))


def test_an_extreme_of_each_output_is_no_rows() -> None:
    """The greatest difference of each element to those of its row, beside a sum that takes longer."""
    lines, extent, terms = 2, 128, 1 << 16
    i, j, p, q = ix.axis(0, lines), ix.axis(1, extent), ix.axis(2, extent), ix.axis(3, terms)

    def x(at: Axis) -> Expr:
        return load(F32, 0, ix.linear((i, at), (lines, extent)))

    farthest = reduce("max", Exact(), [p], [apply("sub", x(j), x(p))])
    total = reduce("add", Lanes(32, 4096), [q], [load(F32, 1, ix.linear((i, q), (lines, terms)))])
    value = apply("add", apply("add", farthest, apply("sub", x(j), x(j))), total)
    buffers = (
        BufferParameter(F32, lines * extent, False),
        BufferParameter(F32, lines * terms, False),
        BufferParameter(F32, lines * extent, True),
    )
    kernel = Kernel(buffers, (), (i, j), 0, (Store(2, ix.linear((i, j), (lines, extent)), value),))
    generator = np.random.default_rng(6)
    given = [generator.standard_normal(size).astype(np.float32) for size in (lines * extent, lines * terms)]
    check_gpu(kernel, [*given, np.zeros(lines * extent, np.float32)], emit(kernel, SM_80))


def test_a_whole_softmax_is_one_kernel() -> None:
    """The greatest element, the sum of exponentials that are made of it, and the quotients."""
    extent = 256
    i, j, q, p = ix.axis(0, LINES), ix.axis(1, extent), ix.axis(2, extent), ix.axis(3, extent)
    highest = reduce("max", Exact(), [p], [load(F32, 0, ix.linear((i, p), (LINES, extent)))])

    def term(at: Axis) -> Expr:
        return FUNCTIONS["exp"](apply("sub", load(F32, 0, ix.linear((i, at), (LINES, extent))), highest))

    value = apply("div", term(j), reduce("add", Lanes(32, 4096), [q], [term(q)]))
    buffers = (BufferParameter(F32, LINES * extent, False), BufferParameter(F32, LINES * extent, True))
    kernel = Kernel(buffers, (), (i, j), 0, (Store(1, ix.linear((i, j), (LINES, extent)), value),))
    check_gpu(kernel, [rows_of(extent), np.zeros(LINES * extent, np.float32)], emit(kernel, SM_80))


def test_a_sum_of_few_terms_may_need_the_extreme_first() -> None:
    """Threads are apart in such a sum, so that each computes the row's extreme by itself and keeps no terms."""
    extent, few = 128, 8
    i, j, p, q = ix.axis(0, LINES), ix.axis(1, extent), ix.axis(2, extent), ix.axis(3, few)
    highest = reduce("max", Exact(), [p], [load(F32, 0, ix.linear((i, p), (LINES, extent)))])
    total = reduce("add", Lanes(32, 4096), [q], [apply("mul", load(F32, 1, q), highest)])
    at = ix.linear((i, j), (LINES, extent))
    value = apply("add", apply("sub", load(F32, 0, at), highest), total)
    buffers = (
        BufferParameter(F32, LINES * extent, False),
        BufferParameter(F32, few, False),
        BufferParameter(F32, LINES * extent, True),
    )
    kernel = Kernel(buffers, (), (i, j), 0, (Store(2, at, value),))
    given = [rows_of(extent), np.arange(few, dtype=np.float32), np.zeros(LINES * extent, np.float32)]
    check_gpu(kernel, given, emit(kernel, SM_80))


def test_a_row_of_several_warps_keeps_its_terms() -> None:
    """Of three, since a sum beside it is long; one run of neighbours for each thread."""
    lines, extent, terms = 2, 384, 3 * 4096
    i, j, p, q = ix.axis(0, lines), ix.axis(1, extent), ix.axis(2, extent), ix.axis(3, terms)

    def x(at: Axis) -> Expr:
        return load(F32, 0, ix.linear((i, at), (lines, extent)))

    total = reduce("add", Lanes(32, 4096), [q], [load(F32, 1, ix.linear((i, q), (lines, terms)))])
    value = apply("add", apply("sub", x(j), reduce("min", Exact(), [p], [x(p)])), total)
    buffers = (
        BufferParameter(F32, lines * extent, False),
        BufferParameter(F32, lines * terms, False),
        BufferParameter(F32, lines * extent, True),
    )
    kernel = Kernel(buffers, (), (i, j), 0, (Store(2, ix.linear((i, j), (lines, extent)), value),))
    chosen = rows.plan(kernel)
    assert chosen is not None and chosen.warps == 3
    generator = np.random.default_rng(7)
    given = [generator.standard_normal(size).astype(np.float32) for size in (lines * extent, lines * terms)]
    check_gpu(kernel, [*given, np.zeros(lines * extent, np.float32)], emit(kernel, SM_80))


@pytest.mark.parametrize("combiner", ["add", "max", "min", "and", "or"])
def test_integers_are_kept(combiner: str) -> None:
    """Whose sums have no order either."""
    extent = 256
    i, j, p = ix.axis(0, LINES), ix.axis(1, extent), ix.axis(2, extent)
    at = ix.linear((i, j), (LINES, extent))
    of_row = reduce(combiner, Exact(), [p], [load(I32, 0, ix.linear((i, p), (LINES, extent)))])
    buffers = (BufferParameter(I32, LINES * extent, False), BufferParameter(I32, LINES * extent, True))
    kernel = Kernel(buffers, (), (i, j), 0, (Store(1, at, apply("xor", load(I32, 0, at), of_row)),))
    given = np.random.default_rng(8).integers(-(1 << 31), 1 << 31, LINES * extent).astype(np.int32)
    code = emit(kernel, SM_80)
    check_gpu(kernel, [given, np.zeros(LINES * extent, np.int32)], code)
    assert len(re.findall(r"ld\.global(?:\.nc)?\.v4", code.ptx)) == extent // 128

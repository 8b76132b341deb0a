"""Register tiles of integers, and of columns that are computed: read from narrow types, scaled, looked at twice."""

from __future__ import annotations

import numpy as np
import pytest

from passes.legality import can_tile
from passes.schedule import schedule
from repro.ir import index as ix
from repro.ir.contraction import find
from repro.ir.expressions import Chain, Exact, Expr, apply, const, convert, load, reduce
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.schedule import ContractionTile, Schedule
from repro.ir.types import F16, F32, I8, I32, I64, U8, U32, Array, DType
from repro.machines import X86_64_V4, Machine
from repro.targets.llvm.tiling import shape_of
from tests.targets.native import HERE
from tests.targets.test_contraction_tiles import check

MACHINES = pytest.mark.parametrize("machine", HERE, ids=lambda m: m.name)


def product(m: int, n: int, k: int, kinds: tuple[DType, DType], dtype: DType, scaled: bool = False) -> Kernel:
    """out[i, j] <- sum over k of a[i, k] (b[k, j] - 3), b times a scale of its column if `scaled`."""
    i, j, q = ix.axis(0, m), ix.axis(1, n), ix.axis(2, k)
    a = convert(load(kinds[0], 0, ix.linear((i, q), (m, k))), dtype)
    b: Expr = convert(load(kinds[1], 1, ix.linear((q, j), (k, n))), dtype)
    three = const(dtype, 3) if not dtype.is_float else const(F32, 0x40400000)
    b = apply("sub", b, three)
    buffers = [BufferParameter(kinds[0], m * k, False), BufferParameter(kinds[1], k * n, False)]
    if scaled:
        buffers.append(BufferParameter(dtype, n, False))
        b = apply("mul", b, load(dtype, 2, j))
    value = (
        reduce("fma", Chain(512, 8), [q], [a, b])
        if dtype.is_float
        else reduce("add", Exact(), [q], [apply("mul", a, b)])
    )
    out = BufferParameter(dtype, m * n, True)
    return Kernel((*buffers, out), (), (i, j), 0, (Store(len(buffers), ix.linear((i, j), (m, n)), value),))


def drawn(kernel: Kernel) -> list[Array]:
    random, found = np.random.default_rng(3), list[Array]()
    for buffer in kernel.buffers:
        kind = buffer.dtype.storage
        if buffer.dtype.is_float:
            found.append(random.standard_normal(buffer.elements).astype(kind))
        else:
            ends = np.iinfo(kind)
            found.append(random.integers(ends.min, ends.max, buffer.elements, kind, endpoint=True))
    return found


@MACHINES
@pytest.mark.parametrize(("m", "n", "k"), [(15, 37, 9), (29, 64, 1100), (1, 130, 70), (3, 96, 600), (5, 48, 4200)])
@pytest.mark.parametrize(
    ("kinds", "dtype"),
    [((I8, I8), I32), ((U8, I8), I32), ((I32, I32), I32), ((U32, U32), U32), ((I64, I64), I64)],
    ids=lambda each: each.name if isinstance(each, DType) else "",
)
def test_integers_wrap_alike_in_any_order(
    machine: Machine, m: int, n: int, k: int, kinds: tuple[DType, DType], dtype: DType
) -> None:
    kernel = product(m, n, k, kinds, dtype)
    assert find(kernel, floats=True) is None and find(kernel) is not None
    check(kernel, machine, arrays=drawn(kernel))


@MACHINES
@pytest.mark.parametrize("dtype", [I32, I64], ids=lambda each: each.name)
@pytest.mark.parametrize("rows", [1, 3, 20])
def test_integers_whose_columns_lie_turned(machine: Machine, dtype: DType, rows: int) -> None:
    i, j, q = ix.axis(0, rows), ix.axis(1, 70), ix.axis(2, 72)
    a, b = load(dtype, 0, ix.linear((i, q), (rows, 72))), load(dtype, 1, ix.linear((j, q), (70, 72)))
    value = reduce("add", Exact(), [q], [apply("mul", a, b)])
    buffers = tuple(BufferParameter(dtype, size, size == rows * 70) for size in (rows * 72, 70 * 72, rows * 70))
    kernel = Kernel(buffers, (), (i, j), 0, (Store(2, ix.linear((i, j), (rows, 70)), value),))
    chosen = schedule(kernel, machine)
    assert chosen.tile is not None and chosen.tile.makes == (rows <= machine.tile_rows // 2)
    check(kernel, machine, chosen, drawn(kernel))


def test_sums_of_other_integers_are_no_contractions() -> None:
    """Of sums, of narrow integers, of maxima."""
    i, q = ix.axis(0, 40), ix.axis(1, 40)
    a, b = load(I32, 0, ix.linear((i, q), (40, 40))), load(I32, 1, q)
    for combiner, term in (("add", apply("add", a, b)), ("max", apply("mul", a, b))):
        value = reduce(combiner, Exact(), [q], [term])
        buffers = (BufferParameter(I32, 1600, False), BufferParameter(I32, 40, False), BufferParameter(I32, 40, True))
        assert not can_tile(Kernel(buffers, (), (i,), 0, (Store(2, i, value),)))


@MACHINES
@pytest.mark.parametrize("kind", [F16, I8, F32], ids=lambda each: each.name)
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize(("m", "n"), [(1, 256), (1, 250), (2, 96), (3, 40), (9, 64), (16, 96), (17, 96), (20, 96)])
@pytest.mark.parametrize("k", [60, 1030])
def test_columns_are_computed_beside_the_products_of_few_rows(
    machine: Machine, kind: DType, scaled: bool, m: int, n: int, k: int
) -> None:
    kernel = product(m, n, k, (F32, kind), F32, scaled)
    chosen = schedule(kernel, machine)
    assert chosen.tile is not None
    assert chosen.tile.makes == (m <= (18 if machine is X86_64_V4 else machine.tile_rows))  # two wide tiles of 9 rows
    assert shape_of(kernel, chosen).made == chosen.tile.makes
    check(kernel, machine, chosen, drawn(kernel))


@MACHINES
def test_made_or_packed_the_bits_are_the_same(machine: Machine) -> None:
    kernel = product(9, 64, 700, (F32, F16), F32, scaled=True)
    for makes in (False, True):
        tile = ContractionTile(4, 2, 8, 32, 2, makes=makes)
        check(kernel, machine, Schedule(None, 8, 1, tile), drawn(kernel))


def test_costly_terms_are_packed() -> None:
    """A row of tiles computes a term for itself; a copy would cost less than many operations."""
    kernel = product(3, 64, 64, (F32, F16), F32)
    (store,), found = kernel.stores, find(kernel)
    assert found is not None and found.makes(16)
    term = found.terms[1]
    for _ in range(10):
        term = apply("mul", apply("add", term, const(F32, 0x3F800000)), term)
    costly = reduce("fma", Chain(512, 8), list(found.reduce.axes), [found.terms[0], term])
    chosen = schedule(Kernel(kernel.buffers, (), kernel.axes, 0, (Store(2, store.offset, costly),)), X86_64_V4)
    assert chosen.tile is not None and not chosen.tile.makes

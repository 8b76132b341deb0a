"""Register-tiled contractions give the bits of the plain chain: tails, long K, transposes, absent terms, epilogues."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from passes.schedule import schedule
from passes.variants import variants
from passes.windows import window
from repro.ir import index as ix
from repro.ir.contraction import find
from repro.ir.expressions import Chain, Expr, apply, const, load, reduce
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.schedule import ContractionTile, Schedule
from repro.ir.types import F32, F64, Array, DType
from repro.machines import AARCH64, X86_64_V3, X86_64_V4, Machine
from repro.numerics.host_mode import exact_arithmetic
from repro.targets.llvm import kernel as kernels
from repro.targets.llvm.tiling import shape_of
from tests.reference import reference
from tests.targets.native import HERE, differences, run_kernel, same
from tests.targets.test_reduction_orders import chain_model, mixed

MACHINES = pytest.mark.parametrize("machine", HERE, ids=lambda m: m.name)


def matmul(
    m: int,
    n: int,
    k: int,
    *,
    batch: int = 1,
    left: bool = False,
    right: bool = False,
    dtype: DType = F32,
    bias: bool = False,
    halved: bool = False,
    panel: int = 512,
) -> Kernel:
    """out[z, i, j] <- sum over k; `left` and `right` say which operands lie transposed; `halved`: of a / 2; `panel`: of
    as many terms, where the contract's are too many to run."""
    z, i, j, q = ix.axis(0, batch), ix.axis(1, m), ix.axis(2, n), ix.axis(3, k)
    a = ix.linear((z, q, i), (batch, k, m)) if left else ix.linear((z, i, q), (batch, m, k))
    b = ix.linear((z, j, q), (batch, n, k)) if right else ix.linear((z, q, j), (batch, k, n))
    term = apply("mul", load(dtype, 0, a), const(F32, 0x3F000000)) if halved else load(dtype, 0, a)
    value = reduce("fma", Chain(panel, 8), [q], [term, load(dtype, 1, b)])
    sizes = [BufferParameter(dtype, size, False) for size in (batch * m * k, batch * k * n)]
    if bias:
        sizes.append(BufferParameter(dtype, n, False))
        value = apply("max", apply("add", value, load(dtype, 2, j)), const(dtype, 0))
    out = BufferParameter(dtype, batch * m * n, True)
    return Kernel((*sizes, out), (), (z, i, j), 0, (Store(len(sizes), ix.linear((z, i, j), (batch, m, n)), value),))


def filled(kernel: Kernel) -> list[Array]:
    return [mixed(b.elements, b.dtype, seed=number) for number, b in enumerate(kernel.buffers)]


def check(kernel: Kernel, machine, chosen: Schedule | None = None, arrays: list[Array] | None = None) -> None:
    """A tiled schedule against the interpreter of the loop IR."""
    given = filled(kernel) if arrays is None else arrays
    chosen = schedule(kernel, machine) if chosen is None else chosen
    assert chosen.tile is not None, "the kernel is not run in tiles: the test would prove nothing"
    wanted = reference(kernel, given)
    for threads in (1, 2):
        found = run_kernel(kernel, given, machine, chosen, threads)
        for buffer, left, right in zip(kernel.buffers, found, wanted, strict=True):
            assert same(buffer.dtype, left, right), differences(buffer.dtype, left, right)


@MACHINES
@pytest.mark.parametrize("k", [1, 3, 512, 515, 1100, 4096, 4097, 8200])
def test_long_chains_against_the_contracts_words(machine, k: int) -> None:
    m, n = 15, 37
    kernel = matmul(m, n, k)
    a, b = mixed(m * k, seed=1), mixed(k * n, seed=2)
    with exact_arithmetic():
        wanted = chain_model(a.reshape(m, 1, k), b.reshape(k, n).T[None]).reshape(-1)
    tile = ContractionTile(6, 2, 15, 32)
    found = run_kernel(kernel, [a, b, np.zeros(m * n, np.float32)], machine, Schedule(None, 8, 1, tile))[2]
    assert same(F32, found, wanted), differences(F32, found, wanted)


@MACHINES
@pytest.mark.parametrize("m", [1, 13, 29])
@pytest.mark.parametrize("n", [4, 17, 40])
@pytest.mark.parametrize("layout", ["plain", "left", "right", "both"])
def test_tails_and_transposes(machine, m: int, n: int, layout: str) -> None:
    check(matmul(m, n, 40, left=layout in ("left", "both"), right=layout in ("right", "both"), bias=True), machine)


@MACHINES
@pytest.mark.parametrize("k", [40, 1030, 4100])
@pytest.mark.parametrize("operations", [2, 12])
def test_outputs_from_registers_and_from_memory(machine, k: int, operations: int) -> None:
    """Whole tiles of columns, with few operations behind the sum and with many; one panel, several, blocks of them."""
    kernel = matmul(29, 64, k, bias=True)
    (store,) = kernel.stores
    value = store.value
    for number in range(operations - 2):
        value = apply("add", apply("mul", value, const(F32, 0x3F400000 + number)), load(F32, 2, kernel.axes[2]))
    check(replace(kernel, stores=(replace(store, value=value),)), machine)


@MACHINES
@pytest.mark.parametrize(("m", "n", "k"), [(29, 64, 40), (15, 37, 1030), (14, 32, 4100)])
def test_several_outputs_over_what_they_are_computed_from(machine, m: int, n: int, k: int) -> None:
    """An update of three arrays behind the sums; one panel, several, blocks of them."""
    kernel = matmul(m, n, k, left=True)
    (store,) = kernel.stores
    first, second, third = (load(F32, 2 + number, store.offset) for number in range(3))
    moved = apply("add", apply("mul", second, const(F32, 0x3F400000)), store.value)
    values = apply("sub", first, apply("mul", moved, third)), moved, apply("max", third, apply("div", first, moved))
    stores = tuple(Store(2 + number, store.offset, value) for number, value in enumerate(values))
    buffers = (*kernel.buffers, kernel.buffers[2], kernel.buffers[2])
    check(replace(kernel, buffers=buffers, stores=stores), machine)


@MACHINES
def test_batches(machine) -> None:
    check(matmul(9, 20, 33, batch=5, right=True), machine)


@MACHINES
def test_doubles(machine) -> None:
    check(matmul(11, 19, 600, dtype=F64, bias=True), machine)


@MACHINES
@pytest.mark.parametrize("m", [30, 64])
def test_several_blocks_and_odd_tiles(machine, m: int) -> None:
    kernel = matmul(m, 50, 70)
    for rows, vectors, width, block_m, block_n, unroll in (
        (1, 1, 2, 7, 9, 1),
        (5, 3, 4, 11, 13, 3),
        (14, 2, 16, 28, 32, 4),
        (4, 1, 8, 4, 8, 2),
    ):
        check(kernel, machine, Schedule(None, width, 1, ContractionTile(rows, vectors, block_m, block_n, unroll)))


def convolution(
    *, images: int, channels: int, size: int, filters: int, taps: int, stride: int, pad: int, pixels_are_rows: bool
) -> Kernel:
    """A two-dimensional convolution, padding as absent terms, panels of whole channels."""
    out = (size + 2 * pad - taps) // stride + 1
    n, f, y, x = ix.axis(0, images), ix.axis(1, filters), ix.axis(2, out), ix.axis(3, out)
    c, i, j = ix.axis(4, channels), ix.axis(5, taps), ix.axis(6, taps)
    row = ix.add(ix.scale(y, stride), i, ix.number(-pad))
    column = ix.add(ix.scale(x, stride), j, ix.number(-pad))
    inside = ix.both(ix.inside(row, size), ix.inside(column, size))
    picture = load(F32, 0, ix.linear((n, c, row, column), (images, channels, size, size)), inside)
    weight = load(F32, 1, ix.linear((f, c, i, j), (filters, channels, taps, taps)))
    terms: list[Expr] = [picture, weight] if pixels_are_rows else [weight, picture]
    unit = taps * taps
    value = reduce("fma", Chain(max(1, 512 // unit) * unit, 8), [c, i, j], terms, inside if pad else None)
    value = apply("add", value, load(F32, 2, f))
    sizes = (images * channels * size * size, filters * channels * taps * taps, filters)
    buffers = tuple(BufferParameter(F32, elements, False) for elements in sizes)
    total = images * filters * out * out
    store = Store(3, ix.linear((n, f, y, x), (images, filters, out, out)), value)
    return Kernel((*buffers, BufferParameter(F32, total, True)), (), (n, f, y, x), 0, (store,))


@MACHINES
@pytest.mark.parametrize("pixels_are_rows", [False, True])
@pytest.mark.parametrize(("stride", "pad"), [(1, 0), (1, 1), (2, 1)])
@pytest.mark.parametrize("size", [8, 9])
def test_convolutions(machine, pixels_are_rows: bool, stride: int, pad: int, size: int) -> None:
    check(
        convolution(images=2, channels=61, size=size, filters=7, taps=3, stride=stride, pad=pad,
                    pixels_are_rows=pixels_are_rows),
        machine,
    )  # fmt: skip


@MACHINES
@pytest.mark.parametrize("size", [16, 24])
@pytest.mark.parametrize("block_m", [14, 10_000])
def test_vectors_that_start_inside_a_row(machine, size: int, block_m: int) -> None:
    """Blocks of rows, tiles and panels that are no multiple of the vector: lanes go on in the picture's next row."""
    chosen = Schedule(None, 8, 1, ContractionTile(7, 2, block_m, 16, 2))
    for pad in (0, 1):
        kernel = convolution(
            images=2, channels=5, size=size, filters=9, taps=3, stride=1, pad=pad, pixels_are_rows=True
        )
        check(kernel, machine, chosen)
    check(weight_gradient(images=3, channels=6, filters=10, height=9, width=size), machine, chosen)


@MACHINES
@pytest.mark.parametrize(
    ("stride", "pad", "size", "rows"), [(1, 0, 5, 1), (1, 1, 7, 14), (1, 2, 20, 8), (2, 1, 9, 3), (2, 2, 12, 14)]
)
def test_windows(machine, stride: int, pad: int, size: int, rows: int) -> None:
    """Tiles of parts of a line, of whole lines and of several; blocks of several pictures and of parts of one; columns
    that fill no tile; panels whose last is short."""
    kernel = convolution(
        images=3, channels=57, size=size, filters=11, taps=3, stride=stride, pad=pad, pixels_are_rows=False
    )
    for block_m, block_n in ((1000, 16), (40, 8)):
        tile = ContractionTile(rows, 2, block_m, block_n, window=True)
        assert window(kernel, block_m) is not None
        check(kernel, machine, Schedule(None, 8, 1, tile))


@MACHINES
@pytest.mark.parametrize(("rows", "width"), [(14, 16), (5, 8), (6, 4), (8, 4), (3, 16)])
@pytest.mark.parametrize("m", [145, 280])
def test_rows_that_lie_side_by_side(machine, rows: int, width: int, m: int) -> None:
    """Those of several tiles are packed together, and those that are left; what hangs over the end of one's rows is not
    what another one reads."""
    kernel = matmul(m, 20, 20, left=True, bias=True, halved=True)
    for block_m in (m, 140):
        chosen = Schedule(None, width, 1, ContractionTile(rows, 1, block_m, 16))
        assert shape_of(kernel, chosen).tiles_packed > 1
        check(kernel, machine, chosen)


@MACHINES
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.full)])
@pytest.mark.parametrize(
    ("rows", "vectors", "width", "m", "columns", "k", "first"),
    [
        (14, 2, 16, 31, 5, 20, True),
        (8, 2, 8, 13, 7, 530, True),
        (6, 2, 8, 3, 6, 70, False),
        (3, 1, 4, 7, 2, 4200, False),
        (9, 3, 16, 19, 11, 20, True),
        (6, 4, 16, 13, 5, 20, True),
        (14, 2, 16, 31, 16, 20, False),
    ],
)
def test_terms_that_the_first_tiles_copy(
    machine, rows: int, vectors: int, width: int, m: int, columns: int, k: int, first: bool, every: bool
) -> None:
    """Rows, columns or both, a tile's at a time; rows too few for a tile, columns of some tiles and of many, several
    blocks, panels and batches. Where tiles have few products, or short runs of columns far apart, columns are packed by
    a pass of their own."""
    per_tile = vectors * width
    whole, parts = (m, columns * per_tile), (2 * rows, 5 * per_tile)
    kinds = (True, True, 1), (True, False, 2), (False, True, 1)
    cases = [(kinds[0], whole), *((kind, parts) for kind in kinds)]
    for (left, packs, batch), blocks in itertools.product(kinds, (whole, parts)) if every else cases:
        kernel = matmul(m, columns * per_tile, k, left=left, batch=batch, bias=left)
        tile = ContractionTile(rows, vectors, *blocks, 2 if packs else 1, packs=packs)
        chosen = Schedule(None, width, 1, tile)
        shape = shape_of(kernel, chosen)
        assert (shape.rows_in_memory > 0, shape.can_copy_columns(near=True)) == (left, packs and first)
        check(kernel, machine, chosen)


@MACHINES
@pytest.mark.parametrize(
    ("dtype", "unroll"),
    [(F32, 1), (F32, 3), (F32, 4), (F64, 3), *(pytest.param(F64, turns, marks=pytest.mark.full) for turns in (1, 4))],
)
@pytest.mark.parametrize(("rows", "vectors", "k"), [(14, 2, 40), (9, 2, 515), (6, 4, 1030)])
def test_rows_in_place_that_are_asked_for(machine, rows: int, vectors: int, k: int, unroll: int, dtype: DType) -> None:
    """A line ahead, in stretches of whole turns; with an epilogue that asks for its own operands meanwhile too."""
    width, kernel = 64 // dtype.bytes, matmul(31, 70, k, bias=True, dtype=dtype)
    tile = ContractionTile(rows, vectors, 31, 70, unroll, rows_in_place=True)
    chosen = Schedule(None, width, 1, tile)
    check(kernel, machine, chosen)

    def asks(kernel: Kernel, chosen: Schedule) -> int:
        return kernels.emit(kernel, chosen, machine).count("call void @llvm.prefetch")

    assert asks(kernel, chosen) >= rows
    assert asks(matmul(31, 70, width, bias=True, dtype=dtype), chosen) < asks(kernel, chosen), "nothing follows"
    assert not asks(kernel, replace(chosen, tile=replace(tile, rows=8, vectors=1))), "few products"


@MACHINES
@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize(("m", "n", "k"), [(530, 40, 600), (1027, 64, 512)])
@pytest.mark.parametrize(("rows", "vectors", "width"), [(14, 2, 16), (14, 2, 8), (8, 3, 4), (6, 2, 8), (14, 1, 16)])
def test_rows_that_are_packed_before_or_by_the_first_tiles(
    machine, m: int, n: int, k: int, rows: int, vectors: int, width: int, before: bool
) -> None:
    """Rows whose terms lie 2 KB or more apart, of many terms; more rows than lanes and fewer, a part of the last tile,
    several blocks and panels."""
    kernel = matmul(m, n, k, left=True)
    for block_m, block_n in ((m, n), (280, 32)):
        chosen = Schedule(None, width, 1, ContractionTile(rows, vectors, block_m, block_n, rows_before=before))
        shape = shape_of(kernel, chosen)
        assert shape.rows_beside
        assert (shape.rows_in_memory == 0) == before
        check(kernel, machine, chosen)


@pytest.mark.parametrize(
    ("machine", "sizes", "before"),
    [
        (X86_64_V4, (1027, 64, 512), True), (X86_64_V4, (1027, 64, 511), False), (X86_64_V4, (512, 64, 512), True),
        (X86_64_V4, (510, 64, 512), False), (X86_64_V4, (1027, 33, 512), True), (X86_64_V4, (1027, 32, 512), False),
        (X86_64_V3, (1027, 16, 512), True), (X86_64_V3, (1027, 8, 512), False), (AARCH64, (1027, 12, 512), False),
        (AARCH64, (1027, 13, 512), True),
    ],
)  # fmt: skip
def test_scattered_rows_are_packed_before(machine: Machine, sizes: tuple[int, int, int], before: bool) -> None:
    """Those of 512 terms, 2 KB or more apart. One vector of columns takes them from where they lie, and so does one
    tile of them, where it has many rows. Of rows whose own terms lie together nothing is said."""
    chosen, beside = (schedule(matmul(*sizes, left=left), machine).tile for left in (True, False))
    assert chosen is not None and beside is not None
    assert (chosen.rows_before, beside.rows_before) == (before, False)
    kernel = matmul(*sizes, left=True)
    tried = [each.tile for each in variants("packed rows", kernel, machine, schedule(kernel, machine))]
    assert any(tile is not None and tile.rows_before != before for tile in tried), "the other way is tried by tuning"


@MACHINES
def test_scattered_rows_of_the_next_tiles_are_asked_for(machine) -> None:
    """While those that are packed now are multiplied, where there are more."""
    for m, n, k in ((560, 70, 520), (520, 64, 1100)):
        kernel = matmul(m, n, k, left=True)

        def asks(block_m: int, kernel: Kernel = kernel) -> int:
            chosen = Schedule(None, 16, 1, ContractionTile(14, 2, block_m, 70, rows_before=True))
            check(kernel, machine, chosen)
            return kernels.emit(kernel, chosen, machine).count("call void @llvm.prefetch")

        assert asks(168) < asks(m)


@MACHINES
def test_wide_tiles_copy_columns_that_are_near(machine) -> None:
    """Those that may come from beyond the second-level cache are packed before: no tile has a loop that copies."""
    chosen = Schedule(None, 16, 1, ContractionTile(6, 4, 13, 256, packs=True))

    def products(columns: int) -> int:
        kernel = matmul(13, columns, 40)
        check(kernel, machine, chosen)
        return kernels.emit(kernel, chosen, machine).count("@llvm.fma")

    near = machine.l2_bytes // (40 * 4) // 256 * 256
    assert products(near) > products(near + 256)


@MACHINES
def test_scattered_rows_of_doubles_and_batches(machine) -> None:
    for dtype, batch in ((F64, 1), (F32, 2)):
        chosen = Schedule(None, 64 // dtype.bytes, 1, ContractionTile(14, 2, 280, 64, rows_before=True))
        kernel = matmul(520, 40, 520, left=True, dtype=dtype, batch=batch)
        assert not shape_of(kernel, chosen).rows_in_memory
        check(kernel, machine, chosen)


@MACHINES
@pytest.mark.parametrize(("height", "across", "block_n"), [(12, 24, 288), (9, 16, 144), (11, 20, 96), (3, 8, 24)])
@pytest.mark.parametrize("taps", [1, 2])
def test_columns_along_two_axes(machine, height: int, across: int, block_n: int, taps: int) -> None:
    """Pixels of every other line, of several channels: packed several vectors at once, and one by one."""
    i, y, x, c, t = (ix.axis(n, extent) for n, extent in enumerate((13, height, across, 40, taps)))
    picture = ix.linear((c, ix.add(ix.scale(y, 2), t), x), (40, 2 * height, across))
    terms = [load(F32, 0, ix.linear((i, c, t), (13, 40, taps))), load(F32, 1, picture)]
    value = reduce("fma", Chain(512, 8), [c, t], terms)
    sizes = (13 * 40 * taps, 40 * 2 * height * across, 13 * height * across)
    buffers = tuple(BufferParameter(F32, size, n == 2) for n, size in enumerate(sizes))
    kernel = Kernel(buffers, (), (i, y, x), 0, (Store(2, ix.linear((i, y, x), (13, height, across)), value),))
    for width in (8, 16):
        check(kernel, machine, Schedule(None, width, 1, ContractionTile(6, 2, 13, block_n)))


@MACHINES
@pytest.mark.parametrize("batch", [1, 3])
def test_rows_in_place(machine, batch: int) -> None:
    """Read where they lie, in whole tiles and the rest; packed where a row's terms lie apart."""
    for left in (False, True):
        kernel = matmul(33, 40, 600, batch=batch, left=left, bias=True)
        found = find(kernel)
        assert found is not None and found.row_stride == (None if left else 600)
        check(kernel, machine, Schedule(None, 8, 1, ContractionTile(5, 2, 20, 16, rows_in_place=True)))


@MACHINES
@pytest.mark.parametrize("rows", [2, 5, 33])
@pytest.mark.parametrize(("columns", "vectors", "terms"), [(32, 2, 60), (48, 2, 600), (24, 1, 60), (16, 2, 4700)])
def test_rows_as_items(machine, rows: int, columns: int, vectors: int, terms: int) -> None:
    """Outputs from registers and from totals, of one panel and of several, of any number of rows to a thread."""
    kernel = matmul(rows, columns, terms, bias=True)
    chosen = Schedule(None, 8, 1, ContractionTile(6, vectors, 8, 16, rows_in_place=True, row_items=True))
    assert shape_of(kernel, chosen).items == rows
    check(kernel, machine, chosen)


def test_axes_that_share_places() -> None:
    """A window where rows overlap; none for a 1x1 convolution, with a stride or without, or for a dot."""

    def made(size: int, taps: int, stride: int, pad: int) -> Kernel:
        return convolution(
            images=2, channels=60, size=size, filters=8, taps=taps, stride=stride, pad=pad, pixels_are_rows=False
        )

    found = window(made(10, 3, 2, 1), 1000)
    assert found is not None
    assert [place.axis.extent for place in found.places] == [11, 11], "5 rows two apart, and 3 taps"
    for stride in (1, 2):
        assert window(made(8, 1, stride, 0), 1000) is None
    assert window(matmul(16, 16, 16), 1000) is None


def weight_gradient(*, images: int, channels: int, filters: int, height: int, width: int) -> Kernel:
    """out[f, c] <- sum over images and pixels, panels of whole picture rows."""
    f, c = ix.axis(0, filters), ix.axis(1, channels)
    n, y, x = ix.axis(2, images), ix.axis(3, height), ix.axis(4, width)
    terms = [
        load(F32, 0, ix.linear((n, f, y, x), (images, filters, height, width))),
        load(F32, 1, ix.linear((n, c, y, x), (images, channels, height, width))),
    ]
    value = reduce("fma", Chain(max(1, 100 // width) * width, 8), [n, y, x], terms)
    pixels = images * height * width
    sizes = (BufferParameter(F32, pixels * filters, False), BufferParameter(F32, pixels * channels, False))
    store = Store(2, ix.linear((f, c), (filters, channels)), value)
    return Kernel((*sizes, BufferParameter(F32, filters * channels, True)), (), (f, c), 0, (store,))


@MACHINES
@pytest.mark.parametrize("pixels_are_rows", [False, True])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 1e38])
def test_an_absent_term_never_meets_what_is_not_finite(machine, pixels_are_rows: bool, value: float) -> None:
    kernel = convolution(
        images=2, channels=3, size=6, filters=5, taps=3, stride=1, pad=1, pixels_are_rows=pixels_are_rows
    )
    arrays = filled(kernel)
    arrays[1][17] = value
    check(kernel, machine, None, arrays)
    arrays[0][40] = value
    check(kernel, machine, None, arrays)


@MACHINES
@pytest.mark.parametrize(("m", "n", "k"), [(0, 5, 6), (5, 0, 6), (5, 8, 0), (1, 1, 1)])
def test_sizes_that_no_tile_fits(machine, m: int, n: int, k: int) -> None:
    kernel = matmul(m, n, k)
    assert schedule(kernel, machine).tile is None
    found = run_kernel(kernel, filled(kernel), machine)[2]
    assert found.size == m * n
    assert k > 0 or (found.view(np.uint32) == 0).all(), "an empty sum is +0.0"


def test_what_is_no_contraction_is_not_taken_for_one() -> None:
    kernel = matmul(4, 5, 6)
    assert find(kernel) is not None
    store = kernel.stores[0]
    guarded = Store(store.buffer, store.offset, store.value, ix.compare("lt", kernel.axes[1], 3))
    assert find(Kernel(kernel.buffers, (), kernel.axes, 0, (guarded,))) is None
    assert find(Kernel(kernel.buffers, (), kernel.axes, 1, kernel.stores)) is None


@pytest.mark.parametrize(
    ("machine", "sizes", "packs"),
    [
        (X86_64_V4, (64, 4096, 512), True), (X86_64_V4, (13, 4096, 512), False), (X86_64_V4, (14, 4096, 512), True),
        (X86_64_V4, (27, 512, 512), False), (X86_64_V4, (28, 512, 512), True), (X86_64_V4, (448, 32, 512), False),
        (X86_64_V3, (48, 256, 256), False), (X86_64_V3, (54, 256, 256), True),
        (X86_64_V3, (6, 4096, 512), True),
    ],
)  # fmt: skip
def test_columns_are_packed_where_reading_them_in_place_costs_more(
    machine: Machine, sizes: tuple[int, int, int], packs: bool
) -> None:
    """From a whole tile of rows on, if they come from beyond the second-level cache; from two on, if a tile takes two
    lines of a term; else for many tiles of rows; near each other never."""
    chosen = schedule(matmul(*sizes), machine)
    assert chosen.tile is not None
    assert chosen.tile.packs == packs


@pytest.mark.parametrize(
    ("sizes", "terms"),
    [
        ((64, 512, 512), 4), ((64, 768, 300), 1), ((13, 512, 512), 1), ((27, 512, 512), 1), ((13, 4096, 512), 4),
        ((7, 512, 512), 4), ((32, 32, 32), 1), ((64, 64, 64), 4), ((20, 224, 512), 4), ((1, 3072, 768), 4),
        ((2, 3072, 768), 4), ((4, 3072, 768), 4),
    ],
)  # fmt: skip
def test_terms_of_a_turn(sizes: tuple[int, int, int], terms: int) -> None:
    chosen = schedule(matmul(*sizes), X86_64_V4)
    assert chosen.tile is not None
    assert chosen.tile.unroll == terms


@MACHINES
def test_later_terms_of_columns_in_place_are_asked_for(machine) -> None:
    """Where they lie 1 KB or more apart, of tiles with many products."""

    def asks(rows: int, n: int) -> int:
        chosen = Schedule(None, 16, 1, ContractionTile(min(rows, 14), 2, rows, n))
        check(kernel := matmul(rows, n, 30), machine, chosen)
        assert shape_of(kernel, chosen).direct
        return kernels.emit(kernel, chosen, machine).count("call void @llvm.prefetch")

    assert asks(14, 256) > asks(14, 224)
    assert asks(12, 256) == asks(12, 224)


@pytest.mark.parametrize(
    ("machine", "sizes", "tile"),
    [
        (X86_64_V4, (64, 512, 512), (6, 4)), (X86_64_V4, (27, 512, 512), (14, 2)), (X86_64_V4, (64, 256, 256), (14, 2)),
        (X86_64_V4, (64, 768, 300), (9, 3)), (X86_64_V4, (64, 640, 300), (14, 2)), (X86_64_V4, (64, 520, 300), (14, 2)),
        (X86_64_V3, (64, 512, 512), (6, 2)),
        (AARCH64, (64, 512, 512), (8, 3)),
    ],
)  # fmt: skip
def test_tiles_load_less_where_columns_are_many_whole_ones(
    machine: Machine, sizes: tuple[int, int, int], tile: tuple[int, int]
) -> None:
    """Of two tiles of rows or more, with registers for them; but where columns are whole tiles of three vectors."""
    chosen = schedule(matmul(*sizes), machine).tile
    assert chosen is not None
    assert (chosen.rows, chosen.vectors) == tile


@pytest.mark.parametrize(("machine", "terms"), [(X86_64_V4, 4), (X86_64_V3, 4), (AARCH64, 1)])
def test_a_turn_has_several_terms_where_products_are_many(machine: Machine, terms: int) -> None:
    many, few = schedule(matmul(64, 32, 32), machine).tile, schedule(matmul(64, 32, 31), machine).tile
    assert many is not None
    assert few is not None
    assert (many.unroll, few.unroll) == (terms, 1)


@MACHINES
@pytest.mark.parametrize(("m", "n", "k"), [(61, 512, 37), (29, 1024, 130), (33, 768, 65)])
@pytest.mark.parametrize("right", [False, True])
def test_many_whole_tiles_of_columns(machine: Machine, m: int, n: int, k: int, right: bool) -> None:
    """Rows that are no whole tiles, terms that are no whole turns."""
    check(matmul(m, n, k, right=right, bias=True), machine)


@MACHINES
@pytest.mark.parametrize("packs", [False, True])
def test_packed_or_in_place_the_bits_are_the_same(machine, packs: bool) -> None:
    check(matmul(9, 64, 700), machine, Schedule(None, 8, 1, ContractionTile(4, 2, 8, 32, 2, packs=packs)))


@pytest.mark.parametrize(
    ("sizes", "tile"),
    [((64, 64, 2048), (6, 4, True)), ((1024, 1024, 1024), (6, 4, True)), ((64, 64, 1000), (14, 2, True)),
     ((20, 256, 1024), (14, 2, False)), ((64, 16, 1024), (14, 1, False))],
)  # fmt: skip
def test_rows_that_share_a_cache_set_are_read_in_place_by_fewer(
    sizes: tuple[int, int, int], tile: tuple[int, int, bool]
) -> None:
    """Not of few rows, which would read columns more often, nor where so few chains would keep a core waiting."""
    chosen = schedule(matmul(*sizes), X86_64_V4).tile
    assert chosen is not None
    assert (chosen.rows, chosen.vectors, chosen.rows_in_place) == tile


@MACHINES
@pytest.mark.parametrize(("m", "n"), [(50, 72), (49, 64), (61, 130)])
@pytest.mark.parametrize("right", [False, True])
def test_rows_that_share_a_cache_set(machine, m: int, n: int, right: bool) -> None:
    check(matmul(m, n, 1024, right=right, bias=True), machine)


@MACHINES
@pytest.mark.parametrize(("columns", "width"), [(4, 4), (5, 8), (8, 8), (9, 16), (15, 16)])
def test_few_columns_take_one_vector(machine, columns: int, width: int) -> None:
    """One that has room for all of them: two of half the width are as many lanes in twice the instructions."""
    made = matmul(29, columns, 40)
    chosen = schedule(made, machine)
    if width <= machine.lanes(32):
        assert chosen.tile is not None
        assert (chosen.vector_width, chosen.tile.vectors) == (width, 1)
    check(made, machine)


@MACHINES
@pytest.mark.parametrize("columns", [1024, 130, 24])
def test_one_row_has_a_wide_tile(machine, columns: int) -> None:
    """At least as many chains as keep a core busy, if there are columns for them."""
    kernel = matmul(1, columns, 600, batch=3)
    chosen = schedule(kernel, machine)
    assert chosen.tile is not None
    least = min(8, -(-columns // chosen.vector_width))
    assert least <= chosen.tile.vectors <= machine.registers // 2
    check(kernel, machine)

"""Every road of the GPU's emitter gives the bits of the loop IR: its PTX, interpreted."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from repro.ir import index as ix
from repro.ir.contraction import find
from repro.ir.expressions import Chain, Exact, Expr, Lanes, apply, const, convert, load, reduce
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.types import BOOL, F16, F32, F64, I8, I32, I64, U64, DType
from repro.machines import SM_80
from repro.targets.gpu import GpuKernel, choice, contraction, emit, plain, rows
from repro.targets.gpu.access import access
from repro.targets.gpu.launch import PLAIN_SHARED
from repro.targets.gpu.presence import mask_bytes
from repro.targets.gpu.share import dealt
from repro.targets.gpu.tiles import SINGLE, Plan, Tile
from tests.targets.native import differences, same
from tests.targets.on_gpu import check_gpu, run_gpu
from tests.targets.test_contraction_tiles import convolution, filled, matmul, weight_gradient

SMALL, TALL, WIDE, DOUBLE = Tile(4, 4, 16), Tile(8, 8, 16, registers=128), Tile(8, 16, 8), Tile(4, 4, 8)


def tiled(kernel: Kernel, tile: Tile = SMALL, panels: int | None = None) -> GpuKernel:
    """The kernel by one tile; `panels`: how many of K a block runs through (None: all)."""
    found = find(kernel)
    assert found is not None
    every = Plan(found, tile, 1).panels
    return contraction.emit(kernel, Plan(found, tile, min(panels or every, every)), SM_80)


# contractions ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize(("m", "n", "k"), [(64, 64, 32), (50, 37, 45), (17, 92, 20)])
def test_layouts_and_tails(m: int, n: int, k: int, left: bool, right: bool) -> None:
    kernel = matmul(m, n, k, left=left, right=right, bias=True)
    check_gpu(kernel, filled(kernel), tiled(kernel))


@pytest.mark.parametrize(("tile", "m", "n"), [(TALL, 130, 70), (WIDE, 100, 300)])
def test_larger_tiles(tile: Tile, m: int, n: int) -> None:
    for right in (False, True):
        kernel = matmul(m, n, 24, right=right)
        check_gpu(kernel, filled(kernel), tiled(kernel, tile))


def test_doubles_and_batches() -> None:
    kernel = matmul(40, 50, 40, dtype=F64, batch=2)
    check_gpu(kernel, filled(kernel), tiled(kernel, DOUBLE))
    kernel = matmul(20, 70, 40, batch=3)
    check_gpu(kernel, filled(kernel), tiled(kernel))


@pytest.mark.parametrize("panels", [None, 1])
def test_panels(panels: int | None) -> None:
    kernel = matmul(18, 33, 1100, bias=True)
    code = check_gpu(kernel, filled(kernel), tiled(kernel, SMALL, panels))
    assert len(code.launches) == (1 if panels is None else 2)


@pytest.mark.parametrize(
    ("panel", "terms", "panels", "totals"),
    [(512, 4700, None, 0), (64, 588, None, 0), (64, 588, 3, 10), (64, 588, 8, 2), (64, 1100, 16, 3)],
)
def test_blocks_of_panels(panel: int, terms: int, panels: int | None, totals: int) -> None:
    """Shares that begin with a block of panels leave one total of it in the workspace, others one of each panel."""
    kernel = matmul(16, 17, terms, batch=2, panel=panel)
    code = check_gpu(kernel, filled(kernel), tiled(kernel, SMALL, panels))
    assert code.workspace_bytes == 2 * totals * math.prod(SMALL.block) * 4


@pytest.mark.parametrize("channels", [64, 58])
def test_a_last_step_beyond_the_last_term(channels: int) -> None:
    """K is a multiple of a step, but panels of whole windows (504 terms) are not: the last step has terms of neither
    operand. Where K is 522, the step before it has terms of no panel's."""
    kernel = convolution(
        images=1, channels=channels, size=4, filters=17, taps=3, stride=1, pad=1, pixels_are_rows=False
    )
    check_gpu(kernel, filled(kernel), tiled(kernel, Tile(4, 4, 32, (2, 1))))


@pytest.mark.parametrize("pixels_are_rows", [False, True])
@pytest.mark.parametrize(("stride", "pad"), [(1, 0), (1, 1), (2, 1)])
def test_convolutions(stride: int, pad: int, pixels_are_rows: bool) -> None:
    kernel = convolution(
        images=2, channels=6, size=9, filters=17, taps=3, stride=stride, pad=pad, pixels_are_rows=pixels_are_rows
    )
    check_gpu(kernel, filled(kernel), tiled(kernel))


@pytest.mark.parametrize("panels", [None, 3])
def test_a_table_of_terms_goes_round(panels: int | None) -> None:
    """Four panels through a ring that holds two; the last is short."""
    kernel = convolution(images=1, channels=170, size=4, filters=17, taps=3, stride=1, pad=1, pixels_are_rows=False)
    check_gpu(kernel, filled(kernel), tiled(kernel, SMALL, panels))


@pytest.mark.parametrize(("taps", "size", "separated"), [(7, 9, True), (16, 20, False)])
def test_conditions_of_few_and_of_many_classes(taps: int, size: int, separated: bool) -> None:
    """14 classes of taps have bits of a word; 32 have not, nor the 42 of pixels: those patches are evaluated."""
    kernel = convolution(
        images=1, channels=2, size=size, filters=17, taps=taps, stride=1, pad=taps // 2, pixels_are_rows=True
    )
    found = find(kernel)
    assert found is not None and found.absent_in is not None
    assert (access(Plan(found, SMALL, 1), found.absent_in).separation is not None) is separated
    check_gpu(kernel, filled(kernel), tiled(kernel))


def _named(tile: Tile) -> str:
    return "x".join(map(str, (*tile.own, *tile.block, tile.depth)))


@pytest.mark.parametrize("tile", SINGLE, ids=_named)
def test_every_tile_gives_the_bits(tile: Tile) -> None:
    m, n = (size + 5 for size in tile.block)
    for left, right in ((False, False), (True, True)):
        kernel = matmul(m, n, 20, left=left, right=right)
        found = find(kernel)
        assert found is not None
        if all(access(Plan(found, tile, 1), side).even(Plan(found, tile, 1), side) for side in (0, 1)):
            check_gpu(kernel, filled(kernel), tiled(kernel, tile))
    whole = matmul(2 * tile.block[0], tile.block[1], 2 * tile.depth)
    check_gpu(whole, filled(whole), tiled(whole, tile))


def test_steps_that_need_much_shared_memory_are_given_it_at_the_launch() -> None:
    """The last of the tiles above asks for it; what may be declared is not asked for."""
    kernel = matmul(256, 256, 64)
    (large,), (small,) = (tiled(kernel, tile).launches for tile in (Tile(8, 16, 16), WIDE))
    assert PLAIN_SHARED < large.shared_bytes < SM_80.shared_bytes and small.shared_bytes == 0


@pytest.mark.parametrize(
    ("tile", "panels", "size", "bound"),
    [
        (TALL, None, (1024, 1024, 64), 1),
        (TALL, None, (4096, 4096, 64), 2),
        (Tile(8, 12, 16, (4, 1), registers=168), 8, (768, 3072, 8192), 3),
        (Tile(8, 12, 16, (4, 1), registers=168), None, (768, 3072, 8192), 2),
    ],
)
def test_a_grid_of_few_blocks_leaves_threads_more_registers(
    tile: Tile, panels: int | None, size: tuple[int, int, int], bound: int
) -> None:
    """What the assembler may take follows from the blocks that a multiprocessor is to hold."""
    found = re.search(r"\.minnctapersm (\d+)", tiled(matmul(*size, left=True), tile, panels).ptx)
    assert (int(found[1]) if found else 1) == bound


PATCHES = Tile(8, 12, 16, (2, 1))
"""A thread of it copies lines of one term."""


@pytest.mark.parametrize(
    ("size", "channels", "panels", "value"),
    [(13, 3, None, 1.0), (10, 58, None, 1.0), (10, 58, 1, 1.0), (7, 3, None, np.nan),
     pytest.param(7, 58, None, np.inf, marks=pytest.mark.full)],
)  # fmt: skip
def test_masks_of_a_threads_lines(size: int, channels: int, panels: int | None, value: float) -> None:
    """Lines beyond the last, padding, and terms beyond the last, in one panel and in two."""
    kernel = convolution(
        images=1, channels=channels, size=size, filters=17, taps=3, stride=1, pad=1, pixels_are_rows=False
    )
    found = find(kernel)
    assert found is not None
    plan = Plan(found, PATCHES, 1)
    way = access(plan, 1)
    assert mask_bytes(plan, way.separation, dealt(plan, 1, way).lines) > 0
    arrays = filled(kernel)
    arrays[0][5], arrays[1][11] = value, value
    check_gpu(kernel, arrays, tiled(kernel, PATCHES, panels))


def patches_gradient(channels: int, filters: int, height: int, width: int, images: int = 2, panel: int = 100) -> Kernel:
    """Of a weight: out[f, (c, i, j)] <- sum over images and their pixels, 3 x 3 taps, padding absent; panels are whole
    rows of pixels, as many as `panel` terms hold."""
    f, c, i, j = ix.axis(0, filters), ix.axis(1, channels), ix.axis(2, 3), ix.axis(3, 3)
    n, y, x = ix.axis(4, images), ix.axis(5, height), ix.axis(6, width)
    row, column = ix.add(y, i, ix.number(-1)), ix.add(x, j, ix.number(-1))
    inside = ix.both(ix.inside(row, height), ix.inside(column, width))
    gradient = load(F32, 0, ix.linear((n, f, y, x), (images, filters, height, width)))
    patch = load(F32, 1, ix.linear((n, c, row, column), (images, channels, height, width)), inside)
    chain = Chain(max(1, panel // width) * width, 8)
    value = reduce("fma", chain, [n, y, x], [gradient, patch], inside)
    sizes = (images * filters * height * width, images * channels * height * width)
    buffers = tuple(BufferParameter(F32, elements, False) for elements in sizes)
    store = Store(2, ix.linear((f, c, i, j), (filters, channels, 3, 3)), value)
    return Kernel((*buffers, BufferParameter(F32, filters * channels * 9, True)), (), (f, c, i, j), 0, (store,))


@pytest.mark.parametrize("panels", [None, 1])
@pytest.mark.parametrize("width", [8, 7])
def test_the_weight_gradient_of_patches(width: int, panels: int | None) -> None:
    kernel = patches_gradient(channels=5, filters=19, height=9, width=width)
    for tile in (PATCHES, SMALL):
        check_gpu(kernel, filled(kernel), tiled(kernel, tile, panels))


def test_pictures_one_by_one_where_their_lines_follow_a_stride() -> None:
    """The same value for all pixels of a channel, but where there is padding: columns of all pictures follow none."""
    n, f, y, x = ix.axis(0, 2), ix.axis(1, 16), ix.axis(2, 32), ix.axis(3, 32)
    c, i, j = ix.axis(4, 2), ix.axis(5, 3), ix.axis(6, 3)
    inside = ix.both(ix.inside(ix.add(y, i, ix.number(-1)), 32), ix.inside(ix.add(x, j, ix.number(-1)), 32))
    weight = load(F32, 0, ix.linear((f, c, i, j), (16, 2, 3, 3)))
    value = load(F32, 1, ix.linear((n, c), (2, 2)), inside)
    total = reduce("fma", Chain(504, 8), [c, i, j], [weight, value], inside)
    sizes = (BufferParameter(F32, 288, False), BufferParameter(F32, 4, False), BufferParameter(F32, 32768, True))
    kernel = Kernel(sizes, (), (n, f, y, x), 0, (Store(2, ix.linear((n, f, y, x), (2, 16, 32, 32)), total),))
    found, chosen = find(kernel), choice.plan(kernel, SM_80)
    assert found is not None and chosen is not None
    assert (found.batch, chosen.contraction.batch) == ((), (n,))
    check_gpu(kernel, filled(kernel), emit(kernel, SM_80))


def test_the_weight_gradient_of_a_convolution() -> None:
    kernel = weight_gradient(images=3, channels=16, filters=20, height=9, width=8)
    for panels in (None, 1):
        check_gpu(kernel, filled(kernel), tiled(kernel, SMALL, panels))


@pytest.mark.parametrize("panels", [None, 1])
@pytest.mark.parametrize("pixels_are_rows", [False, True])
@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_an_absent_term_never_meets_what_is_not_finite(value: float, pixels_are_rows: bool, panels: int | None) -> None:
    kernel = convolution(
        images=1, channels=60 if panels else 3, size=5, filters=17, taps=3, stride=1, pad=1,
        pixels_are_rows=pixels_are_rows,
    )  # fmt: skip
    arrays = filled(kernel)
    for buffer, place in ((1, 17), (0, 40)):
        arrays[buffer][place] = value
        check_gpu(kernel, arrays, tiled(kernel, SMALL, panels))


def test_a_long_epilogue_is_a_loop() -> None:
    kernel = matmul(33, 40, 24)
    store = kernel.stores[0]
    value = store.value
    for _ in range(12):
        value = apply("add", apply("mul", value, const(F32, 0x3F7F0000)), value)
    kernel = Kernel(kernel.buffers, (), kernel.axes, 0, (Store(store.buffer, store.offset, value),))
    check_gpu(kernel, filled(kernel), tiled(kernel))


def test_an_operand_that_is_computed() -> None:
    i, j, q = ix.axis(0, 40), ix.axis(1, 36), ix.axis(2, 50)
    a = apply("max", load(F32, 0, ix.add(ix.scale(i, 50), q)), const(F32, 0))
    b = convert(load(F16, 1, ix.add(ix.scale(q, 36), j)), F32)
    value = reduce("fma", matmul(1, 1, 1).stores[0].value.fields[1], [q], [a, b])
    buffers = (BufferParameter(F32, 2000, False), BufferParameter(F16, 1800, False), BufferParameter(F32, 1440, True))
    kernel = Kernel(buffers, (), (i, j), 0, (Store(2, ix.add(ix.scale(i, 36), j), value),))
    generator = np.random.default_rng(0)
    arrays = [
        generator.standard_normal(2000).astype(np.float32),
        generator.standard_normal(1800).astype(np.float16).view(F16.storage),
        np.zeros(1440, np.float32),
    ]
    check_gpu(kernel, arrays, tiled(kernel))


# rows ───────────────────────────────────────────────────────────────────────────────────────────────


def sums(count: int, size: int, *, along: bool, dtype: DType = F32, combiner: str = "add", order=None) -> Kernel:
    """One reduction of each row (`along`) or column of a matrix."""
    r, k = ix.axis(0, count), ix.axis(1, size)
    place = ix.add(ix.scale(r, size), k) if along else ix.add(ix.scale(k, count), r)
    value = reduce(combiner, order or Lanes(32, 4096), [k], [load(dtype, 0, place)])
    buffers = (BufferParameter(dtype, count * size, False), BufferParameter(dtype, count, True))
    return Kernel(buffers, (), (r,), 0, (Store(1, r, value),))


def norm(count: int, size: int, *, along: bool) -> Kernel:
    """(x - mean) * 1 / sqrt(mean of squares), and the mean itself, of each row or column."""
    r, k, j = ix.axis(0, count), ix.axis(2, size), ix.axis(1, size)

    def x(at: Expr) -> Expr:
        return load(F32, 0, ix.add(ix.scale(r, size), at) if along else ix.add(ix.scale(at, count), r))

    length = const(F32, int(np.float32(size).view(np.uint32)))
    mean = apply("div", reduce("add", Lanes(32, 4096), [k], [x(k)]), length)
    apart = apply("sub", x(k), mean)
    square = apply("div", reduce("add", Lanes(32, 4096), [k], [apply("mul", apart, apart)]), length)
    greatest = reduce("max", Exact(), [k], [x(k)])
    value = apply("add", apply("div", apply("sub", x(j), mean), apply("sqrt", square)), greatest)
    out = ix.add(ix.scale(r, size), j) if along else ix.add(ix.scale(j, count), r)
    total = count * size
    buffers = (BufferParameter(F32, total, False), BufferParameter(F32, total, True))
    return Kernel(buffers, (), (r, j), 0, (Store(1, out, value),))


@pytest.mark.parametrize("along", [True, False])
@pytest.mark.parametrize(("count", "size"), [(5, 32), (6, 100), (37, 300), (3, 4096), (3, 4097), (33, 8200)])
def test_sums(count: int, size: int, along: bool) -> None:
    kernel = sums(count, size, along=along)
    code = check_gpu(kernel, filled(kernel))
    assert code.schedule.startswith("rows"), code.schedule
    assert ("columns" in code.schedule) == (not along and count > 4)


@pytest.mark.parametrize(("count", "size", "along"), [(1, 70000, True), (2, 4096 * 40, True), (40, 9000, False)])
def test_leaves_of_few_rows_are_summed_apart(count: int, size: int, along: bool) -> None:
    kernel = sums(count, size, along=along)
    code = check_gpu(kernel, filled(kernel))
    assert "leaves apart" in code.schedule and len(code.launches) == 2


def test_leaves_of_several_axes_and_absent_terms() -> None:
    """The mean square of each channel of pictures, of positive pixels alone, and an epilogue on it."""
    n, c, y, x = ix.axis(0, 5), ix.axis(1, 3), ix.axis(2, 40), ix.axis(3, 47)
    pixel = load(F32, 0, ix.linear((n, c, y, x), (5, 3, 40, 47)))
    there = apply("gt", pixel, const(F32, 0))
    value = reduce("add", Lanes(32, 4096), [n, y, x], [apply("mul", pixel, pixel)], there)
    buffers = (BufferParameter(F32, 28200, False), BufferParameter(F32, 3, True))
    kernel = Kernel(buffers, (), (c,), 0, (Store(1, c, apply("sqrt", value)),))
    assert "leaves apart" in check_gpu(kernel, filled(kernel)).schedule


def test_two_long_sums_are_a_block_of_warps() -> None:
    kernel = norm(2, 5000, along=True)
    assert "block of 2 warps" in check_gpu(kernel, filled(kernel)).schedule


@pytest.mark.parametrize("along", [True, False])
@pytest.mark.parametrize(("count", "size"), [(9, 64), (34, 70), (2, 5000)])
def test_norms(count: int, size: int, along: bool) -> None:
    kernel = norm(count, size, along=along)
    assert check_gpu(kernel, filled(kernel)).schedule.startswith("rows")


@pytest.mark.parametrize("along", [True, False])
@pytest.mark.parametrize(
    ("dtype", "combiner", "order"),
    [
        (F64, "add", Lanes(32, 4096)),
        (F32, "mul", Lanes(32, 4096)),
        (F32, "min", Exact()),
        (F64, "max", Exact()),
        (I32, "add", Exact()),
        (I8, "max", Exact()),
    ],
    ids=str,
)
def test_combiners(dtype: DType, combiner: str, order, along: bool) -> None:
    for size in (77, 9000):
        kernel = sums(7, size, along=along, dtype=dtype, combiner=combiner, order=order)
        assert check_gpu(kernel, filled(kernel)).schedule.startswith("rows")


def test_absent_terms_of_a_sum() -> None:
    r, k = ix.axis(0, 6), ix.axis(1, 90)
    there = apply("gt", load(F32, 0, ix.add(ix.scale(r, 90), k)), const(F32, 0))
    value = reduce("add", Lanes(32, 4096), [k], [load(F32, 0, ix.add(ix.scale(r, 90), k))], there)
    buffers = (BufferParameter(F32, 540, False), BufferParameter(F32, 6, True))
    kernel = Kernel(buffers, (), (r,), 0, (Store(1, r, value),))
    assert check_gpu(kernel, filled(kernel)).schedule.startswith("rows")


@pytest.mark.parametrize("kernel", [norm(5, 40, along=True), norm(40, 50, along=False), sums(3, 500, along=True)])
def test_the_plain_road_gives_the_same_bits(kernel: Kernel) -> None:
    assert rows.plan(kernel) is not None
    check_gpu(kernel, filled(kernel), plain.emit(kernel, SM_80))


@pytest.mark.parametrize("guarded", [False, True])
def test_contributions_to_one_place_come_in_order(guarded: bool) -> None:
    """table[ids[t]] += x[t], rows of 20; ids with many duplicates, some out of range where they are guarded."""
    times, width, places = 300, 20, 7
    t, j = ix.axis(0, times), ix.axis(1, width)
    bare = load(I64, 0, t)
    there = apply("and", apply("ge", bare, ix.number(0)), apply("lt", bare, ix.number(places))) if guarded else None
    looked = load(I64, 0, t, there)
    old = load(F32, 1, ix.add(ix.scale(looked, width), j), there)
    value = apply("add", old, load(F32, 2, ix.add(ix.scale(t, width), j)))
    store = Store(1, ix.add(ix.scale(bare, width), j), value, there)
    sizes = ((I64, times, False), (F32, places * width, True), (F32, times * width, False))
    kernel = Kernel(tuple(BufferParameter(*each) for each in sizes), (), (t, j), 1, (store,))
    arrays = filled(kernel)
    arrays[0] = np.random.default_rng(3).integers(-2 * guarded, places + 2 * guarded, times)
    assert check_gpu(kernel, arrays).schedule.startswith("scatter groups=64 stripe=20")


# elementwise ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("size", [4, 5, 63, 64, 1000, 1031])
@pytest.mark.parametrize("dtype", [F32, F64, I32])
@pytest.mark.parametrize("lines", [1, 3])
def test_neighbours_by_sixteen_bytes(lines: int, size: int, dtype: DType) -> None:
    """Rows that do not begin at 16 bytes are read element by element, neighbours by neighbouring threads."""
    i, j = ix.axis(0, lines), ix.axis(1, size)
    place = ix.add(ix.scale(i, size), j)
    value = apply("add", apply("mul", load(dtype, 0, place), load(dtype, 1, j)), load(dtype, 0, place))
    sizes = ((lines * size, False), (size, False), (lines * size, True))
    kernel = Kernel(tuple(BufferParameter(dtype, *each) for each in sizes), (), (i, j), 0, (Store(2, place, value),))
    code = check_gpu(kernel, filled(kernel))
    aligned = lines == 1 or size % (16 // dtype.bytes) == 0
    assert code.schedule.startswith("elementwise" if aligned else "plain")
    if aligned:
        assert re.search(r"st\.global\.v[24]", code.ptx) and re.search(r"ld\.global(\.nc)?\.v[24]", code.ptx)


def test_a_transpose_a_pad_and_a_comparison() -> None:
    i, j = ix.axis(0, 20), ix.axis(1, 33)
    inside = ix.both(ix.compare("ge", j, 2), ix.compare("lt", j, 30))
    x = load(F32, 0, ix.add(ix.scale(ix.add(j, ix.number(-2)), 20), i), inside)
    stores = (Store(1, ix.add(ix.scale(i, 33), j), x), Store(2, ix.add(ix.scale(i, 33), j), apply("gt", x, x)))
    buffers = (BufferParameter(F32, 560, False), BufferParameter(F32, 660, True), BufferParameter(BOOL, 660, True))
    kernel = Kernel(buffers, (), (i, j), 0, stores)
    check_gpu(kernel, filled(kernel))


@pytest.mark.parametrize("dtype", [I64, U64, I32, I8])
@pytest.mark.parametrize("op", ["shl", "shr"])
def test_shifts_by_any_amount(op: str, dtype: DType) -> None:
    """By the width and more, and by amounts whose lower half alone is small."""
    amounts = [
        0,
        1,
        dtype.bits - 1,
        dtype.bits,
        dtype.bits + 1,
        -1,
        1 << (dtype.bits - 2),
        (1 << (dtype.bits // 2)) + 1,
    ]
    amounts.append(1 << (dtype.bits // 2))
    raw = np.array([each % (1 << dtype.bits) for each in amounts], f"u{dtype.bytes}").view(dtype.storage)
    values = np.array([5, -7 % (1 << dtype.bits), 1 << (dtype.bits - 1)], f"u{dtype.bytes}").view(dtype.storage)
    x, y = (np.ascontiguousarray(part).reshape(-1) for part in np.meshgrid(values, raw))
    for count in (x.size, x.size - 3):
        i = ix.axis(0, count)
        buffers = tuple(BufferParameter(dtype, count, n == 2) for n in range(3))
        kernel = Kernel(buffers, (), (i,), 0, (Store(2, i, apply(op, load(dtype, 0, i), load(dtype, 1, i))),))
        check_gpu(kernel, [x[:count].copy(), y[:count].copy(), np.zeros(count, dtype.storage)])


@pytest.mark.parametrize("dtype", [F32, F64])
def test_the_remainder_is_exact(dtype: DType) -> None:
    """Far apart, close, subnormal, special: C's fmod."""
    generator, size = np.random.default_rng(1), 4096
    raw = np.dtype(f"u{dtype.bytes}")
    arrays = [generator.integers(0, 1 << dtype.bits, size, dtype=raw).view(dtype.storage) for _ in range(2)]
    ordinary = generator.standard_normal(size // 2)
    arrays[0][: size // 2], arrays[1][: size // 4] = ordinary * 100, ordinary[: size // 4]
    special = np.asarray([0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 5e-324, 1e-45, 3], dtype.storage)
    x, y = (part.reshape(-1) for part in np.meshgrid(special, special))
    arrays = [np.concatenate([array, part]) for array, part in zip(arrays, (x, y), strict=True)]
    count = arrays[0].size
    i = ix.axis(0, count)
    buffers = tuple(BufferParameter(dtype, count, n == 2) for n in range(3))
    kernel = Kernel(buffers, (), (i,), 0, (Store(2, i, apply("rem", load(dtype, 0, i), load(dtype, 1, i))),))
    found = run_gpu(kernel, emit(kernel, SM_80), [*arrays, np.zeros(count, dtype.storage)])[2]
    with np.errstate(all="ignore"):
        wanted = np.fmod(*arrays)
    assert same(dtype, found, wanted), differences(dtype, found, wanted)

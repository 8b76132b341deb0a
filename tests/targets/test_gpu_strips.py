"""Weight gradients in strips: rows of pixels that all taps of a row read, brought once."""

from __future__ import annotations

import numpy as np
import pytest

from repro.ir import index as ix
from repro.ir.contraction import find
from repro.ir.expressions import Chain, Expr, load, reduce
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.types import F32
from repro.machines import SM_80
from repro.targets.gpu import choice
from repro.targets.gpu.access import access
from repro.targets.gpu.strips import strip
from repro.targets.gpu.tiles import STRIPS, Plan, Tile
from tests.targets.on_gpu import check_gpu
from tests.targets.test_contraction_tiles import filled
from tests.targets.test_gpu_code import patches_gradient, tiled

SIZES = {
    32: [(5, 19, 5, 8, 100), (7, 9, 4, 4, 40), (9, 33, 3, 16, 64)],
    28: [(4, 8, 3, 28, 60), (17, 66, 2, 4, 512), (3, 5, 3, 28, 28)],
    56: [(3, 8, 3, 56, 60)],
}
"""By a tile's depth: channels, filters, height and width of the pictures, terms of a panel at most. There are short
last panels, panels that end in the midst of a step, and lines beyond the last."""


def narrow(depth: int) -> Tile:
    return next(t for t in STRIPS if (t.depth, t.warps) == (depth, (2, 1)))


@pytest.mark.parametrize("panels", [None, 1])
@pytest.mark.parametrize(("depth", "size"), [(depth, size) for depth, sizes in SIZES.items() for size in sizes])
def test_every_tile_gives_the_bits(depth: int, size: tuple[int, int, int, int, int], panels: int | None) -> None:
    *sizes, panel = size
    kernel, tile = patches_gradient(*sizes, images=2, panel=panel), narrow(depth)
    found = find(kernel)
    assert found is not None and access(Plan(found, tile, 1), 1).taps == 3
    check_gpu(kernel, filled(kernel), tiled(kernel, tile, panels))


def test_no_tile_is_untested() -> None:
    assert {tile.depth for tile in STRIPS} == set(SIZES)


def test_what_is_not_finite_meets_no_padding() -> None:
    """Beside a row's end stands a zero: an infinite gradient there may not make a NaN of it, and a NaN reaches only the
    weights that it belongs to."""
    kernel = patches_gradient(channels=2, filters=8, height=3, width=8, images=1, panel=100)
    arrays = filled(kernel)
    gradient, picture = arrays[0].reshape(8, 3, 8), arrays[1].reshape(2, 3, 8)
    gradient[1, 1, 0], gradient[2, 0, 7], picture[1, 2, 7] = np.inf, -np.inf, np.nan
    check_gpu(kernel, arrays, tiled(kernel, narrow(32)))


def gradient(width: int, taps: int = 3, stride: int = 1, pad: int = 1) -> Kernel:
    """Of a weight of 16 filters and 16 channels, on two pictures of 8 rows."""
    f, c, i, j = (ix.axis(n, extent) for n, extent in enumerate((16, 16, taps, taps)))
    wide = (width + 2 * pad - taps) // stride + 1
    n, y, x = ix.axis(4, 2), ix.axis(5, 8), ix.axis(6, wide)
    row, column = (ix.add(ix.scale(p, stride), t, ix.number(-pad)) for p, t in ((y, i), (x, j)))
    inside = ix.both(ix.inside(row, 8 * stride), ix.inside(column, width))
    operands: list[Expr] = [
        load(F32, 0, ix.linear((n, f, y, x), (2, 16, 8, wide))),
        load(F32, 1, ix.linear((n, c, row, column), (2, 16, 8 * stride, width)), inside),
    ]
    value = reduce("fma", Chain(64 * wide, 8), [n, y, x], operands, inside)
    sizes = (2 * 16 * 8 * wide, 2 * 16 * 8 * stride * width)
    buffers = tuple(BufferParameter(F32, size, False) for size in sizes)
    store = Store(2, ix.linear((f, c, i, j), (16, 16, taps, taps)), value)
    return Kernel((*buffers, BufferParameter(F32, 256 * taps * taps, True)), (), (f, c, i, j), 0, (store,))


@pytest.mark.parametrize(
    ("made", "width"),
    [
        (gradient(8), 8),
        (gradient(6), None),  # no whole chunks
        (gradient(8, taps=5, pad=2), None),
        (gradient(10, pad=0), None),  # rows of the picture are longer than those of terms
        (gradient(16, stride=2), None),  # neighbouring pixels are two apart
    ],
)
def test_which_operands_are_strips(made: Kernel, width: int | None) -> None:
    contraction = find(made)
    assert contraction is not None
    found = strip(contraction)
    assert (None if found is None else found.width) == width


@pytest.mark.parametrize(("width", "channels", "filters"), [(32, 64, 64), (16, 128, 128), (8, 256, 256), (4, 512, 512)])
def test_gradients_of_a_network_run_in_strips(width: int, channels: int, filters: int) -> None:
    chosen = choice.plan(patches_gradient(channels, filters, width, width, images=32, panel=512), SM_80)
    assert chosen is not None and chosen.tile.taps == 3

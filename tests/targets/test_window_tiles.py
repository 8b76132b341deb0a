"""Register tiles over a window: how rows are cut, and which tile a machine takes."""

from __future__ import annotations

import pytest

from passes import window_tiles
from passes.schedule import schedule
from passes.windows import Window, window
from repro.ir import index as ix
from repro.ir.expressions import Chain, load, reduce
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.schedule import ContractionTile, Schedule
from repro.ir.types import F32
from repro.machines import CPUS, X86_64_V3, X86_64_V4, Machine
from repro.targets import cpu
from tests.targets.test_contraction_tiles import MACHINES, check, convolution


def forward(size: int, filters: int, stride: int = 1) -> Kernel:
    return convolution(
        images=2, channels=32, size=size, filters=filters, taps=3, stride=stride, pad=1, pixels_are_rows=False
    )


def weight_gradient(channels: int, filters: int, size: int) -> Kernel:
    """out[f, c, i, j] <- sum over two images and pixels of a convolution with 3 by 3 taps, padded by one."""
    f, c, i, j = (ix.axis(number, extent) for number, extent in enumerate((filters, channels, 3, 3)))
    n, y, x = ix.axis(4, 2), ix.axis(5, size), ix.axis(6, size)
    row, column = ix.add(y, i, ix.number(-1)), ix.add(x, j, ix.number(-1))
    inside = ix.both(ix.inside(row, size), ix.inside(column, size))
    gradient = load(F32, 0, ix.linear((n, f, y, x), (2, filters, size, size)))
    picture = load(F32, 1, ix.linear((n, c, row, column), (2, channels, size, size)), inside)
    value = reduce("fma", Chain(max(1, 512 // size) * size, 8), [n, y, x], [gradient, picture], inside)
    pixels = 2 * size * size
    sizes = (BufferParameter(F32, pixels * filters, False), BufferParameter(F32, pixels * channels, False))
    store = Store(2, ix.linear((f, c, i, j), (filters, channels, 3, 3)), value)
    return Kernel((*sizes, BufferParameter(F32, filters * channels * 9, True)), (), (f, c, i, j), 0, (store,))


def found(kernel: Kernel) -> Window:
    made = window(kernel, 1024)
    assert made is not None
    return made


@pytest.mark.parametrize(
    ("count", "most", "wanted"), [(32, 6, [6, 6, 5, 5, 5, 5]), (16, 14, [8, 8]), (9, 9, [9]), (3, 1, [1, 1, 1])]
)
def test_shares_differ_by_one_at_most(count: int, most: int, wanted: list[int]) -> None:
    shares = window_tiles.shares(count, most)
    assert [size for _, size in shares] == wanted
    assert [start for start, _ in shares] == [sum(wanted[:part]) for part in range(len(wanted))]


@pytest.mark.parametrize(("channels", "tile_rows", "wanted"), [(4, 6, 2), (3, 6, 1), (4, 14, 1)])
def test_units_make_tiles_together_where_their_own_are_too_small(channels: int, tile_rows: int, wanted: int) -> None:
    """Nine rows are tiles of 5 and 4, eighteen three of 6; of an odd number there are no pairs; 14 rows hold nine."""
    assert window_tiles.together(found(weight_gradient(channels, 16, 8)), channels, tile_rows, 2) == wanted


@MACHINES
@pytest.mark.parametrize("size", [4, 7, 9])
@pytest.mark.parametrize(("channels", "block_m", "rows"), [(4, 18, 6), (4, 36, 5), (6, 27, 6), (4, 36, 4)])
def test_weight_gradients(machine, size: int, channels: int, block_m: int, rows: int) -> None:
    tile = ContractionTile(rows, 2, block_m, 16, window=True)
    check(weight_gradient(channels, 19, size), machine, Schedule(None, 8, 1, tile))


@pytest.mark.parametrize(
    ("size", "filters", "wanted"),
    [(32, 64, (6, 2)), (16, 128, (6, 2)), (8, 256, (4, 3)), (4, 256, (4, 3)), (8, 64, (4, 3)), (8, 16, (6, 2))],
)
def test_short_lines_take_tiles_of_more_vectors(size: int, filters: int, wanted: tuple[int, int]) -> None:
    """On 16 registers of 8 lanes; a tile of 24 columns is not worth it for 16."""
    kernel = forward(size, filters)
    chosen = schedule(kernel, X86_64_V3).tile
    assert chosen is not None and chosen.window
    assert (chosen.rows, chosen.vectors) == wanted
    wide = schedule(kernel, X86_64_V4).tile
    assert wide is not None and wide.rows == X86_64_V4.tile_rows, "32 registers have room for two lines"


def test_what_a_tile_costs() -> None:
    """Whole lines of 32 in tiles of six and five: as many as their products; 8 in two of four: no less than what is in
    flight, for each of three taps."""
    assert window_tiles.cost(found(forward(32, 64)), 2, 6, 2) == 2
    assert window_tiles.cost(found(forward(8, 64)), 2, 6, 2) * 4 == window_tiles.IN_FLIGHT
    assert window_tiles.cost(found(forward(8, 64)), 2, 4, 3) * 12 == 9 + 12 + 12


@pytest.mark.parametrize("machine", CPUS.values(), ids=lambda m: m.name)
@pytest.mark.parametrize("width", [2, 4, 8, 16])
def test_vectors_that_are_no_register_compile_too(machine: Machine, width: int) -> None:
    """Wider ones are several registers, narrower ones a part of one; LLVM would end the process over an operand of
    assembly that is neither."""
    kernel = forward(16, 32)
    chosen = Schedule(None, width, 1, ContractionTile(4, 3, 256, 32, window=True))
    assert cpu.compile_kernel(kernel, chosen, machine)

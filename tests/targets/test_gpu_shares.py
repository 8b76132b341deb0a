"""K shared out in parts of which the last is short: its blocks come last, and the cost counts them so."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from passes import pipeline
from repro.autodiff import cotangents
from repro.ir.contraction import find
from repro.ir.graph import Graph, argument
from repro.ir.types import F32, TensorType
from repro.machines import GRAPHICS, SM_80, GpuMachine
from repro.numerics.host_mode import exact_arithmetic
from repro.ops import convolution as convolution_of
from repro.targets.gpu import choice, contraction, within
from repro.targets.gpu.access import access
from repro.targets.gpu.interpreter.grid import launch
from repro.targets.gpu.interpreter.memory import Window
from repro.targets.gpu.launch import PLAIN_SHARED, Launch
from repro.targets.gpu.presence import MOST_LINES
from repro.targets.gpu.share import dealt
from repro.targets.gpu.tiles import Plan, Tile
from tests.targets.on_gpu import check_gpu
from tests.targets.test_contraction_tiles import convolution, filled, matmul
from tests.targets.test_gpu_blocks import masked

NARROW = Tile(4, 4, 16, (2, 1))
PICTURES = convolution(images=32, channels=256, size=8, filters=256, taps=3, stride=1, pad=1, pixels_are_rows=False)


def test_blocks_of_a_short_last_share_come_last() -> None:
    """Without them every panel but the last is there, of every batch; with them the bits are those of the loop IR."""
    kernel = matmul(20, 40, 1100, batch=3)
    found = find(kernel)
    assert found is not None
    plan = Plan(found, NARROW, 1)
    code = contraction.emit(kernel, plan, SM_80)
    check_gpu(kernel, filled(kernel), code)
    (splits, *_), first, panels = plan.blocks, code.launches[0], plan.panels
    assert (splits, panels) == (3, 3)
    known = np.zeros(code.workspace_bytes, np.uint8)
    windows: list[Window | int] = [Window(f"b{n}", each.view(np.uint8)) for n, each in enumerate(filled(kernel))]
    windows.append(Window("workspace", np.zeros_like(known), known))
    with exact_arithmetic():
        launch(code.ptx, Launch(first.symbol, first.grid // 3 * 2, first.block, first.shared_bytes), windows)
    written = known.reshape(3, panels, -1)
    assert written[:, :2].all() and not written[:, 2].any()


@pytest.mark.parametrize(("batch", "rows", "panels"), [(32, 256, 1), (32, 256, 2), (3, 700, 2), (50, 64, 3)])
def test_the_busiest_multiprocessor(batch: int, rows: int, panels: int) -> None:
    """The same as by dealing out block by block."""
    found = find(matmul(rows, 64, 2304, batch=batch))
    assert found is not None
    made = Plan(found, Tile(8, 8, 32, (4, 1)), panels)
    last, dealt = made.grid // made.splits, [Counter[bool]() for _ in range(SM_80.multiprocessors)]
    for block in range(made.grid):
        dealt[block % len(dealt)][block >= made.grid - last] += 1
    known = {(each[False], each[True]) for each in dealt}
    claimed = choice.shares(made, SM_80)
    assert claimed <= known
    for cycles in ((100, 100), (100, 10), (100, 51)):
        busiest = max(choice.issued(made, each, cycles, SM_80) for each in known)
        assert max(choice.issued(made, each, cycles, SM_80) for each in claimed) == busiest


def test_few_pixels_of_many_channels_share_out_k() -> None:
    """64 pixels of 256 channels: 4.5 panels. Tiles that fill the chip without sharing are too small to be dense."""
    chosen = choice.plan(PICTURES, SM_80)
    assert chosen is not None
    assert chosen.tile.own == (8, 8) and chosen.splits == 3
    assert (chosen.panels_per_block * chosen.panel, chosen.last_terms) == (1008, 288)


def test_a_thread_has_no_more_lines_that_may_not_exist_than_a_word_has_bits() -> None:
    """Of 250 keys the last are beyond them, whatever tile is taken: some would give a thread 64 lines."""
    kernels = pipeline.run(masked(64, 250, 32, 128)).program.kernels
    tilings = [
        each
        for found in map(find, kernels)
        if found is not None
        for each in within._tilings(found, frozenset(), 128, SM_80)
    ]
    assert tilings
    for each in tilings:
        for side in (0, 1):
            lines = dealt(each.plan, side, access(each.plan, side)).lines
            assert lines <= MOST_LINES or each.plan.whole(side)


@pytest.mark.parametrize("machine", [SM_80, GRAPHICS], ids=lambda machine: machine.name)
@pytest.mark.parametrize("images", [96, 100])
def test_tables_of_long_panels_fit_into_what_may_be_declared(images: int, machine: GpuMachine) -> None:
    """A gradient of filters over lines of 4,000 places, in panels of as many: no plan at all is one answer."""
    x, w = (TensorType(F32, shape) for shape in ((images, 32, 4000), (32, 32, 3)))
    y = convolution_of(argument(0, x), argument(1, w), [4000], [1], [1], [-1])
    given = argument(2, y.type)
    (_, gradient) = cotangents([(y, given)], (argument(0, x), argument(1, w)))
    assert gradient is not None
    seen = 0
    for kernel in pipeline.run(Graph((x, w, y.type), (gradient,))).program.kernels:
        plan = choice.plan(kernel, machine)
        seen += find(kernel) is not None
        assert plan is None or choice.declared_bytes(plan, [access(plan, side) for side in (0, 1)]) <= PLAIN_SHARED
    assert seen

"""Copies where rows are no multiple of 16 bytes: by 8 bytes, or by 4."""

from __future__ import annotations

import itertools

import pytest

from repro.ir.contraction import find
from repro.targets.gpu.access import access
from repro.targets.gpu.share import dealt
from repro.targets.gpu.tiles import SINGLE, Plan, Tile
from repro.targets.gpu.within import TILES
from tests.targets.on_gpu import check_gpu
from tests.targets.test_contraction_tiles import filled, matmul
from tests.targets.test_gpu_code import SMALL, tiled

LONG = Tile(4, 4, 32, (2, 1))


@pytest.mark.parametrize("panels", [None, 1])
@pytest.mark.parametrize(("left", "right", "tile"), [(False, True, Tile(4, 4, 8, (2, 1))), (True, False, SMALL)])
def test_even_rows_are_copied_by_8_bytes(left: bool, right: bool, tile: Tile, panels: int | None) -> None:
    """Lines by twos, or terms of short steps: beyond the last one and a short panel stand zeros."""
    kernel = matmul(34, 70, 554, left=left, right=right)
    found = find(kernel)
    assert found is not None
    ways = [access(Plan(found, tile, 1), side) for side in (0, 1)]
    assert [(way.wide, way.by_term) for way in ways] == [(2, right), (2, right)]
    check_gpu(kernel, filled(kernel), tiled(kernel, tile, panels))


@pytest.mark.parametrize(
    ("terms", "tile", "panels"),
    [
        pytest.param(*case, marks=pytest.mark.full if (case[0] + (case[1] is LONG) + (case[2] == 1)) % 2 == 0 else ())
        for case in itertools.product((551, 552), (SMALL, LONG), (None, 1))
    ],
)
@pytest.mark.parametrize(("left", "right"), [(False, True), (True, False), (False, False)])
def test_odd_rows_and_terms_side_by_side_are_copied_by_4_bytes(
    left: bool, right: bool, terms: int, tile: Tile, panels: int | None
) -> None:
    """Terms, too, whose rows are even, so that lines lie side by side in shared memory; the last block of lines reaches
    back, unless it leaves totals of panels."""
    kernel = matmul(131, 75, terms, left=left, right=right, bias=True)
    found = find(kernel)
    assert found is not None
    ways = [access(Plan(found, tile, 1), side) for side in (0, 1)]
    assert [(way.wide, way.by_term, way.terms_beside) for way in ways] == [(1, not left, False), (1, right, False)]
    assert [Plan(found, tile, panels or 2).reaches(side) for side in (0, 1)] == [panels is None] * 2
    check_gpu(kernel, filled(kernel), tiled(kernel, tile, panels))


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("size", [1024, 1026, 1027])
def test_every_thread_has_a_share_of_a_step(size: int, left: bool, right: bool) -> None:
    found = find(matmul(size, size, size, left=left, right=right))
    assert found is not None
    dealings = 0
    for tile in (*SINGLE, *TILES):
        plan = Plan(found, tile, 1)
        for side, way in enumerate(access(plan, side) for side in (0, 1)):
            if way.even(plan, side):
                dealing, dealings = dealt(plan, side, way), dealings + 1
                shared_out = tile.threads * dealing.lines * dealing.terms * way.wide
                assert dealing.lines > 0 and shared_out >= tile.block[side] * tile.depth, (tile, side, way)
    assert dealings > 100

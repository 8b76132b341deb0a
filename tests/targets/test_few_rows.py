"""Contractions of few rows: long runs of columns that are read where they lie, and columns that tiles turn."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from passes.legality import refusal
from passes.schedule import schedule, tile_orders
from passes.variants import variants
from repro.ir.contraction import find
from repro.ir.expressions import Chain
from repro.ir.parse_program import parse_schedule
from repro.ir.schedule import ContractionTile, Schedule
from repro.ir.types import F32, F64, DType
from repro.machines import AARCH64, X86_64_V3, X86_64_V4, Machine
from repro.targets.llvm.tiling import shape_of
from tests.targets.native import HERE
from tests.targets.test_contraction_tiles import check, matmul

MACHINES = pytest.mark.parametrize("machine", HERE, ids=lambda m: m.name)


@MACHINES
@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize("columns", [32, 100, 1000])
@pytest.mark.parametrize("terms", [4, 64, 600])
def test_columns_whose_terms_lie_side_by_side_are_turned_in_registers(
    machine: Machine, rows: int, columns: int, terms: int
) -> None:
    """Whole tiles of columns or not; of several panels only whole ones."""
    kernel = matmul(rows, columns, terms, batch=2, right=True, bias=True)
    chosen = schedule(kernel, machine)
    assert chosen.tile is not None and chosen.tile.makes
    shape = shape_of(kernel, chosen)
    assert shape.made and shape.areas[1] == 0, "nothing is packed"
    check(kernel, machine, chosen)


@MACHINES
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("left", [False, True])
def test_turned_columns_beside_rows_as_they_lie(machine: Machine, dtype: DType, left: bool) -> None:
    kernel = matmul(3, 96, 72, left=left, right=True, dtype=dtype)
    check(kernel, machine, Schedule(None, machine.lanes(dtype.bits), 1, ContractionTile(3, 2, 3, 96, makes=True)))


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_turned_columns_in_any_tiles(data: st.DataObject) -> None:
    """What cannot be turned is packed; the bits are the same."""
    sizes = st.integers(1, 70)
    rows, columns, runs = (data.draw(sizes) for _ in range(3))
    kernel = matmul(rows, columns, data.draw(st.sampled_from([4 * runs, runs, 512 + 4 * runs])), right=True, bias=True)
    tile_rows, vectors = data.draw(st.integers(1, 8)), data.draw(st.integers(1, 3))
    blocks = data.draw(sizes), data.draw(sizes)
    tile = ContractionTile(tile_rows, vectors, *blocks, rows_in_place=data.draw(st.booleans()), makes=True)
    check(kernel, data.draw(st.sampled_from(HERE)), Schedule(None, data.draw(st.sampled_from([2, 4, 8, 16])), 1, tile))


@pytest.mark.parametrize("machine", [*HERE, AARCH64], ids=lambda m: m.name)
def test_many_rows_and_odd_terms_are_not_turned(machine: Machine) -> None:
    few = machine.tile_rows // 2
    for rows, terms, right in ((few, 64, False), (few + 1, 64, True), (few, 63, True)):
        chosen = schedule(matmul(rows, 128, terms, right=right), machine).tile
        assert chosen is not None and not chosen.makes
    chosen = schedule(matmul(few, 128, 64, right=True), machine)
    assert chosen.tile is not None and chosen.tile.makes
    assert parse_schedule(chosen.text) == chosen


def test_runs_of_terms_that_panels_cut_are_not_turned() -> None:
    """A panel of 6 begins in the middle of four terms; one of all terms does not."""
    found = find(matmul(2, 32, 40, right=True))
    assert found is not None
    turned = {panel: replace(found, chain=Chain(panel, 8)).turns(8) for panel in (6, 8, 40, 512, 70)}
    assert turned == {6: False, 8: True, 40: True, 512: True, 70: True}


def test_tuning_tries_both_and_a_window_has_neither() -> None:
    kernel = matmul(2, 128, 64, right=True)
    chosen = schedule(kernel, X86_64_V4)
    tried = {each.tile.makes for each in variants("packing", kernel, X86_64_V4, chosen) if each.tile is not None}
    assert False in tried
    windowed = ContractionTile(4, 2, 8, 64, window=True, makes=True)
    assert refusal(kernel, Schedule(None, 8, 1, windowed)) is not None


@pytest.mark.parametrize(
    ("machine", "rows", "columns", "vectors"),
    [(X86_64_V4, 1, 3072, 16), (X86_64_V4, 1, 768, 12), (X86_64_V4, 4, 3072, 6), (X86_64_V4, 7, 768, 3),
     (X86_64_V4, 8, 3072, 2), (X86_64_V3, 1, 3072, 8), (X86_64_V3, 2, 3072, 6), (X86_64_V3, 4, 3072, 2)],
)  # fmt: skip
def test_few_rows_want_long_runs_that_give_threads_equal_shares(
    machine: Machine, rows: int, columns: int, vectors: int
) -> None:
    """Whether the weight lies by terms or by columns: laid out anew, it lies so for both."""
    for right in (False, True):
        _, columns_per_tile = next(iter(tile_orders(matmul(rows, columns, 512, right=right), machine)))
        assert columns_per_tile == vectors * machine.lanes(32)


@pytest.mark.parametrize("machine", [X86_64_V3, X86_64_V4, AARCH64], ids=lambda m: m.name)
@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize("terms", [64, 4096])
@pytest.mark.parametrize("right", [False, True])
def test_threads_share_the_columns_of_few_rows(machine: Machine, rows: int, terms: int, right: bool) -> None:
    kernel = matmul(rows, 3072, terms, right=right)
    assert shape_of(kernel, schedule(kernel, machine)).items >= 4


@MACHINES
@pytest.mark.parametrize("rows", [1, 2, 3, 4])
@pytest.mark.parametrize("columns", [768, 96, 250])
def test_long_runs_have_the_bits_of_short_ones(machine: Machine, rows: int, columns: int) -> None:
    check(matmul(rows, columns, 600, batch=2, bias=True), machine)

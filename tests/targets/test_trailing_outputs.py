"""Outputs of a tile that are computed while the next one multiplies: every one, once, whatever the tiles."""

from __future__ import annotations

from dataclasses import replace

import pytest

from passes.schedule import schedule
from repro.ir.loops import Kernel
from repro.ir.schedule import ContractionTile, Schedule
from repro.machines import CPUS, Machine
from repro.numerics.elementary import FUNCTIONS
from repro.targets.llvm import kernel as kernels
from repro.targets.llvm.outputs import Outputs
from tests.targets.test_contraction_tiles import MACHINES, check, matmul
from tests.targets.test_registers import update

EACH_CPU = pytest.mark.parametrize("machine", CPUS.values(), ids=lambda m: m.name)
TILE = ContractionTile(6, 2, 15, 48)


def tiled(kernel: Kernel, machine: Machine, unroll: int = 1, in_place: bool = False) -> Schedule:
    """Tiles of 16 columns and blocks of 48, so that the same places lie in several tiles whatever the machine."""
    tile = replace(TILE, unroll=unroll, rows_in_place=in_place)
    return replace(schedule(kernel, machine), vector_width=8, tile=tile)


def trailing(kernel: Kernel, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often code of a trailing row is written."""
    count = 0
    written = Outputs.row_of_tile

    def counted(self: Outputs, *places) -> None:
        nonlocal count
        count += 1
        written(self, *places)

    monkeypatch.setattr(Outputs, "row_of_tile", counted)
    kernels.emit(kernel, tiled(kernel, machine), machine)
    return count


@MACHINES
@pytest.mark.parametrize(("m", "n"), [(29, 96), (13, 72), (1, 49), (30, 17), (6, 16)])
@pytest.mark.parametrize("k", [3, 40, 1100, 4700])
def test_an_update(machine, m: int, n: int, k: int) -> None:
    """Whole and partial tiles, one of a single column, one alone; fewer terms than rows; panels, and blocks of them."""
    made = update(m, n, k)
    check(made, machine, tiled(made, machine, unroll=3 if k == 40 else 1))


@MACHINES
@pytest.mark.parametrize("m", [15, 22, 29])
def test_rows_in_place(machine, m: int) -> None:
    """The last two tiles of rows are of about equal size."""
    made = update(m, 72, 40, left=False)
    check(made, machine, tiled(made, machine, in_place=True))


@EACH_CPU
def test_what_trails(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """An update; not what is stored from registers, nor functions, which take a tile's registers."""
    assert trailing(update(30, 96, 40), machine, monkeypatch)
    assert not trailing(matmul(30, 96, 40, bias=True), machine, monkeypatch)
    made = update(30, 96, 40)
    weight, *moments = made.stores
    function = replace(weight, value=FUNCTIONS["exp"](weight.value))
    assert not trailing(replace(made, stores=(function, *moments)), machine, monkeypatch)


@MACHINES
@pytest.mark.parametrize("left_out", ["row_of_tile", "_along_columns"])
def test_rows_that_are_left_out_are_found(machine, left_out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: neither the rows that trail nor those of the last tile may be missing."""
    made = update(13, 72, 40)
    monkeypatch.setattr(Outputs, left_out, lambda *_: None)
    with pytest.raises(AssertionError):
        check(made, machine, tiled(made, machine))

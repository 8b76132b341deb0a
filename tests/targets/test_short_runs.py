"""Sums whose terms lie in runs that are no multiple of the order's lanes, against rule 10 word by word."""

from __future__ import annotations

import numpy as np
import pytest

from repro.ir import index as ix
from repro.ir.expressions import Lanes, apply, const, load, reduce
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.types import F32, F64, I64, Array, DType
from repro.targets.llvm import short_runs
from repro.targets.llvm.text import Val, integer
from tests.targets.native import HERE, differences, same
from tests.targets.test_reduction_orders import lanes_model, mixed, run_rows

MACHINES = pytest.mark.parametrize("machine", HERE, ids=lambda m: m.name)
ROWS = 3
ORDER = Lanes(32, 4096)
SHAPES = {
    "within a leaf": (5, 49),
    "a part of the lanes": (40, short_runs.FEWEST),
    "half of the lanes, and half a vector left": (601, 16),
    "parts of runs": (61, 24),
    "parts of longer runs": (90, 80),
    "shorter than the lanes": (40, 9),
    "leaves end with runs": (512, 20),
    "leaves end within runs": (90, 100),
    "longer than a leaf": (3, 5003),
    "several in a leaf, and a rest": (130, 63),
}


def apart(runs: int, extent: int, dtype: DType, absent: int = 0) -> Kernel:
    """out[r] <- sum of x[i, r, j] over i and j, without the first so many of j."""
    r, i, j = ix.axis(0, ROWS), ix.axis(1, runs), ix.axis(2, extent)
    place = ix.add(ix.scale(i, ROWS * extent), ix.scale(r, extent), j)
    present = apply("ge", j, const(I64, absent)) if absent else None
    value = reduce("add", ORDER, [i, j], [load(dtype, 0, place, present)], present)
    buffers = (BufferParameter(dtype, ROWS * runs * extent, False), BufferParameter(dtype, ROWS, True))
    return Kernel(buffers, (), (r,), 0, (Store(1, r, value),))


def wanted(values: Array, runs: int, extent: int, absent: int) -> Array:
    table = values.reshape(runs, ROWS, extent).transpose(1, 0, 2).copy()
    table[:, :, :absent] = -0.0
    return np.array([lanes_model(row) for row in table.reshape(ROWS, -1)], values.dtype)


@MACHINES
@pytest.mark.parametrize("absent", [0, 3])
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_runs_of_any_length(machine, shape: tuple[int, int], dtype: DType, absent: int) -> None:
    runs, extent = shape
    values = mixed(runs * ROWS * extent, dtype)
    found = run_rows(apart(runs, extent, dtype, absent), values, machine, 1)
    expected = wanted(values, runs, extent, absent)
    assert same(dtype, found, expected), differences(dtype, found, expected)


def test_lanes_that_are_turned_too_far_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    runs, extent = SHAPES["leaves end within runs"]
    values, right = mixed(runs * ROWS * extent), short_runs.ShortRuns._turned_by

    def further(self: short_runs.ShortRuns, value: Val, count: Val) -> Val:
        return right(self, value, self.f.add(count, integer(1)))

    monkeypatch.setattr(short_runs.ShortRuns, "_turned_by", further)
    found = run_rows(apart(runs, extent, F32), values, HERE[0], 1)
    assert not same(F32, found, wanted(values, runs, extent, 0))

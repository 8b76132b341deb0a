"""The tests of native code once more for AArch64: the same kernels, under qemu-user where the host is another."""

from __future__ import annotations

import os

import numpy as np
import pytest

from repro.ir.expressions import Chain, Exact, Lanes
from repro.ir.types import BF16, BOOL, DTYPES, F8E4M3FN, F16, F32, F64, I8, I16, I64, U64, DType
from repro.machines import AARCH64
from tests.goldens.qemu import missing_tools
from tests.targets import test_contraction_tiles as contractions
from tests.targets import test_native_programs as programs
from tests.targets import test_pieces as pieces
from tests.targets import test_reduction_orders as orders
from tests.targets import test_scalar_bits as scalars
from tests.targets.emulated import run_program

pytestmark = pytest.mark.skipif(
    bool(missing_tools()) and os.environ.get("CI") != "true", reason=f"not installed: {', '.join(missing_tools())}"
)


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d.computes], ids=str)
def test_every_operation(dtype: DType) -> None:
    scalars.test_every_operation(dtype, AARCH64, 4)


@pytest.mark.parametrize("source", [F64, F32, F16, BF16, F8E4M3FN, BOOL, I8, I16, I64, U64], ids=str)
def test_every_conversion(source: DType) -> None:
    scalars.test_every_conversion(source, AARCH64, 4)


@pytest.mark.parametrize("across", [False, True], ids=["along", "across"])
@pytest.mark.parametrize("count", [33, 4097])
def test_sums_in_lanes(across: bool, count: int) -> None:
    orders.test_sums_in_lanes(AARCH64, across, count)


@pytest.mark.parametrize(
    ("combiner", "order"), [("add", Lanes(32, 4096)), ("argmax", Exact()), ("fma", Chain(5, 2))], ids=str
)
def test_windows_with_absent_terms(combiner: str, order) -> None:
    orders.test_windows_with_absent_terms(AARCH64, combiner, order, 4)


@pytest.mark.parametrize("combiner", ["min", "argmin"])
def test_exact_orders(combiner: str) -> None:
    orders.test_exact_orders(AARCH64, F32, combiner, False)


@pytest.mark.parametrize("combiner", ["argmin", "argmax"])
def test_positions_along_their_axis(combiner: str) -> None:
    orders.test_one_value_decides_an_extreme_wherever_it_stands(AARCH64, F32, combiner, 100)


@pytest.mark.parametrize("k", [515, 4097])
def test_long_chains(k: int) -> None:
    contractions.test_long_chains_against_the_contracts_words(AARCH64, k)


@pytest.mark.parametrize("pixels_are_rows", [False, True])
def test_convolutions(pixels_are_rows: bool) -> None:
    contractions.test_convolutions(AARCH64, pixels_are_rows, 1, 1, 9)


def test_scatter_adds() -> None:
    programs.test_scatter_adds_in_source_order(AARCH64, 2)


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_take_pieces_of_each_others_shares(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every item runs once, where taking a piece and meeting are exclusive loads and stores."""
    monkeypatch.setattr(pieces.pieces, "PIECE", 1000)
    program = pieces.counting(21)
    before = [np.zeros(size, np.float32) for size in pieces.SIZES]
    after = run_program(program, before, pieces.chosen(program, AARCH64), threads)
    assert [np.unique(array).tolist() for array in after] == [[43.0]] * len(before)

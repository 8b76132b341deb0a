"""What is read beside a contraction's outputs, asked for while tiles are computed, and functions of totals."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from passes.schedule import schedule
from repro.ir import index as ix
from repro.ir.expressions import Chain, apply, load, reduce
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.schedule import ContractionTile
from repro.ir.types import F32
from repro.machines import CPUS, X86_64_V4, Machine
from repro.numerics.elementary import FUNCTIONS
from repro.targets.llvm import kernel as kernels
from tests.targets.test_contraction_tiles import MACHINES, check, matmul

ASKS = "call void @llvm.prefetch"


def beside(m: int, n: int, k: int, function: str | None = None) -> Kernel:
    """out <- a b + others, and a function of that times the others."""
    made = matmul(m, n, k)
    (store,) = made.stores
    others = load(F32, 2, store.offset)
    value = apply("add", store.value, others)
    if function is not None:
        value = apply("mul", FUNCTIONS[function](value), others)
    buffers = (*made.buffers[:2], BufferParameter(F32, m * n, False), made.buffers[2])
    return replace(made, buffers=buffers, stores=(Store(3, store.offset, value),))


@MACHINES
@pytest.mark.parametrize(("m", "n", "k"), [(29, 64, 7), (13, 72, 40), (29, 32, 515), (1, 64, 1100), (30, 64, 4700)])
@pytest.mark.parametrize("unroll", [1, 3])
def test_what_is_read_beside_outputs(machine, m: int, n: int, k: int, unroll: int) -> None:
    """Fewer terms than rows, tiles of one row, several panels and blocks of them."""
    made = beside(m, n, k)
    tile = ContractionTile(6, 2, 15, 32, unroll=unroll)
    check(made, machine, replace(schedule(made, machine), tile=tile))


@MACHINES
@pytest.mark.parametrize("rows", [5, 32])
def test_rows_as_items_ask_too(machine, rows: int) -> None:
    made = beside(rows, 64, 60)
    assert schedule(made, machine).tile is not None
    check(made, machine)


@MACHINES
@pytest.mark.parametrize("function", ["exp", "erf", "tanh"])
@pytest.mark.parametrize(("n", "block_n"), [(64, 64), (128, 32), (192, 96), (72, 72), (40, 40)])
def test_functions_of_totals(machine, function: str, n: int, block_n: int) -> None:
    """Several vectors at a time, those that are left, and the last one's lanes; blocks that begin anywhere."""
    made = beside(7, n, 20, function)
    check(made, machine, replace(schedule(made, machine), tile=ContractionTile(6, 2, 7, block_n)))


@MACHINES
@pytest.mark.parametrize("block_n", [192, 96])
def test_functions_of_columns_on_two_axes(machine, block_n: int) -> None:
    """Heads apart in the outputs: [row][head][element] of terms, [head][row][element] of outputs."""
    m, heads, size, k = 5, 3, 64, 9
    i, h, j, q = ix.axis(0, m), ix.axis(1, heads), ix.axis(2, size), ix.axis(3, k)
    a, b = ix.linear((i, q), (m, k)), ix.linear((q, h, j), (k, heads, size))
    value = FUNCTIONS["exp"](reduce("fma", Chain(512, 8), [q], [load(F32, 0, a), load(F32, 1, b)]))
    sizes = [BufferParameter(F32, count, count == 960) for count in (m * k, k * heads * size, m * heads * size)]
    made = Kernel(tuple(sizes), (), (i, h, j), 0, (Store(2, ix.linear((h, i, j), (heads, m, size)), value),))
    check(made, machine, replace(schedule(made, machine), tile=ContractionTile(5, 2, 5, block_n)))


EACH_CPU = pytest.mark.parametrize("machine", CPUS.values(), ids=lambda m: m.name)


def asks(kernel: Kernel, machine: Machine) -> bool:
    """Whether it asks for what it is going to write."""
    return (
        re.search(ASKS + r"\.p0\(ptr \S+, i32 1,", kernels.emit(kernel, schedule(kernel, machine), machine)) is not None
    )


@EACH_CPU
def test_asks_where_something_is_read(machine) -> None:
    assert asks(beside(32, 64, 40), machine)
    assert not asks(matmul(32, 64, 40, bias=True), machine)


@EACH_CPU
def test_asks_for_outputs_that_come_from_afar(machine) -> None:
    rows = machine.l2_bytes // (64 * 4)
    assert asks(matmul(rows + 1, 64, 16), machine)
    assert not asks(matmul(rows, 64, 16), machine)


def test_outputs_of_several_panels_are_not_asked_for() -> None:
    assert not asks(matmul(4097, 64, 1024), X86_64_V4)


def test_functions_by_tables_go_several_vectors_at_a_time() -> None:
    made = beside(7, 64, 20, "erf")
    assert "<64 x float>" in kernels.emit(made, schedule(made, X86_64_V4), X86_64_V4)

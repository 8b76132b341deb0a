"""Tables of constants as rows that threads load: the bits of a table's entries, in as few loads, within the rows."""

from __future__ import annotations

import os
import re
from dataclasses import replace

import numpy as np
import pytest

from repro.errors import InternalError
from repro.ir import index as ix
from repro.ir.expressions import Expr, apply, const, load, lookup, rarely
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.types import F32, F64, I32, I64, U32, U64, Array, DType
from repro.machines import GRAPHICS, SM_80, GpuMachine
from repro.numerics.elementary import FUNCTIONS
from repro.targets.gpu import GpuKernel, emit, table_rows
from repro.targets.gpu import elementwise as by_place
from repro.targets.gpu.ptxas import assemble, installed
from tests.targets.on_gpu import check_gpu, run_gpu
from tests.targets.test_contraction_tiles import filled, matmul
from tests.targets.test_gpu_roads import arguments, elementwise, gelu

SIZE = 1024
INDEX = {F32: I32, F64: I64, U32: U32, U64: U64, I32: I32}
ROWS = re.compile(r"\.global \.align 16 \.b8 rows_\w+\[(\d+)\]")


def table(dtype: DType, entries: int, number: int) -> tuple[int, ...]:
    """Numbers' bits, all of them different."""
    drawn = np.random.default_rng(number).standard_normal(entries)
    kind = f"u{dtype.bytes}"
    raw = drawn.astype(f"f{dtype.bytes}").view(kind)
    return tuple(int(each) for each in raw)


def looking(dtype: DType, entries: int, columns: int, size: int = SIZE) -> Kernel:
    """Each table's entry into a buffer of its own, by indices of all magnitudes and signs."""
    i, kind = ix.axis(0, size), INDEX[dtype]
    values = [lookup(dtype, table(dtype, entries, n), load(kind, 0, i)) for n in range(columns)]
    buffers = (BufferParameter(kind, size, False), *(BufferParameter(dtype, size, True) for _ in values))
    return Kernel(buffers, (), (i,), 0, tuple(Store(n + 1, i, value) for n, value in enumerate(values)))


def as_it_is(kernel: Kernel) -> GpuKernel:
    """The code with functions by their first road, in f64."""
    plan = by_place.plan(kernel)
    assert plan is not None
    return by_place.emit(kernel, plan, SM_80)


def indices(dtype: DType, size: int = SIZE) -> Array:
    bits = INDEX[dtype].bits
    drawn = np.random.default_rng(3).integers(0, 1 << bits, size, dtype=f"u{bits // 8}")
    return drawn.view(INDEX[dtype].storage)


def checked(kernel: Kernel, dtype: DType, size: int = SIZE) -> GpuKernel:
    outputs = [np.zeros(size, dtype.storage) for _ in kernel.buffers[1:]]
    return check_gpu(kernel, [indices(dtype, size), *outputs])


@pytest.mark.parametrize("dtype", list(INDEX), ids=str)
@pytest.mark.parametrize("entries", [4, 8, 16])
@pytest.mark.parametrize("columns", [1, 2, 3, 4, 5, 7])
def test_rows_hold_each_tables_entries(dtype: DType, entries: int, columns: int) -> None:
    code = checked(looking(dtype, entries, columns), dtype)
    (found,) = ROWS.findall(code.ptx)
    assert int(found) >= entries * columns * dtype.bytes and "selp" not in code.ptx


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_one_output_a_thread_reads_a_row_too(dtype: DType) -> None:
    """Of an odd length: there are no runs of neighbours."""
    code = checked(looking(dtype, 4, 5, 77), dtype, 77)
    assert len(ROWS.findall(code.ptx)) == 1


def test_tables_of_two_stay_selects() -> None:
    code = checked(looking(F32, 2, 3), F32)
    assert not ROWS.findall(code.ptx) and "selp" in code.ptx


def test_a_row_is_read_in_loads_of_16_bytes() -> None:
    """erf has 16 coefficients of f64, looked up by one index, and a thread four arguments."""
    code = as_it_is(elementwise(FUNCTIONS["erf"]))
    assert len(re.findall(r"ld\.global\.nc\.v2\.b64", code.ptx)) == 4 * 8
    assert ROWS.findall(code.ptx) == [str(4 * 9 * 16)], "nine chunks to a row: an odd number"


@pytest.mark.parametrize(("tables", "arrays"), [((0, 1), 2), ((0, 0), 1)])
def test_each_index_has_its_rows_and_a_module_each_of_them_once(tables: tuple[int, int], arrays: int) -> None:
    i = ix.axis(0, SIZE)
    places = load(I32, 0, i), apply("add", load(I32, 0, i), const(I32, 1))
    values = [lookup(F32, table(F32, 8, number), at) for number, at in zip(tables, places, strict=True)]
    buffers = (BufferParameter(I32, SIZE, False), BufferParameter(F32, SIZE, True))
    kernel = Kernel(buffers, (), (i,), 0, (Store(1, i, apply("add", *values)),))
    assert len(ROWS.findall(checked(kernel, F32).ptx)) == arrays


def test_what_is_seldom_needed_is_read_where_it_is_needed() -> None:
    """A row's second chunk, behind the branch."""
    i = ix.axis(0, SIZE)
    at = load(I32, 0, i)
    every = [lookup(F32, table(F32, 4, n), at) for n in range(8)]
    common, seldom = (apply("add", apply("add", a, b), apply("add", c, d)) for a, b, c, d in (every[:4], every[4:]))
    value = rarely(apply("lt", at, const(I32, 0)), apply("mul", common, seldom), common)
    buffers = (BufferParameter(I32, SIZE, False), BufferParameter(F32, SIZE, True))
    code = checked(Kernel(buffers, (), (i,), 0, (Store(1, i, value),)), F32)
    assert len(ROWS.findall(code.ptx)) == 1
    _, before, *behind = code.ptx.split("bra")
    chunks = [len(re.findall(r"ld\.global\.nc\.v4\.b32 [^;]*\[%rd\d+(?:\+16)?\];", part)) for part in (before, *behind)]
    assert chunks[0] == 1 + 4 and sum(chunks[1:]) == 4, "four indices, and a chunk of each thread's four rows"


@pytest.mark.parametrize("machine", [SM_80, GRAPHICS], ids=lambda machine: machine.name)
def test_gelu_behind_a_dot(machine: GpuMachine) -> None:
    """In the tiles' own code, and in the entry that adds what splits of K leave."""
    for sizes in ((70, 66, 100), (64, 64, 8192)):
        kernel = matmul(*sizes)
        (store,) = kernel.stores
        kernel = replace(kernel, stores=(replace(store, value=gelu(store.value)),))
        code = check_gpu(kernel, filled(kernel), emit(kernel, machine))
        assert "tile=" in code.schedule and ROWS.findall(code.ptx)


# ── faults ──────────────────────────────────────────────────────────────────────────────────────────

FAULTS = {
    "an index that is not reduced": (r"and\.b64 (\t%\w+, %\w+), 3;", r"and.b64 \1, 7;", "of rows_.* of 576 bytes"),
    "a read behind all rows": (r"(ld\.global\.nc\.v2\.b64 [^;]*)\+112\]", r"\1+576]", "of rows_.* of 576 bytes"),
    "a read before all rows": (r"(ld\.global\.nc\.v2\.b64 [^;]*)\+112\]", r"\1+-592]", "an access of 16 bytes"),
    "a read from beside": (r"(ld\.global\.nc\.v2\.b64 [^;]*)\+112\]", r"\1+104]", "not aligned"),
    "a constant that is written": (
        r"ld\.global\.nc\.v2\.b64 (\t\{[^}]*\}), (\[%\w+\+112\]);",
        r"ld.global.nc.v2.b64 \1, \2; st.global.v2.b64 \2, \1;", "rows_.* is written",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_the_interpreter_finds_a_read_outside_of_rows(name: str) -> None:
    pattern, text, message = FAULTS[name]
    kernel = looking(F64, 4, 16)
    code = emit(kernel, SM_80)
    changed, count = re.subn(pattern, text, code.ptx)
    assert count
    with pytest.raises(InternalError, match=message):
        run_gpu(kernel, replace(code, ptx=changed), [indices(F64), *(np.zeros(SIZE) for _ in range(16))])


def test_another_constant_is_other_bits() -> None:
    """Each word of each row is read by some argument: a change of any is seen, but for that of padding."""
    kernel = elementwise(FUNCTIONS["erf"])
    code, given = as_it_is(kernel), [arguments(), np.zeros(arguments().size, np.float32)]
    wanted = run_gpu(kernel, code, given)[1].view(np.uint32)
    data = re.search(r"rows_\w+\[576\] = \{([^}]*)\}", code.ptx)
    assert data is not None
    octets, found = data[1].split(", "), list[bool]()
    octets += ["0"] * (576 - len(octets))
    for place in range(7, 576, 8):
        other = [*octets[:place], str(int(octets[place]) ^ 0x40), *octets[place + 1 :]]
        changed = replace(code, ptx=code.ptx.replace(data[1], ", ".join(other)))
        found.append(bool((run_gpu(kernel, changed, given)[1].view(np.uint32) != wanted).any()))
    rows = [found[start : start + 18] for start in range(0, 72, 18)]
    assert rows == [[True] * 16 + [False] * 2] * 4


# ── the assembler ───────────────────────────────────────────────────────────────────────────────────


def with_exp(x: Expr) -> Expr:
    """Two functions of many constants, as in GELU's gradient."""
    return apply("add", gelu(x), apply("mul", x, FUNCTIONS["exp"](apply("neg", apply("mul", x, x)))))


FUNCTIONS_OF_ROWS = {"tanh": (FUNCTIONS["tanh"], 48), "gelu": (gelu, 40), "with exp": (with_exp, 80)}
"""And the registers of a thread that they may take."""
SPILLED = {"gelu": 12}
"""Bytes of a thread, for as many threads as an H200 is fastest with."""


@pytest.mark.parametrize("chip", ["sm_80", "sm_90"])
@pytest.mark.parametrize("machine", [SM_80, GRAPHICS], ids=lambda machine: machine.name)
@pytest.mark.parametrize("name", list(FUNCTIONS_OF_ROWS))
def test_rows_leave_registers_to_other_threads(name: str, chip: str, machine: GpuMachine) -> None:
    """Six warps or more to a scheduler, and nothing spilled but what is worth it; by selects GELU took 154."""
    found = installed()
    if found is None:
        assert os.environ.get("CI") != "true", "ptxas is not installed: make ptxas"
        pytest.skip("ptxas is not installed: make ptxas")
    function, most = FUNCTIONS_OF_ROWS[name]
    for size in (1 << 20, 1 << 26, 50257):
        ptx = emit(elementwise(function, size), machine).ptx
        (used,) = assemble(ptx, found, chip).entries.values()
        assert used.registers <= most and max(used.spill_stores, used.spill_loads) <= SPILLED.get(name, 0)


def test_rows_of_several_chunks_are_in_different_banks() -> None:
    found = dict[int, int]()
    for count in (1, 2, 3, 4, 6, 7, 14, 16):
        (row,) = set(table_rows.rows(looking(F64, 4, count).expressions).values())
        found[count] = row.stride
    assert found == {1: 1, 2: 2, 3: 6, 4: 6, 6: 6, 7: 10, 14: 14, 16: 18}

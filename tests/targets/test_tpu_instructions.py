"""Every instruction does what its meaning in loop IR says, for one iteration and for many side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from repro.ir.loops import Kernel
from repro.ir.scalars import SCALARS
from repro.ir.types import BF16, BOOL, DTYPES, F16, F32, F64, I32, I64, U64, Array, DType
from repro.numerics.host_mode import exact_arithmetic
from repro.numerics.numpy_scalars import evaluate
from repro.targets.interpreter import run_kernel
from repro.targets.tpu_sim.isa import (
    CODES,
    Alu,
    Constant,
    Gather,
    Instruction,
    Iota,
    Load,
    Lookup,
    Matmul,
    Move,
    Push,
    Rotate,
    Scatter,
    Store,
    Transpose,
)
from repro.targets.tpu_sim.operands import LANES, Index, Pattern, Reg, counter, parse_pattern, vmem
from repro.targets.tpu_sim.program import Loop, Table, single
from tests.targets.tpu_machine import routine, run, same_bits, values

ROWS = 3
"""Iterations side by side."""
COMPUTING = [dtype for dtype in DTYPES if dtype.computes]
CASES = [
    (name, dtype, dtype)
    for name, scalar in SCALARS.items()
    for dtype in COMPUTING
    if name not in ("convert", "bitcast") and (name == "select" or dtype.kind in scalar.kinds)
]
CONVERSIONS = [("convert", left, right) for left in DTYPES for right in DTYPES if left is not right]
CASTS = [
    ("bitcast", left, right) for left in DTYPES for right in DTYPES if left.bits == right.bits and left is not right
]


def result_of(name: str, dtype: DType, result: DType) -> DType:
    return BOOL if name in ("eq", "ne", "lt", "le", "gt", "ge") else result


@pytest.mark.parametrize(
    ("name", "dtype", "to"), [*CASES, *CONVERSIONS[::7], *CASTS], ids=lambda v: v.name if isinstance(v, DType) else v
)
def test_the_vector_unit_gives_the_contracts_bits(name: str, dtype: DType, to: DType) -> None:
    result = result_of(name, dtype, to)
    made = Alu(name, dtype, result, Reg(20), tuple(Reg(2 * n) for n in range(SCALARS[name].arity)))
    types = made.source_types
    loads = [Load(Reg(2 * n), each, vmem(n, counter("i0", LANES))) for n, each in enumerate(types)]
    body = Loop("i0", ROWS, True, single(*loads, made, Store(vmem(len(types), counter("i0", LANES)), result, Reg(20))))
    arrays = [values(each, ROWS * LANES, seed) for seed, each in enumerate(types)]
    found = run(routine((body,), [(each, ROWS * LANES) for each in types], [(result, ROWS * LANES)]), arrays)[0]
    with exact_arithmetic():
        wanted = evaluate(name, result, types, arrays)
    assert same_bits(result, found, np.asarray(wanted))


def test_operands_that_iterations_share_are_read_once_for_all() -> None:
    loads = (Load(Reg(0), F32, vmem(0, counter("i0", LANES))), Load(Reg(1), F32, vmem(1)))
    body = Loop(
        "i0",
        ROWS,
        True,
        single(
            *loads, Alu("sub", F32, F32, Reg(2), (Reg(0), Reg(1))), Store(vmem(2, counter("i0", LANES)), F32, Reg(2))
        ),
    )
    left, right = values(F32, ROWS * LANES, 1), values(F32, LANES, 2)
    made = routine((body,), [(F32, ROWS * LANES), (F32, LANES)], [(F32, ROWS * LANES)])
    with exact_arithmetic():
        wanted = (left.reshape(ROWS, LANES) - right).reshape(-1)
    assert same_bits(F32, run(made, [left, right])[0], wanted)


# ── instructions against their meanings ─────────────────────────────────────────────────────────────

PATTERNS = ("1024:1", "1024:0", "8:512,128:1", "32:48,32:1", "8:128,4:32,32:1", "16:1,64:16", "1024:3")


def by_meaning(kernel: Kernel, sources: Sequence[Array], target: Array) -> Array:
    """The target after the kernel ran on the sources."""
    after = target.copy()
    with exact_arithmetic():
        run_kernel(kernel, [*sources, after])
    return after


@pytest.mark.parametrize("text", PATTERNS)
def test_a_load_takes_its_pattern(text: str) -> None:
    memory = values(I32, 8 * LANES, 1)
    instruction = Load(Reg(0), I32, vmem(0, 256), parse_pattern(text))
    found = run(
        routine(single(instruction, Store(vmem(1), I32, Reg(0))), [(I32, len(memory))], [(I32, LANES)]), [memory]
    )
    assert np.array_equal(found[0], by_meaning(instruction.meaning(), [memory[256:]], np.zeros(LANES, np.int32)))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("text", PATTERNS)
def test_a_store_puts_down_its_pattern(text: str, masked: bool) -> None:
    value, mask = values(I32, LANES, 1), values(BOOL, LANES, 2)
    instruction = Store(vmem(2, 256), I32, Reg(0), parse_pattern(text), Reg(1) if masked else None)
    clear = Loop("i0", 8, True, single(Constant(Reg(5), I32, 7), Store(vmem(2, counter("i0", LANES)), I32, Reg(5))))
    body = (*single(Load(Reg(0), I32, vmem(0)), Load(Reg(1), BOOL, vmem(1))), clear, *single(instruction))
    found = run(routine(body, [(I32, LANES), (BOOL, LANES)], [(I32, 8 * LANES)]), [value, mask])[0]
    sources = [value, mask] if masked else [value]
    wanted = np.full(8 * LANES, 7, np.int32)
    if text == "1024:0":
        chosen = value[mask] if masked else value
        wanted[256] = chosen[-1]
    else:
        wanted[256:] = by_meaning(instruction.meaning(), sources, wanted[256:])
    assert np.array_equal(found, wanted)


@pytest.mark.parametrize("masked", [False, True])
def test_gather_and_scatter(masked: bool) -> None:
    memory, mask = values(I32, 4 * LANES, 1), values(BOOL, LANES, 2)
    index = np.random.default_rng(3).permutation(2 * LANES)[:LANES].astype(np.int64)
    own = Reg(4) if masked else None
    gather = Gather(Reg(6), I32, vmem(0, 100), Reg(0), I64, own)
    scatter = Scatter(vmem(4, 100), I32, Reg(0), I64, Reg(6), own)
    body = (
        Load(Reg(0), I64, vmem(1)), Load(Reg(4), BOOL, vmem(2)), gather, Store(vmem(3), I32, Reg(6)),
        Constant(Reg(8), I32, 9), *(Store(vmem(4, n * LANES), I32, Reg(8)) for n in range(4)), scatter,
    )  # fmt: skip
    inputs = [(I32, 4 * LANES), (I64, LANES), (BOOL, LANES)]
    found = run(routine(single(*body), inputs, [(I32, LANES), (I32, 4 * LANES)]), [memory, index, mask])
    masks = [mask] if masked else []
    gathered = by_meaning(gather.meaning(), [index, *masks, memory[100:]], np.zeros(LANES, np.int32))
    assert np.array_equal(found[0], gathered)
    wanted = np.full(4 * LANES, 9, np.int32)
    wanted[100:] = by_meaning(scatter.meaning(), [index, gathered, *masks], wanted[100:])
    assert np.array_equal(found[1], wanted)


def one_register(made: Instruction, dtype: DType, source: DType | None = None, given: Array | None = None) -> Array:
    loads = [] if source is None else [Load(Reg(0), source, vmem(0))]
    inputs = [] if source is None else [(source, LANES)]
    body = single(*loads, made, Store(vmem(len(inputs)), dtype, Reg(2)))
    return run(routine(body, inputs, [(dtype, LANES)]), [] if given is None else [given])[0]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_constant_has_its_bits(dtype: DType) -> None:
    bits = 1 if dtype is BOOL else 0x123456789ABCDEF0 & ((1 << dtype.bits) - 1)
    made = Constant(Reg(2), dtype, bits)
    assert np.array_equal(one_register(made, dtype), by_meaning(made.meaning(), [], np.zeros(LANES, dtype.storage)))


@pytest.mark.parametrize("dtype", [I32, I64], ids=str)
@pytest.mark.parametrize("text", PATTERNS)
def test_iota_counts_by_its_pattern(text: str, dtype: DType) -> None:
    made = Iota(Reg(2), dtype, Index(), parse_pattern(text))
    wanted = by_meaning(made.meaning(), [], np.zeros(LANES, dtype.storage))
    assert np.array_equal(one_register(made, dtype), wanted)


def test_iota_starts_at_its_index_and_wraps() -> None:
    made = Iota(Reg(2), I32, Index((1 << 31) - 1), Pattern(((LANES, 1),)))
    assert one_register(made, I32)[:2].tolist() == [(1 << 31) - 1, -(1 << 31)]


@pytest.mark.parametrize("amount", [0, 1, 16, 128, 1000, -4])
def test_rotate(amount: int) -> None:
    given = values(F64, LANES, 1)
    made = Rotate(Reg(2), F64, Reg(0), amount)
    wanted = by_meaning(made.meaning(), [given], np.zeros(LANES))
    assert one_register(made, F64, F64, given).tobytes() == wanted.tobytes()


def test_move_goes_through_a_spill_slot() -> None:
    given = values(F32, LANES, 1)
    moves = (Move(Reg(70), F32, Reg(0)), Move(Reg(2), F32, Reg(70)))
    body = single(Load(Reg(0), F32, vmem(0)), *moves, Store(vmem(1), F32, Reg(2)))
    assert run(routine(body, [(F32, LANES)], [(F32, LANES)]), [given])[0].tobytes() == given.tobytes()


def test_lookup_takes_the_index_modulo_the_table() -> None:
    entries, index = (5, 6, 1 << 63, 8), values(U64, LANES, 3)
    made = Lookup(Reg(2), U64, 0, U64, Reg(0))
    body = single(Load(Reg(0), U64, vmem(0)), made, Store(vmem(1), U64, Reg(2)))
    whole = routine(body, [(U64, LANES)], [(U64, LANES)])
    whole = replace(whole, tables=(Table(U64, entries),))
    wanted = by_meaning(made.meaning(entries), [index], np.zeros(LANES, np.uint64))
    assert np.array_equal(run(whole, [index])[0], wanted)


@pytest.mark.parametrize(("rows", "columns"), [(1, 128), (128, 128), (5, 77)])
@pytest.mark.parametrize("dtype", [F32, F16, BF16, F64], ids=str)
def test_transpose(rows: int, columns: int, dtype: DType) -> None:
    given = values(dtype, 20 * LANES, 1)
    made = Transpose(vmem(1, 3), 130, dtype, vmem(0, 7), 150, rows, columns)
    clear = [Store(vmem(1, n * LANES), dtype, Reg(0)) for n in range(20)]
    body = single(Constant(Reg(0), dtype, 0), *clear, made)
    found = run(routine(body, [(dtype, len(given))], [(dtype, 20 * LANES)]), [given])[0]
    wanted = np.zeros(20 * LANES, dtype.storage)
    wanted[3:] = by_meaning(made.meaning(), [given[7:]], wanted[3:])
    assert found.tobytes() == wanted.tobytes()


# ── matrix unit ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize(
    ("rows", "depth", "width", "turned"), [(9, 128, 128, False), (3, 5, 7, True), (1, 1, 1, False)]
)
def test_a_pass_through_the_matrix_unit(
    rows: int, depth: int, width: int, turned: bool, fresh: bool, checked: bool
) -> None:
    rng = np.random.default_rng(7)
    data, weights = (rng.standard_normal(40 * LANES).astype(np.float32) for _ in range(2))
    sums, valid = rng.standard_normal(2 * LANES).astype(np.float32), rng.integers(0, 2, 40 * LANES).astype(np.bool_)
    push = Push(Index(1), Index(0), F32, vmem(1, 3), 131, depth, width, turned)
    matmul = Matmul(
        Index(1), Index(0), F32, vmem(4, 5), 133, fresh, vmem(0, 9), 140, rows, vmem(2, 9) if checked else None
    )
    copies = [
        each
        for n in range(2)
        for each in (Load(Reg(0), F32, vmem(3, n * LANES)), Store(vmem(4, n * LANES), F32, Reg(0)))
    ]
    inputs = [(F32, 40 * LANES), (F32, 40 * LANES), (BOOL, 40 * LANES), (F32, 2 * LANES)]
    found = run(routine(single(*copies, push, matmul), inputs, [(F32, 2 * LANES)]), [data, weights, valid, sums])[0]
    cells = by_meaning(push.meaning(), [weights[3:]], np.zeros(depth * width, np.float32))
    dense = [strided(each, 9, rows, depth, 140) for each in ((data, valid) if checked else (data,))]
    before = np.zeros(rows * width, np.float32) if fresh else strided(sums, 5, rows, width, 133)
    passed = by_meaning(matmul.meaning(depth, width), [dense[0], cells, *dense[1:]], before).reshape(rows, width)
    wanted = sums.copy()
    for row in range(rows):
        wanted[5 + row * 133 : 5 + row * 133 + width] = passed[row]
    assert found.tobytes() == wanted.tobytes()


def strided(array: Array, start: int, rows: int, columns: int, pitch: int) -> Array:
    return np.concatenate([array[start + row * pitch : start + row * pitch + columns] for row in range(rows)])


def test_every_instruction_is_tested_here() -> None:
    tested = {
        Alu, Constant, Gather, Iota, Load, Lookup, Matmul, Move, Push, Rotate, Scatter, Store, Transpose,
    }  # fmt: skip
    transfers = {"dma", "send", "wait"}  # tests/targets/test_tpu_transfers.py
    assert set(CODES) == {each.mnemonic for each in tested} | transfers

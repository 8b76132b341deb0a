"""Every elementary function, f32 and f64: the same bits from the reference and from each machine's code.

One kernel holds all functions of a type, so that a machine that must be emulated is started once for each.
"""

from __future__ import annotations

import os
from functools import lru_cache

import numpy as np
import pytest

from repro.ir.expressions import Axis, convert, load
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.types import BF16, F16, F32, F64, I64
from repro.machines import CPUS, Machine
from repro.numerics.elementary import BINARY_FUNCTIONS, FUNCTIONS, evaluate
from repro.numerics.numpy_convert import convert as converted
from tests.goldens.qemu import missing_tools
from tests.targets.native import differences, run_kernel

NAMES = [*FUNCTIONS, *BINARY_FUNCTIONS]
CHUNK = 1 << 18
MACHINES = pytest.mark.parametrize("machine", CPUS.values(), ids=lambda machine: machine.name)
DTYPES = pytest.mark.parametrize("dtype", [F32, F64], ids=lambda dtype: dtype.name)
SPECIAL = {
    F32: [0, 1, 2, 0x7FFFFF, 0x800000, 0x33800000, 0x3F000000, 0x3F7FFFFF, 0x3F800000, 0x3F800001, 0x40000000,
          0x40490FDB, 0x3FC90FDB, 0x42B17218, 0x42CFF1B5, 0x4AFFFFFF, 0x4B000000, 0x7F7FFFFF,
          0x7F800000, 0x7FC00000, 0x7FA00000],
    F64: [0, 1, 2, 0xFFFFFFFFFFFFF, 1 << 52, 0x3CA0000000000000, 0x3FE0000000000000, 0x3FEFFFFFFFFFFFFF,
          0x3FF0000000000000, 0x3FF0000000000001, 0x4000000000000000, 0x400921FB54442D18, 0x3FF921FB54442D18,
          0x40862E42FEFA39EF, 0xC0874910D52D3051, 0x7FEFFFFFFFFFFFFF, 0x7FF0000000000000, 0x7FF8000000000000,
          0x7FF4000000000000],
}  # fmt: skip
"""Magnitudes; both signs are tried."""


def patterns(dtype, count, seed):
    """Two operands: all pairs of special values, random bits, and values of everyday size."""
    raw = np.dtype(f"u{dtype.bytes}")
    magnitudes = np.array(SPECIAL[dtype], raw)
    special = np.concatenate([magnitudes, magnitudes ^ raw.type(1 << (dtype.bits - 1))]).view(dtype.storage)
    a, b = (grid.reshape(-1) for grid in np.meshgrid(special, special))
    rng = np.random.Generator(np.random.Philox(seed))
    rest = max(count - a.size, 0)
    bits = rng.integers(0, 1 << dtype.bits, (2, rest - rest // 4), np.uint64, False).astype(raw).view(dtype.storage)
    usual = (rng.standard_normal((2, rest // 4)) * 2.0 ** rng.integers(-8, 5, (2, rest // 4))).astype(dtype.storage)
    return [np.concatenate(parts) for parts in zip((a, b), bits, usual, strict=True)]


def kernel(dtype, count):
    """y_f[i] = f(a[i]) or f(a[i], b[i]) for every function f."""
    axis = Axis(I64, (0, count), ())
    a, b = load(dtype, 0, axis), load(dtype, 1, axis)
    values = [function(a) for function in FUNCTIONS.values()] + [
        function(a, b) for function in BINARY_FUNCTIONS.values()
    ]
    buffers = [BufferParameter(dtype, count, position >= 2) for position in range(2 + len(values))]
    stores = [Store(2 + position, axis, value) for position, value in enumerate(values)]
    return Kernel(tuple(buffers), (), (axis,), 0, tuple(stores))


def compare(dtype, machine: Machine, operands, wanted):
    """Run the machine's code chunk by chunk; `wanted` holds the reference's results by name."""
    size = operands[0].size
    for start in range(0, size, CHUNK):
        part = [operand[start : start + CHUNK] for operand in operands]
        outputs = [np.zeros_like(part[0]) for _ in NAMES]
        after = run_kernel(kernel(dtype, part[0].size), [*part, *outputs], machine)
        for name, found in zip(NAMES, after[2:], strict=True):
            assert not differences(dtype, found, wanted[name][start : start + CHUNK]), (name, machine.name)


@lru_cache(maxsize=2)
def reference(dtype, count, seed):
    """The patterns, and the reference's results by name."""
    operands = patterns(dtype, count, seed)
    assert operands[0].size >= count
    return operands, {name: evaluate(name, operands[: 1 + (name in BINARY_FUNCTIONS)], dtype) for name in NAMES}


def need(machine: Machine) -> None:
    """Without its emulator AArch64 code is not run, and says so; under CI it then fails."""
    if machine.name == "cpu/aarch64" and missing_tools() and os.environ.get("CI") != "true":
        pytest.skip(f"not installed: {', '.join(missing_tools())}")


def check(dtype, machine: Machine, count, seed):
    need(machine)
    compare(dtype, machine, *reference(dtype, count, seed))


@DTYPES
@MACHINES
def test_machines_agree_with_the_reference(machine, dtype):
    check(dtype, machine, 6000, 1)


def narrow_kernel(dtype):
    """As `kernel`, on all 65,536 values of a narrow float: widened, computed in f32, rounded once (rule 3)."""
    axis = Axis(I64, (0, 1 << 16), ())
    a, b = (convert(load(dtype, position, axis), F32) for position in range(2))
    values = [function(a) for function in FUNCTIONS.values()] + [
        function(a, b) for function in BINARY_FUNCTIONS.values()
    ]
    buffers = [BufferParameter(dtype, 1 << 16, position >= 2) for position in range(2 + len(values))]
    stores = [Store(2 + position, axis, convert(value, dtype)) for position, value in enumerate(values)]
    return Kernel(tuple(buffers), (), (axis,), 0, tuple(stores))


@pytest.mark.parametrize("dtype", [F16, BF16], ids=lambda dtype: dtype.name)
@MACHINES
def test_narrow_floats_go_by_way_of_f32(machine, dtype):
    """Every value of the type; the second operand of pow and atan2 is the first in another order."""
    need(machine)
    a = np.arange(1 << 16, dtype=np.uint16).view(dtype.storage)
    operands = [a, np.roll(a[::-1], 12345)]
    wide = [converted(operand, dtype, F32) for operand in operands]
    after = run_kernel(narrow_kernel(dtype), [*operands, *(np.zeros_like(a) for _ in NAMES)], machine)
    for name, found in zip(NAMES, after[2:], strict=True):
        exact = evaluate(name, wide[: 1 + (name in BINARY_FUNCTIONS)], F32)
        assert not differences(dtype, found, converted(exact, F32, dtype)), (name, machine.name)


@pytest.mark.full
@DTYPES
@pytest.mark.parametrize("seed", range(10))
@MACHINES
def test_machines_agree_on_ten_million_patterns(machine, seed, dtype):
    """10^6 patterns for each of ten seeds."""
    check(dtype, machine, 1_000_000, 100 + seed)

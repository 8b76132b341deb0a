"""Every scalar operation on every element type, native against the contract's NumPy model, on special values."""

from __future__ import annotations

import numpy as np
import pytest

from repro.ir import index as ix
from repro.ir.expressions import Expr, apply, bitcast, convert, load
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.scalars import SCALARS
from repro.ir.schedule import Schedule
from repro.ir.types import BOOL, DTYPES, Array, DType
from repro.numerics import numpy_scalars
from repro.numerics.host_mode import exact_arithmetic
from tests.targets.native import HERE, differences, run_kernel, same

FLOAT_BITS = {
    32: [0, 1, 2, 0x7FFFFF, 0x800000, 0x3F800000, 0x3F7FFFFF, 0x3F800001, 0x3F000000, 0x3FC00000, 0x40200000,
         0x4B000000, 0x4B000001, 0x4EFFFFFF, 0x4F000000, 0x4F7FFFFF, 0x4F800000, 0x5F000000, 0x5F800000,
         0x33000000, 0x33000001, 0x387FE000, 0x38800000, 0x477FE000, 0x477FEFFF, 0x477FF000, 0x43E00000,
         0x43E80000, 0x7F7FFFFF, 0x7F7F8000, 0x7F800000, 0x7FC00000, 0x7FA00000],
    64: [0, 1, 0xFFFFFFFFFFFFF, 1 << 52, 0x3FF0000000000000, 0x3FEFFFFFFFFFFFFF, 0x3FE0000000000000,
         0x3FF8000000000000, 0x4004000000000000, 0x4330000000000001, 0x41DFFFFFFFC00000, 0x41E0000000000000,
         0x41EFFFFFFFE00000, 0x43E0000000000000, 0x43EFFFFFFFFFFFFF, 0x43F0000000000000, 0x36A0000000000000,
         0x36A0000000000001, 0x3690000000000000, 0x47EFFFFFE0000000, 0x47EFFFFFF0000000, 0x3E60000000000001,
         0x7FEFFFFFFFFFFFFF, 0x7FF0000000000000, 0x7FF8000000000000],
}  # fmt: skip
"""Magnitudes: ends of ranges, halves, edges of conversions to integers and to narrower floats."""


def special(dtype: DType) -> Array:
    """Special values of a type, both signs, and some random bits."""
    rng = np.random.default_rng(dtype.bits)
    if dtype is BOOL:
        return np.array([False, True])
    raw = np.dtype(f"u{dtype.bytes}")
    if dtype.bits == 8:
        return np.arange(256, dtype=np.uint8).view(dtype.storage)
    top = 1 << (dtype.bits - 1)
    if dtype.is_float and dtype.computes:
        positive = np.array(FLOAT_BITS[dtype.bits], raw)
        codes = np.concatenate([positive, positive | raw.type(top)])
    elif dtype.is_float:
        codes = np.concatenate([np.arange(0, 1 << 16, 37, dtype=raw), np.array([0x7C00, 0xFC00, 0x7E00, 0x7F80], raw)])
    else:
        ends = [0, 1, 2, 3, 7, 31, 32, 63, 64, 100, top - 1, top, top + 1, 2 * top - 1, 2 * top - 2, top // 2, 2047]
        codes = np.array(ends, np.uint64).astype(raw)
    random = rng.integers(0, 2**32, 12, np.uint64) * np.uint64(0x100000001)
    return np.concatenate([codes, random.astype(raw)]).view(dtype.storage)


def triples(dtype: DType) -> tuple[Array, Array, Array]:
    """Every pair of special values, with a third that goes round; of a length that no vector width divides."""
    values = special(dtype)
    if len(values) > 120:
        values = values[:: len(values) // 100]
    a, b = (grid.reshape(-1) for grid in np.meshgrid(values, values))
    a, b = np.concatenate([a, a[:7]]), np.concatenate([b, b[:7]])
    return a, b, np.roll(a, 5)


def kernel_of(dtypes: list[DType], size: int, values: list[Expr]) -> Kernel:
    """out_n[i] <- values[n], over inputs of the given types."""
    i = ix.axis(0, size)
    inputs = tuple(BufferParameter(dtype, size, False) for dtype in dtypes)
    outputs = tuple(BufferParameter(value.dtype, size, True) for value in values)
    stores = tuple(Store(len(inputs) + n, i, value) for n, value in enumerate(values))
    return Kernel((*inputs, *outputs), (), (i,), 0, stores)


def check(kernel: Kernel, inputs: list[Array], wanted: list[Array], names: list[str], machine, width: int) -> None:
    size = kernel.axes[0].extent
    outputs = [np.zeros(size, b.dtype.storage) for b in kernel.buffers[len(inputs) :]]
    found = run_kernel(kernel, [*inputs, *outputs], machine, Schedule(0, width, size))[len(inputs) :]
    assert len(names) == len(found) > 0
    for name, store, left, right in zip(names, kernel.stores, found, wanted, strict=True):
        dtype = store.value.dtype
        if not same(dtype, left, right):
            at = differences(dtype, left, right)[0][0]
            operands = [array[at] for array in inputs]
            pytest.fail(f"{name}: {operands} gave {left[at]!r}, wanted {right[at]!r} (at {at})")


@pytest.mark.parametrize("width", [1, 8])
@pytest.mark.parametrize("machine", HERE, ids=lambda m: m.name)
@pytest.mark.parametrize("dtype", [d for d in DTYPES if d.computes], ids=str)
def test_every_operation(dtype: DType, machine, width: int) -> None:
    inputs = list(triples(dtype))
    size, i = len(inputs[0]), ix.axis(0, len(inputs[0]))
    operands = [load(dtype, n, i) for n in range(3)]
    names = [n for n, op in SCALARS.items() if dtype.kind in op.kinds and n not in ("select", "convert", "bitcast")]
    values = [apply(name, *operands[: SCALARS[name].arity]) for name in names]
    with exact_arithmetic():
        wanted = [
            np.asarray(numpy_scalars.evaluate(name, value.dtype, [dtype] * 3, inputs[: SCALARS[name].arity]))
            for name, value in zip(names, values, strict=True)
        ]
    check(kernel_of([dtype] * 3, size, values), inputs, wanted, names, machine, width)


@pytest.mark.parametrize("width", [1, 16])
@pytest.mark.parametrize("machine", HERE, ids=lambda m: m.name)
@pytest.mark.parametrize("source", DTYPES, ids=str)
def test_every_conversion(source: DType, machine, width: int) -> None:
    values = special(source)
    size, i = len(values), ix.axis(0, len(values))
    operand = load(source, 0, i)
    targets = [target for target in DTYPES if target is not source]
    with exact_arithmetic():
        wanted = [numpy_scalars.evaluate("convert", target, [source], [values]) for target in targets]
    made = [convert(operand, target) for target in targets]
    check(kernel_of([source], size, made), [values], wanted, [f"{source} to {t}" for t in targets], machine, width)


@pytest.mark.parametrize("machine", HERE, ids=lambda m: m.name)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_select_and_bitcast_keep_bits(dtype: DType, machine) -> None:
    values = special(dtype)
    size, i = len(values), ix.axis(0, len(values))
    condition = (np.arange(size) % 3 == 0).astype(np.bool_)
    a, b, flag = load(dtype, 0, i), load(dtype, 1, i), load(BOOL, 2, i)
    raw = next(d for d in DTYPES if d.bits == dtype.bits and d.is_integer and not d.is_signed)
    other = np.roll(values, 3)
    inputs = [values, other, condition]
    chosen = bitcast(apply("select", flag, a, b), raw)
    wanted = [np.where(condition, values, other).view(raw.storage), values.view(raw.storage)]
    kernel = kernel_of([dtype, dtype, BOOL], size, [chosen, bitcast(a, raw)])
    check(kernel, inputs, wanted, ["select", "bitcast"], machine, 8)

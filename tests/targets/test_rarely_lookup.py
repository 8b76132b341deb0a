"""`rarely` and `lookup`, native and in both interpreters, against what they say; and their text."""

from __future__ import annotations

import numpy as np
import pytest

from repro.ir.expressions import Axis, Expr, apply, convert, load, lookup, rarely
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.parse_kernel import parse_kernel
from repro.ir.types import F32, F64, I32, I64
from repro.machines import CPUS
from repro.numerics.elementary.value import literal
from repro.numerics.interpret import argument, run_scalars
from tests.reference import reference
from tests.targets.native import run_kernel

EXTENT = 75
"""No vector width divides it."""
ENTRIES = {n: np.array([1.5 * k - 3 for k in range(n)]) for n in (2, 4, 8, 16, 32)}


def both(function, dtype, result, values):
    """The kernel's output on every machine and in both interpreters: one array, after they were found equal."""
    axis = Axis(I64, (0, values.size), ())
    buffers = (BufferParameter(dtype, values.size, False), BufferParameter(result, values.size, True))
    kernel = Kernel(buffers, (), (axis,), 0, (Store(1, axis, function(load(dtype, 0, axis))),))
    assert parse_kernel(kernel.text).text == kernel.text
    arrays = [values, np.zeros(values.size, result.storage)]
    found = [run_kernel(kernel, arrays, machine)[1] for machine in CPUS.values()]
    interpreted = reference(kernel, arrays)
    leaf = argument(dtype, 0)
    found += [interpreted[1], run_scalars([function(leaf)], {leaf: values})[0]]
    assert len({array.tobytes() for array in found}) == 1
    return found[0]


@pytest.mark.parametrize("count", ENTRIES)
def test_lookup_reads_the_entry_of_the_low_bits(count):
    table = [int(bits) for bits in ENTRIES[count].view(np.uint64)]
    index = np.random.default_rng(count).integers(-(2**63), 2**63, EXTENT)
    found = both(lambda x: lookup(F64, table, x), I64, F64, index)
    np.testing.assert_array_equal(found, ENTRIES[count][index % count])


def test_lookup_of_narrow_entries():
    index = np.arange(-20, EXTENT - 20, dtype=np.int32)
    found = both(lambda x: lookup(F32, [0, 0x3F800000, 0x40000000, 0x7FC00000], x), I32, F32, index)
    np.testing.assert_array_equal(found.view(np.uint32), np.array([0, 0x3F800000, 0x40000000, 0x7FC00000])[index % 4])


def _nested(x: Expr) -> Expr:
    """1/x above 3, the square root of that above 40; 2x elsewhere: the reciprocal is used on both sides."""
    reciprocal = apply("div", literal(1, F64), convert(x, F64))
    inner = rarely(apply("gt", x, literal(40, F32)), apply("sqrt", reciprocal), reciprocal)
    common = apply("add", convert(x, F64), convert(x, F64))
    return rarely(apply("gt", x, literal(3, F32)), inner, common)


@pytest.mark.parametrize("greatest", [2.0, 30.0, 50.0])
def test_rarely_is_select(greatest):
    x = np.linspace(-5, greatest, EXTENT).astype(np.float32)
    wide = x.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        wanted = np.where(x > 3, np.where(x > 40, np.sqrt(1 / wide), 1 / wide), 2 * wide)
    np.testing.assert_array_equal(both(_nested, F32, F64, x), wanted)


def test_tables_and_conditions_are_checked():
    index = argument(I64, 0)
    with pytest.raises(TypeError, match="power of two"):
        lookup(F64, [1, 2, 3], index)
    with pytest.raises(TypeError, match="index"):
        lookup(F32, [1, 2], index)
    with pytest.raises(TypeError, match="rarely"):
        rarely(index, index, index)

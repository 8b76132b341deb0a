"""What QuantizeLinear stores, round(y) + zero point converted, in native code: the bits of the contract's model."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from proofs.native import elementwise_kernel
from repro.ir.expressions import Expr, apply, const, convert
from repro.ir.schedule import Schedule
from repro.ir.types import F32, I8, I16, U8, U16, Array, DType
from repro.machines import X86_64_V3, Machine
from repro.numerics.numpy_convert import convert as model
from repro.targets.llvm import kernel as kernels
from repro.targets.llvm import toolchain
from tests.targets.native import run_kernel
from tests.targets.test_cpu_roads import MACHINES
from tests.targets.test_scalar_bits import special

ON_EVERY = pytest.mark.parametrize("machine", MACHINES)
TYPES = pytest.mark.parametrize("dtype", [I8, U8, I16, U16], ids=str)
SOURCES: dict[str, Callable[[Expr], Expr]] = {
    "as it lies": lambda x: x,
    "a product": lambda x: apply("mul", x, const(F32, 0x3F800000)),
}
"""What is rounded: it may be a signaling NaN, or not."""


def hard(dtype: DType) -> tuple[Array, Array]:
    """Numbers beside the ends of a type and beside halves there, each with zero points from end to end, and f32's own
    special values."""
    ends = np.iinfo(dtype.storage)
    near = np.array([ends.min, ends.max, 0, 1 << 22, 1 << 23, 1 << 24, 1 << 31], np.float64)
    zeros = np.array([ends.min, ends.min + 1, 0, 3, ends.max // 2, ends.max - 1, ends.max], dtype.storage)
    places = [at - float(zero) + by for at in near for zero in zeros for by in (-1.0, -0.5, -0.25, 0, 0.25, 0.5, 1)]
    numbers = np.array(places, np.float64).astype(np.float32)
    words = numbers.view(np.uint32)
    beside = np.concatenate([words, words + 1, words - (words & 0x7FFFFFFF != 0)]).astype(np.uint32).view(np.float32)
    values = np.unique(np.concatenate([beside, -beside, special(F32)]).view(np.uint32)).view(np.float32)
    return np.repeat(values, len(zeros)), np.tile(zeros, len(values))


def wanted(values: Array, zeros: Array | None, dtype: DType) -> Array:
    with np.errstate(all="ignore"):
        rounded = np.rint(values)
        return model(rounded if zeros is None else rounded + zeros.astype(np.float32), F32, dtype)


@ON_EVERY
@TYPES
@pytest.mark.parametrize("source", SOURCES)
def test_every_zero_point(dtype: DType, source: str, machine: Machine) -> None:
    values, zeros = hard(dtype)
    made = elementwise_kernel(
        lambda x, z: [convert(apply("add", apply("round", SOURCES[source](x)), convert(z, F32)), dtype)],
        [F32, dtype],
        values.size,
    )
    buffers = [values, zeros, np.zeros_like(zeros)]
    for width in (1, 4, 8, 16, 32):
        found = run_kernel(made, buffers, machine, Schedule(0, width, values.size))[2]
        np.testing.assert_array_equal(found, wanted(values, zeros, dtype), f"{width} lanes")


@ON_EVERY
@TYPES
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("zero", [None, 0, 5, -1])
def test_a_zero_point_that_is_known(dtype: DType, source: str, zero: int | None, machine: Machine) -> None:
    values = np.unique(hard(dtype)[0].view(np.uint32)).view(np.float32)
    bits = 0 if zero is None else zero & (1 << dtype.bits) - 1

    def sequence(x: Expr) -> list[Expr]:
        rounded = apply("round", SOURCES[source](x))
        if zero is not None:
            rounded = apply("add", rounded, convert(const(dtype, bits), F32))
        return [convert(rounded, dtype)]

    made = elementwise_kernel(sequence, [F32], values.size)
    known = None if zero is None else np.full(values.size, bits, f"u{dtype.bytes}").view(dtype.storage)
    found = run_kernel(made, [values, np.zeros(values.size, dtype.storage)], machine)[1]
    np.testing.assert_array_equal(found, wanted(values, known, dtype))


def test_rounding_and_conversion_are_one_instruction() -> None:
    made = elementwise_kernel(lambda x: [convert(apply("round", x), U8)], [F32], 64)
    text, _ = toolchain.assembly(kernels.emit(made, Schedule(0, 8, 64), X86_64_V3), X86_64_V3)
    assert "vcvtps2dq" in text
    assert "vround" not in text

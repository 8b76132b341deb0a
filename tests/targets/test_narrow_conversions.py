"""Conversions between narrow floats and f32 in native code, by instructions or by integers: NumPy's model's bits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from proofs import conversions
from proofs.native import elementwise_kernel
from repro.ir.expressions import apply, convert
from repro.ir.schedule import Schedule
from repro.ir.types import BF16, F16, F32, F64, Array, DType
from repro.machines import CPUS, X86_64_V3, Machine
from repro.numerics.narrow_formats import NARROW
from repro.numerics.numpy_convert import convert as model
from repro.targets.llvm import kernel as kernels
from tests.targets.native import HERE, run_kernel, same
from tests.targets.test_cpu_roads import MACHINES

ON_EVERY = pytest.mark.parametrize("machine", MACHINES)
EVERY = pytest.mark.parametrize("narrow", NARROW, ids=str)


def hard(narrow: DType) -> Array:
    """Every value of the format, the ties between neighbours and beyond the greatest, and what lies beside each; f32's
    own ends and NaNs of several payloads."""
    fmt = NARROW[narrow]
    values = np.array([fmt.value(code) for code in range(fmt.greatest + 1)])
    values = np.append(values, 2 * values[-1] - values[-2])
    ties = (values[1:] + values[:-1]) / 2
    with np.errstate(over="ignore"):
        exact = np.concatenate([values, ties]).astype(np.float32)
    assert np.array_equal(exact[values.size :], ties), "f32 has them all"
    words = exact.view(np.uint32)
    ends = [1, 2, 0x7FFFFF, 0x800000, 0x7F7FFFFF, 0x7F800000, 0x7FC00000, 0x7F800001, 0x7FA0BEEF, 0x7FFFFFFF]
    words = np.concatenate([words, words[1:] - 1, words + 1, np.array(ends, np.uint32)]).astype(np.uint32)
    return np.concatenate([words, words | np.uint32(1 << 31)]).view(np.float32)


@ON_EVERY
@EVERY
def test_ties_and_their_neighbours_are_rounded_by_the_rule(narrow: DType, machine: Machine) -> None:
    """Numbers of lanes of every kind: whole vectors, the rest, scalars."""
    given = hard(narrow)
    kernel = elementwise_kernel(lambda x: [convert(x, narrow)], [F32], given.size)
    wanted = model(given, F32, narrow)
    for width in (1, 4, 8, 16, 32):
        found = run_kernel(kernel, [given, np.zeros_like(wanted)], machine, Schedule(0, width, given.size))[1]
        assert found.tobytes() == wanted.tobytes(), width


@ON_EVERY
@EVERY
def test_every_code_becomes_its_value(narrow: DType, machine: Machine) -> None:
    codes = np.arange(1 << narrow.bits, dtype=f"u{narrow.bytes}").view(narrow.storage)
    for wide in (F32, F64):
        kernel = elementwise_kernel(lambda x, wide=wide: [convert(x, wide)], [narrow], codes.size)
        found = run_kernel(kernel, [codes, np.zeros(codes.size, wide.storage)], machine)[1]
        assert same(wide, found, model(codes, narrow, wide))


@ON_EVERY
@pytest.mark.parametrize("op", ["add", "mul", "div"])
def test_sums_of_f16_are_rounded_once(op: str, machine: Machine) -> None:
    """LLVM sees an f16 sum between such conversions; whatever it makes of it has these bits."""
    generator = np.random.default_rng(1)
    a, b = (generator.integers(0, 1 << 16, 1 << 14, dtype=np.uint16).view(F16.storage) for _ in range(2))
    kernel = elementwise_kernel(
        lambda x, y: [convert(apply(op, convert(x, F32), convert(y, F32)), F16)], [F16, F16], a.size
    )
    wide = [model(each, F16, F32) for each in (a, b)]
    with np.errstate(all="ignore"):
        exact = {"add": np.add, "mul": np.multiply, "div": np.divide}[op](*wide)
    found = run_kernel(kernel, [a, b, np.zeros_like(a)], machine)[2]
    assert same(F16, found, model(exact, F32, F16))


def test_machines_without_the_instructions_take_integers() -> None:
    kernel = elementwise_kernel(lambda x: [convert(convert(x, F32), BF16)], [F16], 64)
    assert all("fpext" in kernels.emit(kernel, Schedule(0, 8, 64), machine) for machine in CPUS.values())
    assert "half" not in kernels.emit(kernel, Schedule(0, 8, 64), replace(X86_64_V3, converts_f16=False))


@EVERY
def test_the_proof_finds_nothing_in_some_blocks(narrow: DType) -> None:
    assert conversions.rounded_otherwise(narrow, HERE[0], 64) == conversions.widened_otherwise(narrow, HERE[0]) == 0

"""The canonical NaN in lanes: a comparison of floats, and the same bits everywhere."""

from __future__ import annotations

import numpy as np
import pytest

from proofs.native import elementwise_kernel
from repro.ir.schedule import Schedule
from repro.ir.types import CANONICAL_NAN, F32
from repro.machines import CPUS, Machine
from repro.ops.elementwise import canonical_nan_expr
from repro.targets.llvm import kernel as kernels
from tests.targets.native import HERE, run_kernel

KERNEL = elementwise_kernel(lambda x: [canonical_nan_expr(x)], [F32], 64)
EDGES = [0, 1, 0x007FFFFF, 0x00800000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FA00000, 0x7FC00000, 0x7FC00001]


@pytest.mark.parametrize("machine", CPUS.values(), ids=CPUS)
@pytest.mark.parametrize("lanes", [1, 8, 16, 32, 64])
def test_only_nans_change(machine: Machine, lanes: int) -> None:
    """Quiet and signalling ones of both signs become one; the numbers beside them keep their bits."""
    if machine not in HERE:
        pytest.skip("this host does not run it")
    edges = np.array([*EDGES, *(edge | 1 << 31 for edge in EDGES)], np.uint32)
    given = np.resize(edges, 64)
    wanted = np.where((given & 0x7FFFFFFF) > 0x7F800000, np.uint32(CANONICAL_NAN[F32]), given)
    arrays = [given.view(np.float32), np.zeros(64, np.float32)]
    found = run_kernel(KERNEL, arrays, machine, Schedule(0, lanes, 64))[1]
    np.testing.assert_array_equal(found.view(np.uint32), wanted)


@pytest.mark.parametrize("machine", CPUS.values(), ids=CPUS)
@pytest.mark.parametrize("place", [0, 15, 16, 31, 33, 50, 63])
def test_one_among_several_registers_is_found(machine: Machine, place: int) -> None:
    if machine not in HERE:
        pytest.skip("this host does not run it")
    given = np.linspace(-3, 3, 64, dtype=np.float32)
    wanted = given.copy().view(np.uint32)
    given.view(np.uint32)[place], wanted[place] = 0xFFC12345, CANONICAL_NAN[F32]
    found = run_kernel(KERNEL, [given, np.zeros(64, np.float32)], machine, Schedule(0, 64, 64))[1]
    np.testing.assert_array_equal(found.view(np.uint32), wanted)


@pytest.mark.parametrize("machine", CPUS.values(), ids=CPUS)
def test_several_registers_are_asked_at_once(machine: Machine) -> None:
    """A comparison for each two of them, and one where there was a NaN; AArch64 has none for two."""
    width = 4 * machine.lanes(32)
    text = kernels.emit(KERNEL, Schedule(0, width, 64), machine)
    assert text.count("fcmp uno") == (1 if machine.ordered_extremes else 2 + 1)


@pytest.mark.parametrize("machine", CPUS.values(), ids=CPUS)
def test_floats_are_compared(machine: Machine) -> None:
    assert "fcmp uno" in kernels.emit(KERNEL, Schedule(0, machine.lanes(32), 64), machine)

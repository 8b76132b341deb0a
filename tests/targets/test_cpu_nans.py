"""The canonical NaN in lanes: a comparison of floats, and the same bits everywhere."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from proofs import roads as proven
from proofs.native import elementwise_kernel
from repro.ir.expressions import Expr, apply, const
from repro.ir.schedule import Schedule
from repro.ir.types import CANONICAL_NAN, F32
from repro.machines import CPUS, Machine
from repro.numerics import interpret
from repro.numerics.elementary import FUNCTIONS
from repro.ops.elementwise import canonical_nan_expr
from repro.targets.llvm import kernel as kernels
from repro.targets.llvm import nans
from repro.targets.llvm.roads import roads
from tests.reference import reference
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


ONE, TWO, ZERO, INFINITY = (const(F32, bits) for bits in (0x3F800000, 0xC0000000, 0x80000000, 0xFF800000))
exp, tanh, erf = (FUNCTIONS[name] for name in ("exp", "tanh", "erf"))
KNOWN: dict[str, Callable[[Expr], Expr]] = {
    "exp": exp,
    "tanh": tanh,
    "erf": erf,
    "sigmoid": lambda x: apply("div", ONE, apply("add", ONE, exp(apply("neg", x)))),
    "constants": lambda x: apply("neg", apply("div", apply("sub", apply("mul", tanh(x), TWO), ONE), TWO)),
}
"""NaN where the function is, and nowhere else."""
UNKNOWN: dict[str, Callable[[Expr], Expr]] = {
    "the argument": lambda x: x,
    "times 0": lambda x: apply("mul", exp(x), ZERO),
    "0 by it": lambda x: apply("div", ZERO, exp(x)),
    "less infinity": lambda x: apply("add", exp(x), INFINITY),
    "times the argument": lambda x: apply("mul", x, exp(x)),
    "of two": lambda x: apply("sub", exp(x), exp(apply("neg", x))),
    "square root": lambda x: apply("sqrt", tanh(x)),
}
TABLED = [machine for machine in CPUS.values() if machine.permute_bits]


@pytest.mark.parametrize("machine", TABLED, ids=lambda machine: machine.name)
@pytest.mark.parametrize("name", KNOWN | UNKNOWN)
def test_what_is_a_nan_only_where_its_function_is(name: str, machine: Machine) -> None:
    kernel = elementwise_kernel(lambda x: [canonical_nan_expr((KNOWN | UNKNOWN)[name](x))], [F32], 64)
    value = nans.behind(kernel.stores[0].value)
    assert value is not None
    known = roads(kernel, machine)
    assert nans.source(value, known) is (next(iter(known)) if name in KNOWN else None)


@pytest.mark.parametrize("road", [road for road in proven.ROADS.values() if road.machine], ids=lambda road: road.record)
def test_every_road_leaves_nan_to_the_first_one(road: proven.Road) -> None:
    patterns = np.random.default_rng(4).integers(0x7F800001, 0x80000000, 4096, np.uint32)
    x = np.concatenate([patterns, patterns | np.uint32(1 << 31), [0x7F800001, 0x7FFFFFFF]]).astype(np.uint32)
    left = interpret.evaluate(lambda operand: proven.undecided(road, operand), [x.view(np.float32)], [F32])
    assert left.all()


@pytest.mark.parametrize("machine", HERE, ids=lambda machine: machine.name)
@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("name", KNOWN | UNKNOWN)
def test_nan_is_one_behind_functions(name: str, lanes: int, machine: Machine) -> None:
    """Seldom ones of any bits, infinities, zeros, and arguments that a road leaves to the first one, in any lane."""
    random, extent = np.random.default_rng(9), 4096
    x = random.standard_normal(extent).astype(np.float32)
    for value in (np.nan, np.inf, -np.inf, 0.0, -0.0, 80.0, -80.0, 120.0, -120.0):
        x[random.integers(0, extent, 12)] = value
    x.view(np.uint32)[np.isnan(x)] |= random.integers(0, 1 << 32, int(np.isnan(x).sum()), np.uint32) & 0x803FFFFF
    kernel = elementwise_kernel(lambda x: [canonical_nan_expr((KNOWN | UNKNOWN)[name](x))], [F32], extent)
    given = [x, np.zeros(extent, np.float32)]
    wanted = reference(kernel, given)
    found = run_kernel(kernel, given, machine, Schedule(0, lanes * machine.lanes(32), extent))[1]
    np.testing.assert_array_equal(found.view(np.uint32), wanted[1].view(np.uint32))
    assert np.isnan(found).any()

"""pow and atan2 in f32 against MPFR: special values, midpoints, ends of the range, random operands; both roads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from repro.ir import index as ix
from repro.ir.expressions import TRUE, Expr, load
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.types import F32, F64, Array
from repro.machines import Machine
from repro.numerics import interpret
from repro.numerics.elementary.f32 import arctangent2, power
from repro.numerics.elementary.value import Value
from tests.targets.native import HERE, run_kernel

gmpy2: Any = import_module("gmpy2")

F32_FORMAT = gmpy2.context(precision=24, emax=128, emin=-148, subnormalize=True)
SPECIAL = [0.0, 2.0**-149, 2.0**-126, 0.5, 1 - 2.0**-24, 1.0, 1 + 2.0**-23, 1.5, 2.0, 3.0, 8388607.5, 2.0**24 - 1,
           2.0**24, 2.0**31, (2 - 2.0**-23) * 2.0**127, np.inf, np.nan]  # fmt: skip
TRUTH = {"pow": lambda x, y: x**y, "atan2": gmpy2.atan2}
SEQUENCES = {"pow": power.pow, "atan2": arctangent2.atan2}
NAMES = pytest.mark.parametrize("name", SEQUENCES)


def expression(sequence: Callable[[Value, Value], Value], a: Expr, b: Expr) -> Expr:
    return sequence(Value(a), Value(b)).expr


def interpreted(sequence: Callable[[Value, Value], Value], a: Array, b: Array) -> Array:
    return interpret.evaluate(partial(expression, sequence), [a, b], [F32, F32])


def compiled(sequence: Callable[[Value, Value], Value], a: Array, b: Array, machine: Machine = HERE[-1]) -> Array:
    i = ix.axis(0, a.size)
    result = sequence(Value(load(F32, 0, i)), Value(load(F32, 1, i)))
    buffers = tuple(BufferParameter(dtype, a.size, out) for dtype, out in ((F32, False), (F32, False), (F32, True)))
    return run_kernel(Kernel(buffers, (), (i,), 0, (Store(2, i, result.expr),)), [a, b, np.zeros_like(a)], machine)[-1]


def truths(name: str, a: Array, b: Array) -> Array:
    with gmpy2.context(F32_FORMAT):
        pairs = zip(a.tolist(), b.tolist(), strict=True)
        return np.array([float(TRUTH[name](gmpy2.mpfr(p), gmpy2.mpfr(q))) for p, q in pairs], np.float32)


def assert_same(found: Array, wanted: Array, a: Array, b: Array) -> None:
    both_nan = np.isnan(found) & np.isnan(wanted)
    wrong = np.nonzero(~both_nan & (found.view(np.uint32) != wanted.view(np.uint32)))[0]
    assert found.size > 0
    assert not wrong.size, [(float(a[i]).hex(), float(b[i]).hex(), found[i], wanted[i]) for i in wrong[:5]]


def columns(pairs: Sequence[tuple[float, float]]) -> tuple[Array, Array]:
    """Operands, each an f32 already."""
    wide = np.array(pairs)
    narrow = wide.astype(np.float32)
    assert np.array_equal(narrow.astype(np.float64), wide)
    return narrow[:, 0].copy(), narrow[:, 1].copy()


def random_pairs(name: str, count: int, seed: int) -> tuple[Array, Array]:
    """Operands whose result is neither 0 nor infinity, of all magnitudes; an eighth with any bits at all."""
    rng = np.random.Generator(np.random.Philox(seed))
    a = 2.0 ** rng.uniform(-149, 128, count)
    b = rng.uniform(-150, 128, count) / np.log2(a) if name == "pow" else a * 2.0 ** rng.uniform(-40, 40, count)
    if name == "atan2":
        a, b = a * rng.choice([-1, 1], count), b * rng.choice([-1, 1], count)
    with np.errstate(over="ignore"):
        x, y = a.astype(np.float32), b.astype(np.float32)
    bits = rng.integers(0, 1 << 32, (2, count // 8), np.uint32).view(np.float32)
    x[: count // 8], y[: count // 8] = bits
    return x, y


def midpoint_powers() -> list[tuple[float, float]]:
    """(x, y) with x^y of more bits than an f32 has there, but at most 25: roots, whole powers and powers of roots.

    Of an odd a, x = a^(2^s) 2^e and y = n / 2^s; every third base, every seventh exponent.
    """
    found: list[tuple[float, float]] = []
    for s in range(4):
        bases = [a for a in range(3, 5793, 6) if a ** (2**s) < 2**24]
        for a, n in ((a, n) for a in bases for n in range(1, 16, 1 + (s > 0)) if a**n < 2**25):
            for e in range(-149, 128, 7):
                x, log2_of_scale = a ** (2**s) * 2.0 ** (e * 2**s) if abs(e * 2**s) < 150 else 0.0, e * n
                if not 2.0**-149 <= x < 2.0**128 or not -200 < log2_of_scale < 128:
                    continue
                result = a**n * 2.0**log2_of_scale
                if 2.0**-150 <= result < 2.0**128 and float(np.float32(result)) != result:
                    found.append((x, n / 2**s))
    return found


@NAMES
@pytest.mark.parametrize("machine", HERE, ids=lambda machine: machine.name)
def test_special_values(name: str, machine: Machine) -> None:
    signed = np.array([*SPECIAL, *(-value for value in SPECIAL)], np.float32)
    a, b = (grid.reshape(-1) for grid in np.meshgrid(signed, signed))
    assert_same(compiled(SEQUENCES[name], a, b, machine), truths(name, a, b), a, b)
    assert_same(interpreted(SEQUENCES[name], a, b), truths(name, a, b), a, b)


@NAMES
@pytest.mark.parametrize("machine", HERE, ids=lambda machine: machine.name)
def test_random_operands(name: str, machine: Machine) -> None:
    a, b = random_pairs(name, 15_000, 1)
    assert_same(compiled(SEQUENCES[name], a, b, machine), truths(name, a, b), a, b)


@NAMES
def test_wide_road_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every case counts as undecided, the results are the same."""
    for module in (power, arctangent2):
        monkeypatch.setattr(module, "undecided", lambda v, bound: Value(TRUE))
    a, b = random_pairs(name, 15_000, 2)
    wanted = truths(name, a, b)
    if name == "pow":  # the common road alone sees zeros, infinities and results out of range
        kept = np.isfinite(wanted) & (wanted > 0) & (a > 0)
        a, b, wanted = a[kept], b[kept], wanted[kept]
    assert_same(compiled(SEQUENCES[name], a, b), wanted, a, b)


@pytest.mark.parametrize("machine", HERE, ids=lambda machine: machine.name)
def test_powers_that_are_midpoints(machine: Machine) -> None:
    x, y = columns(midpoint_powers())
    assert x.size > 5000
    assert_same(compiled(power.pow, x, y, machine), truths("pow", x, y), x, y)


def test_powers_beside_midpoints() -> None:
    x, y = columns(midpoint_powers()[::6])
    for towards in (np.float32(0), np.float32(np.inf)):
        near_x, near_y = np.nextafter(x, towards), np.nextafter(y, towards)
        assert_same(compiled(power.pow, near_x, y), truths("pow", near_x, y), near_x, y)
        assert_same(compiled(power.pow, x, near_y), truths("pow", x, near_y), x, near_y)


def test_powers_by_the_reference() -> None:
    x, y = columns(midpoint_powers()[::40])
    assert_same(interpreted(power.pow, x, y), truths("pow", x, y), x, y)


def test_powers_of_two() -> None:
    """Exact results, ties at half the smallest subnormal, and irrational ones between."""
    pairs = [(2.0**f, n / 8) for f in range(-149, 128, 3) for n in range(-1200, 1200, 7) if abs(f * n) < 8 * 152]
    x, y = columns([*pairs, (2.0**-1, 150.0), (2.0**-100, 1.5), (2.0**-50, 3.0), (2.0**-75, 2.0), (4.0, -75.0)])
    assert_same(compiled(power.pow, x, y), truths("pow", x, y), x, y)
    assert not compiled(power.pow, x[-5:], y[-5:]).any()


def test_powers_at_the_ends_of_the_range() -> None:
    rng = np.random.Generator(np.random.Philox(3))
    x = (2.0 ** rng.uniform(-149, 128, 15_000)).astype(np.float32)
    ends = rng.choice([-150.0, -149.0, -148.415, -126.0, 128.0], x.size) + rng.normal(0, 1e-6, x.size)
    y = (ends / np.log2(x.astype(np.float64))).astype(np.float32)
    assert_same(compiled(power.pow, x, y), truths("pow", x, y), x, y)


def test_powers_of_bases_near_one() -> None:
    rng = np.random.Generator(np.random.Philox(4))
    x = (1 + rng.integers(1, 2000, 15_000) * rng.choice([-1, 1], 15_000) * 2.0**-24).astype(np.float32)
    x, logs = x[x != 1], np.log2(x[x != 1].astype(np.float64))
    y = (rng.uniform(-151, 129, x.size) / logs).astype(np.float32)
    assert_same(compiled(power.pow, x, y), truths("pow", x, y), x, y)
    small = (rng.integers(-40, 40, x.size) * 2.0**-24 * np.log2(np.e) / logs).astype(np.float32)
    assert_same(compiled(power.pow, x, small), truths("pow", x, small), x, small)


def test_angles_whose_quotient_is_a_subnormal_midpoint() -> None:
    """An angle lies below its quotient, if only by 2^-280 of it: ties go down."""
    pairs = [(odd * m * 2.0**-150, m * 1.0) for m in (2, 6, 10, 64, 1000, 2.0**20) for odd in range(1, 400, 2)]
    y, x = columns(pairs)
    found = compiled(arctangent2.atan2, y, x)
    assert_same(found, truths("atan2", y, x), y, x)
    below = np.array([odd // 2 for odd in range(1, 400, 2)] * 6, np.uint32)
    assert np.array_equal(found.view(np.uint32), below)


def test_angles_of_small_quotients() -> None:
    """Where q^3/3 is about half a last place of q."""
    rng = np.random.Generator(np.random.Philox(5))
    x = rng.uniform(1, 2, 15_000).astype(np.float32)
    y = (x * 2.0 ** rng.uniform(-16, -8, x.size)).astype(np.float32)
    assert_same(compiled(arctangent2.atan2, y, x), truths("atan2", y, x), y, x)


def test_roads_before_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    """The common road's f64 is well inside the bound that it is tested with."""
    for name, module, bound in (("pow", power, power.BOUND), ("atan2", arctangent2, arctangent2.BOUND)):
        seen: list[Value] = []
        monkeypatch.setattr(module, "undecided", lambda v, bound, kept=seen: kept.append(v) or Value(TRUE))
        a, b = random_pairs(name, 4000, 6)
        leaves = [interpret.argument(F32, position) for position in (0, 1)]
        SEQUENCES[name](*map(Value, leaves))
        assert seen[0].dtype is F64
        values = interpret.run_scalars([seen[0].expr], dict(zip(leaves, (a, b), strict=True)))[0]
        with gmpy2.context(precision=200):
            operands = zip(a.tolist(), b.tolist(), strict=True)
            exact = [abs(TRUTH[name](gmpy2.mpfr(p), gmpy2.mpfr(q))) for p, q in operands]
            usable = [(v, e) for v, e in zip(values.tolist(), exact, strict=True) if 2.0**-151 < e < 2.0**129]
            worst = max(float(abs(gmpy2.mpfr(v) / e - 1)) for v, e in usable)
        assert len(usable) > 3000
        assert 2.0**-56 < worst < bound / 2

"""Parts of the proofs again: a residue class natively, samples and all hard cases on every target; planted faults.

The class and the sample are drawn anew each time: REPRO_PROOF_SEED=<number> repeats a run.
"""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Callable

import numpy as np
import pytest

from proofs import records
from proofs.exhaustive import BLOCK, CLASSES, Prover, Tally, class_arguments, results_of
from proofs.native import elementwise_kernel
from repro.ir.expressions import Apply, Const, Expr, Lookup, Rarely, const, topological
from repro.ir.types import F32, F64, Array
from repro.machines import AARCH64, Machine
from repro.numerics import interpret
from repro.numerics.elementary import FUNCTIONS
from repro.numerics.elementary.value import Value, patched
from tests.goldens.qemu import missing_tools
from tests.proofs.test_records import SCHEMA
from tests.targets.native import HERE, run_kernel

SEED = int(os.environ.get("REPRO_PROOF_SEED") or random.SystemRandom().getrandbits(32))
STEP = 1 << 16
"""A sample is every 2^16-th bit pattern: all signs, exponents and leading seven bits of the fraction."""

WITHOUT_EMULATOR = pytest.mark.skipif(
    bool(missing_tools()) and os.environ.get("CI") != "true", reason=f"not installed: {', '.join(missing_tools())}"
)
TARGETS = [*((machine, ()) for machine in HERE if machine is not AARCH64), (AARCH64, WITHOUT_EMULATOR)]


def draw(name: str, below: int) -> int:
    """A number for this function and seed; shown where the test fails."""
    drawn = random.Random(f"{SEED} {name} {below}").randrange(below)
    print(f"REPRO_PROOF_SEED={SEED}: {name} drew {drawn} of {below}")
    return drawn


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_class_is_proved_again(name: str) -> None:
    """All 2^24 arguments, by the screen and by the recorded digest."""
    residue = draw(name, CLASSES)
    digest, tally = Prover(name).run_class(residue)
    assert tally.inputs == 1 << 24
    assert tally.misroundings == 0, tally.wrong[:5]
    assert digest == records.read(name, SCHEMA)["classes"][residue]


def hard_cases(name: str) -> Array:
    """(argument, result) rows of the record, as bits."""
    rows = [[int(word, 16) for word in row] for row in records.read(name, SCHEMA)["hard"]]
    return np.array(rows, np.uint32).reshape(-1, 2)


def sample(name: str) -> Array:
    return np.arange(draw(name, STEP), 1 << 32, STEP, dtype=np.uint32)


def on_machine(name: str, arguments: Array, machine: Machine) -> Array:
    """Result bits by code for the machine, native or emulated."""
    kernel = elementwise_kernel(results_of(FUNCTIONS[name]), [F32], arguments.size)
    return run_kernel(kernel, [arguments.view(np.float32), np.zeros(arguments.size, np.uint32)], machine)[1]


def on_reference(name: str, arguments: Array) -> Array:
    """Result bits by the NumPy interpreter."""
    return interpret.evaluate(lambda x: results_of(FUNCTIONS[name])(x)[0], [arguments.view(np.float32)], [F32])


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("machine", [pytest.param(m, marks=marks, id=m.name) for m, marks in TARGETS])
def test_machines_agree_with_the_reference(name: str, machine: Machine) -> None:
    """A sample and the recorded hard cases, which have their recorded results on every target."""
    hard, drawn = hard_cases(name), sample(name)
    arguments = np.concatenate([drawn, hard[:, 0]])
    wanted = on_reference(name, arguments)
    np.testing.assert_array_equal(wanted[drawn.size :], hard[:, 1])
    np.testing.assert_array_equal(on_machine(name, arguments, machine), wanted)


# ── planted faults ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("argument", "change"), [(0x3F8CCCCD, 1), (0x00000001, 2), (0x42AEAC50, -1), (0xC2C80000, 1)])
def test_one_wrong_result_of_a_class_is_found(argument: int, change: int) -> None:
    """Off by an ulp at a common argument, at a subnormal one, next to overflow, and at a subnormal result."""
    right = int(on_reference("exp", np.array([argument], np.uint32))[0])

    def faulty(x: Expr) -> Expr:
        return patched(Value(x), Value(FUNCTIONS["exp"](x)), {argument: right + change}).expr

    prover, tally = Prover("exp", faulty), Tally()
    first = (argument >> 8) // BLOCK * BLOCK
    arguments = class_arguments(argument & 255, first, BLOCK)
    prover.judge(arguments, prover.results.block(arguments.view(np.float32))[0], tally)
    assert [(each.argument, each.result, each.wanted) for each in tally.wrong] == [(argument, right + change, right)]


@pytest.mark.parametrize("argument", [0xFF800123, 0x7FFFFFFF, 0xFFFFFFFF, 0x44160000, 0xC4800000])
def test_a_wrong_result_under_a_rule_is_found(argument: int) -> None:
    def faulty(x: Expr) -> Expr:
        return patched(Value(x), Value(FUNCTIONS["exp"](x)), {argument: 0x3F800000}).expr

    tally, prover = Tally(), Prover("exp", faulty)
    arguments = class_arguments(argument & 255, (argument >> 8) // BLOCK * BLOCK, BLOCK)
    prover.judge(arguments, prover.results.block(arguments.view(np.float32))[0], tally)
    assert [each.argument for each in tally.wrong] == [argument]


def with_constant(root: Expr, old: Const, new: Const) -> Expr:
    """The sequence with one constant in another's place."""
    made: dict[Expr, Expr] = {}
    for expr in topological([root]):
        children = tuple(made[child] for child in expr.children)
        kind = type(expr)
        made[expr] = new if expr is old else kind(expr.dtype, expr.fields, children)
        assert kind in (Const, Apply, Rarely, Lookup) or not expr.children or children == expr.children
    return made[root]


def changed_constants(name: str) -> list[Callable[[Expr], Expr]]:
    """The function once for each f64 constant that is no power of two, that one off by 2^-27 of itself."""
    leaf = interpret.argument(F32, 0)
    found = [e for e in topological([FUNCTIONS[name](leaf)]) if isinstance(e, Const) and e.dtype is F64]
    chosen = [each for each in found if each.bits & ((1 << 52) - 1) and each.bits & ((1 << 25) - 1)]

    def faulty(old: Const) -> Callable[[Expr], Expr]:
        return lambda x: with_constant(FUNCTIONS[name](x), old, const(F64, old.bits ^ (1 << 25)))

    return [faulty(old) for old in chosen]


@pytest.mark.parametrize("name", ["exp", "log", *(pytest.param(n, marks=pytest.mark.full) for n in ("sin", "atan"))])
def test_a_changed_constant_is_found(name: str) -> None:
    """The arguments found are just those whose results changed, and there are some."""
    arguments = class_arguments(7, 0x3F0000 // BLOCK * BLOCK, BLOCK)
    right = Prover(name).results.block(arguments.view(np.float32))[0]
    altered = 0
    for faulty in changed_constants(name):
        prover, tally = Prover(name, faulty), Tally()
        results = prover.results.block(arguments.view(np.float32))[0]
        prover.judge(arguments, results, tally)
        changed = arguments[results != right]
        assert tally.misroundings == changed.size
        assert [each.argument for each in tally.wrong] == changed.tolist()[: len(tally.wrong)]
        altered += bool(changed.size)
    assert altered


def test_the_digest_of_a_class_is_that_of_its_results() -> None:
    residue = draw("digest", CLASSES)
    prover = Prover("rsqrt")
    bits = class_arguments(residue, 0, (1 << 32) // CLASSES)
    assert np.array_equal(bits[:3], np.array([residue, residue + 256, residue + 512], np.uint32))
    (results,) = prover.results(bits.view(np.float32))
    assert hashlib.sha256(results.astype("<u4").tobytes()).hexdigest() == prover.class_digest(residue)

"""pow and atan2: their records, a part proved again, hard pairs on every target, planted faults."""

from __future__ import annotations

import math

import numpy as np
import pytest

from proofs import mpfr, pairs, records
from proofs.exhaustive import BLOCK, results_of
from proofs.native import elementwise_kernel
from proofs.pair_points import FAMILIES, exact_powers, special_pairs
from proofs.points import Draws
from repro.ir.expressions import Expr
from repro.ir.types import F32, U32, Array
from repro.machines import Machine
from repro.numerics import interpret
from repro.numerics.elementary import BINARY_FUNCTIONS
from repro.numerics.elementary.value import Value, select
from tests.proofs.test_reproof import TARGETS, draw
from tests.targets.native import run_kernel


@pytest.mark.parametrize("name", BINARY_FUNCTIONS)
def test_every_function_of_two_operands_has_a_record(name: str) -> None:
    record = records.read(name, pairs.SCHEMA)
    records.check_identity(record, pairs.code_digest(name))
    counts = record["counts"]
    assert counts["misroundings"] == 0
    assert len(record["parts"]) * pairs.PART >= 1 << 30
    assert counts["pairs"] == len(record["parts"]) * pairs.PART + counts["listed"]
    assert record["results"] == records.digest_of_digests([record["listed"], *record["parts"]])


@pytest.mark.parametrize("name", BINARY_FUNCTIONS)
def test_a_part_is_proved_again(name: str) -> None:
    record = records.read(name, pairs.SCHEMA)
    number = draw(name, len(record["parts"]))
    part = pairs.PairProver(name).run(pairs.blocks(name, record["seed"], number))
    assert part.pairs == pairs.PART
    assert part.misroundings == 0, part.wrong[:5]
    assert part.digest == record["parts"][number]


def some_pairs(name: str) -> tuple[Array, Array]:
    """Special pairs, some of each family, and the recorded hard ones."""
    hard = np.array([[int(bits, 16) for bits in row] for row in records.read(name, pairs.SCHEMA)["hard"]], np.uint32)
    hard = hard.reshape(-1, 3)
    found = [special_pairs(), (hard[:, 0], hard[:, 1])]
    found += [family(Draws(draw(name, 1 << 30)), 2000) for family in FAMILIES[name]]
    first, second = (np.concatenate(column) for column in zip(*found, strict=True))
    return first, second


@pytest.mark.parametrize("name", BINARY_FUNCTIONS)
@pytest.mark.parametrize("machine", [pytest.param(m, marks=marks, id=m.name) for m, marks in TARGETS])
def test_machines_agree_with_the_reference(name: str, machine: Machine) -> None:
    operands = [bits.view(np.float32) for bits in some_pairs(name)]
    sequence = results_of(BINARY_FUNCTIONS[name])
    wanted = interpret.evaluate(lambda x, y: sequence(x, y)[0], operands, [F32, F32])
    kernel = elementwise_kernel(sequence, [F32, F32], wanted.size)
    found = run_kernel(kernel, [*operands, np.zeros(wanted.size, np.uint32)], machine)[2]
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("name", BINARY_FUNCTIONS)
def test_recorded_hard_pairs_are_mpfrs(name: str) -> None:
    for *operands, result in records.read(name, pairs.SCHEMA)["hard"]:
        numbers = [mpfr.from_bits(int(bits, 16), F32) for bits in operands]
        assert mpfr.rounded(name, numbers, F32) == int(result, 16)


def test_listed_powers_are_exact_and_hold_the_known_ones() -> None:
    listed = set(exact_powers())
    known = [(9.0, 0.5), (5.0, 2.0), (4097.0, 2.0), (27.0**2, 1.5), (6561.0, 0.125), (3.0, 15.0), (0.25, -1.5)]
    assert listed.issuperset(known)
    for x, y in sorted(listed)[:: max(1, len(listed) // 2000)]:
        number = mpfr.value("pow", [x, y], 60)
        if float(np.float32(y)) == y:
            assert number.rc == 0
            mantissa, _ = mpfr.parts(number)
            assert mantissa.bit_length() - (mantissa & -mantissa).bit_length() < 25


@pytest.mark.parametrize("name", BINARY_FUNCTIONS)
@pytest.mark.parametrize("change", [1, 1 << 31], ids=["ulp", "sign"])
def test_wrong_results_are_found(name: str, change: int) -> None:
    """One pair in some thousands is made wrong; just those are found."""

    def faulty(x: Expr, y: Expr) -> Expr:
        bits = Value(BINARY_FUNCTIONS[name](x, y)).as_bits(U32)
        chosen = (Value(x).as_bits(U32) & 0xFFF).equals(0x123)
        return select(chosen, bits ^ change, bits).as_bits(F32).expr

    first, second = FAMILIES[name][0](Draws(draw(name, 1 << 30)), BLOCK)
    part = pairs.PairProver(name, faulty).run(iter([(first, second)]))
    wanted = np.flatnonzero((first & np.uint32(0xFFF)) == 0x123)
    assert wanted.size
    assert [each.operands for each in part.wrong] == [(int(first[at]), int(second[at])) for at in wanted]


def test_a_power_that_is_undefined_is_nan() -> None:
    base, exponent = np.array([-2.0, -0.5, -math.inf], np.float32), np.array([0.5, -1.5, 0.5], np.float32)
    words = base.view(np.uint32), exponent.view(np.uint32)
    assert pairs.PairProver("pow").run(iter([words])).misroundings == 0
    one = pairs.PairProver("pow", lambda x, y: Value(x).same(1.0).expr).run(iter([words]))
    assert one.misroundings == 3

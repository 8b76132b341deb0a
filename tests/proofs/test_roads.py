"""Other roads to f32 functions: a record of today's code with the proven results, a class again, a planted fault."""

from __future__ import annotations

import pytest

from proofs import records, roads
from proofs.exhaustive import CLASSES, Prover
from repro.errors import ReproError
from repro.ir.expressions import Const, Lookup, const, topological
from repro.ir.types import F32
from repro.machines import X86_64_V3, X86_64_V4
from repro.numerics import interpret
from repro.numerics.contract import CONTRACT_VERSION
from repro.numerics.elementary import quotients, single, tabled, tabled_constants
from repro.numerics.elementary.value import Value
from repro.targets.llvm.roads import entries
from tests.proofs.test_records import SCHEMA
from tests.proofs.test_reproof import draw, with_constant
from tests.targets.native import HERE

ROADS = pytest.mark.parametrize("road", roads.ROADS.values(), ids=roads.ROADS)


@ROADS
def test_every_road_has_a_record_of_todays_code_with_the_proven_results(road: roads.Road) -> None:
    record = records.read(road.record, "road")
    assert record == roads.record_of(road, record["results"])
    assert record["contract"] == CONTRACT_VERSION
    proven = records.digest_of_digests(records.read(road.name, SCHEMA)["classes"])
    assert (record["results"] == proven) is not road.of_quotient


@ROADS
def test_a_class_has_the_proven_results_again(road: roads.Road) -> None:
    if road.missing is not None:
        pytest.skip(road.missing)
    residue = draw(road.record, CLASSES)
    assert roads.class_digest(road.record, residue) == roads.wanted_digest(road.record, residue)


@ROADS
def test_a_road_is_none_where_it_is_the_first(road: roads.Road) -> None:
    operand = interpret.argument(F32, 0)
    assert road.of(operand) is not road.first(operand)
    assert road.first(operand) in set(topological([road.of(operand)])), "undecided cases take it"


def test_roads_by_tables_are_among_them() -> None:
    assert {f"{name}.tabled{entries}" for name in ("exp", "erf", "tanh") for entries in (16, 32)} <= set(roads.ROADS)


def test_a_constant_that_is_off_is_found() -> None:
    """The middle part of ln 2, by 256 ulps: more than the rounding test allows for, and it does not know."""
    operand = interpret.argument(F32, 0)
    root = single.SEQUENCES["exp"](single.Value(operand)).expr
    bits = next(e.bits for e in topological([root]) if isinstance(e, Const) and e.bits & 0x7FFFFFFF == MIDDLE)
    faulty = with_constant(root, const(F32, bits), const(F32, bits + 256))
    prover = Prover("exp", lambda x: _on(faulty, operand, x))
    assert prover.class_digest(77) != records.read("exp", SCHEMA)["classes"][77]


@pytest.mark.skipif(X86_64_V4 not in HERE and X86_64_V3 not in HERE, reason="this host runs no machine with permutes")
def test_an_entry_of_a_table_that_is_off_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the powers, by an ulp, in the code that a CPU runs: clear of a boundary nothing in the road can tell."""
    machine = X86_64_V4 if X86_64_V4 in HERE else X86_64_V3
    sound = tabled.ROADS[entries(machine)]["exp"]

    def faulty(x: Value) -> Value:
        root = sound(x).expr
        table = next(e for e in topological([root]) if isinstance(e, Lookup) and e.table in POWERS)
        off = Lookup(table.dtype, tuple(bits + (place == 5) for place, bits in enumerate(table.table)), table.children)
        return Value(_changed(root, {table: off}))

    monkeypatch.setitem(tabled.ROADS, entries(machine), {"exp": faulty})
    assert Prover("exp", machine=machine).class_digest(77) != records.read("exp", SCHEMA)["classes"][77]


def _changed(root, made):
    """The sequence with some expressions in the place of others."""
    for expr in topological([root]):
        if expr not in made:
            made[expr] = type(expr)(expr.dtype, expr.fields, tuple(made[child] for child in expr.children))
    return made[root]


POWERS = (tabled_constants.EXP_32_POWERS, tabled_constants.EXP_16_ENTRIES)
MIDDLE = 0x35BFBE8E
"""The bits of LN2_MIDDLE."""


def _on(root, operand, x):
    """The sequence of one operand on another."""
    return _changed(root, {operand: x})


def test_a_record_needs_the_proof_it_speaks_of(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setattr(records, "FOLDER", tmp_path)
    with pytest.raises(ReproError, match="no record of exp"):
        roads.wanted_digest("exp.single", 0)


@pytest.mark.skipif(X86_64_V4 not in HERE and X86_64_V3 not in HERE, reason="this host runs no machine with permutes")
def test_a_reciprocal_that_is_off_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """By two of its low part's ulps: one significand has another quotient, whose last byte is the class's number."""
    road = roads.ROADS["erf.tabled32.quotient" if X86_64_V4 in HERE else "erf.tabled16.quotient"]
    wanted = roads.wanted_digest(road.record, 0x9C)
    monkeypatch.setattr(quotients, "LOW", quotients.LOW + 2.0**-48)
    assert Prover(road.name, road.first, road.machine).class_digest(0x9C) != wanted

"""Second roads to f32 functions: a record of today's code with the proven results, a class again, a planted fault."""

from __future__ import annotations

import pytest

from proofs import records, roads
from proofs.exhaustive import CLASSES, Prover
from repro.errors import ReproError
from repro.ir.loops import Const, const, topological
from repro.ir.types import F32
from repro.numerics import interpret
from repro.numerics.contract import CONTRACT_VERSION
from repro.numerics.elementary import FUNCTIONS, single
from tests.proofs.test_records import SCHEMA
from tests.proofs.test_reproof import draw, with_constant


@pytest.mark.parametrize("name", roads.ROADS)
def test_every_road_has_a_record_of_todays_code_with_the_proven_results(name: str) -> None:
    record = records.read(f"{name}.single", "road")
    assert record == roads.record_of(name)
    assert record["contract"] == CONTRACT_VERSION
    assert record["results"] == records.digest_of_digests(records.read(name, SCHEMA)["classes"])


@pytest.mark.parametrize("name", roads.ROADS)
def test_a_class_has_the_proven_results_again(name: str) -> None:
    residue = draw(name, CLASSES)
    assert roads.class_digest(name, residue) == records.read(name, SCHEMA)["classes"][residue]


@pytest.mark.parametrize("name", roads.ROADS)
def test_a_road_is_none_where_it_is_the_first(name: str) -> None:
    operand = interpret.argument(F32, 0)
    assert roads.road(name, operand) is not FUNCTIONS[name](operand)
    assert FUNCTIONS[name](operand) in set(topological([roads.road(name, operand)])), "undecided cases take it"


def test_a_constant_that_is_off_is_found() -> None:
    """The middle part of ln 2, by 256 ulps: more than the rounding test allows for, and it does not know."""
    operand = interpret.argument(F32, 0)
    root = single.SEQUENCES["exp"](single.Value(operand)).expr
    bits = next(e.bits for e in topological([root]) if isinstance(e, Const) and e.bits & 0x7FFFFFFF == MIDDLE)
    faulty = with_constant(root, const(F32, bits), const(F32, bits + 256))
    prover = Prover("exp", lambda x: _on(faulty, operand, x))
    assert prover.class_digest(77) != records.read("exp", SCHEMA)["classes"][77]


MIDDLE = 0x35BFBE8E
"""The bits of LN2_MIDDLE."""


def _on(root, operand, x):
    """The sequence of one operand on another."""
    made = {operand: x}
    for expr in topological([root]):
        if expr not in made:
            made[expr] = type(expr)(expr.dtype, expr.fields, tuple(made[child] for child in expr.children))
    return made[root]


def test_a_record_needs_the_proof_it_speaks_of(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setattr(records, "FOLDER", tmp_path)
    with pytest.raises(ReproError, match="no record of exp"):
        roads.record_of("exp")

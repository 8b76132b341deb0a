"""Every f32 function has a record of a proof of today's code; a record of anything else fails."""

from __future__ import annotations

import copy
from itertools import pairwise

import pytest

from proofs import mpfr, records, rules
from proofs.exhaustive import code_digest
from proofs.screens import SCREENS
from repro.errors import InternalError, ReproError
from repro.ir.types import F32
from repro.numerics.elementary import FUNCTIONS

SCHEMA = "every_input"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_has_a_record_of_todays_code(name: str) -> None:
    record = records.read(name, SCHEMA)
    assert record["function"] == name
    records.check_today(record)
    assert record["counts"]["inputs"] == 1 << 32
    assert record["counts"]["misroundings"] == 0


@pytest.mark.parametrize("name", FUNCTIONS)
def test_recorded_hard_cases_are_mpfrs(name: str) -> None:
    for argument, result in records.read(name, SCHEMA)["hard"]:
        assert mpfr.rounded(name, [mpfr.from_bits(int(argument, 16), F32)], F32) == int(result, 16)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_rules_hold_at_their_ends(name: str) -> None:
    rules.check(name)
    spans = sorted(rules.spans(name))
    assert all(last < first for (_, last, _), (first, _, _) in pairwise(spans)), "rules overlap"


def test_a_false_rule_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    early = rules.Rule("monotone", 80.0, float("inf"), 0x7F800000)
    monkeypatch.setitem(rules.RULES, "exp", (early,))
    with pytest.raises(InternalError, match="rule for exp"):
        rules.check("exp")


def some_record() -> records.Record:
    """A record that stands, of the first function that has one."""
    return records.read(next(name for name in FUNCTIONS if records.path(name).exists()), SCHEMA)


def test_a_record_of_other_code_fails() -> None:
    record = some_record()
    records.check_today(record)
    other = next(name for name in FUNCTIONS if name != record["function"])
    for place, foreign in (("code", code_digest(other)), ("contract", 2), ("results", record["classes"][0])):
        with pytest.raises(ReproError, match="not of today"):
            records.check_today({**record, place: foreign})
    with pytest.raises(ReproError, match="not of today"):
        records.check_today({**record, "screen": {**record["screen"], "code": record["code"]}})


def test_a_record_of_less_fails() -> None:
    broken = copy.deepcopy(some_record())
    broken["counts"]["inputs"] -= 1 << 24
    with pytest.raises(ReproError, match="counts/inputs"):
        records.check(broken, SCHEMA, "it")
    broken = copy.deepcopy(some_record())
    broken["classes"].pop()
    with pytest.raises(ReproError, match="classes"):
        records.check(broken, SCHEMA, "it")
    broken = copy.deepcopy(some_record())
    broken["counts"]["misroundings"] = 1
    with pytest.raises(ReproError, match="misroundings"):
        records.check(broken, SCHEMA, "it")


def test_every_function_has_a_screen() -> None:
    assert set(FUNCTIONS) <= set(SCREENS)

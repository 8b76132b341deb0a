"""What an audit comes to: rows, thresholds, exit codes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from repro.artifact.checks import Report, Status
from repro.audit.capture import value_of
from repro.audit.comparison import audit
from repro.audit.records import Capture, Executor, Outcome, Record
from repro.audit.verdict import ARGMAX, DRIFT, ORIGIN, Thresholds, verdict
from repro.errors import EXIT_GOOD, EXIT_INCOMPLETE, EXIT_MISMATCH, ReproError
from repro.ir.types import Array
from tests.audit.simulated import Runtime, model, node, numbers, record, without_arrays

CHAIN = model([node("A", ["x", "w0"], ["a"]), node("B", ["a", "w1"], ["b"]), node("C", ["b"], ["c"])], ["c"])
OWN = Executor("repro", (("target", "cpu/x86-64-v3"), ("threads", "2")))


def with_own(made: Record, runtime: Runtime, **parts: object) -> Record:
    """The record with one of repro's own targets."""
    own = runtime.capture(OWN, made.model, numbers(b"x"), made.golden.arrays)
    return replace(made, captures=(replace(own, **parts), *made.captures))


def judge(*records: Record, limits: Thresholds | None = None, required: tuple[str, ...] = ()) -> Report:
    return verdict(audit(records), limits, required)


def statuses(report: Report) -> list[tuple[str, Status]]:
    return [(check.name, check.status) for check in report.checks]


def close(made: Record, ulp: int) -> Record:
    """The record, its one executor's output moved by so many units in the last place in one element."""
    moved = made.golden.arrays["c"].copy()
    moved.view(np.uint32)[0, 0] += ulp
    return giving(made, moved)


def giving(made: Record, moved: Array) -> Record:
    """The record, its one executor giving another output."""
    (capture,) = made.captures
    value = value_of(moved)
    parts = {"values": {**capture.values, "c": value}, "served": {"c": value}, "fed": {**capture.fed, "c": value}}
    arrays = {**capture.arrays, "c": moved}
    return replace(made, captures=(replace(capture, **parts, arrays=arrays, fed_arrays=arrays),))


def test_drift_of_another_runtime_is_a_finding_and_no_failure():
    report = judge(record(CHAIN, {"peer": Runtime({"B": 1})}))
    assert report.exit_code == EXIT_GOOD
    assert report.checks[0].detail == "2 of 3 values differ, the first is b of B"


@pytest.mark.parametrize("parts", [{}, {"hidden": frozenset("ab")}])
def test_drift_of_our_own_is_an_error_of_ours(parts: dict[str, frozenset[str]]):
    report = judge(with_own(record(CHAIN, {"peer": Runtime()}), Runtime({"A": 1}, **parts)))
    assert report.exit_code == EXIT_MISMATCH
    assert report.checks[0].detail.startswith("error in repro: ")
    assert judge(with_own(record(CHAIN, {}), Runtime())).exit_code == EXIT_GOOD


def test_an_own_target_that_changes_when_shown_is_an_error_of_ours():
    assert judge(with_own(record(CHAIN, {}), Runtime(), faithful=False)).exit_code == EXIT_MISMATCH


def test_golden_of_two_machines_differing_is_an_error_of_ours():
    one = record(CHAIN, {"peer": Runtime()}, "one")
    other = record(CHAIN, {"peer": Runtime()}, "two")
    assert judge(one, other).exit_code == EXIT_GOOD
    wrong = Runtime({"B": 1}).capture(OWN, CHAIN, numbers(b"x"), {})
    parts = {"values": wrong.values, "served": wrong.served, "arrays": wrong.arrays}
    broken = replace(other, golden=replace(other.golden, **parts))
    report = judge(one, broken)
    assert report.exit_code == EXIT_MISMATCH
    (row,) = (check for check in report.checks if check.name == "one:golden and two:golden")
    assert row.detail.startswith("error in repro")
    newer = replace(broken, golden=replace(broken.golden, environment={"versions": {"contract": "9"}}))
    report = judge(one, newer)
    assert report.exit_code == EXIT_INCOMPLETE
    assert report.checks[-1].detail == "made under versions None and 9 of the numerics contract"


@pytest.mark.parametrize("fail_on", [DRIFT, ORIGIN])
def test_any_drift_can_fail(fail_on: str):
    limits = Thresholds(fail_on=frozenset({fail_on}))
    drifting = judge(record(CHAIN, {"good": Runtime(), "peer": Runtime({"B": 1})}), limits=limits)
    assert statuses(drifting) == [("good", Status.GOOD), ("peer", Status.MISMATCH)]
    assert drifting.exit_code == EXIT_MISMATCH
    assert judge(record(CHAIN, {"good": Runtime()}), limits=limits).exit_code == EXIT_GOOD


def test_a_distance_is_allowed_up_to_its_bound():
    made = close(record(CHAIN, {"peer": Runtime()}), 3)
    assert judge(made, limits=Thresholds(max_ulp=3)).exit_code == EXIT_GOOD
    report = judge(made, limits=Thresholds(max_ulp=2))
    assert report.exit_code == EXIT_MISMATCH
    assert report.checks[0].detail == "output c: 3 ULP, allowed are 2"


def test_a_nan_is_beyond_every_distance():
    made = record(CHAIN, {"peer": Runtime()})
    moved = made.golden.arrays["c"].copy()
    moved[0, 0] = np.nan
    made = giving(made, moved)
    report = judge(made, limits=Thresholds(max_ulp=1 << 40))
    assert report.exit_code == EXIT_MISMATCH
    assert report.checks[0].detail == "output c: 1 elements at no distance in ULP"


def test_a_changed_argmax_can_fail():
    limits = Thresholds(fail_on=frozenset({ARGMAX}))
    made = record(CHAIN, {"peer": Runtime()})
    golden = made.golden.arrays["c"]
    report = judge(giving(made, 3 - golden), limits=limits)
    assert report.exit_code == EXIT_MISMATCH
    assert report.checks[0].detail == "output c: 2 rows with another argmax"
    assert judge(giving(made, golden * 2), limits=limits).exit_code == EXIT_GOOD


def test_what_digests_do_not_say_is_incomplete_and_never_a_pass():
    made = record(CHAIN, {"peer": Runtime({"B": 1}), "good": Runtime()})
    bare = replace(made, captures=tuple(without_arrays(each) for each in made.captures))
    for limits in (Thresholds(max_ulp=5), Thresholds(fail_on=frozenset({ARGMAX}))):
        report = judge(bare, limits=limits)
        assert report.exit_code == EXIT_INCOMPLETE
        assert statuses(report) == [("peer", Status.NOT_RUN), ("good", Status.GOOD)]
    assert judge(bare, limits=Thresholds(fail_on=frozenset({DRIFT}))).exit_code == EXIT_MISMATCH


def test_another_type_is_beyond_every_distance():
    made = record(CHAIN, {"peer": Runtime()})
    wide = made.golden.arrays["c"].astype(np.float64)
    values = {**made.captures[0].values, "c": value_of(wide)}
    other = replace(made, captures=(replace(made.captures[0], values=values, served={"c": values["c"]}),))
    assert judge(other, limits=Thresholds(max_ulp=9)).exit_code == EXIT_MISMATCH


def missing(made: Record, executor: Executor, outcome: Outcome = Outcome.MISSING) -> Record:
    return replace(made, captures=(*made.captures, Capture(executor, outcome, "no module named torch")))


def test_what_did_not_run_is_a_row_with_its_reason():
    made = missing(record(CHAIN, {"peer": Runtime()}), Executor("torch", (("threads", "2"),)))
    report = judge(made)
    assert report.exit_code == EXIT_GOOD
    assert report.checks[1].detail == "missing: no module named torch"
    assert report.checks[1].status is Status.NOT_RUN
    for name in ("torch", "torch[threads=2]"):
        assert judge(made, required=(name,)).exit_code == EXIT_INCOMPLETE
    assert judge(made, required=("peer",)).exit_code == EXIT_GOOD


def test_a_required_executor_that_nobody_asked_for_is_incomplete():
    report = judge(record(CHAIN, {"peer": Runtime()}), required=("jax",))
    assert report.exit_code == EXIT_INCOMPLETE
    assert report.checks[-1].name == "jax"


@pytest.mark.parametrize(("outcome", "code"), [(Outcome.SKIPPED, EXIT_GOOD), (Outcome.CRASHED, EXIT_INCOMPLETE)])
def test_an_own_target_has_to_run_unless_it_was_left_out(outcome: Outcome, code: int):
    assert judge(missing(record(CHAIN, {"peer": Runtime()}), OWN, outcome)).exit_code == code


def test_an_audit_in_which_nothing_ran_is_incomplete():
    assert judge(missing(record(CHAIN, {}), Executor("torch"))).exit_code == EXIT_INCOMPLETE


def test_thresholds_hold_between_machines_too():
    one = record(CHAIN, {"peer": Runtime()}, "one")
    other = close(record(CHAIN, {"peer": Runtime()}, "two"), 7)
    report = judge(one, other, limits=Thresholds(max_ulp=6))
    assert statuses(report) == [
        ("one:peer", Status.GOOD),
        ("two:peer", Status.MISMATCH),
        ("one:golden and two:golden", Status.GOOD),
    ]
    drifting = replace(close(record(CHAIN, {"peer": Runtime()}), 5), label="one")
    both = judge(drifting, other, limits=Thresholds(max_ulp=1))
    assert ("one:peer and two:peer", Status.MISMATCH) in statuses(both)
    assert judge(drifting, other, limits=Thresholds(max_ulp=7)).exit_code == EXIT_GOOD


def test_thresholds_are_checked():
    with pytest.raises(ReproError, match="unknown threshold"):
        Thresholds(fail_on=frozenset({"everything"}))
    with pytest.raises(ReproError, match="not negative"):
        Thresholds(max_ulp=-1)

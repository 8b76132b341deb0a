"""The forms of a report say the same, whatever names a model has."""

from __future__ import annotations

import json
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from repro.artifact import schema
from repro.audit.comparison import GOLDEN
from repro.audit.records import Kind, Outcome
from repro.audit.report import document, junit, plots, sarif
from repro.audit.report.view import View, letter
from repro.audit.verdict import Thresholds, verdict
from tests.audit.samples import CAUSE, HOSTILE, NODES, noisy, sample


def view(limits: Thresholds | None = None, required: tuple[str, ...] = ()) -> View:
    audit = sample()
    return View(audit, verdict(audit, limits, required), required)


def test_executors_stand_in_groups_and_what_did_not_run_behind() -> None:
    rows = view().executors
    assert "".join(row.group or "-" for row in rows) == "AABBCD---"
    assert [row.outcome for row in rows[6:]] == ["missing", "crashed", "out of time"]
    assert all(row.first == "/block.0/Softmax_3" and row.worst and row.worst > 100 for row in rows if row.group == "B")
    assert [row.identical for row in rows] == [True, True] + 7 * [False]


def test_one_origin_of_several_executors_is_one_row() -> None:
    rows = view().origins
    assert [row.value for row in rows] == ["v3", "v7", "v60"], "in canonical order"
    assert [len(row.executors) for row in rows] == [3, 3, 2]
    assert [len(row.variants) for row in rows] == [1, 1, 2], "alike, alike, and two that drift in their own ways"
    assert rows[0].causes == (CAUSE,)


@pytest.mark.parametrize(
    ("limits", "required", "code", "failed"),
    [
        (None, (), 0, 0),
        (Thresholds(max_ulp=4000), (), 1, 1),
        (Thresholds(fail_on=frozenset({"drift"})), (), 1, 4),
        (None, ("torch",), 3, 1),
        (None, ("onnxruntime", "tensorflow"), 3, 1),
        (Thresholds(max_ulp=4000), ("torch",), 1, 2),
    ],
)
def test_reasons_and_the_last_line(
    limits: Thresholds | None, required: tuple[str, ...], code: int, failed: int
) -> None:
    found = view(limits, required)
    assert (found.exit_code, len(found.reasons)) == (code, failed)
    assert found.summary == f"6 of 9 executors ran, 2 give repro's bits, 3 origins; exit code {code}"


def test_a_required_executor_that_nobody_asked_for_has_no_row_and_is_a_reason() -> None:
    (reason,) = view(None, ("tensorflow",)).reasons
    assert not reason.executor
    assert reason.text.startswith("tensorflow: ")


def test_json_follows_its_schema_and_floats_come_back() -> None:
    found = view(Thresholds(max_ulp=4000), ("torch",))
    content = json.loads(document.text(found))
    schema.check(content, "audit", "the report")
    assert content["verdict"]["exit_code"] == found.exit_code
    (executor,) = [each for each in content["executors"] if each["name"] == "crasher"]
    assert (executor["outcome"], executor["group"], executor["identical"]) == ("crashed", None, None)
    (pair,) = [
        each for each in content["pairs"] if (each["left"], each["right"]) == (GOLDEN, "onnx-reference[blas=Haswell]")
    ]
    source = found.golden_pairs[pair["right"]]
    assert len(pair["growth"]) == sum(drift.different > 0 for _, drift in source.growth) > 0
    (output,) = pair["outputs"].values()
    assert float.fromhex(output["max_absolute"]) == source.outputs[f"v{NODES - 1}"].max_absolute
    assert int(output["max_ulp"], 16) == source.outputs[f"v{NODES - 1}"].max_ulp


@pytest.mark.parametrize("broken", [{"format": 2}, {"machines": [{"label": "a"}]}, {"verdict": {}}, {"more": 1}])
def test_the_schema_refuses(broken: dict[str, object]) -> None:
    with pytest.raises(Exception, match=r"audit\.schema\.json"):
        schema.check({**document.document(view()), **broken}, "audit", "the report")


def test_junit_has_a_case_for_each_executor() -> None:
    suite = ElementTree.fromstring(junit.text(view(Thresholds(max_ulp=4000), ("torch",))))
    assert [suite.get(kind) for kind in ("tests", "failures", "errors", "skipped")] == ["9", "1", "1", "2"]
    cases = {case.get("name"): case for case in suite}
    failure = cases["onnxruntime[level=all,threads=2]"].find("failure")
    assert failure is not None
    assert "allowed are 4000" in str(failure.get("message"))
    drifting = cases["onnxruntime[level=basic,threads=2]"].find("system-out")
    assert drifting is not None
    assert "117 of 120" in str(drifting.text)


def test_junit_has_a_case_for_what_no_executor_stands_for() -> None:
    suite = ElementTree.fromstring(junit.text(view(None, ("tensorflow",))))
    assert [suite.get(kind) for kind in ("tests", "errors")] == ["10", "1"]


def test_sarif_names_the_nodes() -> None:
    (run,) = json.loads(sarif.text(view(Thresholds(max_ulp=4000)), "models/m.onnx"))["runs"]
    origins = [result for result in run["results"] if result["ruleId"] == "origin"]
    names = [place["name"] for each in origins for place in each["locations"][0]["logicalLocations"]]
    assert names == ["/block.0/Softmax_3", HOSTILE, "/block.10/MatMul_60"]
    uris = {each["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for each in run["results"]}
    assert uris == {"models/m.onnx"}
    assert {rule["id"] for rule in run["tool"]["driver"]["rules"]} >= {each["ruleId"] for each in run["results"]}
    assert [each["level"] for each in origins] == ["error"] * 3, "the executor that failed has them all"
    assert len(run["results"]) == 4


def test_an_origin_in_what_was_given_is_no_node() -> None:
    rows = view().origins
    assert all(row.is_node and row.kind is Kind.NODE for row in rows)
    assert rows[0].title == "/block.0/Softmax_3", "the name tells the operator"
    assert rows[1].title == f"{HOSTILE} (Add)"


def test_fused_nodes_are_named_in_their_folder() -> None:
    audit = sample()
    pair = audit.pairs[2]
    nodes = tuple(node.name for node in audit.records[0].model.nodes[1:4])
    fused = replace(pair.origins[0], kind=Kind.FUSED, nodes=nodes)
    changed = replace(audit, pairs=(*audit.pairs[:2], replace(pair, origins=(fused,))))
    (row,) = View(changed, verdict(changed)).origins
    assert row.title == "/block.0/: Add_1 + LayerNormalization_2 + Softmax_3"
    assert replace(row, nodes=(nodes[0], audit.records[0].model.nodes[8].name)).title.startswith("/block.0/Add_1 + ")
    assert row.operators == ("Add", "LayerNormalization", "Softmax")


def test_letters_do_not_run_out() -> None:
    found = [letter(position) for position in range(26 * 27)]
    assert found[:2] == ["A", "B"]
    assert found[25:28] == ["Z", "AA", "AB"]
    assert len(set(found)) == len(found)


# ── drawings ────────────────────────────────────────────────────────────────────────────────────────


def test_a_drawing_keeps_the_worst_of_the_values_that_share_a_column() -> None:
    values = [(f"v{number}", noisy(1, number, 64)) for number in range(1000)]
    values[777] = ("spike", noisy(5000, 777, 64))
    drawing = plots.growth(values, frozenset({"v5"}), 20_000)
    assert len(drawing.columns) <= plots.COLUMNS
    highest = min(drawing.columns, key=lambda column: column.top)
    assert highest.title.startswith("spike: ")
    (marked,) = [column for column in drawing.columns if column.origin]
    assert marked.title.startswith("v5: ")
    assert marked.title.endswith("an origin")
    assert all(0 <= column.top < 100 and 0 <= column.x <= 100 for column in drawing.columns)


def test_along_a_training_the_steps_are_marked() -> None:
    values = [(f"step {step}/{part}", noisy(1, step, 64)) for step in range(3) for part in ("loss", "state/w")]
    marks = plots.growth(values, frozenset(), 10).marks
    assert [mark.label for mark in marks] == ["step 0", "step 1", "step 2"]
    assert [round(mark.at) for mark in marks] == [0, 33, 67]


def test_what_has_no_distance_is_drawn_at_the_top() -> None:
    changed = replace(noisy(1, 0, 64), nan_changes=1)
    assert plots.distance(changed) > 1 << 40
    assert plots.growth([("v", changed)], frozenset(), 1000).columns[0].top < 5


def test_a_histogram_ends_at_its_last_element_and_hides_none() -> None:
    drift = noisy(2, 1)
    bars = plots.histogram(drift)
    assert sum(bar.count for bar in bars) == drift.elements
    assert bars[-1].count > 0
    assert all((bar.width > 0) == (bar.count > 0) for bar in bars)


def test_every_outcome_is_known_to_the_schema() -> None:
    allowed = json.dumps(schema.manifests.schema("audit")["$defs"]["executor"]["properties"]["outcome"])
    assert all(f'"{outcome.value}"' in allowed for outcome in Outcome)

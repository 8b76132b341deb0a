from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from repro.artifact.checks import Check, Report, Status

GOOD = Check("hash", Status.GOOD, "12 blobs")
BAD = Check("rebuild", Status.MISMATCH, "kernels/0\x1b <differs> & more")
REQUIRED = Check("run cpu", Status.NOT_RUN, "another host", required=True)
OPTIONAL = Check("run cpu/aarch64", Status.NOT_RUN, "another host", required=False)


@pytest.mark.parametrize(
    ("checks", "code", "summary"),
    [
        ((GOOD,), 0, "1 of 1 checks passed"),
        ((GOOD, OPTIONAL), 0, "1 of 2 checks passed, 1 did not run"),
        ((GOOD, REQUIRED), 3, "1 of 2 checks passed, 1 did not run"),
        ((GOOD, BAD, REQUIRED), 1, "1 of 3 checks passed, 1 differ, 1 did not run"),
        ((OPTIONAL,), 3, "0 of 1 checks passed, 1 did not run"),
        ((), 3, "0 of 0 checks passed"),
    ],
)
def test_exit_codes_and_last_line(checks: tuple[Check, ...], code: int, summary: str) -> None:
    report = Report("sha256:a", "sha256:b", checks)
    assert (report.exit_code, report.summary) == (code, summary)


def test_the_written_forms_say_the_same() -> None:
    report = Report("sha256:a", "sha256:b", (GOOD, BAD, REQUIRED, OPTIONAL))
    rows = report.json()["checks"]
    assert [row["status"] for row in rows] == ["good", "mismatch", "not run", "not run"]
    suite = ElementTree.fromstring(report.junit())
    assert [suite.get(kind) for kind in ("tests", "failures", "errors", "skipped")] == ["4", "1", "1", "1"]
    run = json.loads(report.sarif("0.1.0"))["runs"][0]
    assert [result["kind"] for result in run["results"]] == ["pass", "fail", "open", "open"]
    assert {rule["id"] for rule in run["tool"]["driver"]["rules"]} == {check.name for check in report.checks}

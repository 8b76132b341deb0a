"""The rows of a verification, what they add up to, and their JSON, JUnit and SARIF forms.

A check that did not run is a row with its reason. It never counts as a pass; whether it makes the whole
incomplete depends on whether it was required.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import Enum
from xml.etree import ElementTree

from repro.artifact.canonical import Json
from repro.errors import EXIT_GOOD, EXIT_INCOMPLETE, EXIT_MISMATCH


class Status(Enum):
    GOOD = "good"
    MISMATCH = "mismatch"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class Check:
    """One row: `detail` says what was compared, what differs, or why it did not run."""

    name: str
    status: Status
    detail: str = ""
    required: bool = True


@dataclass(frozen=True)
class Report:
    """All rows of one verification."""

    artifact: str
    graph: str
    checks: tuple[Check, ...]

    @property
    def passed(self) -> int:
        return sum(check.status is Status.GOOD for check in self.checks)

    @property
    def exit_code(self) -> int:
        """1 if anything differs; else 3 if something required did not run, or if nothing ran at all."""
        if any(check.status is Status.MISMATCH for check in self.checks):
            return EXIT_MISMATCH
        if not self.passed or any(check.status is Status.NOT_RUN and check.required for check in self.checks):
            return EXIT_INCOMPLETE
        return EXIT_GOOD

    @property
    def summary(self) -> str:
        """The last line: n of m."""
        counts = [f"{self.passed} of {len(self.checks)} checks passed"]
        for status, word in ((Status.MISMATCH, "differ"), (Status.NOT_RUN, "did not run")):
            count = sum(check.status is status for check in self.checks)
            if count:
                counts.append(f"{count} {word}")
        return ", ".join(counts)

    def json(self) -> Json:
        rows = [{**asdict(check), "status": check.status.value} for check in self.checks]
        return {
            "artifact": self.artifact,
            "graph": self.graph,
            "checks": rows,
            "passed": self.passed,
            "total": len(rows),
            "exit_code": self.exit_code,
        }

    def junit(self) -> str:
        """JUnit XML: a required check that did not run is an error, another one is skipped."""
        suite = ElementTree.Element("testsuite", name="repro verify", tests=str(len(self.checks)))
        failures = errors = skipped = 0
        for check in self.checks:
            case = ElementTree.SubElement(
                suite, "testcase", classname=xml_text(self.artifact), name=xml_text(check.name)
            )
            if check.status is Status.MISMATCH:
                failures += 1
                ElementTree.SubElement(case, "failure", message=xml_text(check.detail))
            elif check.status is Status.NOT_RUN and check.required:
                errors += 1
                ElementTree.SubElement(case, "error", message=xml_text("not run: " + check.detail))
            elif check.status is Status.NOT_RUN:
                skipped += 1
                ElementTree.SubElement(case, "skipped", message=xml_text(check.detail))
        suite.attrib.update(failures=str(failures), errors=str(errors), skipped=str(skipped))
        return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"

    def sarif(self, tool_version: str) -> str:
        """SARIF 2.1.0: one result for every check."""
        driver = {"name": "repro", "version": tool_version, "rules": _rules(self.checks)}
        results = [
            {
                "ruleId": check.name,
                "kind": {Status.GOOD: "pass", Status.MISMATCH: "fail", Status.NOT_RUN: "open"}[check.status],
                "level": "error" if check.status is Status.MISMATCH else "none",
                "message": {"text": check.detail or check.status.value},
                "locations": [{"physicalLocation": {"artifactLocation": {"uri": "artifact.json"}}}],
            }
            for check in self.checks
        ]
        document = {
            "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
            "version": "2.1.0",
            "runs": [{"tool": {"driver": driver}, "results": results}],
        }
        return json.dumps(document, indent=2) + "\n"


def _rules(checks: Iterable[Check]) -> list[dict[str, str]]:
    return [{"id": name} for name in dict.fromkeys(check.name for check in checks)]


def xml_text(text: str) -> str:
    """Text without the control characters that XML 1.0 has no way to write."""
    return "".join(c if c in "\t\n" or (c >= " " and c not in "\ufffe\uffff") else "\ufffd" for c in text)

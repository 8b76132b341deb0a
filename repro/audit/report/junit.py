"""JUnit XML: a test case for each executor, and one for the audit as a whole."""

from __future__ import annotations

from xml.etree import ElementTree

from repro.artifact.checks import Status, xml_text
from repro.audit.report.view import ExecutorRow, View
from repro.errors import EXIT_INCOMPLETE


def text(view: View) -> str:
    """What a threshold or a required run makes of it is a failure or an error; drift without a threshold is a pass that
    says what was seen, and what did not run is skipped."""
    cases = [_case(view, row) for row in view.executors]
    whole = [reason.text for reason in view.reasons if not reason.executor]
    if whole:
        kind = "error" if view.exit_code == EXIT_INCOMPLETE else "failure"
        cases.append(_element(view, "audit", kind, "; ".join(whole)))
    counts = {kind: str(sum(case.find(tag) is not None for case in cases)) for kind, tag in _KINDS.items()}
    suite = ElementTree.Element("testsuite", {"name": "repro audit", "tests": str(len(cases)), **counts})
    suite.extend(cases)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


_KINDS = {"failures": "failure", "errors": "error", "skipped": "skipped"}


def _case(view: View, row: ExecutorRow) -> ElementTree.Element:
    check = row.check
    if check.status is Status.MISMATCH:
        return _element(view, row.name, "failure", check.detail)
    if check.status is Status.NOT_RUN:
        return _element(view, row.name, "error" if check.required else "skipped", check.detail)
    case = _element(view, row.name)
    ElementTree.SubElement(case, "system-out").text = xml_text(check.detail)
    return case


def _element(view: View, name: str, kind: str = "", message: str = "") -> ElementTree.Element:
    case = ElementTree.Element("testcase", classname=xml_text(view.model), name=xml_text(name))
    if kind:
        ElementTree.SubElement(case, kind, message=xml_text(message))
    return case

"""The tables of docs/elementary.md are those of today's records and functions."""

from __future__ import annotations

from proofs import report


def test_the_document_holds_todays_tables():
    old = report.DOCUMENT.read_text()
    assert report.BEGIN in old and report.END in old
    assert report.document(old) == old, "run python -m proofs.report"
    assert "no record" not in report.text()

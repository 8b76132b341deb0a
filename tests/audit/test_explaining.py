"""The search for causes may fail; what was found may not be lost with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import repro
from repro.audit import explaining

GOLDEN = Path(__file__).parents[2] / "golden"


def test_a_fault_in_the_search_for_a_cause_stands_where_the_cause_would(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise IndexError("planted")

    def found() -> Any:
        return repro.audit_model(
            GOLDEN / "digits_cnn/forward.onnx", against=["onnxruntime[level=disable,threads=1]"], bind={"N": 2}
        )

    def origins(findings: Any) -> list[Any]:
        return [origin for pair in findings.audit.pairs for origin in pair.origins if pair.left == "golden"]

    whole = origins(found())
    monkeypatch.setattr(explaining, "causes", broken)
    broken_ones = origins(found())
    assert [origin.value for origin in broken_ones] == [origin.value for origin in whole]
    assert broken_ones
    for origin in broken_ones:
        (cause,) = origin.causes
        assert cause.name == explaining.FAULT
        assert "IndexError: planted" in cause.evidence
    assert all(cause.name != explaining.FAULT for origin in whole for cause in origin.causes)

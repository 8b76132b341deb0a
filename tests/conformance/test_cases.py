"""Every node case of onnx.backend.test: right values on the reference, and the same bits from CPU code."""

from __future__ import annotations

import pytest

from tests.conformance.exceptions import EXCEPTIONS
from tests.conformance.runner import cases, expected_failure, run_case


@pytest.mark.parametrize("name", list(cases()))
def test_case(name: str) -> None:
    outcome = run_case(name)
    reason = expected_failure(name)
    if reason:
        assert outcome.failure, f"{name} passes now: take it out of the exceptions ({reason})"
        return
    assert not outcome.failure, outcome.failure


def test_the_exceptions_name_cases() -> None:
    unknown = [name for name in EXCEPTIONS if name not in cases()]
    assert not unknown
    assert all(EXCEPTIONS.values())
    assert len(cases()) > 1500

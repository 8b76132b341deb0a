"""The benchmark of operators beside the functions that bound them runs, and says what it measured."""

from __future__ import annotations

import pytest

from benchmarks import bounds


def test_each_operator_has_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    bounds.main(["--rows", "3", "--rounds", "1"])
    rows = [line.split("│") for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    assert [row[1].strip() for row in rows] == list(bounds.FUNCTIONS_OF)
    for row in rows:
        function, operator, share = (float(cell) for cell in row[4:7])
        assert function > 0
        assert share == pytest.approx(function / operator, abs=0.01 + 0.01 * share)

"""The benchmark of operators beside the functions that bound them runs, and says what it measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import bounds, bounds_table


def test_each_operator_has_a_row(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    bounds.main(["--rows", "3", "--rounds", "2", "--record", str(tmp_path / bounds_table.RECORD)])
    rows = [line.split("│") for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    assert [row[1].strip() for row in rows] == list(bounds.FUNCTIONS_OF)
    for row in rows:
        function, operator, share = (float(cell.split()[0]) for cell in row[4:7])
        assert function > 0
        assert share == pytest.approx(function / operator, abs=0.01 + 0.01 * share)
    read = bounds_table.read(tmp_path / bounds_table.RECORD)
    assert [each.operator for each in read] == list(bounds.FUNCTIONS_OF)
    assert [each.divided is not None for each in read] == [name in bounds.DIVIDED for name in bounds.FUNCTIONS_OF]
    *_, last = bounds_table.lines(tmp_path)
    assert f"| {read[-1].share.value:.2f} (" in last
    least = min(each.share.value for each in read if each.operator in bounds_table.ASKED)
    assert f"{least:.2f} (" in bounds_table.aim(tmp_path)[-1]

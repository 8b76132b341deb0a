"""The table of what memory budgets cost is that of the code of now."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import memory_budget

PAGE = Path(__file__).parents[2] / "docs" / "training.md"


@pytest.mark.parametrize("loops", memory_budget.LOOPS)
def test_the_page_shows_what_the_program_gives(loops: str):
    assert memory_budget.row("digits_mlp", loops) in PAGE.read_text(), "python -m benchmarks.memory_budget"


def test_the_page_has_every_row():
    text = PAGE.read_text()
    assert memory_budget.line(memory_budget.HEAD) in text
    for model in memory_budget.BOUND:
        for loops in memory_budget.LOOPS:
            assert f"\n| {model} | {loops} | " in text

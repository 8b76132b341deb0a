"""Debug mode on every golden model: the reference's bits before and after each pass."""

from __future__ import annotations

import pytest

from golden import bless
from passes.pipeline import GRAPH_PASSES, PROGRAM_PASSES, run_checked
from repro.artifact import golden
from repro.ops.verify import verify

CASES = bless.cases()


@pytest.mark.parametrize("name", CASES)
def test_no_pass_changes_a_bit(name: str) -> None:
    case = CASES[name]
    bind = {} if name.startswith("nano_gpt") else {"N": 3}
    for entry in bless.entries(case, bind):
        verify(entry.graph)
        inputs = golden.draw(entry.graph.arguments, golden.index_limits(entry.graph), 0)
        parameters = [slot.initial for slot in entry.parameters]
        lowered = run_checked(entry.graph, inputs, parameters, entry.locations)
        names, every = [step.name for step in lowered.steps], [*(step.name for step in GRAPH_PASSES), "lower"]
        assert names[: len(every)] == every
        behind = names[len(every) :]
        assert behind == [step.name for step in PROGRAM_PASSES if step.name in behind], "in the order of the table"
        verify(lowered.graph)

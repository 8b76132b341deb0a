"""Debug mode on every golden model: the reference's bits before and after each pass."""

from __future__ import annotations

import pytest

from golden import bless
from passes.pipeline import GRAPH_PASSES, run_checked
from repro.artifact import golden
from repro.frontend import import_model, load_model
from repro.ops.verify import verify

CASES = bless.cases()


@pytest.mark.parametrize("name", CASES)
def test_no_pass_changes_a_bit(name: str) -> None:
    case = CASES[name]
    bind = {} if name.startswith("nano_gpt") else {"N": 3}
    imported = import_model(load_model(bless.HERE / case["model"]), bind=bind)
    verify(imported.graph)
    inputs = golden.draw(imported.graph.arguments, golden.index_limits(imported.graph), 0)
    parameters = [slot.initial for slot in imported.parameters]
    lowered = run_checked(imported.graph, inputs, parameters, imported.locations)
    assert [step.name for step in lowered.steps] == [*(step.name for step in GRAPH_PASSES), "lower"]
    verify(lowered.graph)

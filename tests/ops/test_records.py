"""Every op record: the lowered program gives the reference's bits. A new op is tested here by itself."""

from __future__ import annotations

import pytest

from passes.lower import lower
from passes.prepare import expand
from repro.ops import OPS
from repro.ops.record import NotDifferentiable, Sample, evaluate
from repro.targets import interpreter
from tests.ops.samples import IDS, SAMPLES, graph_of, operands_of


@pytest.mark.parametrize(("name", "number", "sample"), SAMPLES, ids=IDS)
def test_the_lowered_program_means_what_the_op_means(name: str, number: int, sample: Sample) -> None:
    graph = graph_of(sample)
    operands = operands_of(name, number, sample)
    expected = evaluate(graph, operands)[0]
    found = interpreter.run(lower(expand(graph)), operands)[0]
    assert found.tobytes() == expected.tobytes()


def test_a_gradient_is_refused_with_a_reason_only() -> None:
    refused = {name: op.gradient.reason for name, op in OPS.items() if isinstance(op.gradient, NotDifferentiable)}
    assert all(refused.values())
    assert {"dot", "add", "select", "reduce", "broadcast"}.isdisjoint(refused)

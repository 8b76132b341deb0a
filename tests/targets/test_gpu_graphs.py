"""Programs as PTX, interpreted, give the reference's bytes: samples of every op record, random graphs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings

from passes import pipeline
from passes.lower import lower
from passes.prepare import expand
from repro.ir.program import Program
from repro.ir.types import Array
from repro.machines import SM_80
from repro.ops.record import Sample, evaluate
from repro.targets.gpu import emit
from repro.targets.gpu.interpreter.executable import InterpretedExecutable
from tests.ops.samples import IDS, SAMPLES, graph_of, operands_of
from tests.targets.random_graphs import Case, cases
from tests.targets.test_random_graphs import UNDISTURBED, compare


def run(program: Program, inputs: Sequence[Array], parameters: Sequence[Array] = ()) -> list[Array]:
    kernels = [emit(kernel, SM_80) for kernel in program.kernels]
    return InterpretedExecutable(program, kernels, [value.reshape(-1) for value in parameters]).run(inputs)


@pytest.mark.parametrize(("name", "number", "sample"), SAMPLES, ids=IDS)
def test_samples_of_every_op(name: str, number: int, sample: Sample) -> None:
    graph = graph_of(sample)
    operands = operands_of(name, number, sample)
    expected = evaluate(graph, operands)[0]
    found = run(lower(expand(graph)), operands)[0]
    assert found.tobytes() == expected.tobytes()


def check(case: Case) -> None:
    inputs = case.inputs()
    program = pipeline.run(case.graph).program
    compare(case, run(program, inputs), evaluate(case.graph, inputs), "gpu/interpreter")


@given(case=cases())
@settings(UNDISTURBED, max_examples=25)
def test_random_graphs_give_the_references_bits(case: Case) -> None:
    check(case)


@pytest.mark.full
@given(case=cases(most=14))
@settings(UNDISTURBED, max_examples=500)
def test_many_random_graphs_give_the_references_bits(case: Case) -> None:
    check(case)

"""Programs as PTX, interpreted, give the reference's bytes: samples of every op record, random graphs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings

from passes import pipeline
from passes.lower import lower
from passes.prepare import expand
from repro.ir.program import Program
from repro.ir.text import parse_graph
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


EQUAL_LANES = """graph {
  argument 0 f64[2]
  argument 1 f64[]
  %0 = argument index=0 : f64[2]
  %1 = lt %0 %0 : bool[2]
  %2 = argument index=1 : f64[]
  %3 = broadcast %2 axes=() shape=(2) : f64[2]
  %4 = select %1 %0 %3 : f64[2]
  %5 = exp2 %4 : f64[2]
  %6 = canonical_nan %5 : f64[2]
  return %6
}"""
"""No x is less than itself, as LLVM sees: each element is the same exp2, with one fma for two lanes."""
SPREAD_LANES = """graph {
  argument 0 f32[1]
  %0 = argument index=0 : f32[1]
  %1 = exp %0 : f32[1]
  %2 = reshape %1 shape=() : f32[]
  %3 = broadcast %2 axes=() shape=(4) : f32[4]
  %4 = canonical_nan %3 : f32[4]
  return %4
}"""
"""Four lanes are the same exp of the same load, which instruction selection alone finds out."""
LANES_OF_NOBODY = """graph {
  argument 0 i8[2]
  %0 = argument index=0 : i8[2]
  %1 = slice %0 limits=(1) starts=(0) strides=(1) : i8[1]
  %2 = reshape %1 shape=() : i8[]
  %3 = pad %0 %2 high=(2) low=(0) : i8[4]
  return %3
}"""
"""Four i8s share a register, in which LLVM leaves some without a value for a while."""

BYTES_BACKWARDS = """graph {
  argument 0 i8[7]
  %0 = argument index=0 : i8[7]
  %1 = loop %0 carried=1 count=2 scanned=0 : i8[7]
    graph {
      argument 0 i64[]
      argument 1 i8[7]
      %0 = argument index=1 : i8[7]
      %1 = reverse %0 axes=(0) : i8[7]
      %2 = add %0 %1 : i8[7]
      return %2
    }
  return %1
}"""
"""Loads of neighbouring bytes are joined to one of a word, which ends behind the buffer."""

BACKWARDS = """graph {
  argument 0 f32[7]
  %0 = argument index=0 : f32[7]
  %1 = reverse %0 axes=(0) : f32[7]
  %2 = add %0 %1 : f32[7]
  return %2
}"""
"""Loads of neighbouring elements are joined to one of four, which ends behind the buffer."""


@pytest.mark.parametrize(
    ("text", "inputs"),
    [
        (EQUAL_LANES, [np.array([1.0, 2.0]), np.array(0.3)]),
        (SPREAD_LANES, [np.array([0.3], np.float32)]),
        (LANES_OF_NOBODY, [np.array([-3, 5], np.int8)]),
        (BYTES_BACKWARDS, [np.arange(7, dtype=np.int8)]),
        (BACKWARDS, [np.arange(7, dtype=np.float32)]),
    ],
    ids=["equal lanes", "spread lanes", "lanes of nobody", "bytes backwards", "backwards"],
)
def test_what_llvm_makes_of_lanes(text: str, inputs: list[Array]) -> None:
    graph = parse_graph(text)
    (found,) = run(pipeline.run(graph).program, inputs)
    assert found.tobytes() == evaluate(graph, inputs)[0].tobytes()


@pytest.mark.full
@given(case=cases(most=14))
@settings(UNDISTURBED, max_examples=500)
def test_many_random_graphs_give_the_references_bits(case: Case) -> None:
    check(case)

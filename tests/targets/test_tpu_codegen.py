"""Code for the simulated TPU: every op's samples and random graphs give the reference's bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from passes import pipeline
from passes.lower import lower
from passes.prepare import expand
from repro.errors import ReproError
from repro.ir.graph import Graph, argument
from repro.ir.program import Program
from repro.ir.types import BOOL, F32, F64, I64, Array, TensorType
from repro.ops import canonical_nan, convolution, dot, elementwise, gather
from repro.ops.record import Sample, evaluate
from repro.targets import interpreter
from repro.targets.tpu_sim.chips import chip
from repro.targets.tpu_sim.codegen import chunks
from repro.targets.tpu_sim.codegen.emit import emit
from repro.targets.tpu_sim.program import parse_routine
from repro.targets.tpu_sim.simulator import Simulator
from tests.ops.samples import IDS, SAMPLES, graph_of, operands_of
from tests.targets.random_graphs import Case, cases
from tests.targets.test_random_graphs import UNDISTURBED, compare

CHIPS = ("v5e", "v6e")


def run(program: Program, inputs: list[Array], name: str, worth: int = chunks.WORTH) -> list[Array]:
    """The program's outputs, by routines that went through their text."""
    routines = [parse_routine(emit(kernel, chip(name), worth).text) for kernel in program.kernels]
    return Simulator(program, routines, chip(name)).run([each.reshape(-1) for each in inputs])


@pytest.mark.parametrize(("name", "number", "sample"), SAMPLES, ids=IDS)
def test_an_op_gives_the_references_bits(name: str, number: int, sample: Sample) -> None:
    graph, operands = graph_of(sample), operands_of(name, number, sample)
    expected = evaluate(graph, operands)[0]
    found = run(lower(expand(graph)), operands, CHIPS[number % 2])[0]
    assert found.tobytes() == expected.tobytes()


def check(case: Case, name: str) -> None:
    inputs = case.inputs()
    wanted = evaluate(case.graph, inputs)
    program = pipeline.run(case.graph).program
    compare(case, run(program, list(inputs), name), wanted, name)
    compare(case, run(program, list(inputs), name, worth=1), wanted, f"{name}, in chunks")


@given(case=cases())
@settings(UNDISTURBED, max_examples=30)
def test_random_graphs_give_the_references_bits(case: Case) -> None:
    check(case, CHIPS[case.seed % 2])


@pytest.mark.full
@given(case=cases(most=14))
@settings(UNDISTURBED, max_examples=600)
def test_many_random_graphs_give_the_references_bits(case: Case) -> None:
    check(case, CHIPS[case.seed % 2])


# ── what was found, minimised ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("first", [-2, 0, 1])
def test_a_gather_by_gathered_indices_reads_inside_its_tables(first: int) -> None:
    """The index of the outer gather is read under the inner one's condition too."""
    kinds = (TensorType(BOOL, (1,)), TensorType(I64, (0, 1)), TensorType(I64, (1,)))
    table, indices, place = (argument(number, kind) for number, kind in enumerate(kinds))
    graph = Graph(kinds, (gather(gather(table, indices, (0,)), place, (0,)),))
    inputs = [np.ones(1, np.bool_), np.zeros((0, 1), np.int64), np.array([first], np.int64)]
    program = pipeline.run(graph).program
    wanted = evaluate(graph, inputs)[0]
    assert interpreter.run(program, inputs)[0].tobytes() == wanted.tobytes()
    assert run(program, inputs, "v5e")[0].tobytes() == wanted.tobytes()


@pytest.mark.parametrize("name", CHIPS)
@pytest.mark.parametrize("worth", [1, chunks.WORTH])
def test_absent_terms_beside_values_that_are_not_finite(name: str, worth: int) -> None:
    """A padded convolution: patches and their valid bits, made once or for each chunk, are not mixed up (rule 8)."""
    kinds = (TensorType(F32, (4, 5, 16, 16)), TensorType(F32, (6, 5, 3, 3)))
    x, w = (argument(number, kind) for number, kind in enumerate(kinds))
    graph = Graph(kinds, (canonical_nan(convolution(x, w, (16, 16), (1, 1), (1, 1), (-1, -1), (1, 1), 1)),))
    rng = np.random.default_rng(3)
    inputs = [rng.standard_normal(kind.shape).astype(np.float32) for kind in kinds]
    inputs[0][0, 0, 0, 0], inputs[1][2, 1, 0, 0], inputs[1][4, 3, 2, 2] = np.inf, np.inf, np.nan
    wanted = evaluate(graph, inputs)[0]
    assert 0 < np.isfinite(wanted).sum() < wanted.size
    assert run(pipeline.run(graph).program, inputs, name, worth)[0].tobytes() == wanted.tobytes()


@pytest.mark.parametrize("worth", [1, chunks.WORTH])
def test_a_gather_that_fewer_axes_decide_than_say_which_lanes_are_idle(worth: int) -> None:
    """Taps of a dilated input, for all channels of the result at once."""
    kinds = (TensorType(I64, (3, 130, 7)), TensorType(I64, (3, 130, 2)))
    x, w = (argument(number, kind) for number, kind in enumerate(kinds))
    graph = Graph(kinds, (convolution(x, w, (12,), (1,), (3,), (0,), (2,)),))
    rng = np.random.default_rng(5)
    inputs = [rng.integers(-9, 9, kind.shape) for kind in kinds]
    program, wanted = pipeline.run(graph).program, evaluate(graph, inputs)[0]
    assert run(program, inputs, "v5e", worth)[0].tobytes() == wanted.tobytes()


@pytest.mark.parametrize("function", ["sin", "tan"])
def test_a_branch_that_no_lane_takes_leaves_its_last_registers(function: str) -> None:
    """A convolution of padding alone: what is 0 in every lane does not take the road of large arguments."""
    kind = TensorType(F64, (1, 1, 1))
    x = argument(0, kind)
    padding = convolution(x, x, (1,), (1,), (1,), (1,), (1,), 1)
    graph, inputs = Graph((kind,), (canonical_nan(elementwise(function, padding)),)), [np.ones((1, 1, 1))]
    program, wanted = pipeline.run(graph).program, evaluate(graph, inputs)[0]
    assert run(program, inputs, "v5e")[0].tobytes() == wanted.tobytes()


@pytest.mark.parametrize("k", [512, 513, 1500, 4096, 4097, 9000])
def test_panels_and_blocks_of_a_long_chain(k: int) -> None:
    """Rule 7, on the matrix unit."""
    kinds = (TensorType(F32, (20, k)), TensorType(F32, (k, 12)))
    graph = Graph(kinds, (dot(argument(0, kinds[0]), argument(1, kinds[1]), ((1,), (0,))),))
    rng = np.random.default_rng(k)
    inputs = [rng.standard_normal(kind.shape).astype(np.float32) for kind in kinds]
    program, wanted = pipeline.run(graph).program, evaluate(graph, inputs)[0].tobytes()
    assert any("matmul" in emit(kernel, chip("v5e")).text for kernel in program.kernels)
    for name in CHIPS:
        assert run(program, inputs, name)[0].tobytes() == wanted


def test_a_kernel_that_no_vmem_holds_is_refused() -> None:
    """Every row needs the whole of a table that is larger than VMEM."""
    kinds = (TensorType(F32, (64 << 20,)), TensorType(I64, (8, 1)))
    graph = Graph(kinds, (gather(argument(0, kinds[0]), argument(1, kinds[1]), (0,)),))
    with pytest.raises(ReproError, match="does not fit the VMEM of v4") as caught:
        run(pipeline.run(graph).program, [], "v4")
    assert str(chip("v4").vmem_bytes) in str(caught.value)

"""Every instruction of a routine matters: without it, or out of its place, bits change or the machine faults. And an
order of addition that is not the contract's is seen by golden values.

Kernels of fewer than eight elements are left out: single values do not tell a step of a polynomial from one near it.
"""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from passes import pipeline
from repro.ir.graph import Graph, argument
from repro.ir.types import F32, Array, TensorType
from repro.ops import dot, reduce_axes
from repro.ops.record import evaluate
from repro.targets.tpu_sim.chips import chip
from repro.targets.tpu_sim.codegen.emit import emit
from repro.targets.tpu_sim.isa import Alu, Gather, Instruction, Matmul, Push, Rotate, instruction_text
from repro.targets.tpu_sim.liveness import dead
from repro.targets.tpu_sim.program import Bundle, Routine, Statement, instructions
from repro.targets.tpu_sim.simulator import Simulator
from tests.targets.tpu_mutations import Case, golden_cases, neighbours, without

MODELS = ("digits_cnn_trained", "digits_mlp_trained")
SMALLEST = 8


@pytest.fixture(scope="module", params=MODELS)
def cases(request: pytest.FixtureRequest) -> list[Case]:
    every = golden_cases(request.param, chip("v5e"))
    return [case for case in every if case.kernel.buffers[-1].elements >= SMALLEST]


def test_without_an_instruction_it_shows(cases: list[Case]) -> None:
    """Every one shows; none is reported as dead, since code generation leaves those out."""
    rng, tried, unseen = random.Random(0), 0, list[str]()
    for case in cases:
        every = list(instructions(case.routine.body))
        assert not dead(case.routine), case.routine.text
        for position in rng.sample(range(len(every)), min(10, len(every))):
            tried += 1
            changed = replace(case.routine, body=without(case.routine.body, position))
            if not case.shows(changed):
                unseen.append(f"{instruction_text(every[position])}\n{case.routine.text}")
    assert tried > 300
    assert not unseen, "\n".join(unseen)


def test_before_what_it_needs_it_shows(cases: list[Case]) -> None:
    """Neighbours change places where the second reads what the first writes. Two steps of one sum are left to the tests
    of orders below; the mask of a gather only keeps it inside its area, and may be another of those there."""
    rng, tried, unseen = random.Random(0), 0, list[str]()
    for case in cases:
        pairs = [pair for pair in neighbours(case.routine.body) if _feeds(pair[0], pair[1])]
        for first, second, body in rng.sample(pairs, min(8, len(pairs))):
            tried += 1
            text = [instruction_text(each) for each in (*first.instructions, *second.instructions)]
            if not case.shows(replace(case.routine, body=body)):
                unseen.append(f"{text}\n{case.routine.text}")
    assert tried > 100
    assert not unseen, "\n".join(unseen)


def _feeds(first: Bundle, second: Bundle) -> bool:
    made = {each.writes: each for each in first.instructions if each.writes is not None}
    found = [
        (made[reg], each)
        for each in second.instructions
        for reg in each.reads
        if reg in made and not (isinstance(each, Gather) and reg == each.mask)
    ]
    return bool(found) and not any(_accumulate(one, other) for one, other in found)


def _accumulate(one: Instruction, other: Instruction) -> bool:
    """Whether both add to one register by one operation."""
    if not (isinstance(one, Alu) and isinstance(other, Alu)):
        return False
    return one.operation == other.operation and one.target == other.target and other.target in other.sources


# ── swapped orders of addition ──────────────────────────────────────────────────────────────────────


def _matmuls_swapped(body: tuple[Statement, ...]) -> tuple[Statement, ...]:
    """The first tile of terms takes the second one's place and the other way round, weights and data."""
    every = list(instructions(body))
    (first_push, second_push), (first, second) = (
        [each for each in every if isinstance(each, kind)] for kind in (Push, Matmul)
    )
    assert isinstance(first_push, Push)
    assert isinstance(second_push, Push)
    assert isinstance(first, Matmul)
    assert isinstance(second, Matmul)
    places: dict[Instruction, Instruction] = {
        first_push: replace(first_push, source=second_push.source),
        second_push: replace(second_push, source=first_push.source),
        first: replace(first, data=second.data),
        second: replace(second, data=first.data),
    }
    return _replaced(body, places)


def _folds_swapped(body: tuple[Statement, ...]) -> tuple[Statement, ...]:
    """Lanes fold by 8 before they fold by 16."""
    turns = [each for each in instructions(body) if isinstance(each, Rotate)]
    places: dict[Instruction, Instruction] = {}
    for each in turns:
        other = {16: 8, 8: 16}.get(each.amount, each.amount)
        places[each] = replace(each, amount=other)
    return _replaced(body, places)


def _replaced(body: tuple[Statement, ...], places: dict[Instruction, Instruction]) -> tuple[Statement, ...]:
    made = list[Statement]()
    for statement in body:
        if isinstance(statement, Bundle):
            made.append(Bundle(tuple(places.get(each, each) for each in statement.instructions)))
        else:
            made.append(replace(statement, body=_replaced(statement.body, places)))
    return tuple(made)


def _bits(graph: Graph, inputs: list[Array], change: object) -> bytes:
    program, v5e = pipeline.run(graph).program, chip("v5e")
    routines = [emit(kernel, v5e) for kernel in program.kernels]
    if callable(change):
        routines = [_changed(routine, change) for routine in routines]
    return Simulator(program, routines, v5e).run([each.reshape(-1) for each in inputs])[0].tobytes()


def _changed(routine: Routine, change: object) -> Routine:
    assert callable(change)
    body = change(routine.body)
    assert isinstance(body, tuple)
    return replace(routine, body=body)


@pytest.mark.parametrize("what", ["terms of a dot", "lanes of a sum"])
def test_another_order_of_addition_shows(what: str) -> None:
    rng = np.random.default_rng(0)
    if what == "terms of a dot":
        kinds, change = (TensorType(F32, (32, 256)), TensorType(F32, (256, 32))), _matmuls_swapped
        value = dot(argument(0, kinds[0]), argument(1, kinds[1]), ((1,), (0,)))
    else:
        kinds, change = (TensorType(F32, (64, 96)),), _folds_swapped
        value = reduce_axes("add", argument(0, kinds[0]), [1], None)
    graph = Graph(kinds, (value,))
    inputs = [rng.standard_normal(kind.shape).astype(np.float32) for kind in kinds]
    wanted = evaluate(graph, inputs)[0].tobytes()
    assert _bits(graph, inputs, None) == wanted
    assert _bits(graph, inputs, change) != wanted

"""Random training steps, some of them refused, leave the reference's state: as programs and as every target's code."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from passes import pipeline
from passes.checks import COLUMNS, check_indices
from passes.loop_bodies import MANY
from passes.pipeline import Lowered
from passes.prepare import canonical_outputs, expand
from passes.recompute import MemoryBudgetError
from repro.artifact.compiling import compile_programs
from repro.ir.program import Commit, Program
from repro.ir.types import Array
from repro.ops.record import evaluate
from repro.targets import interpreter, registry
from repro.targets.protocol import Executable
from tests.passes.random_models import models
from tests.passes.random_steps import RandomStep, steps
from tests.targets.test_random_graphs import UNDISTURBED

RUNS = 2
RUNNERS = [
    runner
    for family in map(registry.family, registry.FAMILIES)
    for runner in family.runners
    if runner.code in family.built and runner.obstacle() is None
]
CODES = list(dict.fromkeys(r.code for family in map(registry.family, registry.FAMILIES) for r in family.runners))
Expected = list[tuple[list[bytes], bool, list[bytes]]]
"""Of each run: outputs, whether it is refused, the state after it."""


def expected(step: RandomStep, stray: int | None) -> Expected:
    """By the reference, on the graph as it was made."""
    checked = check_indices(expand(canonical_outputs(step.graph)))
    state, found = step.state(), Expected()
    for number in range(RUNS):
        results = evaluate(checked.graph, step.feed(number, number == stray), state)
        refused = bool(checked.sources) and bool(results[-1].reshape(-1, COLUMNS)[:, 0].any())
        for slot, result in () if refused else step.updates:
            state[slot] = results[result]
        found.append((bits([results[position] for position in step.outputs]), refused, bits(state)))
    return found


def bits(arrays: Sequence[Array]) -> list[bytes]:
    return [array.tobytes() for array in arrays]


class Interpreted:
    """A program in the interpreter of the loop IR, as an executable."""

    def __init__(self, program: Program, state: Sequence[Array]) -> None:
        self.program, self.state = program, [array.copy() for array in state]

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        return interpreter.run(self.program, inputs, self.state)

    def parameter(self, position: int) -> Array:
        return self.state[position]


def check(
    step: RandomStep, made: Executable | Interpreted, stray: int | None, wanted: Expected, reported: bool
) -> None:
    for number, (outputs, refused, state) in enumerate(wanted):
        found = made.run(step.feed(number, number == stray))
        assert bits(found[: len(outputs)]) == outputs, f"outputs of run {number}"
        said = reported and bool(found[-1].reshape(-1, COLUMNS)[:, 0].any())
        assert said == refused, f"run {number}"
        held = [made.parameter(slot) for slot in range(len(state))]
        differ = [slot for slot, array in enumerate(held) if array is not None and array.tobytes() != state[slot]]
        assert not differ, f"state after run {number}"
        assert all(held[slot] is not None for slot, _ in step.updates)


def programs(step: RandomStep, percent: int) -> list[Lowered]:
    """With all the memory, and with a part of it or the least that can be had."""
    free = pipeline.run(step.graph, updates=step.updates)
    assert isinstance(free.program.steps[-1], Commit)
    budget = free.program.arena_bytes * percent // 100
    try:
        return [free, pipeline.run(step.graph, updates=step.updates, memory_budget=budget)]
    except MemoryBudgetError as error:
        least = int((error.found or "").split()[0])
        return [free, pipeline.run(step.graph, updates=step.updates, memory_budget=least)]


def as_programs(step: RandomStep, percent: int, stray: int | None) -> None:
    wanted = expected(step, stray)
    for lowered in programs(step, percent):
        check(step, Interpreted(lowered.program, step.state()), stray, wanted, bool(lowered.checked))


def as_shaped(step: RandomStep, percent: int, stray: int | None) -> None:
    """As every target shapes the program before there is code."""
    wanted, lowered = expected(step, stray), programs(step, percent)[percent > 0]
    for code in CODES:
        shaped = code.shape(lowered.program)
        check(step, Interpreted(shaped, step.state()), stray, wanted, bool(lowered.checked))


def as_code(step: RandomStep, percent: int, stray: int | None) -> None:
    wanted = expected(step, stray)
    assert RUNNERS
    lowered = programs(step, percent)[percent > 0]
    codes = list(dict.fromkeys(runner.code for runner in RUNNERS))
    wanted_code = [(code, lowered.program) for code in codes]
    made_code = compile_programs(wanted_code, None, lambda stage, done, total: None)
    compiled = dict(zip(codes, made_code, strict=True))
    for runner in RUNNERS:
        for threads in sorted({runner.threads[0], runner.threads[-1]}):
            state = [array.reshape(-1) for array in step.state()]
            made = runner.open(compiled[runner.code], state, threads)
            check(step, made, stray, wanted, bool(lowered.checked))
            made.close()


budgets = st.sampled_from((0, 40, 60, 80))
strays = st.sampled_from((None, 0, 1))
Checks = Callable[[RandomStep, int, int | None], None]


@given(steps(), budgets, strays)
@settings(UNDISTURBED, max_examples=50)
def test_random_steps_as_programs(step: RandomStep, percent: int, stray: int | None) -> None:
    as_programs(step, percent, stray)


@given(steps(), budgets, strays)
@settings(UNDISTURBED, max_examples=30)
def test_random_steps_as_shaped(step: RandomStep, percent: int, stray: int | None) -> None:
    as_shaped(step, percent, stray)


@given(steps(), budgets, strays)
@settings(UNDISTURBED, max_examples=8)
def test_random_steps_as_code(step: RandomStep, percent: int, stray: int | None) -> None:
    as_code(step, percent, stray)


@given(models(), budgets, strays)
@settings(UNDISTURBED, max_examples=6)
def test_random_models_as_programs(step: RandomStep, percent: int, stray: int | None) -> None:
    as_programs(step, percent, stray)


@pytest.mark.full
@pytest.mark.parametrize(("checks", "examples"), [(as_programs, 1500), (as_shaped, 1000), (as_code, 60)])
def test_many_random_steps(checks: Checks, examples: int) -> None:
    _many(steps(14), checks, examples)


@pytest.mark.full
@pytest.mark.parametrize(("checks", "examples"), [(as_programs, 100), (as_shaped, 100), (as_code, 10)])
def test_many_random_models(checks: Checks, examples: int) -> None:
    """Microbatches too, of which a loop is shortened."""
    _many(models(6, (1, 3, MANY)), checks, examples)


def _many(drawn: st.SearchStrategy[RandomStep], checks: Checks, examples: int) -> None:
    @given(drawn, budgets, strays)
    @settings(UNDISTURBED, max_examples=examples)
    def run(step: RandomStep, percent: int, stray: int | None) -> None:
        checks(step, percent, stray)

    run()

"""Random programs under budgets compute the same terms: nothing is moved or repeated past a change of what it reads."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from passes.earlier import earlier
from passes.plan import plan
from passes.recompute import Draft, State
from repro.ir.program import CountedLoop, Program, walk
from tests.passes.random_programs import Maker
from tests.passes.symbolic import terms

SEEDS = range(60)
REPETITIONS = 8


def both(program: Program) -> tuple[dict[int, int], dict[int, int]]:
    return terms(program, 0), terms(program, 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_calls_are_moved_past_nothing_that_they_need(seed: int) -> None:
    program = Maker(seed).program()
    after = earlier(program)
    assert both(after) == both(program)
    assert len(list(walk(after.steps))) == len(list(walk(program.steps)))


@pytest.mark.parametrize("seed", SEEDS)
def test_each_repetition_on_offer_leaves_the_terms(seed: int) -> None:
    """One after another, taken at random from all that are on offer."""
    program = Maker(seed).program()
    expected, chosen = both(program), Random(seed)
    costs = [1] * len(program.kernels)
    draft = Draft.of(program)
    for _ in range(REPETITIONS):
        state = State(program, draft, costs)
        offered = list(state.candidates(np.cumsum(state.live >= 0)))
        if not offered:
            break
        draft = state.apply(chosen.choice(offered))
        buffers, arena = plan(draft.buffers, draft.steps)
        assert both(replace(program, buffers=buffers, steps=draft.steps, arena_bytes=arena)) == expected
    assert draft.steps != program.steps or not any(isinstance(step, CountedLoop) for step in program.steps)

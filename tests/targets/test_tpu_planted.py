"""Faults planted in generated programs: too much VMEM, a wait left out, a tile out of line, a copy past the end.

Each is caught for what it is, in every kernel of a golden training step where it can be planted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from repro.targets.tpu_sim.chips import chip
from repro.targets.tpu_sim.faults import FaultError
from repro.targets.tpu_sim.isa import Dma, Instruction, Load, Store, Wait
from repro.targets.tpu_sim.operands import LINEAR
from repro.targets.tpu_sim.program import Bundle, Routine, Statement, instructions
from tests.targets.tpu_mutations import Case, golden_cases, outputs, without

CHIPS = ("v5e", "v6e")


@pytest.fixture(scope="module", params=CHIPS)
def cases(request: pytest.FixtureRequest) -> list[Case]:
    return list(golden_cases("digits_cnn_trained", chip(request.param)))


def changed(body: Sequence[Statement], position: int, by: Instruction) -> tuple[Statement, ...]:
    """The body with another instruction at a position of the text's order."""
    made = list[Statement]()
    for statement in body:
        inside = tuple(instructions((statement,)))
        if not 0 <= position < len(inside):
            made.append(statement)
        elif isinstance(statement, Bundle):
            at = statement.instructions
            made.append(Bundle((*at[:position], by, *at[position + 1 :])))
        else:
            made.append(replace(statement, body=changed(statement.body, position, by)))
        position -= len(inside)
    return tuple(made)


def caught(case: Case, broken: Routine) -> str | None:
    """The kind of fault that the case's own values run into."""
    try:
        outputs(case.kernel, broken, case.chip, case.arrays, case.counters)
    except FaultError as fault:
        return fault.kind
    return None


def plant(cases: Sequence[Case], change: Callable[[Instruction], Instruction | None]) -> list[str | None]:
    """What is caught where the first instruction is changed that can be, kernel by kernel."""
    found = list[str | None]()
    for case in cases:
        for position, each in enumerate(instructions(case.routine.body)):
            by = change(each)
            if by is not None:
                found.append(caught(case, replace(case.routine, body=changed(case.routine.body, position, by))))
                break
    return found


def test_areas_that_vmem_does_not_hold(cases: list[Case]) -> None:
    kinds = list[str | None]()
    for case in cases:
        if case.routine.areas:
            last = case.routine.areas[-1]
            more = replace(last, elements=last.elements + (case.chip.vmem_bytes // last.dtype.bytes))
            kinds.append(caught(case, replace(case.routine, areas=(*case.routine.areas[:-1], more))))
    assert len(kinds) > 20
    assert set(kinds) == {"vmem overflow"}


def test_a_wait_left_out(cases: list[Case]) -> None:
    """Each one, wherever it stands."""
    kinds = list[str | None]()
    for case in cases:
        for position, each in enumerate(instructions(case.routine.body)):
            if isinstance(each, Wait):
                body = without(case.routine.body, position)
                kinds.append(caught(case, replace(case.routine, body=body)))
    assert len(kinds) > 100
    assert set(kinds) == {"transfer race", "semaphore"}
    assert kinds.count("transfer race") > 20


def test_a_tile_out_of_line(cases: list[Case]) -> None:
    def shifted(each: Instruction) -> Instruction | None:
        if isinstance(each, Load) and each.pattern == LINEAR:
            return replace(each, source=replace(each.source, offset=each.source.offset + 1))
        if isinstance(each, Store) and each.pattern == LINEAR:
            return replace(each, target=replace(each.target, offset=each.target.offset + 64))
        return None

    kinds = plant(cases, shifted)
    assert len(kinds) > 20
    assert set(kinds) == {"misaligned tile"}


def test_a_copy_past_the_end(cases: list[Case]) -> None:
    def longer(each: Instruction) -> Instruction | None:
        if not isinstance(each, Dma):
            return None
        dims = (replace(each.dims[0], count=each.dims[0].count + (1 << 20), limit=None), *each.dims[1:])
        return replace(each, dims=dims)

    kinds = plant(cases, longer)
    assert len(kinds) > 20
    assert set(kinds) == {"out of range"}


def test_what_the_case_runs_is_no_fault(cases: list[Case]) -> None:
    assert all(caught(case, case.routine) is None for case in cases)
    assert len(cases) > 20

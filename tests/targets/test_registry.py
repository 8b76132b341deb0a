"""The table of targets, and what names mean in it."""

from __future__ import annotations

import pytest

from repro.errors import EXIT_INCOMPLETE, ReproError
from repro.machines import CPUS
from repro.targets import registry
from repro.targets.protocol import CompiledProgram, Runner


def test_cpu_in_a_build_is_every_cpu() -> None:
    assert {target.name for target in registry.code_targets(["cpu"])} == set(CPUS)


def test_a_name_given_twice_is_one_target() -> None:
    names = [target.name for target in registry.code_targets(["cpu/aarch64", "reference", "cpu", "cpu/aarch64"])]
    assert names == sorted(CPUS)


def test_elsewhere_cpu_is_the_best_that_runs_here() -> None:
    found = registry.runner("cpu")
    assert found.obstacle() is None
    assert all(
        CPUS[each.name].vector_bits <= CPUS[found.name].vector_bits
        for each in registry.family(registry.CPU).runners
        if each.obstacle() is None
    )


@pytest.mark.parametrize("ask", [lambda: registry.code_targets(["cpu", "abacus"]), lambda: registry.runner("abacus")])
def test_an_unknown_name_is_told_what_there_is(ask: object) -> None:
    assert callable(ask)
    with pytest.raises(ReproError, match="unknown target 'abacus'") as caught:
        ask()
    assert all(name in str(caught.value) for name in CPUS)


def test_the_code_of_each_runner_is_in_the_table() -> None:
    assert registry.runners()
    for runner in registry.runners():
        assert registry.code_target(runner.code.name) is runner.code
        assert runner in registry.runners_of(runner.code.name)


def test_each_name_leads_to_the_one_family_that_has_to_be_loaded() -> None:
    for name in registry.FAMILIES:
        family = registry.family(name)
        assert family.name == name
        own = {runner.code for runner in family.runners}
        assert set(family.built) <= own
        for each in (*family.runners, *own):
            assert each.name == name or each.name.startswith(f"{name}/")


def test_what_does_not_run_here_says_why() -> None:
    def never(*_: object) -> None:
        raise AssertionError

    code = registry.family(registry.CPU).built[0]
    runner = Runner("cpu/elsewhere", code, lambda: "it is not here", never)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ReproError, match="cpu/elsewhere does not run here") as caught:
        runner.open(CompiledProgram(code, None, (), (), b""), [], 1)  # pyright: ignore[reportArgumentType]
    assert caught.value.exit_code == EXIT_INCOMPLETE
    assert caught.value.found == "it is not here"

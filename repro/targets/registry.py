"""The targets there are. A new one is an entry of FAMILIES; everything else asks here.

A family is loaded when one of its names is used, or all names are asked for: what a simulator needs is nothing to a
build for CPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module

from repro.errors import ReproError
from repro.targets.protocol import REFERENCE, CodeTarget, Family, Runner

CPU = "cpu"
FAMILIES = {
    CPU: "repro.targets.cpu.target",
    "gpu": "repro.targets.gpu.target",
    "tpu-sim": "repro.targets.tpu_sim.target",
}
"""By name, the module whose `FAMILY` it is. Whatever is of a family has its name, or that, a slash and more."""


@cache
def family(name: str) -> Family:
    """By its own name. Raises KeyError for another."""
    return import_module(FAMILIES[name]).FAMILY


def _family_with(name: str) -> Family | None:
    """The family that a target of this name would be of; None: there is none."""
    own = name.partition("/")[0]
    return family(own) if own in FAMILIES else None


def runners() -> tuple[Runner, ...]:
    """All, of all families."""
    return tuple(runner for name in FAMILIES for runner in family(name).runners)


def names() -> tuple[str, ...]:
    """All that a user may write."""
    return tuple(sorted({REFERENCE, *FAMILIES, *(runner.name for runner in runners())}))


def runner_called(name: str) -> Runner | None:
    """The runner that has just this name; None: a family has it, or nobody."""
    found = _family_with(name)
    return None if found is None else next((runner for runner in found.runners if runner.name == name), None)


def check_names(given: Sequence[str]) -> None:
    """Raises ReproError for a name that no target has."""
    for name in given:
        if name != REFERENCE and name not in FAMILIES and runner_called(name) is None:
            raise ReproError(f"unknown target '{name}'", found=name, expected=", ".join(names()))


def code_targets(given: Sequence[str]) -> tuple[CodeTarget, ...]:
    """The targets to make code for, by name and each once: a family's name is all that it builds."""
    check_names(given)
    found: dict[str, CodeTarget] = {}
    for name in given:
        if (runner := runner_called(name)) is not None:
            found[runner.code.name] = runner.code
        elif name in FAMILIES:
            found.update({each.name: each for each in family(name).built})
    return tuple(found[name] for name in sorted(found))


def code_target(name: str) -> CodeTarget:
    """By the name that a config has. Raises ReproError for one that this version does not know."""
    if made := runners_of(name):
        return made[0].code
    known = ", ".join(sorted({runner.code.name for runner in runners()}))
    raise ReproError(f"unknown target '{name}'", found=name, expected=known, next="use a newer version of repro")


def best(name: str) -> Runner | None:
    """A family's best runner here; None where none of them runs."""
    return next((runner for runner in family(name).runners if runner.obstacle() is None), None)


def runner(name: str) -> Runner:
    """By a name as users write it; a family's name is its best runner here, or its first if none runs here.

    Raises ReproError for a name that is none, and for `reference`, which runs no code.
    """
    if (found := runner_called(name)) is not None:
        return found
    if name not in FAMILIES:
        known = ", ".join(each for each in names() if each != REFERENCE)
        raise ReproError(f"unknown target '{name}'", found=name, expected=known)
    return best(name) or family(name).runners[0]


def runners_of(code: str) -> tuple[Runner, ...]:
    """Everything that runs the code of a target, in the order of the family."""
    found = _family_with(code)
    return () if found is None else tuple(runner for runner in found.runners if runner.code.name == code)


def family_of(name: str) -> Family | None:
    """The family that goes by a name; None if a name is a runner's, or nobody's."""
    return family(name) if name in FAMILIES and runner_called(name) is None else None


def families_of(given: Sequence[Runner]) -> tuple[str, ...]:
    """Names of the families that runners are of."""
    own = {runner.name.partition("/")[0] for runner in given}
    return tuple(name for name in FAMILIES if name in own)

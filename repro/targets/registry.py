"""The targets there are. A new one is an entry of FAMILIES; everything else asks here."""

from __future__ import annotations

from collections.abc import Sequence

from repro.errors import ReproError
from repro.targets.cpu.target import FAMILY as CPU
from repro.targets.gpu.target import FAMILY as GPU
from repro.targets.protocol import REFERENCE, CodeTarget, Family, Runner
from repro.targets.tpu_sim.target import FAMILY as TPU_SIM

FAMILIES: tuple[Family, ...] = (CPU, GPU, TPU_SIM)

RUNNERS: dict[str, Runner] = {runner.name: runner for family in FAMILIES for runner in family.runners}
CODE_TARGETS: dict[str, CodeTarget] = {runner.code.name: runner.code for runner in RUNNERS.values()}
_FAMILIES = {family.name: family for family in FAMILIES}
NAMES: tuple[str, ...] = tuple(sorted({REFERENCE, *_FAMILIES, *RUNNERS}))
"""All that a user may write."""


def check_names(names: Sequence[str]) -> None:
    """Raises ReproError for a name that no target has."""
    for name in names:
        if name not in NAMES:
            raise ReproError(f"unknown target '{name}'", found=name, expected=", ".join(NAMES))


def code_targets(names: Sequence[str]) -> tuple[CodeTarget, ...]:
    """The targets to make code for, by name and each once: a family's name is all that it builds."""
    check_names(names)
    found: dict[str, CodeTarget] = {}
    for name in names:
        if name in RUNNERS:
            found[RUNNERS[name].code.name] = RUNNERS[name].code
        elif name in _FAMILIES:
            found.update({each.name: each for each in _FAMILIES[name].built})
    return tuple(found[name] for name in sorted(found))


def code_target(name: str) -> CodeTarget:
    """By the name that a config has. Raises ReproError for one that this version does not know."""
    if name not in CODE_TARGETS:
        known = ", ".join(sorted(CODE_TARGETS))
        raise ReproError(f"unknown target '{name}'", found=name, expected=known, next="use a newer version of repro")
    return CODE_TARGETS[name]


def best(family: Family) -> Runner | None:
    """The family's best runner here; None where none of them runs."""
    return next((runner for runner in family.runners if runner.obstacle() is None), None)


def runner(name: str) -> Runner:
    """By a name as users write it; a family's name is its best runner here, or its first if none runs here.

    Raises ReproError for a name that is none, and for `reference`, which runs no code.
    """
    if name in RUNNERS:
        return RUNNERS[name]
    if name not in _FAMILIES:
        raise ReproError(f"unknown target '{name}'", found=name, expected=", ".join(n for n in NAMES if n != REFERENCE))
    return best(_FAMILIES[name]) or _FAMILIES[name].runners[0]


def runners_of(code: str) -> tuple[Runner, ...]:
    """Everything that runs the code of a target, in the order of the table."""
    return tuple(runner for runner in RUNNERS.values() if runner.code.name == code)


def family_of(name: str) -> Family | None:
    """The family that goes by a name; None if a name is a runner's, or nobody's."""
    return None if name in RUNNERS else _FAMILIES.get(name)


def families_of(runners: Sequence[Runner]) -> tuple[str, ...]:
    """Names of the families that runners are of."""
    return tuple(family.name for family in FAMILIES if any(each in family.runners for each in runners))

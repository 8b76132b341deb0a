"""What a trainer does not mean: warnings about a model, and an error where a gradient would be wrong."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import chain

from repro.autodiff import left_out, obstacles
from repro.errors import ReproError
from repro.frontend.folding import frozen
from repro.ir.graph import Node, Value
from repro.train_step.problem import NARROWEST_TRAINED, Problem, parameters_of
from repro.train_step.statistics import normalizations


def lint(problem: Problem, reached: Collection[int]) -> tuple[str, ...]:
    """One line for each finding. `reached`: the slots of the trained parameters that a gradient reaches."""
    return (*_normalizations(problem), *_random(problem), *_unreached(problem, reached), *_untrainable(problem))


def check_paths(problem: Problem, reached: Collection[int]) -> None:
    """Raises ReproError for a gradient that would count some of the paths to its parameter, and not all."""
    slots, values = sorted(reached), parameters_of(problem.slots)
    lost = left_out(problem.forward.results, [values[slot] for slot in slots])
    for slot, found in zip(slots, lost, strict=True):
        if found is not None:
            name = problem.slots[slot].name
            raise ReproError(
                f"the gradient of the parameter {name} would lack a part",
                found=f"a path through {_where(problem, found.node)}: {found.reason}",
                expected="a gradient on every path from the parameter to the loss, or on none",
                next=f"do not train it: {frozen([name])}; or give that Loop a condition and a count known at build",
            )


def _where(problem: Problem, node: Node) -> str:
    return problem.imported.locations.get(node, node.op)


def _normalizations(problem: Problem) -> Iterator[str]:
    given = (normalizations(problem.forward, training=False, inside=inside) for inside in (False, True))
    for node in chain(*given):
        yield (
            f"{_where(problem, node)} normalizes by its running statistics, which training will not change "
            "(export the model in training mode)"
        )
    for node in normalizations(problem.forward, training=True):
        if len(node.types) == 1:
            yield (
                f"{_where(problem, node)} does not name its running statistics as outputs: "
                "they keep their initial values"
            )
    for node in normalizations(problem.forward, training=True, inside=True):
        yield f"{_where(problem, node)} stands in a branch or a loop: its running statistics keep their initial values"


def _random(problem: Problem) -> Iterator[str]:
    notes = problem.imported.notes
    for name in notes.lost_dropouts:
        yield f"Dropout {name} is in inference mode: it drops nothing (export the model in training mode)"
    for name in notes.unseeded:
        yield f"{name} draws random numbers without a seed of its own: they are those of the build's --seed"


def _unreached(problem: Problem, reached: Collection[int]) -> Iterator[str]:
    values = parameters_of(problem.slots)
    for slot in problem.trained:
        if slot not in reached:
            yield f"no gradient reaches the parameter {problem.slots[slot].name}: {_reason(problem, values[slot])}"


def _reason(problem: Problem, value: Value) -> str:
    ends = obstacles(problem.forward.results, value)
    if not ends:
        return "the loss does not depend on it"
    return "; ".join(dict.fromkeys(f"{_where(problem, end.node)}: {end.reason}" for end in ends))


def _untrainable(problem: Problem) -> Iterator[str]:
    for port in problem.imported.notes.integer_tensors:
        yield f"the integer tensor {port.name} {port.type} is a constant: it is not trained"
    for slot in problem.slots:
        if slot.type.dtype.bits < NARROWEST_TRAINED:
            yield f"the parameter {slot.name} {slot.type} is too narrow to be trained"

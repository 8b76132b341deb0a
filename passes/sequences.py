"""A program's steps as a tree of sequences: the program's own, the bodies of loops, the sides of branches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from repro.ir.program import Branch, Call, CountedLoop, Program, Step, While, walk

Path = tuple[tuple[int, int], ...]
"""Where a sequence lies: the position of each step around it, from outside in, and which of that step's bodies."""


def bodies(step: Step) -> tuple[tuple[tuple[Step, ...], int], ...]:
    """The sequences inside a step, each with how often it runs at most."""
    match step:
        case Call():
            return ()
        case CountedLoop():
            return ((step.body, step.count),)
        case While():
            return ((step.body, step.limit),)
        case Branch():
            return ((step.then, 1), (step.otherwise, 1))


def sequences(steps: tuple[Step, ...], path: Path = (), runs: int = 1) -> Iterator[tuple[Path, tuple[Step, ...], int]]:
    """(path, steps, runs) of every sequence, an outer one before those in it."""
    yield path, steps, runs
    for position, step in enumerate(steps):
        for side, (body, times) in enumerate(bodies(step)):
            yield from sequences(body, (*path, (position, side)), runs * times)


def replaced(steps: tuple[Step, ...], path: Path, by: tuple[Step, ...]) -> tuple[Step, ...]:
    """The steps with the sequence at a path replaced."""
    if not path:
        return by
    (position, side), *rest = path
    inner = [body for body, _ in bodies(steps[position])]
    inner[side] = replaced(inner[side], tuple(rest), by)
    return (*steps[:position], with_bodies(steps[position], inner), *steps[position + 1 :])


def with_bodies(step: Step, inner: Sequence[tuple[Step, ...]]) -> Step:
    match step:
        case Call():
            return step
        case CountedLoop() | While():
            return replace(step, body=inner[0])
        case Branch():
            return Branch(step.condition, *inner)


def touched(program: Program, step: Step) -> Iterator[tuple[int, bool]]:
    """The buffers of a step, and of the steps inside it: (buffer, whether it is written)."""
    for each in walk((step,)):
        match each:
            case Call():
                for buffer, parameter in zip(each.buffers, program.kernels[each.kernel].buffers, strict=True):
                    yield buffer, parameter.writable
            case While() | Branch():
                yield each.condition, False
            case CountedLoop():
                pass


def renamed(step: Step, names: dict[int, int]) -> Step:
    """A step with buffers renamed, in its bodies too."""
    inner = [tuple(renamed(each, names) for each in body) for body, _ in bodies(step)]
    match step:
        case Call():
            return replace(step, buffers=tuple(names.get(buffer, buffer) for buffer in step.buffers))
        case CountedLoop():
            return with_bodies(step, inner)
        case While() | Branch():
            named = replace(step, condition=names.get(step.condition, step.condition))
            return with_bodies(named, inner)

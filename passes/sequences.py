"""A program's steps as a tree of sequences: the program's own, the bodies of loops, the sides of branches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from repro.ir.loops import Kernel
from repro.ir.program import Branch, Call, Commit, CountedLoop, Program, RowBlocks, Step, While, touched, walk

Path = tuple[tuple[int, int], ...]
"""Where a sequence lies: the position of each step around it, from outside in, and which of that step's bodies."""


def bodies(step: Step) -> tuple[tuple[tuple[Step, ...], int], ...]:
    """The sequences inside a step, each with how often it runs at most."""
    match step:
        case Call():
            return ()
        case CountedLoop() | RowBlocks():
            return ((step.body, step.count),)
        case While():
            return ((step.body, step.limit),)
        case Branch():
            return ((step.then, 1), (step.otherwise, 1))
        case Commit():
            return ((step.body, 1),)


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
        case CountedLoop() | While() | Commit():
            return replace(step, body=inner[0])
        case RowBlocks():
            return replace(step, body=tuple(each for each in inner[0] if isinstance(each, Call)))
        case Branch():
            return Branch(step.condition, *inner)


def with_calls(steps: tuple[Step, ...], made: Callable[[Call], Sequence[Step]]) -> tuple[Step, ...]:
    """The steps with others in place of each call; commits and blocks of rows, which are short or near, as they are."""
    found: list[Step] = []
    for step in steps:
        match step:
            case Call():
                found += made(step)
            case Commit() | RowBlocks():
                found.append(step)
            case _:
                found.append(with_bodies(step, [with_calls(body, made) for body, _ in bodies(step)]))
    return tuple(found)


def touched_itself(program: Program, step: Step) -> Iterator[tuple[int, bool]]:
    """What `touched` gives for a step, the steps inside it left out."""
    yield from touched(program, with_bodies(step, [() for _ in bodies(step)]))


@dataclass(frozen=True)
class Touched:
    """The buffers of a step."""

    read: frozenset[int]
    written: frozenset[int]

    def before(self, other: Touched) -> bool:
        """Whether this step must stay before the other."""
        return bool(self.written & (other.read | other.written) or self.read & other.written)

    def __or__(self, other: Touched) -> Touched:
        """Those of both steps."""
        return Touched(self.read | other.read, self.written | other.written)


def touches(program: Program, step: Step) -> Touched:
    """What a step reads and writes; the buffer of an element that it writes over counts as both."""
    found = list(touched(program, step))
    written = frozenset(buffer for buffer, writes in found if writes)
    return Touched(frozenset(buffer for buffer, writes in found if not writes), written)


def renamed(step: Step, names: Mapping[int, int], kernels: Mapping[int, int] | None = None) -> Step:
    """A step with buffers renamed, and kernels too, in its bodies as well."""
    inner = [tuple(renamed(each, names, kernels) for each in body) for body, _ in bodies(step)]
    match step:
        case Call():
            kernel = step.kernel if kernels is None else kernels[step.kernel]
            return Call(kernel, tuple(names.get(buffer, buffer) for buffer in step.buffers), step.scalars)
        case CountedLoop() | RowBlocks():
            return with_bodies(step, inner)
        case While() | Branch():
            named = replace(step, condition=names.get(step.condition, step.condition))
            return with_bodies(named, inner)
        case Commit():
            refused = None if step.refused is None else names.get(step.refused, step.refused)
            return with_bodies(replace(step, refused=refused), inner)


def by_first_use(kernels: Sequence[Kernel], steps: Sequence[Step]) -> tuple[tuple[Kernel, ...], dict[int, int]]:
    """The kernels that steps call, each once, by first use; and what each number becomes."""
    used: dict[str, Kernel] = {}
    for step in walk(tuple(steps)):
        if isinstance(step, Call):
            used.setdefault(kernels[step.kernel].digest, kernels[step.kernel])
    numbers = {digest: number for number, digest in enumerate(used)}
    return tuple(used.values()), {at: numbers[k.digest] for at, k in enumerate(kernels) if k.digest in numbers}

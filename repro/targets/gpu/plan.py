"""A program as the host of a device sees it: runs of launches that nothing interrupts, and what it must decide."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from repro.errors import InternalError
from repro.ir.program import Branch, Call, Commit, CountedLoop, Program, RowBlocks, Step, While
from repro.targets.gpu.launch import GpuKernel, Launch
from repro.targets.gpu.steps import calls_of, shapes

MOST_IN_GRAPH = 20_000
"""Launches of one graph: a counted loop that would make more of them is the host's."""
WORKSPACES = 2
"""With one, no call that needs it could run beside another."""


@dataclass(frozen=True)
class Bound:
    """One launch with its buffers; `scalars` are values of counters, None where a loop of the host has them: the depth
    is in `depths` beside it."""

    kernel: int
    launch: Launch
    buffers: tuple[int, ...]
    scalars: tuple[int | None, ...]
    depths: tuple[int, ...]
    written: tuple[int, ...]
    """Of the buffers, those that the kernel writes."""
    workspace: int | None
    """Which workspace is the kernel's, if it needs one: calls take turns."""


@dataclass(eq=False)
class Straight:
    """Launches, in the program's order. `open`: some take counters of a loop of the host, so they cannot be a graph."""

    launches: list[Bound] = field(default_factory=list[Bound])
    open: bool = False


@dataclass(frozen=True, eq=False)
class Repeat:
    """A loop of the host: `count` times, or up to so many as long as a condition is true."""

    count: int
    condition: int | None
    body: tuple[Node, ...]


@dataclass(frozen=True, eq=False)
class Choice:
    """One side, by a byte that the host reads."""

    condition: int
    then: tuple[Node, ...]
    otherwise: tuple[Node, ...]


Node = Straight | Repeat | Choice


def planned(program: Program, kernels: Sequence[GpuKernel], most: int = MOST_IN_GRAPH) -> tuple[Node, ...]:
    """The whole program; one `Straight` where no step depends on data and no loop is too long."""
    return _Planner(program, kernels, most).nodes(program.steps, ())


def launches(nodes: Sequence[Node]) -> Iterator[Bound]:
    """All that stand in them, those of both sides of a choice too."""
    for node in nodes:
        match node:
            case Straight():
                yield from node.launches
            case Repeat():
                yield from launches(node.body)
            case Choice():
                yield from launches((*node.then, *node.otherwise))


def workspace_bytes(nodes: Sequence[Node], kernels: Sequence[GpuKernel]) -> list[int]:
    """Of each workspace, as many as its calls need."""
    found = [0] * WORKSPACES
    for each in launches(nodes):
        if each.workspace is not None:
            found[each.workspace] = max(found[each.workspace], kernels[each.kernel].workspace_bytes)
    return found


class _Planner:
    """Counters are values where loops are unrolled, None where the host runs them."""

    def __init__(self, program: Program, kernels: Sequence[GpuKernel], most: int) -> None:
        self.blocks, self.kernels, self.most = calls_of(program), kernels, most
        self.writes = [[held.writable for held in kernel.buffers] for kernel in program.kernels]
        self.writes += [shape.writes for shape in shapes(program)]
        self.turns = 0

    def nodes(self, steps: Sequence[Step], counters: tuple[int | None, ...]) -> tuple[Node, ...]:
        found: list[Node] = []
        for step in steps:
            for node in self._step(step, counters):
                last = found[-1] if found else None
                if isinstance(node, Straight) and isinstance(last, Straight) and self._joins(last, node):
                    last.launches += node.launches
                    last.open |= node.open
                else:
                    found.append(node)
        return tuple(found)

    def _joins(self, left: Straight, right: Straight) -> bool:
        return left.open == right.open and len(left.launches) + len(right.launches) <= self.most

    def _step(self, step: Step, counters: tuple[int | None, ...]) -> tuple[Node, ...]:
        match step:
            case Call():
                return (self._call(step, counters),)
            case CountedLoop():
                return self._loop(step, counters)
            case While():
                return (Repeat(step.limit, step.condition, self.nodes(step.body, (*counters, None))),)
            case Branch():
                sides = (self.nodes(side, counters) for side in (step.then, step.otherwise))
                return (Choice(step.condition, *sides),)
            case RowBlocks():
                return (self._call(self.blocks[step], counters),)
            case Commit(refused=None):
                return self.nodes(step.body, counters)
            case Commit():
                raise InternalError("a commit's kernels were not given the verdict that they wait for")

    def _call(self, call: Call, counters: tuple[int | None, ...]) -> Straight:
        kernel = self.kernels[call.kernel]
        scalars = tuple(counters[depth] for depth in call.scalars)
        pairs = zip(call.buffers, self.writes[call.kernel], strict=True)
        written = tuple(buffer for buffer, writes in pairs if writes)
        workspace = None
        if kernel.workspace_bytes:
            workspace, self.turns = self.turns % WORKSPACES, self.turns + 1
        bounds = [
            Bound(call.kernel, each, call.buffers, scalars, call.scalars, written, workspace)
            for each in kernel.launches
        ]
        return Straight(bounds, None in scalars)

    def _loop(self, loop: CountedLoop, counters: tuple[int | None, ...]) -> tuple[Node, ...]:
        """Unrolled where that is one run of launches, short enough."""
        size = self._size(loop.body)
        if size is not None and size * loop.count <= self.most:
            every = [self.nodes(loop.body, (*counters, at)) for at in range(loop.count)]
            return tuple(node for nodes in every for node in nodes)
        return (Repeat(loop.count, None, self.nodes(loop.body, (*counters, None))),)

    def _size(self, steps: Sequence[Step]) -> int | None:
        """Launches of steps; None where they depend on data."""
        total = 0
        for step in steps:
            match step:
                case Call():
                    total += len(self.kernels[step.kernel].launches)
                case RowBlocks():
                    total += 1
                case CountedLoop():
                    inner = self._size(step.body)
                    if inner is None:
                        return None
                    total += step.count * inner
                case _:
                    return None
        return total

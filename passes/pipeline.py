"""The passes, in order, with their reasons. Every digest before and after goes into the manifest."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from passes import checks, prepare, sharing
from passes.in_place import in_place
from passes.loop_bodies import shorten_loops
from passes.lower import lower
from passes.recompute import recompute
from passes.schedule import schedule
from passes.together import together
from repro.collector import paused
from repro.errors import InternalError
from repro.ir.graph import Graph, Locations
from repro.ir.program import Program
from repro.ir.schedule import Schedule
from repro.ir.types import Array
from repro.machines import Machine
from repro.ops.record import evaluate

CALLS = 8000
"""Of functions inside each other, that Python is to allow: of an expression of so many operations as `passes.fuse` puts
into one, several for each operation."""


@dataclass(frozen=True)
class GraphPass:
    """A rewriting of the entry graph that keeps every result's bits."""

    name: str
    run: Callable[[Graph, Locations], Graph]
    reason: str


def _outputs(graph: Graph, locations: Locations) -> Graph:
    return prepare.canonical_outputs(graph, locations)


def _expand(graph: Graph, locations: Locations) -> Graph:
    return sharing.share_loops(prepare.expand(graph, locations), locations)


def _checks(graph: Graph, locations: Locations) -> Graph:
    return checks.check_indices(graph, locations).graph


GRAPH_PASSES: tuple[GraphPass, ...] = (
    GraphPass("canonical-outputs", _outputs, "first: the outputs' NaNs are fixed before anything may be merged"),
    GraphPass("expand", _expand, "after it only elements, nests and control flow are left, each loop once"),
    GraphPass("check-indices", _checks, "last: it must see every gather and scatter, those inside composites too"),
)


@dataclass(frozen=True)
class Wanted:
    """What an entry asks of its program: state (parameter, result), whether the last result is the report of indices,
    the most bytes of temporaries."""

    updates: tuple[tuple[int, int], ...]
    reported: bool
    memory_budget: int | None


@dataclass(frozen=True)
class ProgramPass:
    """A rewriting of the program that keeps every result's bits; it gives back the program itself where it has nothing
    to do, and is then no step."""

    name: str
    run: Callable[[Program, Wanted], Program]
    reason: str


def _recompute(program: Program, wanted: Wanted) -> Program:
    return program if wanted.memory_budget is None else recompute(program, wanted.memory_budget)


PROGRAM_PASSES: tuple[ProgramPass, ...] = (
    ProgramPass("shorten-loops", lambda program, _: shorten_loops(program), "first: state takes what loops leave"),
    ProgramPass(
        "in-place",
        lambda program, wanted: in_place(program, wanted.updates, wanted.reported),
        "before memory is budgeted: gradients live until the commit",
    ),
    ProgramPass("recompute", _recompute, "last but one: it repeats calls of the program as it will run"),
    ProgramPass(
        "together", lambda program, _: together(program), "last: what merges calls asks for one store a buffer"
    ),
)


@dataclass(frozen=True)
class Step:
    """One pass as it ran: digests (hex) of what went in and came out."""

    name: str
    before: str
    after: str


@dataclass(frozen=True)
class Lowered:
    """A program, the passes that led to it, and the source of each row of its index report."""

    program: Program
    steps: tuple[Step, ...]
    graph: Graph
    checked: tuple[str, ...]

    def schedules(self, machine: Machine) -> list[Schedule]:
        """One schedule per kernel, by the cost model."""
        return [schedule(kernel, machine) for kernel in self.program.kernels]


@dataclass(frozen=True)
class Made:
    """A program, and the passes that made it of a graph."""

    program: Program
    steps: tuple[Step, ...]


Observer = Callable[[str, Graph], None]
Maker = Callable[[Graph, Wanted], Made]


def make(graph: Graph, wanted: Wanted) -> Made:
    """The program of a graph that all graph passes have gone over: its content alone, with what is wanted, decides."""
    program = replace(lower(graph), most_bytes=wanted.memory_budget)
    steps = [Step("lower", graph.digest.hex(), program.digest)]
    for program_pass in PROGRAM_PASSES:
        before, program = program, program_pass.run(program, wanted)
        if program is not before:
            steps.append(Step(program_pass.name, before.digest, program.digest))
    return Made(program, tuple(steps))


@paused()
def run(
    graph: Graph,
    locations: Locations | None = None,
    updates: Sequence[tuple[int, int]] = (),
    observe: Observer | None = None,
    memory_budget: int | None = None,
    maker: Maker = make,
) -> Lowered:
    """Take a canonical graph to a program. `observe` sees the graph after each pass.

    `updates` pairs (parameter, result): the result is the parameter's next value, and no output of the program.
    `memory_budget` is the most bytes of temporaries; None keeps every value. `maker` is `make`, or one that remembers
    what it made. Raises ReproError if the budget cannot be met.
    """
    sys.setrecursionlimit(max(CALLS, sys.getrecursionlimit()))
    where: Locations = {} if locations is None else locations
    steps: list[Step] = []
    checked: tuple[str, ...] = ()
    for step in GRAPH_PASSES:
        if step.name == "check-indices":
            checked = checks.check_indices(graph, where).sources
        after = step.run(graph, where)
        steps.append(Step(step.name, graph.digest.hex(), after.digest.hex()))
        graph = after
        if observe is not None:
            observe(step.name, graph)
    made = maker(graph, Wanted(tuple(updates), bool(checked), memory_budget))
    return Lowered(made.program, (*steps, *made.steps), graph, checked)


def run_checked(
    graph: Graph, inputs: Sequence[Array], parameters: Sequence[Array], locations: Locations | None = None
) -> Lowered:
    """`run`, with the reference evaluated around each pass: unequal bits are an internal error naming it."""
    known = [result.tobytes() for result in evaluate(prepare.canonical_outputs(graph), inputs, parameters)]

    def observe(name: str, after: Graph) -> None:
        results = evaluate(after, inputs, parameters)[: len(known)]
        for position, (result, wanted) in enumerate(zip(results, known, strict=True)):
            if result.tobytes() != wanted:
                raise InternalError(f"pass {name} changed the bits of output {position}")

    return run(graph, locations, observe=observe)

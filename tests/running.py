"""One graph, every way we have of running it: what tests compare bytes with."""

from __future__ import annotations

from collections.abc import Sequence

from passes import pipeline
from passes.schedule import schedule
from repro.ir.graph import Graph
from repro.ir.program import Program
from repro.ir.types import Array
from repro.machines import Machine
from repro.runtime.session import CpuExecutable
from repro.targets import interpreter
from tests.targets import native


def executable(program: Program, machine: Machine, threads: int = 1) -> CpuExecutable:
    """A program compiled for a machine that this host runs."""
    return native.executable(program, machine, [schedule(kernel, machine) for kernel in program.kernels], threads)


def interpreted(program: Program, inputs: Sequence[Array]) -> list[bytes]:
    return [output.tobytes() for output in interpreter.run(program, [array.reshape(-1) for array in inputs])]


def assert_same_everywhere(program: Program, inputs: Sequence[Array], wanted: Sequence[Array]) -> None:
    """A program's outputs, in the interpreter and as code of each machine with one thread and three, begin with these
    bytes."""
    expected = [array.tobytes() for array in wanted]
    assert expected
    assert interpreted(program, inputs)[: len(expected)] == expected
    for machine in native.HERE:
        for threads in (1, 3):
            made = executable(program, machine, threads)
            found = [array.tobytes() for array in made.run([array.reshape(-1) for array in inputs])]
            made.close()
            assert found[: len(expected)] == expected, (machine.name, threads)


def run_on_cpu(
    graph: Graph, inputs: Sequence[Array], parameters: Sequence[Array], machine: Machine, threads: int = 1
) -> list[Array]:
    """The outputs of a graph as compiled code, shaped; the report of indices left out."""
    lowered = pipeline.run(graph)
    made = executable(lowered.program, machine, threads)
    for position, value in enumerate(parameters):
        made.set_parameter(position, value)
    outputs = made.run(inputs)
    made.close()
    return [flat.reshape(value.shape) for flat, value in zip(outputs, graph.results, strict=False)]

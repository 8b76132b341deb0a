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
from repro.targets import cpu
from tests import compiled


def executable(program: Program, machine: Machine, threads: int = 1) -> CpuExecutable:
    """A program compiled for a machine that this host runs."""
    schedules = [schedule(kernel, machine) for kernel in program.kernels]
    pairs = zip(program.kernels, schedules, strict=True)
    objects = [compiled.compile_kernel(kernel, chosen, machine) for kernel, chosen in pairs]
    objects.append(compiled.compile_program(program, schedules, machine))
    return CpuExecutable(program, cpu.load(objects), cpu.scratch_bytes(program, schedules), threads)


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

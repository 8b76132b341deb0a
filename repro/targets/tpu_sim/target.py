"""The TPU simulator's targets, as the registry has them: one for each chip."""

from __future__ import annotations

import platform
from collections.abc import Sequence

from passes.workers import check_shares
from repro.ir.loops import Kernel
from repro.ir.parse_kernel import parse_kernel
from repro.ir.program import Program
from repro.ir.types import Array
from repro.targets.protocol import CodeTarget, CompiledProgram, Family, Runner, SharedStep
from repro.targets.tpu_sim import chips, links
from repro.targets.tpu_sim.chips import Chip, chip
from repro.targets.tpu_sim.codegen.emit import emit
from repro.targets.tpu_sim.data_parallel import ChipsExecutable
from repro.targets.tpu_sim.program import parse_routine
from repro.targets.tpu_sim.simulator import Simulator

NAME = "tpu-sim"
CODE_TYPE = "application/vnd.repro.tpu.code.v1+text"
LIMIT = 4_000_000_000
"""Scalar operations that the simulator does in a minute or so."""


def chip_of(compiled: CompiledProgram) -> Chip:
    return chip(compiled.target.name.removeprefix(f"{NAME}/"))


class SimulatedExecutable(Simulator):
    """A compiled program on its chip."""

    def __init__(self, compiled: CompiledProgram, parameters: Sequence[Array]) -> None:
        routines = [parse_routine(code.decode()) for code in compiled.kernel_objects]
        super().__init__(compiled.program, routines, chip_of(compiled))
        for position, value in enumerate(parameters):
            self.set_parameter(position, value)

    def close(self) -> None:
        """Nothing is held."""


def load(compiled: CompiledProgram, parameters: Sequence[Array], threads: int) -> SimulatedExecutable:
    """The program on a simulated chip; how many threads there are is nothing to it."""
    return SimulatedExecutable(compiled, parameters)


def _obstacle() -> str | None:
    """Helpers of the simulator are compiled for the host and loaded as ELF."""
    system = platform.system()
    return None if system == "Linux" else f"the simulator's helpers are ELF; this host is {system}"


def _code_target(name: str) -> CodeTarget:
    described = chip(name)

    def shape(program: Program) -> Program:
        return program

    def schedule(kernel: Kernel) -> str:
        return f"chip={name}"

    def compile_kernel(text: str, chosen: str) -> bytes:
        return emit(parse_kernel(text), described).text.encode()

    def calls(program: Program, schedules: Sequence[str]) -> bytes:
        return program.text.encode()

    return CodeTarget(f"{NAME}/{name}", described.digest, CODE_TYPE, ".txt", shape, schedule, compile_kernel, calls)


def _runner(name: str) -> Runner:
    def share(step: SharedStep, parameters: Sequence[Array], count: int) -> ChipsExecutable:
        check_shares(step.shards, count)
        return ChipsExecutable(step, parameters, links.of(count, chip(name)), chip(name))

    return Runner(f"{NAME}/{name}", _code_target(name), _obstacle, load, limit=LIMIT, share=share)


_NAMES = (chips.DEFAULT, *(name for name in chips.names() if name != chips.DEFAULT))
_RUNNERS = tuple(_runner(name) for name in _NAMES)
FAMILY = Family(NAME, _RUNNERS, (_RUNNERS[0].code,))

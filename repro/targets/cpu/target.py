"""The CPU targets, as the registry has them: one for each machine of `repro.machines.CPUS`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from passes import legality
from passes import variants as tuning
from passes.at_load import at_load, prepared
from passes.byte_products import byte_products
from passes.channels_last import channels_last
from passes.earlier import earlier
from passes.fused_updates import fused_updates
from passes.joined_elements import joined_elements
from passes.leaves import leaves
from passes.near_rows import near_rows
from passes.parts import parts
from passes.row_blocks import Limits, row_blocks
from passes.row_reductions import row_reductions
from passes.schedule import schedule, tile_orders
from passes.separable import separable
from passes.short_lines import short_lines
from repro.errors import EXIT_INCOMPLETE, ReproError
from repro.ir.loops import Kernel
from repro.ir.parse_program import parse_schedule
from repro.ir.program import Program
from repro.ir.types import Array
from repro.ir.work import program_instructions
from repro.machines import CPUS, Machine
from repro.runtime.session import CpuExecutable
from repro.targets.cpu import code, host
from repro.targets.llvm.toolchain import LinkError
from repro.targets.protocol import Choices, CodeTarget, CompiledProgram, Family, Runner

OBJECT_TYPE = "application/vnd.repro.object.v1+elf"
THREADS = (1, 2, 5)


def machine_of(compiled: CompiledProgram) -> Machine:
    return CPUS[compiled.target.name]


def compile_program(program: Program, schedules: Sequence[str], machine: Machine, profile: bool = False) -> bytes:
    return code.compile_program(program, [parse_schedule(text) for text in schedules], machine, profile)


def load(compiled: CompiledProgram, parameters: Sequence[Array], threads: int) -> CpuExecutable:
    """A compiled program in this process."""
    try:
        loaded = code.Code((*compiled.kernel_objects, compiled.program_object))
    except LinkError as error:
        raise ReproError(
            f"the artifact's code for {compiled.target.name} cannot be loaded",
            found=str(error),
            expected="the objects of one build, which say how much memory they need",
            next="build the model again (repro build)",
            exit_code=EXIT_INCOMPLETE,
        ) from error
    work = program_instructions(compiled.program, [parse_schedule(text) for text in compiled.schedules])
    executable = CpuExecutable(compiled.program, loaded, threads, None, work, host.features(machine_of(compiled)))
    for position, value in enumerate(parameters):
        executable.bind_parameter(position, value)
    executable.prepare()
    return executable


@lru_cache(maxsize=8)
def _shaped(program: Program, limits: Limits, lanes: int) -> Program:
    """Machines of equal caches and vectors shape a program alike. Windows are cut if what they leave stays near."""
    updated = leaves(fused_updates(channels_last(program, lanes)))
    cut = separable(updated, lanes)
    found = _blocked(cut, limits)
    near = found.arena_bytes <= program.arena_bytes + limits.near_bytes
    return found if near or cut is updated else _blocked(updated, limits)


def _blocked(program: Program, limits: Limits) -> Program:
    """Elements are joined where that takes no more memory in the end: what is then local to blocks counts less."""
    rows = row_reductions(near_rows(program))
    found = earlier(parts(row_blocks(joined_elements(rows), limits)))
    return found if found.arena_bytes <= rows.arena_bytes else earlier(parts(row_blocks(rows, limits)))


def _code_target(machine: Machine) -> CodeTarget:
    near = machine.l2_bytes // 2  # the rest is for what calls read from elsewhere
    limits = Limits(near, near, least_bytes=machine.l1_bytes // 4)

    def shape(program: Program) -> Program:
        lanes = machine.lanes(32)
        of_quads = byte_products(program) if machine.adds_pairs else program
        shaped = _shaped(prepared(of_quads), limits, lanes)
        return at_load(short_lines(shaped, lanes), lambda kernel: tile_orders(kernel, machine))

    def schedule_text(kernel: Kernel) -> str:
        return schedule(kernel, machine).text

    def compile_kernel(text: str, chosen: str) -> bytes:
        return code.compile_kernel(text, parse_schedule(chosen), machine)

    def calls(program: Program, schedules: Sequence[str]) -> bytes:
        return compile_program(program, schedules, machine)

    made = (machine.name, machine.digest, OBJECT_TYPE, ".o", shape, schedule_text, compile_kernel, calls)
    return CodeTarget(*made, choices=_choices(machine))


def _choices(machine: Machine) -> Choices:
    def variants(dimension: str, kernel: Kernel, chosen: str) -> tuple[str, ...]:
        found = tuning.variants(dimension, kernel, machine, parse_schedule(chosen))
        return tuple(each.text for each in found)

    return Choices(tuple(tuning.DIMENSIONS), variants, refusal)


def refusal(kernel: Kernel, text: str) -> str | None:
    """Why the kernel cannot have the schedule, or None."""
    try:
        found = parse_schedule(text)
    except ValueError as error:
        return str(error)
    return legality.refusal(kernel, found) if found.text == text else f"not a schedule: {text!r}"


def _runner(machine: Machine) -> Runner:
    return Runner(machine.name, _code_target(machine), lambda: host.runs_here(machine), load, THREADS)


_WIDEST_FIRST = sorted(CPUS.values(), key=lambda machine: -machine.vector_bits)
_RUNNERS = tuple(_runner(machine) for machine in _WIDEST_FIRST)
FAMILY = Family("cpu", _RUNNERS, tuple(runner.code for runner in _RUNNERS))

"""Code for programs: from the cache, or compiled on several processes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache as memoise
from pathlib import Path

import passes
import repro.ir
import repro.machines
import repro.numerics
import repro.targets
from passes.schedule import schedule as schedule_kernel
from repro.artifact import workers
from repro.artifact.cache import Cache, Key, key
from repro.ir.program import Program
from repro.ir.schedule import Schedule
from repro.machines import CPUS, Machine
from repro.targets import cpu
from repro.targets.llvm.toolchain import versions

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, eq=False)
class CompiledProgram:
    """A program's objects for one machine; kernels stand beside `program.kernels`."""

    machine: Machine
    program: Program
    schedules: tuple[Schedule, ...]
    kernel_objects: tuple[bytes, ...]
    program_object: bytes


def compile_kernel(text: str, schedule: Schedule, machine: str) -> bytes:
    """One object: the job of a worker process."""
    return cpu.compile_kernel(text, schedule, CPUS[machine])


def compile_programs(
    wanted: Sequence[tuple[Machine, Program]], cache: Cache | None, progress: Progress
) -> list[CompiledProgram]:
    """Every program compiled. Neither the cache nor the number of processes can change a byte."""
    scheduled = [
        (machine, program, tuple(schedule_kernel(kernel, machine) for kernel in program.kernels))
        for machine, program in wanted
    ]
    objects = _kernel_objects(scheduled, cache, progress)
    made: list[CompiledProgram] = []
    for machine, program, schedules in scheduled:
        keys = [_kernel_key(kernel.digest, s, machine) for kernel, s in zip(program.kernels, schedules, strict=True)]
        kernels = tuple(objects[each] for each in keys)
        calls = _program_object(program, schedules, machine, cache)
        made.append(CompiledProgram(machine, program, schedules, kernels, calls))
    return made


def _kernel_objects(
    scheduled: Sequence[tuple[Machine, Program, Sequence[Schedule]]], cache: Cache | None, progress: Progress
) -> dict[Key, bytes]:
    jobs: dict[Key, tuple[str, Schedule, str]] = {}
    for machine, program, schedules in scheduled:
        for kernel, schedule in zip(program.kernels, schedules, strict=True):
            jobs.setdefault(_kernel_key(kernel.digest, schedule, machine), (kernel.text, schedule, machine.name))
    found: dict[Key, bytes] = {}
    for each in jobs:
        data = None if cache is None else cache.get(each)
        if data is not None:
            found[each] = data
    missing = [each for each in jobs if each not in found]
    compiled = workers.parallel_map(
        f"{__name__}:compile_kernel",
        [jobs[each] for each in missing],
        lambda done: progress("compile kernels", len(found) + done, len(jobs)),
    )
    for each, data in zip(missing, compiled, strict=True):
        found[each] = data
        if cache is not None:
            cache.put(each, data)
    return found


def _program_object(program: Program, schedules: Sequence[Schedule], machine: Machine, cache: Cache | None) -> bytes:
    texts = "\n".join(schedule.text for schedule in schedules)
    each = key(kind="program", program=program.digest, schedules=texts, machine=machine.digest, **_toolchain())
    data = None if cache is None else cache.get(each)
    if data is None:
        data = cpu.compile_program(program, schedules, machine)
        if cache is not None:
            cache.put(each, data)
    return data


def _kernel_key(digest: str, schedule: Schedule, machine: Machine) -> Key:
    return key(kind="kernel", kernel=digest, schedule=schedule.text, machine=machine.digest, **_toolchain())


@memoise
def _toolchain() -> dict[str, str]:
    return {**versions(), "emitter": emitter_digest()}


def emitter_digest() -> str:
    """Digest of our own sources that code depends on, so that a changed emitter never meets old code."""
    digest = hashlib.sha256()
    for package in (repro.ir, repro.numerics, repro.machines, repro.targets, passes):
        root = Path(package.__path__[0])
        for path in sorted(root.rglob("*.py"), key=lambda path: path.relative_to(root).parts):
            digest.update(f"{package.__name__}/{path.relative_to(root).as_posix()}\n".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()

"""Code for programs: from the cache, or compiled on several processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

from repro.artifact import remembered, workers
from repro.artifact.cache import Cache, Key, key
from repro.artifact.sources import toolchain
from repro.artifact.tuning import Tuning
from repro.collector import paused
from repro.ir.loops import Kernel
from repro.ir.program import Program
from repro.targets import registry
from repro.targets.protocol import CodeTarget, CompiledProgram

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class KernelJob:
    """One kernel's code."""

    text: str
    schedule: str
    target: str

    def code(self) -> bytes:
        return registry.code_target(self.target).compile_kernel(self.text, self.schedule)


@dataclass(frozen=True)
class ProgramJob:
    """The code that calls a program's kernels."""

    program: Program
    schedules: tuple[str, ...]
    target: str

    def code(self) -> bytes:
        return registry.code_target(self.target).compile_program(self.program, self.schedules)


Job = KernelJob | ProgramJob


@paused()
def compile_job(job: Job) -> bytes:
    """The job of a worker process."""
    return job.code()


def compile_programs(
    wanted: Sequence[tuple[CodeTarget, Program]], cache: Cache | None, progress: Progress, tuning: Tuning | None = None
) -> list[CompiledProgram]:
    """Every program compiled, by the schedules of `tuning` where it has some. Neither the cache nor the number of
    processes can change a byte."""
    targeted = [(target, remembered.shaped(target, program, cache)) for target, program in wanted]
    scheduled = [
        (target, kernel, schedule)
        for target, each in targeted
        for kernel, schedule in zip(each.kernels, _schedules(each, target, tuning, cache), strict=True)
    ]
    rows = iter(schedule for _, _, schedule in scheduled)
    chosen = [tuple(islice(rows, len(program.kernels))) for _, program in targeted]
    calls = [_program_job(program, each, target) for (target, program), each in zip(targeted, chosen, strict=True)]
    jobs = [*calls, *(_kernel_job(*each) for each in scheduled)]  # the longest first: none is left for the end
    objects = iter(_codes(jobs, cache, progress))
    program_objects = list(islice(objects, len(calls)))
    return [
        CompiledProgram(target, program, each, tuple(islice(objects, len(each))), code)
        for (target, program), each, code in zip(targeted, chosen, program_objects, strict=True)
    ]


def _schedules(program: Program, target: CodeTarget, tuning: Tuning | None, cache: Cache | None) -> list[str]:
    if tuning is None:
        return remembered.schedules(target, program, cache)
    return remembered.chosen(target, program, partial(tuning.schedule, target))


def compile_kernels(
    scheduled: Sequence[tuple[CodeTarget, Kernel, str]], cache: Cache | None, progress: Progress
) -> list[bytes]:
    """The code of each kernel by its schedule."""
    return _codes([_kernel_job(*each) for each in scheduled], cache, progress)


def _codes(wanted: Sequence[tuple[Key, Job]], cache: Cache | None, progress: Progress) -> list[bytes]:
    """The code of each job, from the cache or made, each once."""
    jobs = dict(wanted)
    found: dict[Key, bytes] = {}
    for each in jobs:
        data = None if cache is None else cache.get(each)
        if data is not None:
            found[each] = data
    missing = [each for each in jobs if each not in found]
    compiled = workers.parallel_map(
        f"{__name__}:compile_job",
        [(jobs[each],) for each in missing],
        lambda done: progress("compile kernels", len(found) + done, len(jobs)),
    )
    for each, data in zip(missing, compiled, strict=True):
        found[each] = data
        if cache is not None:
            cache.put(each, data)
    return [found[each] for each, _ in wanted]


def _program_job(program: Program, schedules: tuple[str, ...], target: CodeTarget) -> tuple[Key, Job]:
    texts = "\n".join(schedules)
    each = key("program", program=program.digest, schedules=texts, **_machine(target), **toolchain())
    return each, ProgramJob(program, schedules, target.name)


def _kernel_job(target: CodeTarget, kernel: Kernel, schedule: str) -> tuple[Key, Job]:
    each = key("kernel", kernel=kernel.digest, schedule=schedule, **_machine(target), **toolchain())
    return each, KernelJob(kernel.text, schedule, target.name)


def _machine(target: CodeTarget) -> dict[str, str]:
    return {"target": target.name, "machine": target.machine_digest}

"""Code for programs: from the cache, or compiled on several processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice

from repro.artifact import remembered, workers
from repro.artifact.cache import Cache, Key, key
from repro.artifact.sources import toolchain
from repro.artifact.tuning import Tuning
from repro.ir.loops import Kernel
from repro.ir.program import Program
from repro.targets import registry
from repro.targets.protocol import CodeTarget, CompiledProgram

Progress = Callable[[str, int, int], None]


def compile_kernel(text: str, schedule: str, target: str) -> bytes:
    """One kernel's code: the job of a worker process."""
    return registry.CODE_TARGETS[target].compile_kernel(text, schedule)


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
    objects = iter(compile_kernels(scheduled, cache, progress))
    schedules = (schedule for _, _, schedule in scheduled)
    made: list[CompiledProgram] = []
    for target, program in targeted:
        chosen = tuple(islice(schedules, len(program.kernels)))
        kernels = tuple(islice(objects, len(program.kernels)))
        calls = _program_object(program, chosen, target, cache)
        made.append(CompiledProgram(target, program, chosen, kernels, calls))
    return made


def _schedules(program: Program, target: CodeTarget, tuning: Tuning | None, cache: Cache | None) -> list[str]:
    if tuning is None:
        return remembered.schedules(target, program, cache)
    return remembered.chosen(target, program, partial(tuning.schedule, target))


def compile_kernels(
    scheduled: Sequence[tuple[CodeTarget, Kernel, str]], cache: Cache | None, progress: Progress
) -> list[bytes]:
    """The code of each kernel by its schedule."""
    keys = [_kernel_key(kernel.digest, schedule, target) for target, kernel, schedule in scheduled]
    jobs: dict[Key, tuple[str, str, str]] = {}
    for each, (target, kernel, schedule) in zip(keys, scheduled, strict=True):
        jobs.setdefault(each, (kernel.text, schedule, target.name))
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
    return [found[each] for each in keys]


def _program_object(program: Program, schedules: Sequence[str], target: CodeTarget, cache: Cache | None) -> bytes:
    texts = "\n".join(schedules)
    each = key("program", program=program.digest, schedules=texts, **_machine(target), **toolchain())
    data = None if cache is None else cache.get(each)
    if data is None:
        data = target.compile_program(program, schedules)
        if cache is not None:
            cache.put(each, data)
    return data


def _kernel_key(digest: str, schedule: str, target: CodeTarget) -> Key:
    return key("kernel", kernel=digest, schedule=schedule, **_machine(target), **toolchain())


def _machine(target: CodeTarget) -> dict[str, str]:
    return {"target": target.name, "machine": target.machine_digest}

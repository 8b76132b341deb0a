"""What each kernel of a program takes: its cycles, counted by the program itself, beside the work that it does."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from repro.artifact import tensors
from repro.artifact.loaded import LoadedArtifact
from repro.artifact.sessions import match
from repro.ir.contraction import find
from repro.ir.loops import Kernel, Load, Reduce
from repro.ir.program import Call, Commit, CountedLoop, Program, RowBlocks, Step, While
from repro.ir.types import Array, to_storage
from repro.ir.work import iterations, operations
from repro.runtime.session import CpuExecutable
from repro.targets import cpu
from repro.targets.cpu import target as cpu_target
from repro.targets.protocol import CompiledProgram


@dataclass(frozen=True)
class KernelTime:
    """All calls of one kernel in one run: seconds from the first thread's start to the last one's end of its share,
    floating point operations (a contraction's fma is two; of other kernels, scalar operations), and bytes that at
    least move: each element that is read or written, once a call."""

    kernel: str
    what: str
    calls: int
    seconds: float
    operations: int
    bytes: int

    @property
    def flops(self) -> float:
        return self.operations / self.seconds if self.seconds else 0.0

    @property
    def bandwidth(self) -> float:
        return self.bytes / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class Profile:
    """A run: kernels, the longest first; `waiting` are seconds in which threads met or waited for the slowest."""

    seconds: float
    waiting: float
    kernels: tuple[KernelTime, ...]


def profile_entry(
    artifact: LoadedArtifact, entry: str, inputs: Mapping[str, Array], threads: int, target: str = "cpu"
) -> Profile:
    """The kernels of an artifact's entry, run from its initial state."""
    compiled = artifact.compiled(entry, target)
    state = artifact.initial_state(entry).values()
    parameters = [to_storage(array, tensors.type_of(array).dtype).reshape(-1) for array in state]
    return profile(compiled, parameters, match(inputs, artifact.entries[entry].inputs), threads)


def profile(
    compiled: CompiledProgram, parameters: Sequence[Array], inputs: Sequence[Array], threads: int, runs: int = 5
) -> Profile:
    """Compile the program anew with counters, run it, and take the run of the median length."""
    program = compiled.program
    calls = list(_calls(program.steps, 1))
    cycles = np.zeros((len(calls) + 1, threads), np.uint64)
    machine = cpu_target.machine_of(compiled)
    counting = cpu_target.compile_program(program, compiled.schedules, machine, profile=True)
    code = cpu.Code((*compiled.kernel_objects, counting))
    executable = CpuExecutable(program, code, cpu_target.scratch_bytes(compiled), threads, cycles)
    for position, value in enumerate(parameters):
        executable.bind_parameter(position, value)
    taken: list[tuple[float, Array]] = []
    executable.run(inputs)
    for _ in range(runs):
        cycles[:] = 0
        start = time.perf_counter()
        executable.run(inputs)
        taken.append((time.perf_counter() - start, cycles.copy()))
    executable.close()
    seconds, counted = sorted(taken, key=lambda each: each[0])[runs // 2]
    return _profile(program, calls, seconds, counted)


def _profile(program: Program, calls: Sequence[tuple[Call, int]], seconds: float, cycles: Array) -> Profile:
    slowest = cycles.max(axis=1).astype(np.float64)
    second = slowest[-1] / seconds
    spent: dict[int, float] = {}
    counts: dict[int, int] = {}
    for (call, times), count in zip(calls, slowest[:-1], strict=True):
        spent[call.kernel] = spent.get(call.kernel, 0.0) + float(count / second)
        counts[call.kernel] = counts.get(call.kernel, 0) + times
    found = [_kernel(program.kernels[number], counts[number], spent[number]) for number in spent]
    found.sort(key=lambda each: -each.seconds)
    return Profile(seconds, seconds - sum(spent.values()), tuple(found))


def _calls(steps: Sequence[Step], times: int) -> list[tuple[Call, int]]:
    """Calls in the order in which the code numbers them, and how often each runs (both sides of a branch; a while
    loop's body once, since nobody knows)."""
    found: list[tuple[Call, int]] = []
    for step in steps:
        if isinstance(step, Call):
            found.append((step, times))
        elif isinstance(step, CountedLoop | RowBlocks):
            found += _calls(step.body, times * step.count)
        elif isinstance(step, While | Commit):
            found += _calls(step.body, times)
        else:
            found += _calls((*step.then, *step.otherwise), times)
    return found


def _kernel(kernel: Kernel, calls: int, seconds: float) -> KernelTime:
    contraction = find(kernel)
    work = 2 * math.prod(contraction.extents) if contraction is not None else operations(kernel)
    return KernelTime(kernel.digest, describe(kernel), calls, seconds, work * calls, moved(kernel) * calls)


def moved(kernel: Kernel) -> int:
    """Bytes of memory that a call at least touches."""
    touched: dict[int, int] = {}
    reduced = [axis for expr in kernel.expressions if isinstance(expr, Reduce) for axis in expr.axes]
    for expr in kernel.expressions:
        if isinstance(expr, Load):
            count = iterations(expr) if not expr.free & set(reduced) else math.prod(a.extent for a in expr.free)
            touched[expr.buffer] = max(touched.get(expr.buffer, 0), count)
    for store in kernel.stores:
        written = math.prod(axis.extent for axis in kernel.axes)
        touched[store.buffer] = touched.get(store.buffer, 0) + written
    limits = {number: buffer.elements for number, buffer in enumerate(kernel.buffers)}
    return sum(min(count, 2 * limits[number]) * kernel.buffers[number].dtype.bytes for number, count in touched.items())


def describe(kernel: Kernel) -> str:
    """A kernel in a few words: `dot 2048x1152x384`, `sum of 384 over 2048`, `elements 786432`."""
    contraction = find(kernel)
    if contraction is not None:
        batch, *sizes = contraction.extents
        text = "x".join(map(str, sizes))
        return f"dot {batch} of {text}" if batch > 1 else f"dot {text}"
    outer = math.prod(axis.extent for axis in kernel.axes)
    reduces = [expr for expr in kernel.expressions if isinstance(expr, Reduce)]
    if not reduces:
        return f"{'serial ' if kernel.serial else ''}elements {outer}"
    terms = max(math.prod(axis.extent for axis in expr.axes) for expr in reduces)
    names = "+".join(dict.fromkeys(expr.combiner for expr in reduces))
    return f"{names} of {terms} over {outer}"


def by_kind(profile: Profile) -> Mapping[str, float]:
    """Seconds of dots, of other reductions, of elements, and of waiting."""
    totals: dict[str, float] = {"dot": 0.0, "reduce": 0.0, "elements": 0.0}
    for each in profile.kernels:
        kind = "dot" if each.what.startswith("dot") else "elements" if "elements" in each.what else "reduce"
        totals[kind] += each.seconds
    return {**totals, "waiting": profile.waiting}

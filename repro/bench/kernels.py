"""What each kernel of a program takes: its time, counted by the program itself, beside the work that it does."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from repro.artifact import tensors
from repro.artifact.loaded import LoadedArtifact
from repro.artifact.sessions import match
from repro.ir.describe import describe
from repro.ir.expressions import Load, Reduce
from repro.ir.loops import Kernel
from repro.ir.types import Array, to_storage
from repro.ir.work import iterations, multiply_adds, operations
from repro.targets.cpu import target as cpu_target
from repro.targets.cpu.counting import Counted, Run, Variant
from repro.targets.protocol import CompiledProgram


@dataclass(frozen=True)
class KernelTime:
    """All calls of one kernel in one run: seconds of its own time that the slowest thread spent in them,
    floating point operations (a contraction's fma is two; of other kernels, scalar operations), and bytes that at
    least move: each element that is read or written, once a call; `read` are those that are read."""

    kernel: str
    what: str
    calls: int
    seconds: float
    operations: int
    bytes: int
    read: int

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
    variant = Variant(compiled.schedules, compiled.kernel_objects)
    with Counted(compiled.program, [variant], parameters, cpu_target.machine_of(compiled), threads) as counted:
        counted.run(0, inputs)
        taken = [_without_outputs(counted, inputs) for _ in range(runs)]
    middle = sorted(taken, key=lambda each: each.seconds)[runs // 2]
    each = zip(compiled.program.kernels, counted.counts, middle.kernels, strict=True)
    found = [_kernel(kernel, count, spent) for kernel, count, spent in each if count]
    found.sort(key=lambda each: -each.seconds)
    return Profile(middle.seconds, middle.seconds - sum(middle.kernels), tuple(found))


def _without_outputs(counted: Counted, inputs: Sequence[Array]) -> Run:
    """A run whose outputs are let go, so that the next one writes where it wrote: fresh memory is no kernel's time."""
    return replace(counted.run(0, inputs), outputs=())


def _kernel(kernel: Kernel, calls: int, seconds: float) -> KernelTime:
    work = 2 * multiply_adds(kernel) or operations(kernel)
    read, written = moved(kernel)
    return KernelTime(
        kernel.digest, describe(kernel), calls, seconds, work * calls, (read + written) * calls, read * calls
    )


def moved(kernel: Kernel) -> tuple[int, int]:
    """Bytes of memory that a call at least reads, and that it writes."""
    touched: dict[int, int] = {}
    written: dict[int, int] = {}
    reduced = [axis for expr in kernel.expressions if isinstance(expr, Reduce) for axis in expr.axes]
    for expr in kernel.expressions:
        if isinstance(expr, Load):
            count = iterations(expr) if not expr.free & set(reduced) else math.prod(a.extent for a in expr.free)
            touched[expr.buffer] = max(touched.get(expr.buffer, 0), count)
    for store in kernel.stores:
        every = math.prod(axis.extent for axis in kernel.axes)
        written[store.buffer] = written.get(store.buffer, 0) + every
    return _bytes(kernel, touched), _bytes(kernel, written)


def _bytes(kernel: Kernel, counts: Mapping[int, int]) -> int:
    """Of so many elements of each buffer, each once."""
    sizes = ((kernel.buffers[number], count) for number, count in counts.items())
    return sum(min(count, buffer.elements) * buffer.dtype.bytes for buffer, count in sizes)


def by_kind(profile: Profile) -> Mapping[str, float]:
    """Seconds of dots, of other reductions, of elements, and of waiting."""
    totals: dict[str, float] = {"dot": 0.0, "reduce": 0.0, "elements": 0.0}
    for each in profile.kernels:
        kind = "dot" if each.what.startswith("dot") else "elements" if "elements" in each.what else "reduce"
        totals[kind] += each.seconds
    return {**totals, "waiting": profile.waiting}

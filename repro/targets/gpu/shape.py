"""Which calls of a program run as steps over blocks of rows, each one launch (repro.targets.gpu.blocks).

Whether that pays is an estimate by integers, in cycles: apart, calls take their instructions or their bytes, whichever
is longer; together, what is local costs no bytes, and the instructions are those of blocks of a few rows, as many at a
time as shared memory holds.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from passes.row_blocks import Candidate, Gain, Limits, row_blocks
from repro.ir.loops import Kernel
from repro.ir.program import LOCAL, TEMPORARY, Buffer, Call, Program, RowBlocks, walk
from repro.machines import GpuMachine
from repro.targets.gpu import choice
from repro.targets.gpu.floor import work
from repro.targets.gpu.near import placed
from repro.targets.gpu.roads import suited
from repro.targets.gpu.within import Road, Tiled, cycles, issued, road
from repro.targets.gpu.tiles import WARP

LIMITS = Limits(near_bytes=1 << 24, worth_bytes=1 << 20, fewest_blocks=64, even_blocks=64, fewest_rows=16)
"""What is near is for the estimate to say."""
PART = 1000
"""Cycles that a block waits at the beginning of each kernel, about."""


def shaped(program: Program, machine: GpuMachine, limits: Limits = LIMITS, gain: Gain | None = None) -> Program:
    """The program with steps over blocks of rows where the machine gains by them."""
    formed = row_blocks(program, limits, gain or functools.partial(estimate, machine=machine))
    return program if formed is program else _placed(formed, machine)


def _placed(program: Program, machine: GpuMachine) -> Program:
    """The program with its local buffers where shared memory has them."""
    buffers, most = list(program.buffers), 0
    for step in walk(program.steps):
        if isinstance(step, RowBlocks):
            made = fitted(program.buffers, step, [program.kernels[call.kernel] for call in step.body], machine)
            assert made is not None
            most = max(most, made.local_bytes)
            for buffer, offset in made.offsets.items():
                buffers[buffer] = replace(buffers[buffer], position=offset)
    return replace(program, buffers=tuple(buffers), local_bytes=most)


@dataclass(frozen=True)
class Fitted:
    """A step as a block of threads runs it: a road for each kernel, where local buffers lie, and their bytes."""

    roads: tuple[Road, ...]
    offsets: dict[int, int]
    local_bytes: int

    @property
    def shared_bytes(self) -> int:
        return self.local_bytes + max((each.bytes for each in self.roads if isinstance(each, Tiled)), default=0)


def fitted(
    buffers: tuple[Buffer, ...], step: RowBlocks, kernels: Sequence[Kernel], machine: GpuMachine
) -> Fitted | None:
    """None where some kernel has no road, or all there is to hold is too much."""
    carried = [carried_by(call, step, kernels) for call in step.body]
    made = [suited(kernel, machine) for kernel in kernels]

    def roads(room: int) -> list[Road] | None:
        found = [road(kernel, own, room, machine) for kernel, own in zip(made, carried, strict=True)]
        return [each for each in found if each is not None] if None not in found else None

    first = roads(machine.shared_bytes)
    if first is None:
        return None
    offsets, nbytes = placed(buffers, step, made, first)
    if nbytes > machine.shared_bytes:
        return None
    last = roads(machine.shared_bytes - nbytes)
    return None if last is None else Fitted(tuple(last), offsets, nbytes)


def carried_by(call: Call, step: RowBlocks, kernels: Sequence[Kernel]) -> frozenset[int]:
    """The buffers of a call (positions) that a kernel of the step writes, this one or another."""
    pairs = zip(step.body, kernels, strict=True)
    written = {b for each, kernel in pairs for b, p in zip(each.buffers, kernel.buffers, strict=True) if p.writable}
    return frozenset(position for position, buffer in enumerate(call.buffers) if buffer in written)


# what is gained ─────────────────────────────────────────────────────────────────────────────────────


@functools.lru_cache(maxsize=4096)
def possible(candidate: Candidate, machine: GpuMachine) -> int:
    """1 where a block of threads can run a candidate at all."""
    return int(_fitted(candidate, candidate.cut(), machine) is not None)


@functools.lru_cache(maxsize=4096)
def estimate(candidate: Candidate, machine: GpuMachine) -> int:
    """Cycles of the whole chip that a candidate saves; 0 where it cannot be had."""
    kernels = candidate.cut()
    made = _fitted(candidate, kernels, machine)
    if made is None:
        return 0
    return max(0, sum(_apart(kernel, machine) for kernel in candidate.kernels) - _together(candidate, kernels, made, machine))


def _fitted(candidate: Candidate, kernels: Sequence[Kernel], machine: GpuMachine) -> Fitted | None:
    held: dict[int, Buffer] = {}
    for kernel, call in zip(kernels, candidate.calls, strict=True):
        for buffer, parameter in zip(call, kernel.buffers, strict=True):
            held[buffer] = Buffer(parameter.dtype, parameter.elements, LOCAL if buffer in candidate.local else TEMPORARY, 0)
    buffers = tuple(held[number] for number in range(len(held)))
    body = tuple(Call(number, call) for number, call in enumerate(candidate.calls))
    return fitted(buffers, RowBlocks(candidate.extents, body), kernels, machine)


@functools.lru_cache(maxsize=4096)
def _apart(kernel: Kernel, machine: GpuMachine) -> int:
    """Cycles of a call alone."""
    tiled = choice.plan(suited(kernel, machine), machine)
    if tiled is not None:
        computed = choice.cycles(tiled, machine)
    else:
        computed = issued(suited(kernel, machine), machine) // (machine.multiprocessors * machine.schedulers * WARP)
    return max(computed, work(kernel).bytes // machine.memory_bytes) + choice.LAUNCH


def _together(candidate: Candidate, kernels: Sequence[Kernel], made: Fitted, machine: GpuMachine) -> int:
    """Cycles of all blocks of a step: instructions, bytes from memory or bytes from its cache, whichever is longest."""
    tiles = [each for each in made.roads if isinstance(each, Tiled)]
    resident = max(1, min(machine.resident_bytes // (made.shared_bytes + 1024), 2 if tiles else 4))
    parts = zip(kernels, made.roads, strict=True)
    block = sum(cycles(suited(kernel, machine), chosen, machine) * resident + PART for kernel, chosen in parts)
    blocks = RowBlocks(candidate.extents, ()).count
    computed = -(-blocks // (machine.multiprocessors * resident)) * block
    moved, touched = 0, set[int]()
    for kernel, call in zip(candidate.kernels, candidate.calls, strict=True):
        for buffer, parameter in zip(call, kernel.buffers, strict=True):
            if buffer not in candidate.local and buffer not in touched:
                moved += parameter.elements * parameter.dtype.bytes
                touched.add(buffer)
    columns = sum(each.plan.contraction.extents[2] * each.plan.contraction.extents[3] for each in tiles)
    cached = blocks * columns * 4
    return max(computed, moved // machine.memory_bytes, cached // machine.cache_bytes) + choice.LAUNCH

"""Which calls of a program run as steps over blocks of rows, each one launch (repro.targets.gpu.blocks).

Whether that pays is an estimate by integers, in cycles: apart, calls take their instructions or their bytes, whichever
is longer; together, what is local costs no bytes, and the instructions are those of blocks of a few rows, as many at a
time as shared memory holds.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from passes.row_blocks import Candidate, Gain, Limits, row_blocks
from repro.ir.contraction import find
from repro.ir.loops import Kernel
from repro.ir.program import LOCAL, TEMPORARY, Buffer, Call, Program, RowBlocks, walk
from repro.ir.types import F32
from repro.machines import GpuMachine
from repro.targets.gpu import choice
from repro.targets.gpu.floor import work
from repro.targets.gpu.near import placed
from repro.targets.gpu.roads import suited
from repro.targets.gpu.tiles import WARP
from repro.targets.gpu.within import Roads, Tiled, chosen, issued, parts_of

WORTH = 1 << 20
"""Bytes below which nothing is tried."""
FILLED = (9, 10)
"""The share of fma among the instructions of a contraction alone."""


FLIGHT, LATENCY = 32, 800
"""Bytes from memory that a thread waits for at a time, and for how many cycles."""
HIDDEN = 16
"""The part of what stands behind something longer that is not hidden, about."""
LEAST = 16
"""A gain below this part of what calls take apart is too little for an estimate, of each call that joins others too."""


def limits(machine: GpuMachine) -> Limits:
    """What lies near at one time may be two values of which one is written over the other, or none local."""
    return Limits(2 * machine.shared_bytes, WORTH, fewest_blocks=64, even_blocks=64, fewest_rows=16)


def shaped(program: Program, machine: GpuMachine, given: Limits | None = None, gain: Gain | None = None) -> Program:
    """The program with steps over blocks of rows where the machine gains by them."""
    formed = row_blocks(program, given or limits(machine), gain or functools.partial(estimate, machine=machine))
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
    """A step as a block of threads runs it, and where its local buffers lie in so many bytes."""

    roads: Roads
    offsets: dict[int, int]
    local_bytes: int


def fitted(
    buffers: tuple[Buffer, ...], step: RowBlocks, kernels: Sequence[Kernel], machine: GpuMachine
) -> Fitted | None:
    """None where some kernel has no road, or all there is to hold is too much."""
    parts = parts_of(step, kernels, machine)
    first = chosen(parts, 0, machine)
    if first is None:
        return None
    offsets, nbytes = placed(buffers, step, [part.kernel for part in parts], first.roads)
    last = chosen(parts, nbytes, machine)
    return None if last is None else Fitted(last, offsets, nbytes)


# what is gained ─────────────────────────────────────────────────────────────────────────────────────


@functools.lru_cache(maxsize=4096)
def possible(candidate: Candidate, machine: GpuMachine) -> int:
    """1 where a block of threads can run a candidate at all."""
    return int(_fitted(candidate, machine) is not None)


@functools.lru_cache(maxsize=4096)
def estimate(candidate: Candidate, machine: GpuMachine) -> int:
    """Cycles of the whole chip that a candidate saves beyond what an estimate may be wrong by; 0 where it cannot be
    had."""
    made = _fitted(candidate, machine) if candidate.local else None
    if made is None:
        return 0
    apart = sum(_apart(kernel, machine) for kernel in candidate.kernels)
    return max(0, apart - _together(candidate, made.roads, machine) - apart // LEAST)


def _fitted(candidate: Candidate, machine: GpuMachine) -> Fitted | None:
    held, kernels = dict[int, Buffer](), candidate.cut()
    for kernel, call in zip(kernels, candidate.calls, strict=True):
        for buffer, parameter in zip(call, kernel.buffers, strict=True):
            role = LOCAL if buffer in candidate.local else TEMPORARY
            held[buffer] = Buffer(parameter.dtype, parameter.elements, role, 0)
    buffers = tuple(held[number] for number in range(len(held)))
    body = tuple(Call(number, call) for number, call in enumerate(candidate.calls))
    return fitted(buffers, RowBlocks(candidate.extents, body), kernels, machine)


@functools.lru_cache(maxsize=4096)
def _apart(kernel: Kernel, machine: GpuMachine) -> int:
    """Cycles of a call alone."""
    lanes, contraction = machine.multiprocessors * machine.schedulers * WARP, find(kernel)
    if contraction is not None:
        most, of = FILLED
        instructions = math.prod(contraction.extents) * of * 100 // (most * machine.paces[-1])
    else:
        instructions = issued(suited(kernel, machine), machine)
    return max(instructions // lanes, work(kernel).bytes // machine.memory_bytes) + choice.LAUNCH


def _together(candidate: Candidate, made: Roads, machine: GpuMachine) -> int:
    """Cycles of all blocks of a step: instructions, bytes from memory or bytes from its cache, whichever is longest,
    and of what that hides a part, since a block that computes asks for nothing: so of ways that are as long, the one
    with more threads at a time is taken."""
    blocks = math.prod(candidate.extents)
    computed = -(-blocks // (machine.multiprocessors * made.resident)) * made.cycles
    moved = 0
    for kernel, call in zip(candidate.kernels, candidate.calls, strict=True):
        held = zip(call, kernel.buffers, strict=True)
        moved += sum(p.elements * p.dtype.bytes for buffer, p in held if buffer not in candidate.local)
    flight = machine.multiprocessors * made.resident * made.threads * FLIGHT
    columns = [math.prod(each.plan.contraction.extents[2:]) for each in made.roads if isinstance(each, Tiled)]
    cached = blocks * sum(columns) * F32.bytes
    arriving = moved * LATENCY // flight
    times = (computed, moved // machine.memory_bytes, arriving, cached // machine.cache_bytes)
    return max(times) + (sum(times) - max(times)) // HIDDEN + choice.LAUNCH

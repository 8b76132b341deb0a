"""What this machine can do at most, as measured: an fma loop in registers, and a copy in memory."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from repro.machines import Machine
from repro.targets.cpu.code import Code
from repro.targets.llvm import toolchain
from repro.targets.llvm.program import SYMBOL

ACCUMULATORS = 24
"""Independent chains: more than an fma's latency times the units of any CPU known (5 x 2)."""
TURNS = 1 << 22
COPIED_BYTES = 256 << 20
REPEATS = 5


@dataclass(frozen=True)
class Peaks:
    """Of `threads` threads together: f32 operations a second (an fma is two), bytes a second read and written."""

    threads: int
    flops: float
    bytes: float


def measure(machine: Machine, threads: int) -> Peaks:
    """The best of some repeats."""
    width = machine.vector_bits // 32
    code = Code([toolchain.object_code(_fma_loop(machine, width), machine)])
    results = np.zeros((threads, 16), np.float32)
    source = [np.ones(COPIED_BYTES // threads // 8) for _ in range(threads)]
    target = [np.zeros_like(each) for each in source]
    with ThreadPoolExecutor(threads) as pool:

        def together(job: Callable[[int], object]) -> float:
            start = time.perf_counter()
            list(pool.map(job, range(threads)))
            return time.perf_counter() - start

        def multiply(thread: int) -> None:
            code.enter(ctypes.c_void_p(results[thread].ctypes.data), TURNS, 0)

        fma = min(together(multiply) for _ in range(REPEATS))
        copy = min(together(lambda thread: np.copyto(target[thread], source[thread])) for _ in range(REPEATS))
    return Peaks(threads, 2 * ACCUMULATORS * width * TURNS * threads / fma, 2 * sum(a.nbytes for a in source) / copy)


def _fma_loop(machine: Machine, width: int) -> str:
    """A function with a program's signature: `thread` is the number of turns, the sum is stored where `context` points.
    The chains start from different values, so that none is another's."""
    vector = f"<{width} x float>"
    intrinsic = f"@llvm.fma.v{width}f32"
    numbers = range(ACCUMULATORS)
    phis = [f"  %a{n} = phi {vector} [ splat (float {n}.0), %entry ], [ %b{n}, %loop ]" for n in numbers]
    fmas = [f"  %b{n} = call {vector} {intrinsic}({vector} %x, {vector} %x, {vector} %a{n})" for n in numbers]
    sums = [f"  %s{n + 1} = fadd {vector} %s{n}, %b{n}" for n in numbers]
    return "\n".join(
        [
            f'target triple = "{machine.triple}"',
            f"declare {vector} {intrinsic}({vector}, {vector}, {vector})",
            f"define i32 @{SYMBOL}(ptr %result, i64 %turns, i64 %unused) {machine.attributes} {{",
            "entry:",
            f"  %x = load {vector}, ptr %result, align 4",
            "  br label %loop",
            "loop:",
            "  %i = phi i64 [ 0, %entry ], [ %next, %loop ]",
            *phis,
            *fmas,
            "  %next = add i64 %i, 1",
            "  %more = icmp ult i64 %next, %turns",
            "  br i1 %more, label %loop, label %done",
            "done:",
            f"  %s0 = fadd {vector} %x, %x",
            *sums,
            f"  store {vector} %s{ACCUMULATORS}, ptr %result, align 4",
            "  ret i32 0",
            "}",
        ]
    )

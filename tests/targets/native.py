"""Kernels as native code on flat arrays: compiled, loaded, run through the session's own road."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from passes.schedule import schedule as default_schedule
from repro.ir.loops import Kernel
from repro.ir.program import PARAMETER, Buffer, Call, CountedLoop, Program, Step
from repro.ir.schedule import Schedule
from repro.ir.types import Array, DType
from repro.machines import CPUS, Machine
from repro.numerics.numpy_scalars import canonicalize
from repro.runtime.session import CpuExecutable
from repro.targets import cpu
from tests import compiled
from tests.targets.guards import guarded

HERE: list[Machine] = [machine for machine in CPUS.values() if cpu.runs_here(machine) is None]
assert HERE, "this host runs no CPU machine: these tests would prove nothing"


def single(kernel: Kernel) -> Program:
    """A program of one call; every buffer is a parameter, so that a test can fill and read it.

    A kernel of loops is called in loops over every value of its counters.
    """
    buffers = tuple(Buffer(b.dtype, b.elements, PARAMETER, number) for number, b in enumerate(kernel.buffers))
    step: Step = Call(0, tuple(range(len(buffers))), tuple(range(len(kernel.scalars))))
    for extent in reversed(kernel.scalars):
        step = CountedLoop(extent, (step,))
    return Program((kernel,), buffers, (), (step,), 0)


def executable(
    program: Program,
    machine: Machine,
    schedules: Sequence[Schedule],
    threads: int = 1,
    features: int | None = None,
) -> CpuExecutable:
    """A compiled program, told that the host has `features`: by default what it has (targets/cpu/host.py)."""
    objects = [
        compiled.compile_kernel(kernel.text, schedule, machine)
        for kernel, schedule in zip(program.kernels, schedules, strict=True)
    ]
    code = cpu.Code([*objects, compiled.compile_program(program, schedules, machine)])
    told = cpu.features(machine) if features is None else features
    return CpuExecutable(program, code, threads, features=told)


def run_kernel(
    kernel: Kernel, buffers: Sequence[Array], machine: Machine, schedule: Schedule | None = None, threads: int = 1
) -> list[Array]:
    """The buffers after the kernel ran once on copies of those given (flat storage arrays). These lie against pages
    that nobody may touch: some begin behind one, the others end in front of one."""
    chosen = default_schedule(kernel, machine) if schedule is None else schedule
    if cpu.runs_here(machine) is not None:
        from tests.targets.emulated import run_emulated  # which imports this module

        return run_emulated(kernel, buffers, chosen, threads)
    last = bool(zlib.crc32(f"{kernel.digest} {chosen.text}".encode()) & 1)
    with guarded(last) as memory:
        runner = executable(single(kernel), machine, [chosen], threads)
        for position, given in enumerate(buffers):
            if position in runner.program.written:
                runner.set_parameter(position, given)
            else:
                runner.bind_parameter(position, memory.copy(given))
        runner.run([])
        runner.close()
        memory.check()
    return [after for position in range(len(buffers)) if (after := runner.parameter(position)) is not None]


def same(dtype: DType, found: Array, wanted: Array) -> bool:
    """Equal bits, any NaN for any NaN."""
    raw = np.dtype(f"u{dtype.bytes}")
    left, right = (np.ascontiguousarray(canonicalize(array, dtype)).view(raw) for array in (found, wanted))
    return np.array_equal(left, right)


def differences(dtype: DType, found: Array, wanted: Array) -> list[tuple[int, object, object]]:
    """The first places where bits differ, for a message."""
    raw = np.dtype(f"u{dtype.bytes}")
    left, right = (np.ascontiguousarray(canonicalize(array, dtype)).view(raw) for array in (found, wanted))
    return [(int(at), found[at], wanted[at]) for at in np.nonzero(left != right)[0][:5]]

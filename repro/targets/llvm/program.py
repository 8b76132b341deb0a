"""A program as one LLVM function that every thread runs: calls of kernels, and barriers between them.

    i32 program(ptr context, i64 thread, i64 threads)      0: done, 1: stopped

It runs the steps, or where the context says so, one call of those that are made once. Each thread walks the same
steps, does its share of every call's work items, and meets the others. The context is the only thing the function
knows of its host (`llvm/context.py`). A long sequence of steps is cut into functions of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

from repro.ir.program import Program
from repro.ir.schedule import Schedule
from repro.ir.types import I64
from repro.machines import Machine
from repro.targets.llvm import kernel as kernels
from repro.targets.llvm import pieces
from repro.targets.llvm.context import ONCE, PARAMETERS, SCRATCH_SYMBOL, SYMBOL, addresses, field
from repro.targets.llvm.steps import Profiled, Steps, finish
from repro.targets.llvm.text import Function
from repro.targets.llvm.waiting import barrier

FLOAT_MODE = {
    "x86_64": (
        "declare void @llvm.x86.sse.stmxcsr(ptr)\ndeclare void @llvm.x86.sse.ldmxcsr(ptr)",
        (
            "%saved = alloca i32\n  %wanted = alloca i32\n  call void @llvm.x86.sse.stmxcsr(ptr %saved)\n"
            "  store i32 8064, ptr %wanted\n  call void @llvm.x86.sse.ldmxcsr(ptr %wanted)"
        ),
        "call void @llvm.x86.sse.ldmxcsr(ptr %saved)",
    ),
    "aarch64": (
        "declare i64 @llvm.aarch64.get.fpcr()\ndeclare void @llvm.aarch64.set.fpcr(i64)",
        "%saved = call i64 @llvm.aarch64.get.fpcr()\n  call void @llvm.aarch64.set.fpcr(i64 0)",
        "call void @llvm.aarch64.set.fpcr(i64 %saved)",
    ),
}
"""Declarations, entry and exit code: round to nearest, no flushing, whatever the host process has set."""


def emit(program: Program, schedules: Sequence[Schedule], machine: Machine, profile: bool = False) -> str:
    """The LLVM module (text) of a program; its kernels are external symbols.

    With `profile` each thread adds the nanoseconds of its share of each call to an i64 [calls + 1, threads], calls as
    `repro.ir.program.walk` meets them, the last row for the whole run. Such code is for measuring: no artifact has it.
    """
    architecture = machine.triple.split("-", 1)[0]
    declarations, enter, leave = FLOAT_MODE[architecture]
    f = Function()
    f.line(enter)
    addresses(f, program)
    ends = _once(f, program, schedules, machine)
    steps = (Profiled if profile else Steps)(f, program, schedules, machine)
    steps.whole()
    finish(f, [*ends, f.block], "i32", f"store <16 x i64> zeroinitializer, ptr %own, align 64\n  {leave}")
    body = [f"define i32 @{SYMBOL}({PARAMETERS}) {machine.attributes} {{", "entry:", *f.entry, *f.lines, "}"]
    parts = [line for part in steps.parts for line in part.definition(machine)]
    declared = dict.fromkeys([*f.declared, *(line for part in steps.parts for line in part.f.declared)])
    head = [f'target triple = "{machine.triple}"', declarations, *declared, barrier(machine)]
    needs = f"@{SCRATCH_SYMBOL} = constant i64 {scratch_bytes(program, schedules)}"
    return "\n".join([*head, needs, *parts, *body]) + "\n"


def scratch_bytes(program: Program, schedules: Sequence[Schedule]) -> int:
    """Private bytes that each thread needs: what it has taken of its share, what is local to a block of rows, and what
    the kernel needs that it runs."""
    pairs = zip(program.kernels, schedules, strict=True)
    most = max((kernels.scratch_bytes(kernel, schedule) for kernel, schedule in pairs), default=0)
    return pieces.TAKEN_BYTES + program.local_bytes + most


def _once(f: Function, program: Program, schedules: Sequence[Schedule], machine: Machine) -> list[str]:
    """The calls that are made once, each if the context names it: the blocks in which they end."""
    if not program.once:
        return []
    number = f.let(f"load i64, ptr {field(f, ONCE)}", I64)
    places = [f.fresh_label("once") for _ in program.once]
    run, ends = f.fresh_label("run"), list[str]()
    cases = " ".join(f"i64 {at}, label %{place}" for at, place in enumerate(places, 1))
    f.line(f"switch i64 {number.text}, label %{run} [ {cases} ]")
    steps = Steps(f, program, schedules, machine)
    for call, place in zip(program.once, places, strict=True):
        f.label(place)
        steps.run([call], [])
        ends.append(f.block)
        f.line("br label %finish")
    f.label(run)
    return ends

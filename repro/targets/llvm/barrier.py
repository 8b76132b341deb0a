"""The barrier of a program's threads: a brief spin, then sleep in the kernel on the generation word."""

from __future__ import annotations

from repro.machines import Machine
from repro.targets.llvm import context

_SPINS = 2000
_NAP_NANOSECONDS = 100_000_000
"""A sleeper looks at the stop flag this often, should the host set it without waking anybody."""
_WAIT_PRIVATE, _WAKE_PRIVATE = 128, 129
_EVERYBODY = 0x7FFFFFFF
_FUTEX = {"x86_64": 202, "aarch64": 98}
_PAUSE = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
}


def barrier_function(machine: Machine) -> list[str]:
    """`i1 barrier(ptr context, i64 threads)`: whether the host asked to stop."""
    family = machine.triple.partition("-")[0]
    declared, pause = _PAUSE[family]
    text = _TEXT.format(
        attributes=machine.attributes,
        pause=pause,
        futex=_FUTEX[family],
        spins=_SPINS,
        nap=_NAP_NANOSECONDS,
        wait=_WAIT_PRIVATE,
        wake=_WAKE_PRIVATE,
        everybody=_EVERYBODY,
        arrived=context.ARRIVED,
        generation=context.GENERATION,
        parked=context.PARKED,
        stop=context.STOP,
    )
    return [declared, "declare i64 @syscall(i64, ...)", *text.strip().splitlines()]


_TEXT = """
define internal i1 @barrier(ptr %context, i64 %threads) noinline {attributes} {{
entry:
  %nap = alloca {{ i64, i64 }}, align 8
  %stop = getelementptr i8, ptr %context, i64 {stop}
  %alone = icmp eq i64 %threads, 1
  br i1 %alone, label %leave, label %arrive
arrive:
  %arrived = getelementptr i8, ptr %context, i64 {arrived}
  %generation = getelementptr i8, ptr %context, i64 {generation}
  %parked = getelementptr i8, ptr %context, i64 {parked}
  %mine = load atomic i32, ptr %generation seq_cst, align 4
  %before = atomicrmw add ptr %arrived, i32 1 seq_cst
  %others = trunc i64 %threads to i32
  %count = add i32 %before, 1
  %last = icmp eq i32 %count, %others
  br i1 %last, label %release, label %spin
release:
  store atomic i32 0, ptr %arrived seq_cst, align 4
  %old = atomicrmw add ptr %generation, i32 1 seq_cst
  %sleepers = load atomic i32, ptr %parked seq_cst, align 4
  %asleep = icmp ne i32 %sleepers, 0
  br i1 %asleep, label %wake, label %leave
wake:
  %woken = call i64 (i64, ...) @syscall(i64 {futex}, ptr %generation, i32 {wake}, i32 {everybody}, ptr null, ptr null, i32 0)
  br label %leave
spin:
  %turn = phi i32 [ 0, %arrive ], [ %next, %still ]
  %now = load atomic i32, ptr %generation acquire, align 4
  %changed = icmp ne i32 %now, %mine
  br i1 %changed, label %leave, label %still
still:
  {pause}
  %next = add i32 %turn, 1
  %more = icmp ult i32 %next, {spins}
  br i1 %more, label %spin, label %park
park:
  %seconds = getelementptr {{ i64, i64 }}, ptr %nap, i64 0, i32 0
  %nanoseconds = getelementptr {{ i64, i64 }}, ptr %nap, i64 0, i32 1
  store i64 0, ptr %seconds, align 8
  store i64 {nap}, ptr %nanoseconds, align 8
  %counted = atomicrmw add ptr %parked, i32 1 seq_cst
  br label %asleep.test
asleep.test:
  %later = load atomic i32, ptr %generation seq_cst, align 4
  %moved = icmp ne i32 %later, %mine
  br i1 %moved, label %up, label %asked
asked:
  %flag = load atomic i32, ptr %stop seq_cst, align 4
  %stopping = icmp ne i32 %flag, 0
  br i1 %stopping, label %up, label %sleep
sleep:
  %slept = call i64 (i64, ...) @syscall(i64 {futex}, ptr %generation, i32 {wait}, i32 %mine, ptr %nap, ptr null, i32 0)
  br label %asleep.test
up:
  %fewer = atomicrmw sub ptr %parked, i32 1 seq_cst
  br label %leave
leave:
  %word = load atomic i32, ptr %stop seq_cst, align 4
  %result = icmp ne i32 %word, 0
  ret i1 %result
}}
"""

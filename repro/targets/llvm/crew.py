"""Threads that wait for runs in native code, and the caller who is one of them.

Waking a thread through the interpreter takes longer than many a program. Here each of a crew's threads but the caller
has a slot in memory, and waits at it in native code: it spins briefly, then sleeps in the kernel. The caller fills the
slots, does a thread's share itself, and returns when all slots are empty again: nothing in between can be interrupted.
What is run stands in the slots too: it may be another code each time, over the same context.

    crew(SERVE, slots, null, context, thread, threads)      a thread's life, up to END
    crew(LEAD, slots, entry, context, 0, threads)           a run: entry(context, thread, threads) by every thread
    crew(END, slots, null, null, 0, threads)                all threads leave
"""

from __future__ import annotations

from repro.machines import Machine
from repro.targets.llvm.waiting import DECLARED, SPINS, waiting

SYMBOL = "repro_crew"
SERVE, LEAD, END = range(3)
SLOT_BYTES = 64
"""A line of its own for each thread, whose first i32 says what it is to do or does; zero at first."""
_ENTRY = 8
"""Where in it the code to run stands."""
_WAITS, _RUNS, _SLEEPS, _LEAVES = range(4)
_POLITE = 64
"""Looks before the processor is offered to others: on a busy host, the thread that is waited for may be one of them."""


def emit(machine: Machine) -> str:
    """The module of the function `repro_crew`."""
    how = waiting(machine)
    give = f"""\
  %given = getelementptr i8, ptr %give.slot, i64 {_ENTRY}
  store ptr %entry, ptr %given, align 8
  %before = atomicrmw xchg ptr %give.slot, i32 {_RUNS} seq_cst
  %asleep = icmp eq i32 %before, {_SLEEPS}
  br i1 %asleep, label %wake, label %give.next
wake:
  %woken = {how.wake("%give.slot", 1)}
  br label %give.next"""
    gather = f"""\
  br label %until
until:
  %count = phi i32 [ 0, %gather.one ], [ %next, %paused ], [ 0, %yielded ]
  %now = load atomic i32, ptr %gather.slot acquire, align 4
  %running = icmp eq i32 %now, {_RUNS}
  br i1 %running, label %paused, label %gather.next
paused:
  {how.pause}
  %next = add i32 %count, 1
  %long = icmp eq i32 %next, {_POLITE}
  br i1 %long, label %yield, label %until
yield:
  %gave = call i32 @sched_yield()
  br label %yielded
yielded:
  br label %until"""
    tell = f"""\
  %old = atomicrmw xchg ptr %tell.slot, i32 {_LEAVES} seq_cst
  %heard = {how.wake("%tell.slot", 1)}
  br label %tell.next"""
    return f"""\
target triple = "{machine.triple}"
{how.declared}
{DECLARED}
declare i32 @sched_yield()

define i32 @{SYMBOL}(i64 %what, ptr %slots, ptr %entry, ptr %context, i64 %thread, i64 %threads) {machine.attributes} {{
begin:
  switch i64 %what, label %serve [i64 {LEAD}, label %lead
                                  i64 {END}, label %end]
serve:
  %place = mul i64 %thread, {SLOT_BYTES}
  %mine = getelementptr i8, ptr %slots, i64 %place
  br label %look
look:
  %turn = phi i32 [ 0, %serve ], [ %more, %still ], [ %more, %let ], [ 0, %ran ], [ {SPINS}, %slept ]
  %state = load atomic i32, ptr %mine acquire, align 4
  switch i32 %state, label %again [i32 {_RUNS}, label %run
                                   i32 {_LEAVES}, label %leave]
again:
  {how.pause}
  %more = add i32 %turn, 1
  %tired = icmp ugt i32 %more, {SPINS}
  br i1 %tired, label %sleep, label %still
still:
  %since = urem i32 %more, {_POLITE}
  %due = icmp eq i32 %since, 0
  br i1 %due, label %let, label %look
let:
  %stood = call i32 @sched_yield()
  br label %look
sleep:
  %lying = cmpxchg ptr %mine, i32 {_WAITS}, i32 {_SLEEPS} acq_rel acquire
  %was = extractvalue {{ i32, i1 }} %lying, 0
  %busy = icmp eq i32 %was, {_RUNS}
  br i1 %busy, label %run, label %down
down:
  %nap = {how.wait("%mine", str(_SLEEPS))}
  br label %slept
slept:
  br label %look
run:
  %told = getelementptr i8, ptr %mine, i64 {_ENTRY}
  %code = load ptr, ptr %told, align 8
  %status = call i32 %code(ptr %context, i64 %thread, i64 %threads)
  %done = cmpxchg ptr %mine, i32 {_RUNS}, i32 {_WAITS} acq_rel acquire
  br label %ran
ran:
  br label %look
leave:
  ret i32 0

lead:
  br label %give
{_others("give", "lead", give, "share")}
share:
  %result = call i32 %entry(ptr %context, i64 0, i64 %threads)
  br label %gather
{_others("gather", "share", gather, "all")}
all:
  ret i32 %result

end:
  br label %tell
{_others("tell", "end", tell, "ended")}
ended:
  ret i32 0
}}
"""


def _others(name: str, before: str, each: str, then: str) -> str:
    """A loop over the slots of all threads but the caller's, from block `before` and on to `then`. The text `each`
    finds the slot in %NAME.slot, and goes on to %NAME.next."""
    return f"""\
{name}:
  %{name}.thread = phi i64 [ 1, %{before} ], [ %{name}.more, %{name}.next ]
  %{name}.some = icmp ult i64 %{name}.thread, %threads
  br i1 %{name}.some, label %{name}.one, label %{then}
{name}.one:
  %{name}.place = mul i64 %{name}.thread, {SLOT_BYTES}
  %{name}.slot = getelementptr i8, ptr %slots, i64 %{name}.place
{each}
{name}.next:
  %{name}.more = add i64 %{name}.thread, 1
  br label %{name}"""

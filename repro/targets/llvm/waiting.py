"""How threads wait for each other in native code: they spin briefly, then sleep in the kernel."""

from __future__ import annotations

from dataclasses import dataclass

from repro.machines import Machine
from repro.targets.llvm.context import ARRIVED, DECISION, GENERATION, PARKED, STOP

SPINS = 4000
"""Looks before a thread sleeps: some tens of microseconds, as long as it takes to wake one."""
WAIT, WAKE = 128, 129
"""FUTEX_WAIT and FUTEX_WAKE of futex(2), private to the process."""
DECLARED = "declare i64 @syscall(i64, ...)"


@dataclass(frozen=True)
class Waiting:
    """Of an architecture: an instruction between looks, its declaration, and the number of futex(2)."""

    pause: str
    declared: str
    futex: int

    def wait(self, address: str, value: str) -> str:
        """The call that sleeps while the i32 at an address has a value (i64)."""
        return self._call(address, WAIT, value)

    def wake(self, address: str, count: int) -> str:
        """The call that wakes so many threads that sleep at an address."""
        return self._call(address, WAKE, str(count))

    def _call(self, address: str, operation: int, value: str) -> str:
        rest = "i64 0, i64 0, i64 0"
        return f"call i64 (i64, ...) @syscall(i64 {self.futex}, ptr {address}, i64 {operation}, i64 {value}, {rest})"


_OF = {
    "x86_64": Waiting("call void @llvm.x86.sse2.pause()", "declare void @llvm.x86.sse2.pause()", 202),
    "aarch64": Waiting("call void @llvm.aarch64.hint(i32 1)", "declare void @llvm.aarch64.hint(i32)", 98),
}


def waiting(machine: Machine) -> Waiting:
    return _OF[machine.triple.split("-", 1)[0]]


def barrier(machine: Machine) -> str:
    """All threads meet; the last to come decides whether to stop. Spins briefly, then parks in the kernel."""
    how = waiting(machine)
    return f"""\
{how.declared}
{DECLARED}
define internal i1 @barrier(ptr %context, i64 %threads, ptr %own) noinline {machine.attributes} {{
entry:
  %stop = getelementptr i8, ptr %context, i64 {STOP}
  %arrived = getelementptr i8, ptr %context, i64 {ARRIVED}
  %generation = getelementptr i8, ptr %context, i64 {GENERATION}
  %decision = getelementptr i8, ptr %context, i64 {DECISION}
  %parked = getelementptr i8, ptr %context, i64 {PARKED}
  %alone = icmp eq i64 %threads, 1
  br i1 %alone, label %single, label %meet
single:
  store i64 0, ptr %own
  %asked = load atomic i32, ptr %stop monotonic, align 4
  %halt = icmp ne i32 %asked, 0
  ret i1 %halt
meet:
  %now = load atomic i32, ptr %generation acquire, align 4
  %odd = and i32 %now, 1
  %other = xor i32 %odd, 1
  %line = mul i32 %other, 64
  %unused = getelementptr i8, ptr %own, i32 %line
  store atomic i64 0, ptr %unused monotonic, align 8
  %before = atomicrmw add ptr %arrived, i32 1 acq_rel
  %count = add i32 %before, 1
  %all = trunc i64 %threads to i32
  %last = icmp eq i32 %count, %all
  br i1 %last, label %release, label %spin
release:
  %wish = load atomic i32, ptr %stop monotonic, align 4
  store atomic i32 %wish, ptr %decision monotonic, align 4
  store atomic i32 0, ptr %arrived monotonic, align 4
  %next = add i32 %now, 1
  store atomic i32 %next, ptr %generation release, align 4
  fence seq_cst
  %sleepers = load atomic i32, ptr %parked monotonic, align 4
  %asleep = icmp ne i32 %sleepers, 0
  br i1 %asleep, label %wake, label %done
wake:
  %woken = {how.wake("%generation", 2147483647)}
  br label %done
spin:
  %turn = phi i32 [ 0, %meet ], [ %more, %again ]
  %seen = load atomic i32, ptr %generation acquire, align 4
  %moved = icmp ne i32 %seen, %now
  br i1 %moved, label %done, label %again
again:
  {how.pause}
  %more = add i32 %turn, 1
  %tired = icmp ugt i32 %more, {SPINS}
  br i1 %tired, label %park, label %spin
park:
  %value = zext i32 %now to i64
  %entering = atomicrmw add ptr %parked, i32 1 seq_cst
  %slept = {how.wait("%generation", "%value")}
  %leaving = atomicrmw sub ptr %parked, i32 1 seq_cst
  %after = load atomic i32, ptr %generation acquire, align 4
  %free = icmp ne i32 %after, %now
  br i1 %free, label %done, label %park
done:
  %decided = load atomic i32, ptr %decision monotonic, align 4
  %result = icmp ne i32 %decided, 0
  ret i1 %result
}}
!0 = !{{}}"""

"""How threads wait for each other in native code: they spin briefly, then sleep in the kernel."""

from __future__ import annotations

from dataclasses import dataclass

from repro.machines import Machine

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

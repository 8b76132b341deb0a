"""The floating point mode of a thread inside a program: to nearest, subnormals kept (rule 1)."""

from __future__ import annotations

from repro.errors import InternalError
from repro.ir.types import I32, I64
from repro.machines import Machine
from repro.targets.llvm.text import Function, Val

_MXCSR = 0x1F80
"""Exceptions masked, round to nearest, neither flush-to-zero nor denormals-are-zero."""


def enter_mode(f: Function, machine: Machine) -> Val:
    """Set the contract's mode; what stood before comes back for `leave_mode`."""
    match machine.triple.partition("-")[0]:
        case "x86_64":
            saved, wanted = f.alloca("i32"), f.alloca("i32")
            f.effect("llvm.x86.sse.stmxcsr", ["ptr"], [f"ptr {saved}"])
            f.line(f"store i32 {_MXCSR}, ptr {wanted}, align 4")
            f.effect("llvm.x86.sse.ldmxcsr", ["ptr"], [f"ptr {wanted}"])
            return Val(saved, I32)
        case "aarch64":
            saved = f.call("llvm.aarch64.get.fpcr", (I64, 1), [])
            f.effect("llvm.aarch64.set.fpcr", ["i64"], ["i64 0"])
            return saved
        case other:
            raise InternalError(f"no floating point mode for {other}")


def leave_mode(f: Function, machine: Machine, saved: Val) -> None:
    if machine.triple.startswith("x86_64"):
        f.effect("llvm.x86.sse.ldmxcsr", ["ptr"], [f"ptr {saved.text}"])
    else:
        f.effect("llvm.aarch64.set.fpcr", ["i64"], [saved.typed])

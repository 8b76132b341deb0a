"""Which CPU machines this host can run."""

from __future__ import annotations

import platform
from functools import cache

import llvmlite.binding as llvm

from repro.machines import AARCH64, CPUS, X86_64_V3, X86_64_V4, Machine

_NEEDED = {
    X86_64_V3.name: ("avx2", "fma", "bmi2", "f16c"),
    X86_64_V4.name: ("avx2", "fma", "bmi2", "f16c", "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
}


@cache
def _features() -> dict[str, bool]:
    return dict(llvm.get_host_cpu_features())


def runs_here(machine: Machine) -> str | None:
    """None if this host runs the machine's code, else the reason why not."""
    if platform.system() != "Linux":
        return f"the code is ELF; this host is {platform.system()}"
    architecture = platform.machine()
    if machine.triple.split("-", 1)[0] != architecture:
        return f"this host is {architecture}"
    if machine is AARCH64:
        return None
    missing = [name for name in _NEEDED[machine.name] if not _features().get(name)]
    return f"this CPU lacks {', '.join(missing)}" if missing else None


def features(machine: Machine) -> int:
    """What the host has beyond a machine, as programs are told (llvm/context.py)."""
    return int(bool(machine.beyond and _features().get(machine.beyond)))


def best_machine() -> Machine | None:
    """The widest machine that this host runs."""
    for machine in sorted(CPUS.values(), key=lambda m: -m.vector_bits):
        if runs_here(machine) is None:
            return machine
    return None

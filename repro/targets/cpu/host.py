"""Which machines this host runs."""

from __future__ import annotations

from functools import cache

import llvmlite.binding as llvm

from repro.errors import ReproError
from repro.machines import AARCH64, CPUS, X86_64_V3, X86_64_V4, Machine


@cache
def _host_features() -> frozenset[str]:
    return frozenset(name for name, present in llvm.get_host_cpu_features().items() if present)


def runs_here(machine: Machine) -> bool:
    """Whether this host's processor and system run the machine's code."""
    architecture, _, system = llvm.get_process_triple().partition("-")
    if "linux" not in system or architecture != machine.triple.partition("-")[0]:
        return False
    return machine is AARCH64 or all(name[1:] in _host_features() for name in machine.features.split(","))


def best_of_host() -> Machine:
    """The machine that `cpu` means here."""
    for machine in (X86_64_V4, X86_64_V3, AARCH64):
        if runs_here(machine):
            return machine
    raise ReproError(
        "this host runs none of the CPU targets",
        found=f"{llvm.get_process_triple()}, {llvm.get_host_cpu_name()}",
        expected=", ".join(CPUS),
        next="run on Linux with an x86-64-v3 or AArch64 processor",
    )

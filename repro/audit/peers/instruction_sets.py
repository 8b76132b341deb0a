"""Which instruction sets a library on this host can be told to use: how one machine stands in for several.

OpenBLAS (NumPy's matrix products) takes the name of a CPU whose kernels to run, NumPy the names of feature groups that
its own loops must not use, and QEMU runs the whole process as on another CPU. All three are said when the process
starts, so an executor carries them; whether a library obeyed is asked in the process itself.
"""

from __future__ import annotations

import ctypes
import platform
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

import llvmlite.binding as llvm
import numpy as np

EMULATOR = "qemu-x86_64-static"
EMULATED_CPUS = {"Haswell": "Haswell", "SandyBridge": "Sandybridge", "Nehalem": "Nehalem"}
"""QEMU's name of a CPU and OpenBLAS's, which takes each for a Haswell if not told, and dies of it: with AVX2 and
fma, with AVX, with SSE4.2. QEMU 7.2 emulates no AVX-512."""


@dataclass(frozen=True)
class Core:
    """A set of OpenBLAS kernels: the name by which it is asked for, all names by which it calls itself (lower case),
    and the CPU features that it needs, as LLVM spells them."""

    name: str
    reported: frozenset[str]
    features: frozenset[str]


def _core(name: str, *features: str, also: str = "") -> Core:
    return Core(name, frozenset({name.lower(), also or name.lower()}), frozenset(features))


_CORES = {
    "x86_64": (
        _core("SkylakeX", "avx512f", "avx512vl", "avx512bw", "avx512dq", "fma"),
        _core("Haswell", "avx2", "fma"),
        _core("Sandybridge", "avx"),
        _core("Nehalem", "sse4.2"),
        _core("Prescott", "sse3", also="katmai"),
    ),
    "aarch64": (
        _core("NEOVERSEV1", "sve"),
        _core("NEOVERSEN1"),
        _core("ARMV8"),
    ),
}
"""Newest first; those of NumPy's wheels whose kernels differ (Zen runs Haswell's, Cooperlake SkylakeX's)."""

_NO_FLOAT_LOOPS = frozenset({"AVX512_CLX", "AVX512_CNL", "AVX512_ICL", "AVX512_SPR"})
"""Groups that NumPy uses for sorting and for integers: without them no float result changes."""

_CORE_NAME = ("scipy_openblas_get_corename64_", "openblas_get_corename64_", "openblas_get_corename")


@cache
def features() -> frozenset[str]:
    """This CPU's features, as LLVM spells them."""
    return frozenset(name for name, has in llvm.get_host_cpu_features().items() if has)


@cache
def blas_core() -> str | None:
    """The core whose kernels this process's NumPy multiplies matrices with; None if its BLAS is no OpenBLAS."""
    extension = import_module("numpy._core._multiarray_umath").__file__
    loaded = ctypes.CDLL(extension)  # a symbol is looked up in a library's dependencies too
    for symbol in _CORE_NAME:
        function: Any = getattr(loaded, symbol, None)
        if function is not None:
            function.restype = ctypes.c_char_p
            return function().decode()
    return None


def blas_cores() -> tuple[Core, ...]:
    """The OpenBLAS cores that this CPU runs, this process's own left out, newest first; none without OpenBLAS."""
    native = blas_core()
    if native is None:
        return ()
    known = _CORES.get(platform.machine(), ())
    return tuple(core for core in known if core.features <= features() and native.lower() not in core.reported)


def is_core(asked: str, reported: str | None) -> bool:
    """Whether the core that NumPy says it runs is the one asked for."""
    known = [core for core in _CORES.get(platform.machine(), ()) if core.name == asked]
    return reported is not None and any(reported.lower() in core.reported for core in known)


@cache
def simd_extensions() -> tuple[str, tuple[str, ...]]:
    """The feature group that NumPy's loops always use, and those that it found on this CPU beside it, ascending."""
    extensions: Any = np.show_config(mode="dicts")  # the only public word on it
    groups = extensions.get("SIMD Extensions", {})
    return (groups.get("baseline") or [""])[-1], tuple(groups.get("found", ()))


def simd_levels() -> tuple[tuple[str, str], ...]:
    """(highest group that stays, NPY_DISABLE_CPU_FEATURES) for each level below this CPU's, lowest first."""
    baseline, found = simd_extensions()
    steps = tuple(group for group in found if group not in _NO_FLOAT_LOOPS)
    return tuple(
        (kept, " ".join(found[found.index(dropped) :]))
        for kept, dropped in zip((baseline, *steps), steps, strict=False)
        if kept
    )


def emulation(cpu: str) -> tuple[str, ...]:
    """The command that runs a program as on another x86-64 CPU."""
    return (EMULATOR, "-cpu", cpu)


def emulated_environment(cpu: str) -> tuple[tuple[str, str], ...]:
    """What such a program needs to be told."""
    return (("OPENBLAS_CORETYPE", EMULATED_CPUS[cpu]),)

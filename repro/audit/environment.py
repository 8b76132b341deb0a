"""The machine that a record comes from: what may decide bits, and what tells machines apart."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from repro.artifact.canonical import Json
from repro.artifact.workers import cores
from repro.version import VERSION

FLAGS = (
    "sse4_2", "avx", "f16c", "fma", "avx2", "avx_vnni", "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl",
    "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "amx_int8",
    "asimd", "asimdhp", "asimddp", "sve", "sve2", "bf16", "i8mm",
)  # fmt: skip
"""Of x86-64 and AArch64: the instructions by which libraries choose their kernels."""


def host() -> dict[str, Json]:
    """CPU model, the flags that kernels are chosen by, cores, system, C library and Python."""
    cpu = _cpu()
    library, version = platform.libc_ver()
    flags = {*cpu.get("flags", "").split(), *cpu.get("Features", "").split()}
    return {
        "machine": platform.machine(),
        "cpu": cpu.get("model name", "") or platform.processor() or "unknown",
        "flags": [flag for flag in FLAGS if flag in flags],
        "cores": cores(),
        "installed_cores": os.cpu_count() or 1,
        "system": f"{platform.system()} {platform.release()}",
        "libc": f"{library} {version}".strip() or "unknown",
        "python": platform.python_version(),
        "repro": VERSION,
    }


def _cpu() -> dict[str, str]:
    """The first CPU of /proc/cpuinfo; nothing where there is none."""
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        return {}
    pairs = (line.partition(":") for line in text.split("\n\n", 1)[0].splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}

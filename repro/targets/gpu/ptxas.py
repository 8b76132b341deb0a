"""What NVIDIA's assembler says of PTX, where it is installed: registers, spills, and the machine code itself."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from repro.errors import InternalError

_ENTRY = re.compile(r"Compiling entry function '(\w+)'")
_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


@dataclass(frozen=True)
class Resources:
    """Of one entry: registers of a thread, bytes spilled, bytes of its stack, bytes of static shared memory."""

    registers: int
    spill_stores: int
    spill_loads: int
    stack: int
    shared: int


@dataclass(frozen=True)
class Assembled:
    """Machine code (a cubin) for one chip, and what its entries take."""

    cubin: bytes
    entries: dict[str, Resources]


def installed() -> str | None:
    """The assembler's path: of a CUDA toolkit on the PATH, or of the package nvidia-cuda-nvcc; None if neither is."""
    on_path = shutil.which("ptxas")
    if on_path is not None:
        return on_path
    package = importlib.util.find_spec("nvidia")
    folders = list(package.submodule_search_locations or ()) if package is not None else []
    found = [str(path) for folder in folders for path in sorted(Path(folder).glob("cu*/bin/ptxas"))]
    return found[-1] if found else None


def assemble(ptx: str, program: str, chip: str = "sm_80") -> Assembled:
    """Run the assembler at a path. Raises InternalError where it refuses the PTX."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        source.write_text(ptx)
        command = [program, "-v", f"-arch={chip}", "-o", str(target), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode != 0:
            raise InternalError(f"ptxas refuses what was emitted: {done.stderr.strip()[:500]}")
        return Assembled(target.read_bytes(), _entries(done.stderr))


def _entries(text: str) -> dict[str, Resources]:
    found: dict[str, Resources] = {}
    for part in re.split(r"(?=ptxas info\s*: Compiling entry function)", text):
        entry, used, spills = _ENTRY.search(part), _USED.search(part), _SPILLS.search(part)
        if entry and used and spills:
            stack, stores, loads = (int(number) for number in spills.groups())
            shared = _SHARED.search(part)
            found[entry[1]] = Resources(int(used[1]), stores, loads, stack, int(shared[1]) if shared else 0)
    return found

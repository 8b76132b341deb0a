"""Kernels as AArch64 code: linked to a small host program, run natively or under qemu-user."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from repro.ir.loops import Kernel
from repro.ir.program import Program
from repro.ir.schedule import Schedule
from repro.ir.types import Array
from repro.machines import AARCH64
from repro.targets.llvm.context import BUFFERS, CONTEXT_BYTES, ONCE, SCRATCH, SCRATCH_STRIDE, SCRATCH_SYMBOL, SYMBOL
from tests import compiled
from tests.goldens.qemu import COMPILER, EMULATOR, SOURCE
from tests.targets.guards import FILL
from tests.targets.native import single


def run_emulated(kernel: Kernel, buffers: Sequence[Array], schedule: Schedule, threads: int) -> list[Array]:
    """The buffers after the kernel ran once on copies of those given (flat storage arrays)."""
    return run_program(single(kernel), buffers, [schedule], threads)


def run_program(program: Program, buffers: Sequence[Array], schedules: Sequence[Schedule], threads: int) -> list[Array]:
    """The parameters after one run of a program of nothing else."""
    pairs = zip(program.kernels, schedules, strict=True)
    objects = [compiled.compile_kernel(kernel, schedule, AARCH64) for kernel, schedule in pairs]
    objects.append(compiled.compile_program(program, schedules, AARCH64))
    sizes = [(array.nbytes // 64 + 2) * 64 for array in buffers]  # a line or more is left beside each
    offsets = [sum(sizes[:number]) + 64 for number in range(len(sizes))]
    image = bytearray([FILL]) * (sum(sizes) + 64)
    for array, offset in zip(buffers, offsets, strict=True):
        image[offset : offset + array.nbytes] = array.tobytes()
    with tempfile.TemporaryDirectory() as name:
        after = _run(Path(name), objects, bytes(image), offsets, threads)
    found: list[Array] = []
    end = 0
    for array, offset in zip(buffers, offsets, strict=True):
        assert not after[end:offset].strip(bytes([FILL])), "memory beside a buffer was written"
        end = offset + array.nbytes
        found.append(np.frombuffer(after[offset:end], array.dtype))
    assert not after[end:].strip(bytes([FILL])), "memory beside a buffer was written"
    return found


def _run(folder: Path, objects: list[bytes], image: bytes, offsets: list[int], threads: int) -> bytes:
    values = {
        "symbol": SYMBOL, "scratch_symbol": SCRATCH_SYMBOL, "offsets": ",".join(map(str, offsets)),
        "count": len(offsets), "image": len(image), "context": CONTEXT_BYTES, "buffers": BUFFERS,
        "scratch": SCRATCH, "scratch_stride": SCRATCH_STRIDE, "once": ONCE, "calls": 0,
    }  # fmt: skip
    (folder / "main.c").write_text(SOURCE % values)
    (folder / "before").write_bytes(image)
    files = [folder / f"{number}.o" for number in range(len(objects))]
    for file, data in zip(files, objects, strict=True):
        file.write_bytes(data)
    link = [COMPILER, "-O1", "-static", "-o", "runner", "main.c", *files, "-lpthread", "-lm"]
    subprocess.run(link, check=True, capture_output=True, timeout=120, cwd=folder)
    command = [*EMULATOR, folder / "runner", "before", "after", str(threads)]
    subprocess.run(command, check=True, capture_output=True, timeout=300, cwd=folder)
    return (folder / "after").read_bytes()

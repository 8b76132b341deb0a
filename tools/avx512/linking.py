"""Recorded jobs as one static program."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from repro.ir.program import TEMPORARY, Buffer
from repro.ir.types import BF16, DType
from repro.machines.machine import LINE_BYTES
from repro.targets.llvm.context import BUFFERS, CONTEXT_BYTES, ONCE, SCRATCH, SCRATCH_STRIDE, SYMBOL
from repro.targets.llvm.pieces import TAKEN_BYTES
from tools.avx512.recording import Job

HOST = Path(__file__).with_name("host.c")
ASSEMBLY = f"""
    .section .rodata
    .globl bytes
    .balign {LINE_BYTES}
bytes: .incbin "bytes"
    .section .note.GNU-stack, "", @progbits
"""


def link(jobs: Sequence[Job], folder: Path) -> Path:
    """The program that runs the jobs, in the folder; it prints what host.c says."""
    made: dict[tuple[bytes, ...], str] = {}
    for job in jobs:
        if job.objects not in made:
            made[job.objects] = _program_object(job.objects, f"program_{len(made)}", folder)
    header, data = _header(jobs, [made[job.objects] for job in jobs])
    (folder / "jobs.h").write_text(header)
    (folder / "bytes").write_bytes(data)
    (folder / "bytes.s").write_text(ASSEMBLY)
    objects = [f"{name}.o" for name in made.values()]
    _tool(folder, "gcc", "-O1", "-static", "-s", "-I.", "-o", "jobs", str(HOST), "bytes.s", *objects, "-lm")
    return folder / "jobs"


def _program_object(objects: Sequence[bytes], name: str, folder: Path) -> str:
    """Writes NAME.o: a program with its kernels, of which NAME alone can be seen from outside."""
    parts = [f"part_{number}.o" for number in range(len(objects))]
    for part, data in zip(parts, objects, strict=True):
        (folder / part).write_bytes(data)
    _tool(folder, "ld", "-r", "-o", "whole.o", *parts)
    _tool(folder, "objcopy", f"--keep-global-symbol={SYMBOL}", "whole.o")
    _tool(folder, "objcopy", f"--redefine-sym={SYMBOL}={name}", "whole.o", f"{name}.o")
    return name


def _tool(folder: Path, *command: str) -> None:
    subprocess.run(command, check=True, cwd=folder, timeout=600)


def _header(jobs: Sequence[Job], programs: Sequence[str]) -> tuple[str, bytes]:
    """jobs.h, and the bytes that it speaks of."""
    names = {"BUFFERS": BUFFERS, "CONTEXT_BYTES": CONTEXT_BYTES, "ONCE": ONCE, "SCRATCH": SCRATCH}
    names |= {"SCRATCH_STRIDE": SCRATCH_STRIDE, "TAKEN_BYTES": TAKEN_BYTES, "JOBS": len(jobs)}
    lines = [f"#define {name} {value}" for name, value in names.items()]
    lines += [f"int32_t {name}(void *, int64_t, int64_t);" for name in dict.fromkeys(programs)]
    data, rows = bytearray(), list[str]()

    def place(given: bytes | None) -> int:
        if given is None:
            return -1
        data.extend(bytes(-len(data) % LINE_BYTES))
        data.extend(given)
        return len(data) - len(given)

    for number, (job, name) in enumerate(zip(jobs, programs, strict=True)):
        buffers = [
            _row(buffer, place(job.before.get(position)), place(job.after.get(position)))
            for position, buffer in enumerate(job.program.buffers)
        ]
        program = job.program
        lines.append(f"static const struct buffer buffers_{number}[] = {{{', '.join(buffers)}}};")
        sizes = f"{len(buffers)}, {program.arena_bytes}, {job.scratch}, {len(program.once)}"
        rows.append(f'{{"{number}", {name}, buffers_{number}, {sizes}}}')
    lines.append(f"static const struct job jobs[] = {{{', '.join(rows)}}};")
    return "\n".join(lines) + "\n", bytes(data)


def _row(buffer: Buffer, before: int, after: int) -> str:
    place = buffer.position if buffer.role == TEMPORARY else -1
    return f"{{{buffer.nbytes}, {place}, {before}, {after}, {_float_bits(buffer.dtype)}}}"


def _float_bits(dtype: DType) -> int:
    """As host.c has it; formats of one byte are compared as bytes."""
    if not dtype.is_float or dtype.bytes == 1:
        return 0
    return 17 if dtype is BF16 else 8 * dtype.bytes

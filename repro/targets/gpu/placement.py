"""Where a program's buffers lie on a device: one block for what a run needs, one for what stays between runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from repro.ir.program import CONSTANT, INPUT, LOCAL, OUTPUT, PARAMETER, PREPARED, TEMPORARY, Program
from repro.targets.gpu.order import Span

ALIGNMENT = 256
"""Bytes; what the driver's allocations are aligned to, so that every buffer is."""
_LASTING = (PARAMETER, CONSTANT, PREPARED)

_SHARES = {
    PARAMETER: "parameters", CONSTANT: "constants", PREPARED: "made of parameters and constants", INPUT: "inputs",
    OUTPUT: "outputs",
}  # fmt: skip


@dataclass(frozen=True)
class Placement:
    """`offsets` by buffer in its block; `lasting` are the buffers of parameters, constants and what is made of them."""

    offsets: tuple[int, ...]
    lasting: frozenset[int]
    workspaces: tuple[Span, ...]
    """Where they lie in the block of the run."""
    run_bytes: int
    lasting_bytes: int
    shares: tuple[tuple[str, int], ...]
    """Bytes by what they are for, the most first."""


def placed(program: Program, workspace_bytes: Sequence[int]) -> Placement:
    """Temporaries first, where the program's plan has them; then workspaces of so many bytes, inputs and outputs."""
    ends = {"run": _up(program.arena_bytes), "lasting": 0}
    shares = {"temporaries": program.arena_bytes, "workspaces": sum(workspace_bytes)}
    workspaces, offsets = list[Span](), list[int]()
    for nbytes in workspace_bytes:
        workspaces.append((ends["run"], ends["run"] + nbytes))
        ends["run"] += _up(nbytes)
    for buffer in program.buffers:
        if buffer.role == TEMPORARY:
            offsets.append(buffer.position)
            continue
        if buffer.role == LOCAL:  # a block of threads has its own, in shared memory
            offsets.append(0)
            continue
        block = "lasting" if buffer.role in _LASTING else "run"
        offsets.append(ends[block])
        ends[block] += _up(buffer.nbytes)
        name = _SHARES[buffer.role]
        shares[name] = shares.get(name, 0) + buffer.nbytes
    lasting = frozenset(number for number, buffer in enumerate(program.buffers) if buffer.role in _LASTING)
    most = sorted(((name, size) for name, size in shares.items() if size), key=lambda each: (-each[1], each[0]))
    return Placement(tuple(offsets), lasting, tuple(workspaces), ends["run"], ends["lasting"], tuple(most))


def _up(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT

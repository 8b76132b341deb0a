"""A program: the tree of kernel calls that computes an entry, over numbered buffers.

    program = sequence of  call | counted loop | while | branch | row blocks | commit

What a run need not do again stands apart: calls that read parameters and constants alone are made once, before the
first run, and again when a parameter was given another value.

Buffers are flat arrays. A call binds a kernel's buffer parameters to buffers, and its scalars to the
counters of the loops around it. Calls run one after another; the iterations inside a call are what threads
share out, and those of row blocks.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from repro.ir.loops import Kernel
from repro.ir.types import DType

INPUT, OUTPUT, PARAMETER, CONSTANT = "input", "output", "parameter", "constant"
TEMPORARY, LOCAL, PREPARED = "temporary", "local", "prepared"


@dataclass(frozen=True)
class Buffer:
    """A flat array. `role` says who owns it; `position` its number among those of that role.

    A constant carries its bytes in `Program.constants`. A temporary carries its byte offset in the arena as `position`;
    a local one, which each iteration of one `RowBlocks` has for itself, its byte offset in memory of its thread's own.
    A prepared one is written by `Program.once` alone, and keeps its value between runs. A parameter may be written, but
    only in a `Commit`.
    """

    dtype: DType
    elements: int
    role: str
    position: int

    @property
    def nbytes(self) -> int:
        return self.elements * self.dtype.bytes


@dataclass(frozen=True)
class Call:
    kernel: int
    """Position in `Program.kernels`."""
    buffers: tuple[int, ...]
    scalars: tuple[int, ...] = ()
    """Depth of the enclosing loop whose counter is passed, for each scalar of the kernel."""


@dataclass(frozen=True)
class CountedLoop:
    """Runs `body` `count` times; its counter is the scalar of depth = number of loops around it."""

    count: int
    body: tuple[Step, ...]


@dataclass(frozen=True)
class While:
    """Runs `body` as long as element 0 of a bool buffer is true; counts iterations up to `limit`."""

    condition: int
    limit: int
    body: tuple[Step, ...]


@dataclass(frozen=True)
class Branch:
    """Runs one side by element 0 of a bool buffer."""

    condition: int
    then: tuple[Step, ...]
    otherwise: tuple[Step, ...]


@dataclass(frozen=True)
class RowBlocks:
    """Runs `body` for each block of rows on its own, in any order and side by side: what is local stays near.

    The index of a block has one digit for each of `extents`, row-major: the counters of the depths that follow those of
    the loops around it. No block touches what another one writes.
    """

    extents: tuple[int, ...]
    body: tuple[Call, ...]

    @property
    def count(self) -> int:
        return math.prod(self.extents)


@dataclass(frozen=True)
class Commit:
    """Writes the next state over the old one: the last step of a program, after which a run cannot be undone.

    Nothing is written if element 0 of the bool buffer `refused` is true; once begun it runs to its end, whoever asks
    the run to stop. So a run leaves the whole of the next state, or the state as it was.
    """

    refused: int | None
    body: tuple[Step, ...]


Step = Call | CountedLoop | While | Branch | RowBlocks | Commit


@dataclass(frozen=True, eq=False)
class Program:
    """Kernels by first use, buffers, steps. `arena_bytes` holds all temporaries (64-byte aligned), `local_bytes` what
    is local to a thread. `once` fills the prepared buffers, from parameters that no run changes and constants.
    `most_bytes` of temporaries were asked for; None: as many as are of use."""

    kernels: tuple[Kernel, ...]
    buffers: tuple[Buffer, ...]
    constants: tuple[bytes, ...]
    steps: tuple[Step, ...]
    arena_bytes: int
    local_bytes: int = 0
    once: tuple[Call, ...] = ()
    most_bytes: int | None = None

    @cached_property
    def written(self) -> frozenset[int]:
        """Positions of the parameters that a run changes."""
        found = (self.buffers[buffer] for step in walk(self.steps) for buffer in written(self.kernels, step))
        return frozenset(buffer.position for buffer in found if buffer.role == PARAMETER)

    @cached_property
    def text(self) -> str:
        return "\n".join(_print(self)) + "\n"

    @cached_property
    def digest(self) -> str:
        """sha256 (hex) of the text form, kernels and constants by digest."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def walk(steps: tuple[Step, ...]) -> Iterator[Step]:
    """Every step, a container before its body."""
    for step in steps:
        yield step
        match step:
            case CountedLoop() | While() | RowBlocks() | Commit():
                yield from walk(step.body)
            case Branch():
                yield from walk(step.then)
                yield from walk(step.otherwise)
            case Call():
                pass


def written(kernels: Sequence[Kernel], step: Step) -> Iterator[int]:
    """The buffers that a step itself writes, those of steps inside it left out."""
    if isinstance(step, Call):
        for buffer, parameter in zip(step.buffers, kernels[step.kernel].buffers, strict=True):
            if parameter.writable:
                yield buffer


def touched(program: Program, step: Step) -> Iterator[tuple[int, bool]]:
    """The buffers of a step, and of the steps inside it: (buffer, whether it is written)."""
    for each in walk((step,)):
        match each:
            case Call():
                for buffer, parameter in zip(each.buffers, program.kernels[each.kernel].buffers, strict=True):
                    yield buffer, parameter.writable
            case While() | Branch():
                yield each.condition, False
            case Commit():
                if each.refused is not None:
                    yield each.refused, False
            case CountedLoop() | RowBlocks():
                pass


def _print(program: Program) -> Iterator[str]:
    local = f" local={program.local_bytes}" if program.local_bytes else ""
    most = "" if program.most_bytes is None else f" most={program.most_bytes}"
    yield f"program arena={program.arena_bytes}{local}{most} {{"
    for number, kernel in enumerate(program.kernels):
        yield f"  kernel k{number}: sha256:{kernel.digest}"
    for number, data in enumerate(program.constants):
        yield f"  constant c{number}: sha256:{hashlib.sha256(data).hexdigest()}"
    for number, buffer in enumerate(program.buffers):
        yield f"  buffer b{number}: {buffer.dtype.name}[{buffer.elements}] {buffer.role} {buffer.position}"
    if program.once:
        yield "  once {"
        yield from _print_steps(program.once, "    ")
        yield "  }"
    yield from _print_steps(program.steps, "  ")
    yield "}"


def _print_steps(steps: tuple[Step, ...], indent: str) -> Iterator[str]:
    for step in steps:
        match step:
            case Call():
                scalars = "".join(f" loop{depth}" for depth in step.scalars)
                yield f"{indent}call k{step.kernel} {' '.join(f'b{b}' for b in step.buffers)}{scalars}"
            case CountedLoop():
                yield f"{indent}loop {step.count} {{"
                yield from _print_steps(step.body, indent + "  ")
                yield indent + "}"
            case While():
                yield f"{indent}while b{step.condition} limit {step.limit} {{"
                yield from _print_steps(step.body, indent + "  ")
                yield indent + "}"
            case Branch():
                yield f"{indent}if b{step.condition} {{"
                yield from _print_steps(step.then, indent + "  ")
                yield indent + "} else {"
                yield from _print_steps(step.otherwise, indent + "  ")
                yield indent + "}"
            case RowBlocks():
                yield f"{indent}blocks {' '.join(map(str, step.extents))} {{"
                yield from _print_steps(step.body, indent + "  ")
                yield indent + "}"
            case Commit():
                unless = "" if step.refused is None else f"unless b{step.refused} "
                yield f"{indent}commit {unless}{{"
                yield from _print_steps(step.body, indent + "  ")
                yield indent + "}"

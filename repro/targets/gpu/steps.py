"""Steps over blocks of rows as the host sees them: each is a call of a kernel behind the program's own.

Steps that differ in the numbers of their buffers and loops alone are one kernel, as the layers of a model are.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from dataclasses import dataclass

from repro.ir.loops import Kernel
from repro.ir.program import LOCAL, Call, Program, RowBlocks, walk, written


@dataclass(frozen=True)
class Shape:
    """A step with numbers of its own: its arguments are buffers 0, 1, ..., by first use, and what is local follows;
    loops around it that its kernels know of have depths 0, 1, ..., and the digits of a block's index follow."""

    step: RowBlocks
    kernels: tuple[Kernel, ...]
    """Of the calls of its body, in their order."""
    arguments: int
    depths: int
    offsets: tuple[int, ...]
    """Of what is local, in the memory of a block."""

    @property
    def blocks(self) -> int:
        return math.prod(self.step.extents)

    @property
    def writes(self) -> list[bool]:
        """Of each argument, whether one of the kernels writes it."""
        found = {buffer for call in self.step.body for buffer in written(self.kernels, call)}
        return [argument in found for argument in range(self.arguments)]

    @property
    def local_bytes(self) -> int:
        """Whole lines of 64 bytes."""
        most = 0
        for call, kernel in zip(self.step.body, self.kernels, strict=True):
            for buffer, parameter in zip(call.buffers, kernel.buffers, strict=True):
                if buffer >= self.arguments:
                    most = max(most, self.offsets[buffer - self.arguments] + parameter.elements * parameter.dtype.bytes)
        return -(-most // 64) * 64

    @property
    def text(self) -> str:
        lines = [f"blocks {' '.join(map(str, self.step.extents))} arguments {self.arguments} loops {self.depths}"]
        lines += [f"local {offset}" for offset in self.offsets]
        for call, kernel in zip(self.step.body, self.kernels, strict=True):
            lines.append(
                f"sha256:{kernel.digest} {' '.join(map(str, call.buffers))} : {' '.join(map(str, call.scalars))}"
            )
        return "\n".join(lines)

    @property
    def digest(self) -> str:
        """sha256 (hex)."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def symbol(self) -> str:
        return f"blocks_{self.digest[:16]}"


def _shape(program: Program, step: RowBlocks) -> tuple[Shape, tuple[int, ...], tuple[int, ...]]:
    """The step's shape, and what its arguments and its loops are in the program."""
    held = dict.fromkeys(buffer for call in step.body for buffer in call.buffers)
    buffers = tuple(buffer for buffer in held if program.buffers[buffer].role != LOCAL)
    local = tuple(buffer for buffer in held if program.buffers[buffer].role == LOCAL)
    around = step.body[0].scalars[-1] + 1 - len(step.extents)  # the digits are the last scalars of each kernel
    loops = tuple(sorted({depth for call in step.body for depth in call.scalars if depth < around}))
    numbers = {buffer: number for number, buffer in enumerate((*buffers, *local))}
    depths = {depth: number for number, depth in enumerate((*loops, *range(around, around + len(step.extents))))}
    body = tuple(
        Call(number, tuple(numbers[b] for b in call.buffers), tuple(depths[d] for d in call.scalars))
        for number, call in enumerate(step.body)
    )
    kernels = tuple(program.kernels[call.kernel] for call in step.body)
    offsets = tuple(program.buffers[buffer].position for buffer in local)
    return Shape(RowBlocks(step.extents, body), kernels, len(buffers), len(loops), offsets), buffers, loops


def alone(program: Program) -> frozenset[int]:
    """The kernels that are called outside of such steps."""
    every = (*program.once, *walk(program.steps))
    calls = Counter(step.kernel for step in every if isinstance(step, Call))
    steps = (step for step in walk(program.steps) if isinstance(step, RowBlocks))
    calls.subtract(call.kernel for step in steps for call in step.body)
    return frozenset(kernel for kernel, count in calls.items() if count)


def shapes(program: Program) -> tuple[Shape, ...]:
    """Each once, by first use."""
    found = (_shape(program, step)[0] for step in walk(program.steps) if isinstance(step, RowBlocks))
    return tuple({shape.text: shape for shape in found}.values())


def calls_of(program: Program) -> dict[RowBlocks, Call]:
    """What the host calls for each step: `shapes` are the kernels behind the program's own."""
    numbers = {shape.text: len(program.kernels) + number for number, shape in enumerate(shapes(program))}
    found: dict[RowBlocks, Call] = {}
    for step in walk(program.steps):
        if isinstance(step, RowBlocks):
            shape, buffers, loops = _shape(program, step)
            found[step] = Call(numbers[shape.text], buffers, loops)
    return found

"""How much a kernel does, in scalar operations: an integer count, the same on every host."""

from __future__ import annotations

import math
from collections.abc import Sequence

from repro.ir import byte_dot, contraction
from repro.ir.expressions import Expr, Reduce
from repro.ir.loops import Kernel
from repro.ir.program import (
    CONSTANT,
    INPUT,
    OUTPUT,
    PARAMETER,
    Branch,
    Call,
    Commit,
    CountedLoop,
    Program,
    RowBlocks,
    Step,
    While,
)
from repro.ir.schedule import Schedule


def iterations(expr: Expr) -> int:
    """How often an expression is computed: once per value of the axes that it depends on."""
    return math.prod(axis.extent for axis in expr.free)


def operations(kernel: Kernel) -> int:
    """Scalar operations of the whole kernel; a reduction counts once per term, and so does a byte dot."""
    dots = [e.terms[0] for e in kernel.expressions if isinstance(e, Reduce)]
    inside = {part for term in dots for part in byte_dot.inside(term)}
    return sum(operations_of(expr) for expr in kernel.expressions if expr not in inside)


def operations_of(expr: Expr) -> int:
    """Those of one expression of a kernel, wherever it is computed."""
    terms = math.prod(axis.extent for axis in expr.axes) if isinstance(expr, Reduce) else 1
    return iterations(expr) * terms


def multiply_adds(kernel: Kernel) -> int:
    """Fused multiply-adds of a contraction, absent terms (padding) among them; 0 for other kernels."""
    found = contraction.find(kernel, floats=True)
    return 0 if found is None else math.prod(found.extents)


def byte_products(kernel: Kernel) -> int:
    """Products of bytes in a contraction of quads; 0 for other kernels."""
    found = contraction.find(kernel)
    return 0 if found is None or found.unsigned is None else byte_dot.BYTES * math.prod(found.extents)


def program_operations(program: Program) -> int:
    """Scalar operations of a whole run at most."""
    return _of_a_run(program.steps, [operations(kernel) for kernel in program.kernels])


def program_instructions(program: Program, schedules: Sequence[Schedule]) -> int:
    """Scalar operations of a whole run at most, multiply-adds in register tiles a vector at a time."""
    return _of_a_run(program.steps, [_instructions(*each) for each in zip(program.kernels, schedules, strict=True)])


def _instructions(kernel: Kernel, schedule: Schedule) -> int:
    found = None if schedule.tile is None else contraction.find(kernel)
    fused = 0 if found is None else math.prod(found.extents)
    return operations(kernel) - fused + fused // schedule.vector_width


def program_multiply_adds(program: Program) -> int:
    """Fused multiply-adds in the contractions of a whole run at most."""
    return _of_a_run(program.steps, [multiply_adds(kernel) for kernel in program.kernels])


def program_byte_products(program: Program) -> int:
    """Products of bytes in the contractions of a whole run at most."""
    return _of_a_run(program.steps, [byte_products(kernel) for kernel in program.kernels])


def program_bytes(program: Program) -> tuple[int, int]:
    """Bytes that a run at least reads and writes, if it uses all that it is given: each input, parameter and constant
    once; each output and changed parameter once."""
    given = sum(buffer.nbytes for buffer in program.buffers if buffer.role in (INPUT, PARAMETER, CONSTANT))
    made = sum(
        buffer.nbytes
        for buffer in program.buffers
        if buffer.role == OUTPUT or (buffer.role == PARAMETER and buffer.position in program.written)
    )
    return given, made


def _of_a_run(steps: Sequence[Step], kernels: Sequence[int]) -> int:
    """What calls of kernels come to: loops to their limits, the longer side of branches."""

    def total(steps: Sequence[Step]) -> int:
        return sum(cost(step) for step in steps)

    def cost(step: Step) -> int:
        match step:
            case Call():
                return kernels[step.kernel]
            case CountedLoop() | RowBlocks():
                return step.count * total(step.body)
            case While():
                return step.limit * total(step.body)
            case Branch():
                return max(total(step.then), total(step.otherwise))
            case Commit():
                return total(step.body)

    return total(steps)

"""Scalar sequences as native code over blocks of arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from passes.schedule import schedule
from repro.ir.expressions import Axis, Expr, load
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.program import INPUT, OUTPUT, Buffer, Call, Program
from repro.ir.types import I64, Array, DType
from repro.machines import Machine
from repro.runtime.session import CpuExecutable
from repro.targets import cpu

Scalars = Callable[..., Sequence[Expr]]
"""From one expression for each operand to the results."""


def elementwise_kernel(sequence: Scalars, operands: Sequence[DType], count: int) -> Kernel:
    """result[i] = sequence(operand[i], ...) for i below count, each operand and each result a buffer."""
    axis = Axis(I64, (0, count), ())
    results = sequence(*(load(dtype, position, axis) for position, dtype in enumerate(operands)))
    buffers = [BufferParameter(dtype, count, False) for dtype in operands]
    buffers += [BufferParameter(result.dtype, count, True) for result in results]
    stores = [Store(len(operands) + number, axis, result) for number, result in enumerate(results)]
    return Kernel(tuple(buffers), (), (axis,), 0, tuple(stores))


class Elementwise:
    """A compiled sequence: called with storage arrays of one length, a multiple of `count`, it gives the results."""

    def __init__(self, sequence: Scalars, operands: Sequence[DType], machine: Machine, count: int) -> None:
        kernel = elementwise_kernel(sequence, operands, count)
        self._count = count
        self._results = [buffer.dtype.storage for buffer in kernel.buffers if buffer.writable]
        program = _program(kernel, len(operands))
        schedules = [schedule(kernel, machine)]
        self.objects = [
            cpu.compile_kernel(kernel, schedules[0], machine),
            cpu.compile_program(program, schedules, machine),
        ]
        self._executable = CpuExecutable(program, cpu.Code(self.objects), 1)

    def block(self, *operands: Array) -> list[Array]:
        """The results for arrays of `count` elements."""
        return self._executable.run(operands)

    def __call__(self, *operands: Array) -> list[Array]:
        """The results for arrays of any one length."""
        size = operands[0].size
        results = [np.empty(size, storage) for storage in self._results]
        for start in range(0, size, self._count):
            end = min(start + self._count, size)
            padding = (0, start + self._count - end)
            found = self.block(*(np.pad(operand[start:end], padding) for operand in operands))
            for result, part in zip(results, found, strict=True):
                result[start:end] = part[: end - start]
        return results


def _program(kernel: Kernel, inputs: int) -> Program:
    """One call of the kernel on inputs and outputs."""
    roles = [(INPUT, n) if n < inputs else (OUTPUT, n - inputs) for n in range(len(kernel.buffers))]
    pairs = zip(kernel.buffers, roles, strict=True)
    buffers = tuple(Buffer(buffer.dtype, buffer.elements, *role) for buffer, role in pairs)
    return Program((kernel,), buffers, (), (Call(0, tuple(range(len(buffers)))),), 0)

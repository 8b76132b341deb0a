"""Aligned memory for a program's buffers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from repro.ir.program import CONSTANT, INPUT, OUTPUT, PARAMETER, TEMPORARY, Program
from repro.ir.types import Array

ALIGNMENT = 64


def aligned(nbytes: int) -> Array:
    """Zeroed bytes that start at a multiple of the alignment."""
    raw = np.zeros(nbytes + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + nbytes]


class Buffers:
    """One array per buffer of a program; temporaries are views into one arena."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.arena = aligned(program.arena_bytes)
        self.arrays: list[Array] = []
        self.by_role: dict[tuple[str, int], Array] = {}
        for buffer in program.buffers:
            if buffer.role == TEMPORARY:
                raw = self.arena[buffer.position : buffer.position + buffer.nbytes]
            else:
                raw = aligned(buffer.nbytes)
            array = raw.view(buffer.dtype.storage)
            if buffer.role == CONSTANT:
                array[:] = np.frombuffer(program.constants[buffer.position], buffer.dtype.storage)
            self.arrays.append(array)
            if buffer.role in (INPUT, OUTPUT, PARAMETER):
                self.by_role[buffer.role, buffer.position] = array

    def table(self) -> Array:
        """The addresses, one u64 a buffer."""
        return np.asarray([array.ctypes.data for array in self.arrays], np.uint64)

    def set(self, role: str, position: int, value: Array) -> None:
        """Copy a storage array into a buffer, if the program has it."""
        target = self.by_role.get((role, position))
        if target is not None:
            target[:] = value.reshape(-1)

    def outputs(self) -> Sequence[Array]:
        count = sum(1 for role, _ in self.by_role if role == OUTPUT)
        return [self.by_role[OUTPUT, position] for position in range(count)]

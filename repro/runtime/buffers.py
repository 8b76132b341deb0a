"""Memory of a program's buffers, and the table of addresses that its code reads."""

from __future__ import annotations

import ctypes
import mmap
import sys
from typing import Any

import numpy as np

from repro.errors import InternalError
from repro.ir.program import CONSTANT, INPUT, LOCAL, OUTPUT, PARAMETER, PREPARED, TEMPORARY, Program, touched
from repro.ir.types import Array, DType

ALIGNMENT, PAGE_BYTES = 64, 4096
"""What has a page or more begins with one, other memory of ours with a line.

A load waits for a store before it to the same place of another page. Kernels read ahead of what they write, so outputs
must not lie a little further into their pages than inputs into theirs; large arrays of callers lie 16 bytes into a
page, or a line (a layer norm of 32 MiB on a Zen 3: 1.39 ms with its output a line behind a page's begin, 1.10 at the
begin). Nor must a row of parameters, read at each row, lie a little before a page's end (on a Zen 4: 0.67 ms with both
at a begin, 0.76 with one 128 bytes before an end, 0.85 with both)."""
LARGE_BYTES = 16 * PAGE_BYTES
"""Parameters of so many are read where they lie, smaller ones from copies."""
PROMISED = 16
"""Bytes that code may take every buffer to be aligned to; those that it writes are aligned to the whole of it."""
KEPT = 2
"""Memories of each output: a loop holds what its last run gave until it has what the next one gives."""
_ALONE = (np.empty(0),)
UNSHARED = sys.getrefcount(_ALONE[0])
"""What this interpreter counts for an array that one tuple holds: every view of an array is one more."""


def boundary_of(nbytes: int) -> int:
    """What the address of so many bytes is a multiple of."""
    return PAGE_BYTES if nbytes >= PAGE_BYTES else ALIGNMENT


def aligned(nbytes: int) -> Array:
    """Bytes, not initialised, that begin with a line, or a page."""
    memory = np.empty(nbytes + boundary_of(nbytes), np.uint8)
    start = -address_of(memory) % boundary_of(nbytes)
    return memory[start : start + nbytes]


def address_of(array: Array) -> int:
    """Where its first element lies. Only memory that may be written says so at once; any other array describes itself
    as a whole, as `array.ctypes` does, which takes longer than many a kernel."""
    try:
        return ctypes.addressof(ctypes.c_byte.from_buffer(array))  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError, BufferError):  # nothing to write, no elements, or not in one piece
        return array.__array_interface__["data"][0]


class Buffers:
    """One array per buffer of a program. Temporaries are views into one arena; inputs and parameters are read
    where they lie, parameters that runs change in arrays of our own; every run has outputs of its own. What only
    the calls that are made once touch has memory while these need it."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.addresses = np.zeros(max(len(program.buffers), 1), np.uint64)
        self._places = self.addresses.data
        """The same: an item of an array takes as long to set as several of these."""
        self._arena = aligned(program.arena_bytes)
        self._arrays: dict[int, Array] = {}
        self._memory: dict[int, list[tuple[Array, slice, int]]] = {}
        """What the last runs' outputs are views of, which elements they are, and the address of the first."""
        self._numbers: dict[tuple[str, int], int] = {}
        for number, buffer in enumerate(program.buffers):
            if buffer.role == TEMPORARY:
                raw = self._arena[buffer.position : buffer.position + buffer.nbytes]
                self._place(number, raw.view(buffer.dtype.storage))
                continue
            if buffer.role == LOCAL:  # in each thread's own memory
                continue
            self._numbers[buffer.role, buffer.position] = number
            if buffer.role == CONSTANT:
                self._constant(number)
        self._once = _Once(program)
        self.stale = bool(program.once)
        """Whether the calls that are made once are to be made."""
        self._inputs = {position: number for (role, position), number in self._numbers.items() if role == INPUT}
        self._outputs = [self._numbers[key] for key in sorted(self._numbers) if key[0] == OUTPUT]
        self._read = frozenset(number for (role, _), number in self._numbers.items() if role in (INPUT, PARAMETER))
        self._lent = [number for (role, _), number in self._numbers.items() if role in (INPUT, OUTPUT)]

    def _place(self, number: int, array: Array, address: int | None = None) -> Array:
        """The array as the buffer's."""
        self._arrays[number] = array
        self._places[number] = address_of(array) if address is None else address
        return array

    def _fresh(self, number: int) -> Array:
        buffer = self.program.buffers[number]
        return self._place(number, aligned(buffer.nbytes).view(buffer.dtype.storage))

    def _constant(self, number: int) -> None:
        buffer = self.program.buffers[number]
        self._fresh(number)[:] = np.frombuffer(self.program.constants[buffer.position], buffer.dtype.storage)

    def begin(self, position: int) -> None:
        """Memory for what a call that is made once touches. Raises InternalError for a parameter without a value."""
        for number in self.program.once[position].buffers:
            role = self.program.buffers[number].role
            if number not in self._arrays and role == CONSTANT:
                self._constant(number)
            elif number not in self._arrays and role == PREPARED:
                self._fresh(number)
            elif number not in self._arrays:
                raise InternalError(f"{role} {self.program.buffers[number].position} has no value")

    def end(self, position: int) -> None:
        """Give back what neither a later one of those calls nor a run touches."""
        for number in self._once.last[position]:
            if self.program.buffers[number].role == PARAMETER:
                give_back(self._arrays[number])
            else:
                del self._arrays[number]
                self._places[number] = 0

    def bind_input(self, position: int, value: Array) -> None:
        """Read an input from the caller's array, or from a copy where that does not lie as code needs it."""
        number = self._inputs.get(position)
        if number is not None:
            self._bind(number, value)

    def bind_parameter(self, position: int, value: Array) -> None:
        """Read a parameter from an array that nobody will change, such as a mapped file; from a copy where it is small,
        or does not lie as code needs it."""
        number = self._numbers.get((PARAMETER, position))
        if position in self.program.written:
            self.set_parameter(position, value)
        elif number is not None:
            self._bind(number, value.reshape(-1), copies=value.nbytes < LARGE_BYTES)
            self.stale |= number in self._once.read

    def _bind(self, number: int, value: Array, copies: bool = False) -> None:
        address = address_of(value)
        if not copies and address % PROMISED == 0 and value.flags.c_contiguous:
            self._place(number, value, address)
        else:
            self._fresh(number)[:] = value.reshape(-1)

    def fresh_outputs(self) -> list[Array]:
        """Arrays for the outputs of the next run, which fills them: those of one before where nobody holds them any
        more, since memory that is given back and asked for again costs about as much as filling it."""
        return [self._output(number) for number in self._outputs]

    def _output(self, number: int) -> Array:
        kept = self._memory.setdefault(number, [])
        for found in kept:
            if sys.getrefcount(found[0]) <= UNSHARED:
                break
        else:
            buffer = self.program.buffers[number]
            found = _from_boundary(buffer.elements, buffer.dtype)
            self._memory[number] = [found, *kept[: KEPT - 1]]
        memory, elements, address = found
        return self._place(number, memory[elements], address)

    def set_parameter(self, position: int, value: Array) -> None:
        """Give a parameter a value of its own."""
        number = self._numbers.get((PARAMETER, position))
        if number is not None:
            self._fresh(number)[:] = value.reshape(-1)
            self.stale |= number in self._once.read

    def parameter(self, position: int) -> Array | None:
        """A parameter's array, not to be written; the next run may change it."""
        number = self._numbers.get((PARAMETER, position))
        return None if number is None else self._arrays.get(number)

    def check(self) -> None:
        """Raises InternalError where a run would read a parameter or an input that has no value."""
        if self._arrays.keys() >= self._read:
            return
        for (role, position), number in self._numbers.items():
            if number not in self._arrays and number in self._read:
                raise InternalError(f"{role} {position} has no value")

    def let_go(self) -> None:
        """Forget the inputs and outputs of the last run: they are the caller's."""
        for number in self._lent:
            self._arrays.pop(number, None)
            self._places[number] = 0


def _from_boundary(elements: int, dtype: DType) -> tuple[Array, slice, int]:
    """Memory in which elements begin where they should; which of it they are; the address of the first."""
    boundary = boundary_of(elements * dtype.bytes)
    memory = np.empty(elements + boundary // dtype.bytes, dtype.storage)
    address = address_of(memory)
    skipped = -address % boundary
    first = skipped // dtype.bytes
    return memory, slice(first, first + elements), address + skipped


class _Once:
    """Of the calls of a program that are made once: what they read and write, and which of it nobody touches behind
    each of them."""

    def __init__(self, program: Program) -> None:
        later = {buffer for step in program.steps for buffer, _ in touched(program, step)}
        self.read = frozenset(buffer for call in program.once for buffer in call.buffers)
        ends = {buffer: position for position, call in enumerate(program.once) for buffer in call.buffers}
        self.last = tuple(
            tuple(buffer for buffer, end in ends.items() if end == position and buffer not in later)
            for position in range(len(program.once))
        )


def give_back(array: Array) -> None:
    """Take a mapped file's pages out of this process's memory; who reads the array again has them anew."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    mapped = base.obj if isinstance(base, memoryview) else base
    if isinstance(mapped, mmap.mmap):
        mapped.madvise(mmap.MADV_DONTNEED)

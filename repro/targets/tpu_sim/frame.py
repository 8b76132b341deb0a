"""The state of a running routine: counters, registers, weights; for one iteration or many side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from repro.ir.types import Array, DType
from repro.targets.tpu_sim.faults import FaultError
from repro.targets.tpu_sim.memory import Memory
from repro.targets.tpu_sim.operands import LANES, REGISTERS, Index, Reg

Number = Any
"""An int, or an i64 array with a value for each iteration."""


@dataclass
class Frame:
    """`counters` hold an int, or one number for each of the `width` iterations that run side by side.

    A register is [width, 1024], or [1, 1024] where all iterations have the same.
    """

    counters: dict[str, Number]
    width: int
    registers: dict[int, Array]
    memory: Memory
    weights: dict[tuple[int, int], Array]
    """Weights [depth, width] by matrix unit and slot."""

    def read(self, reg: Reg, dtype: DType, where: str) -> Array:
        value = self.registers.get(reg.number)
        if value is None:
            raise FaultError("undefined register", f"reads {reg}, which nothing has written", where)
        if value.dtype != dtype.storage:
            found, expected = str(value.dtype), str(dtype.storage)
            raise FaultError("register type", f"reads {reg} as another type", where, found, expected)
        return value

    def write(self, number: int, value: Array) -> None:
        """64-bit elements take the next register of the file too: what a write overlaps is gone."""
        registers = self.registers
        if number < REGISTERS:
            if value.itemsize == 8:
                registers.pop(number + 1, None)
            below = registers.get(number - 1)
            if below is not None and below.itemsize == 8:
                del registers[number - 1]
        registers[number] = value

    def forget(self, number: int) -> None:
        """The register is undefined from here on."""
        self.registers.pop(number, None)

    def full(self, reg: Reg, dtype: DType, where: str) -> Array:
        """[width, 1024]."""
        return np.broadcast_to(self.read(reg, dtype, where), (self.width, LANES))

    def ensure(self, types: Mapping[int, DType]) -> None:
        """Registers that have no value of the type get one: they are undefined, but may be read."""
        for number, dtype in types.items():
            value = self.registers.get(number)
            if value is None or value.dtype != dtype.storage:
                self.write(number, np.zeros((1, LANES), dtype.storage))

    def spread(self, times: int, live: Sequence[int]) -> Frame:
        """Each iteration `times` times over; of the registers only the live ones that differ are repeated."""
        counters = {name: _repeated(value, times) for name, value in self.counters.items()}
        registers = dict(self.registers)
        for number in live:
            value = registers.get(number)
            if value is not None and len(value) > 1:
                registers[number] = np.repeat(value, times, axis=0)
        return Frame(counters, self.width * times, registers, self.memory, self.weights)

    def chosen(self, iterations: Array, live: Sequence[int]) -> Frame:
        """The chosen iterations (their numbers) alone."""
        counters = {n: value if isinstance(value, int) else value[iterations] for n, value in self.counters.items()}
        registers = dict[int, Array]()
        for number in live:
            value = self.registers.get(number)
            if value is not None:
                registers[number] = value if len(value) == 1 else value[iterations]
        return Frame(counters, len(iterations), registers, self.memory, self.weights)

    def merge(self, other: Frame, iterations: Array, numbers: Sequence[int]) -> None:
        """Take registers from the frame of the chosen iterations; the others keep what they had."""
        for number in numbers:
            value = other.registers.get(number)
            if value is None:
                continue
            before = self.registers.get(number)
            if before is None or before.dtype != value.dtype:
                before = np.zeros((1, LANES), value.dtype)
            whole = np.broadcast_to(before, (self.width, LANES)).copy()
            whole[iterations] = value
            self.write(number, whole)


def _repeated(value: Number, times: int) -> Number:
    return value if isinstance(value, int) else np.repeat(value, times)


def evaluator(index: Index) -> Callable[[Mapping[str, Number]], Number]:
    """The index as a function of the counters: an int, or an array where one of its counters is."""
    constant, terms = index.constant, index.terms
    if not terms:
        return lambda counters: constant
    if len(terms) == 1 and terms[0].divisor == 1 and terms[0].modulus == 0:
        name, coefficient = terms[0].counter, terms[0].coefficient
        return lambda counters: counters[name] * coefficient + constant

    def value(counters: Mapping[str, Number]) -> Number:
        total: Number = constant
        for term in terms:
            digit = counters[term.counter]
            if term.divisor != 1:
                digit = digit // term.divisor
            if term.modulus:
                digit = digit % term.modulus
            total = total + digit * term.coefficient
        return total

    return value

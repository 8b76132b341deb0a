"""Registers by number, literals, variables: what the operands of an entry's instructions stand for."""

from __future__ import annotations

from typing import Any

import numpy as np

from repro.errors import InternalError
from repro.ir.types import Array
from repro.targets.gpu.interpreter.closures import RAW, Source
from repro.targets.gpu.interpreter.parse import Address, Immediate, Instruction, Operand, Register, Symbol, Variable


class Operands:
    """Grows as instructions are decoded. Places of variables are their addresses in shared or local memory."""

    def __init__(self, name: str, variables: dict[str, Variable]) -> None:
        self.name = name
        self.slots: dict[object, int] = {}
        self.constants: dict[tuple[int, int], tuple[int, Array]] = {}
        self.granules = {"global": 8, "shared": 8, "local": 8}
        self.sizes = {"shared": 0, "local": 0}
        self.globals = [each for each in variables.values() if each.space in ("global", "const")]
        self.addresses: dict[str, int] = {}
        for variable in sorted(variables.values(), key=lambda each: each.nbytes == 0):
            self._place(variable)

    def _place(self, variable: Variable) -> None:
        """Dynamic shared memory comes last; global variables have windows of their own, behind the arguments'."""
        if variable.space in self.sizes:
            start = -(-self.sizes[variable.space] // variable.alignment) * variable.alignment
            self.addresses[variable.name] = start
            self.sizes[variable.space] = start + variable.nbytes

    def slot(self, register: object) -> int:
        return self.slots.setdefault(register, len(self.slots))

    def constant(self, bits: int, width: int) -> int:
        """The register that holds a literal."""
        key = (bits % (1 << max(width, 1)), width)
        if key not in self.constants:
            slot = self.slot(("constant", *key))
            self.constants[key] = slot, np.array([key[0]], RAW[width])
        return self.constants[key][0]

    def unknown(self, instruction: Instruction) -> InternalError:
        return InternalError(f"{self.name}: the interpreter knows no such instruction: {instruction.text}")

    def source(self, operand: Operand, kind: np.dtype[Any], instruction: Instruction) -> Source:
        """(register, type to read it as, whether its upper bits are dropped first)."""
        match operand:
            case Register():
                if operand.bits < 8 * kind.itemsize and kind.kind != "b":
                    raise self.unknown(instruction)
                return self.slot(operand), kind, operand.bits > 8 * kind.itemsize
            case Immediate():
                bits = 1 if kind.kind == "b" else 8 * kind.itemsize
                if operand.float_bits not in (0, bits):
                    raise self.unknown(instruction)
                return self.constant(operand.value, bits), kind, False
            case _:
                raise self.unknown(instruction)

    def raw(self, operand: Operand, bits: int, instruction: Instruction) -> int:
        """The register of an operand that is read as it is; `_` is no operand."""
        match operand:
            case Register() if operand.bits == bits:
                return self.slot(operand)
            case Immediate():
                return self.constant(operand.value, bits)
            case _:
                raise self.unknown(instruction)

    def address(self, operand: Operand, instruction: Instruction) -> tuple[int, np.uint64, int]:
        """(register, offset, number of a global variable or -1)."""
        if not isinstance(operand, Address):
            raise self.unknown(instruction)
        offset = np.uint64(operand.offset % (1 << 64))
        match operand.base:
            case Register(bits=64 | 32):
                return self.slot(operand.base), offset, -1
            case Symbol() if operand.base.name in self.addresses:
                return self.constant(self.addresses[operand.base.name], 64), offset, -1
            case Symbol():
                for number, variable in enumerate(self.globals):
                    if variable.name == operand.base.name:
                        return self.constant(0, 64), offset, number
                raise self.unknown(instruction)
            case _:
                raise self.unknown(instruction)

    def parameter(self, operand: Operand, instruction: Instruction) -> int:
        if not isinstance(operand, Address) or not isinstance(operand.base, Register) or operand.offset:
            raise self.unknown(instruction)
        return self.slot(operand.base)

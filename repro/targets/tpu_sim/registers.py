"""Registers of routines: what bodies read and write, the 64 of the file, and spilling what does not fit."""

from __future__ import annotations

from collections.abc import Sequence

from repro.ir.types import DType
from repro.targets.tpu_sim.isa import Instruction
from repro.targets.tpu_sim.operands import REGISTERS, Reg
from repro.targets.tpu_sim.program import Bundle, Loop, Statement, WhenAny


def written(body: Sequence[Statement]) -> frozenset[int]:
    """Registers that the body may write."""
    found = set[int]()
    for statement in body:
        match statement:
            case Bundle():
                found |= {reg.number for each in statement.instructions if (reg := each.writes) is not None}
            case Loop() | WhenAny():
                found |= written(statement.body)
    return frozenset(found)


def result_types(body: Sequence[Statement]) -> dict[int, DType]:
    """The type that the body leaves in each register it may write."""
    found = dict[int, DType]()
    for statement in body:
        match statement:
            case Bundle():
                for each in statement.instructions:
                    if each.writes is not None and each.result_type is not None:
                        found[each.writes.number] = each.result_type
            case Loop() | WhenAny():
                found |= result_types(statement.body)
    return found


def left(body: Sequence[Statement]) -> dict[int, DType]:
    """The same of a body with the file's registers, where 64 bits take two: without what a later write overlaps."""
    found = dict[int, DType]()
    _leave(body, found)
    return found


def _leave(body: Sequence[Statement], found: dict[int, DType]) -> None:
    for statement in body:
        match statement:
            case Bundle():
                for each in statement.instructions:
                    if each.writes is not None and each.result_type is not None:
                        _write(each.writes.number, each.result_type, found)
            case Loop() | WhenAny():
                _leave(statement.body, found)


def _write(number: int, dtype: DType, found: dict[int, DType]) -> None:
    if number < REGISTERS:
        below = found.get(number - 1)
        if below is not None and below.bits == 64:
            del found[number - 1]
        if dtype.bits == 64:
            found.pop(number + 1, None)
    found[number] = dtype


def read(body: Sequence[Statement]) -> frozenset[int]:
    """Registers that the body may read."""
    found = set[int]()
    for statement in body:
        match statement:
            case Bundle():
                found |= {reg.number for each in statement.instructions for reg in each.reads}
            case WhenAny():
                found |= read(statement.body) | {statement.mask.number}
            case Loop():
                found |= read(statement.body)
    return frozenset(found)


def exposed(body: Sequence[Statement]) -> frozenset[int]:
    """Registers whose value from before the body it may read."""
    return _exposed(body, set())


def _exposed(body: Sequence[Statement], defined: set[int]) -> frozenset[int]:
    """`defined` grows by what the body surely writes."""
    found = set[int]()
    for statement in body:
        match statement:
            case Bundle():
                found |= {reg.number for each in statement.instructions for reg in each.reads} - defined
                defined |= {reg.number for each in statement.instructions if (reg := _surely(each)) is not None}
            case WhenAny():
                found |= {statement.mask.number} - defined
                found |= _exposed(statement.body, defined)  # where it is skipped they are undefined, not what they were
            case Loop():
                inside = set(defined)
                found |= _exposed(statement.body, inside)
                if statement.count > 0 and not statement.parallel:
                    defined |= inside
    return frozenset(found)


def _surely(instruction: Instruction) -> Reg | None:
    return instruction.writes if instruction.predicate is None else None

"""From registers without end to the 64 of the file: linear scan over live intervals, the rest spilled to VMEM.

An interval runs from a register's first mention to its last in the text's order; around a loop whose body may read
what the register held before, it covers the whole loop. What does not fit gets a spill slot for all its life:
a move after each write and before each read, through registers kept free for that.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from repro.ir.types import BOOL, DType
from repro.targets.tpu_sim.instruction import field_names
from repro.targets.tpu_sim.isa import Instruction, Move
from repro.targets.tpu_sim.operands import REGISTERS, Reg
from repro.targets.tpu_sim.program import Bundle, Loop, Routine, Statement, WhenAny
from repro.targets.tpu_sim.registers import exposed, result_types

KEPT_FREE = 8
"""Registers for reading and writing spilled values: three operands of 64 bits and a result."""


def allocate(routine: Routine) -> Routine:
    """The routine with registers below 64, and moves to and from spill slots where they do not suffice."""
    intervals = _intervals(routine.body)
    places, spilled = _scan(intervals, REGISTERS)
    if spilled:
        places, spilled = _scan(intervals, REGISTERS - KEPT_FREE)
    slots = {number: REGISTERS + position for position, number in enumerate(spilled)}
    renamed = _Renaming(places, slots, {each.number: each.dtype for each in intervals})
    return replace(routine, body=renamed.body(routine.body))


@dataclass
class Interval:
    """Where in the text a register lives; `size` registers of the file."""

    number: int
    first: int
    last: int
    dtype: DType

    @property
    def size(self) -> int:
        return 2 if self.dtype.bits == 64 else 1


def _intervals(body: Sequence[Statement]) -> list[Interval]:
    types = result_types(body)
    found = dict[int, Interval]()
    position = 0

    def mention(number: int, first: int, last: int) -> None:
        interval = found.setdefault(number, Interval(number, first, last, types.get(number, BOOL)))
        interval.first, interval.last = min(interval.first, first), max(interval.last, last)

    def visit(statements: Sequence[Statement]) -> None:
        nonlocal position
        for statement in statements:
            position += 1
            match statement:
                case Bundle():
                    for each in statement.instructions:
                        for reg in _mentioned(each):
                            mention(reg.number, position, position)
                case WhenAny():
                    mention(statement.mask.number, position, position)
                    visit(statement.body)
                case Loop():
                    start = position
                    visit(statement.body)
                    position += 1
                    for number in _carried(statement.body):
                        mention(number, start, position)

    visit(body)
    return sorted(found.values(), key=lambda each: (each.first, each.number))


def _mentioned(instruction: Instruction) -> Iterator[Reg]:
    yield from instruction.reads
    if instruction.writes is not None:
        yield instruction.writes


def _carried(body: Sequence[Statement]) -> frozenset[int]:
    """Registers whose value from before a pass over the body may matter: read before written, or written perhaps."""
    found = set(exposed(body))
    for statement in body:
        match statement:
            case Bundle():
                found |= {
                    each.writes.number
                    for each in statement.instructions
                    if each.writes is not None and each.predicate is not None
                }
            case Loop() | WhenAny():
                found |= _carried(statement.body) & exposed(body)
    return frozenset(found)


def _scan(intervals: Sequence[Interval], room: int) -> tuple[dict[int, int], list[int]]:
    """(place of each register, those that found none). The place freed first is taken first."""
    free: list[tuple[int, int]] = [(0, place) for place in range(room)]
    active: list[tuple[int, int, Interval]] = []
    places, spilled = dict[int, int](), list[int]()
    for interval in intervals:
        while active and active[0][0] < interval.first:
            last, place, old = heapq.heappop(active)
            free += [(last, place + part) for part in range(old.size)]
        free.sort()
        place = _fitting([place for _, place in free], interval.size)
        if place is None:
            victim = _longest(active, interval)
            if victim is None:
                spilled.append(interval.number)
                continue
            active.remove(victim)
            heapq.heapify(active)
            place = victim[1]
            free += [(interval.first, place + part) for part in range(interval.size, victim[2].size)]
            spilled.append(victim[2].number)
            del places[victim[2].number]
        taken = {place + part for part in range(interval.size)}
        free = [entry for entry in free if entry[1] not in taken]
        places[interval.number] = place
        heapq.heappush(active, (interval.last, place, interval))
    return places, sorted(spilled)


def _fitting(free: Sequence[int], size: int) -> int | None:
    held = frozenset(free)
    return next((place for place in free if size == 1 or place + 1 in held), None)


def _longest(active: Sequence[tuple[int, int, Interval]], interval: Interval) -> tuple[int, int, Interval] | None:
    """The active interval that lives on longest, if longer than this one and at least as big."""
    able = [entry for entry in active if entry[2].size >= interval.size and entry[0] > interval.last]
    return max(able, key=lambda entry: (entry[0], entry[1]), default=None)


class _Renaming:
    def __init__(self, places: dict[int, int], slots: dict[int, int], types: dict[int, DType]) -> None:
        self.places, self.slots, self.types = places, slots, types

    def body(self, body: Sequence[Statement]) -> tuple[Statement, ...]:
        made = list[Statement]()
        for statement in body:
            match statement:
                case Bundle():
                    for each in statement.instructions:
                        made += [Bundle((one,)) for one in self.instruction(each)]
                case Loop():
                    made.append(replace(statement, body=self.body(statement.body)))
                case WhenAny():
                    mask, moves = self.operand(statement.mask, REGISTERS - KEPT_FREE)
                    made += [Bundle((move,)) for move in moves]
                    made.append(WhenAny(mask, self.body(statement.body)))
        return tuple(made)

    def operand(self, reg: Reg, spare: int) -> tuple[Reg, list[Instruction]]:
        """The register to read, and the move that brings it there."""
        slot = self.slots.get(reg.number)
        if slot is None:
            return Reg(self.places[reg.number]), []
        return Reg(spare), [Move(Reg(spare), self.types[reg.number], Reg(slot))]

    def instruction(self, instruction: Instruction) -> list[Instruction]:
        before, after = list[Instruction](), list[Instruction]()
        names = dict[Reg, Reg]()
        for reg in dict.fromkeys(instruction.reads):
            names[reg], moves = self.operand(reg, REGISTERS - KEPT_FREE + 2 * len(names))
            before += moves
        target = instruction.writes
        if target is not None:
            place = self._target(target, instruction, after)
        else:
            place = None
        return [*before, _renamed(instruction, names, place), *after]

    def _target(self, target: Reg, instruction: Instruction, after: list[Instruction]) -> Reg:
        slot = self.slots.get(target.number)
        if slot is None:
            return Reg(self.places[target.number])
        spare = Reg(REGISTERS - 2)
        after.append(Move(Reg(slot), self.types[target.number], spare, when=instruction.predicate))
        return spare


def _renamed(instruction: Instruction, names: dict[Reg, Reg], target: Reg | None) -> Instruction:
    changed = dict[str, Any]()
    for name in field_names(type(instruction)):
        value = getattr(instruction, name)
        if isinstance(value, Reg):
            changed[name] = target if _is_target(instruction, name) else names[value]
        elif name == "sources":
            changed[name] = tuple(names[reg] for reg in value)
    return replace(instruction, **changed)


def _is_target(instruction: Instruction, name: str) -> bool:
    return name == "target" and instruction.writes is not None

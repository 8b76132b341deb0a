"""Statements with other registers and other values of counters in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from repro.targets.tpu_sim.instruction import field_names
from repro.targets.tpu_sim.isa import Instruction
from repro.targets.tpu_sim.operands import Dim, Index, Ref, Reg
from repro.targets.tpu_sim.program import Bundle, Loop, Statement, WhenAny

Shift = Callable[[Index], Index | None]
"""The index under other counters; None where it has no such form."""


class NoFormError(Exception):
    """An index has no form under the other counters."""


def renamed(instruction: Instruction, names: Mapping[int, int], shift: Shift) -> Instruction:
    """The instruction with registers of other numbers and shifted indices. Raises NoFormError."""

    def index(value: Index) -> Index:
        found = shift(value)
        if found is None:
            raise NoFormError
        return found

    def reg(value: Reg) -> Reg:
        return Reg(names.get(value.number, value.number))

    def operand(value: object) -> object:
        match value:
            case Reg():
                return reg(value)
            case Index():
                return index(value)
            case Ref():
                return replace(value, offset=index(value.offset))
            case Dim(limit=Index() as limit):
                return replace(value, limit=index(limit))
            case tuple():
                parts: tuple[object, ...] = value
                return tuple(operand(part) for part in parts)
            case _:
                return value

    kind = type(instruction)
    return kind(*(operand(getattr(instruction, name)) for name in field_names(kind)))


def at_iteration(
    body: Sequence[Statement], shift: Shift, names: Mapping[int, int], counter: Callable[[], str]
) -> tuple[Statement, ...]:
    """The body once more: registers by their new names, loops with counters of their own, no instruction whose
    predicate is known to be false. Raises NoFormError."""
    made = list[Statement]()
    for statement in body:
        match statement:
            case Bundle():
                chosen = [renamed(each, names, shift) for each in statement.instructions]
                kept = tuple(decided for each in chosen if (decided := _decided(each)) is not None)
                made += [Bundle(kept)] if kept else []
            case Loop():
                inner = at_iteration(statement.body, _also(shift, statement.counter, new := counter()), names, counter)
                made.append(Loop(new, statement.count, statement.parallel, inner))
            case WhenAny():
                mask = Reg(names.get(statement.mask.number, statement.mask.number))
                made.append(WhenAny(mask, at_iteration(statement.body, shift, names, counter)))
    return tuple(made)


def _decided(instruction: Instruction) -> Instruction | None:
    when = instruction.predicate
    if when is None:
        return instruction
    if when.constant < 0 and all(term.coefficient < 0 for term in when.terms):
        return None
    changed: dict[str, Any] = {"when": None}
    return replace(instruction, **changed) if when.constant >= 0 and not when.terms else instruction


def _also(shift: Shift, old: str, new: str) -> Shift:
    def both(index: Index) -> Index | None:
        terms = tuple(replace(term, counter=new) if term.counter == old else term for term in index.terms)
        return shift(Index(index.constant, terms))

    return both

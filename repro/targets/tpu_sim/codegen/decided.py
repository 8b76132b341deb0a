"""Masks that make no difference, left out; then instructions without effect.

Unrolled loops put numbers in the place of counters, so whether a lane lies inside an axis is often known by then. A
mask makes none where all lanes hold, or where what the others write is written over by the same store or never read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from repro.ir.types import Array
from repro.targets.tpu_sim.codegen.reach import watched
from repro.targets.tpu_sim.isa import Alu, Gather, Instruction, Iota, Scatter, Store
from repro.targets.tpu_sim.liveness import dead
from repro.targets.tpu_sim.program import Bundle, Loop, Routine, Statement, WhenAny
from repro.targets.tpu_sim.registers import written

_COMPARES = {"lt": np.less, "ge": np.greater_equal, "eq": np.equal}


def decide(routine: Routine) -> Routine:
    """The routine (one instruction a bundle, registers without end) without masks that always hold, and without what
    has no effect; the same bits."""
    routine = replace(routine, body=_body(routine.body, {}, watched(routine)))
    while useless := dead(routine):
        routine = replace(routine, body=_without(routine.body, useless, 0)[0])
    return routine


Watched = Mapping[str, Sequence[tuple[int, int]]]


def _body(body: Sequence[Statement], known: dict[int, Array], seen: Watched) -> tuple[Statement, ...]:
    """`known`: lanes of registers, where they are numbers; it follows what the body does."""
    made = list[Statement]()
    for statement in body:
        if isinstance(statement, Bundle):
            made.append(Bundle(tuple(_unmasked(each, known, seen) for each in statement.instructions)))
            continue
        for number in written(statement.body):
            known.pop(number, None)
        made.append(replace(statement, body=_body(statement.body, dict(known), seen)))
    return tuple(made)


def _unmasked(instruction: Instruction, known: dict[int, Array], seen: Watched) -> Instruction:
    target = instruction.writes
    if target is not None:
        lanes = _lanes(instruction, known)
        known.pop(target.number, None)
        if lanes is not None:
            known[target.number] = lanes
    if isinstance(instruction, Store | Scatter | Gather) and instruction.mask is not None:
        mask = known.get(instruction.mask.number)
        if mask is not None and (mask.all() or _implied(instruction, mask, seen)):
            return replace(instruction, mask=None)
    return instruction


def _implied(instruction: Instruction, mask: Array, seen: Watched) -> bool:
    """Whether a store without its mask leaves every element that is ever read as it is with it: the last lane of those
    that share an element stays."""
    if not isinstance(instruction, Store) or instruction.target.offset.terms:
        return False
    elements = instruction.target.offset.constant + instruction.pattern.lanes
    if elements.min() < 0:
        return False
    last = np.zeros(int(elements.max()) + 1, np.int64)
    last[elements] = np.arange(elements.size)
    others = elements[~mask[last[elements]]]
    stretches = seen.get(instruction.target.name, ())
    return not any(((others >= low) & (others <= high)).any() for low, high in stretches)


def _lanes(instruction: Instruction, known: dict[int, Array]) -> Array | None:
    """What the instruction writes, where that is known: lane numbers, their comparisons, and masks made of those."""
    if instruction.predicate is not None:
        return None
    match instruction:
        case Iota() if not instruction.start.terms:
            return instruction.start.constant + instruction.pattern.lanes
        case Alu(operation=("lt" | "ge" | "eq") as operation, sources=(a, b)):
            left, right = known.get(a.number), known.get(b.number)
            return None if left is None or right is None else _COMPARES[operation](left, right)
        case Alu(operation="and", sources=(a, b)):
            left, right = known.get(a.number), known.get(b.number)
            return None if left is None or right is None else left & right
        case _:
            return None


def _without(body: Sequence[Statement], useless: frozenset[int], position: int) -> tuple[tuple[Statement, ...], int]:
    """(the body without instructions at those positions of the text's order, the position after it)."""
    made = list[Statement]()
    for statement in body:
        match statement:
            case Bundle():
                kept = [each for n, each in enumerate(statement.instructions, position) if n not in useless]
                position += len(statement.instructions)
                made += [Bundle(tuple(kept))] if kept else []
            case Loop() | WhenAny():
                inside, position = _without(statement.body, useless, position)
                made += [replace(statement, body=inside)] if inside else []
    return tuple(made), position

"""Whether the iterations of a parallel loop are as independent as it says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from repro.ir.types import Array
from repro.targets.tpu_sim.faults import FaultError
from repro.targets.tpu_sim.frame import evaluator
from repro.targets.tpu_sim.isa import Instruction, Scatter, instruction_text
from repro.targets.tpu_sim.operands import Ref
from repro.targets.tpu_sim.program import Bundle, Loop, Routine, Statement, WhenAny
from repro.targets.tpu_sim.registers import exposed, written


@dataclass(frozen=True)
class Access:
    """A place in VMEM that an instruction reads or writes: `offsets` (ascending) from there, None where data decide."""

    instruction: Instruction
    ref: Ref
    offsets: Array | None
    writes: bool


class Independence:
    """Checks of one routine's parallel loops. What they find depends on counters only by how far accesses lie
    apart, so each loop is checked once for each such distance."""

    def __init__(self, routine: Routine) -> None:
        self.routine = routine
        self._accesses: dict[int, list[Access]] = {}
        self._shown: set[tuple[int, tuple[int, ...]]] = set()

    def registers(self, loop: Loop) -> None:
        """Faults where an iteration may read what another one left in a register."""
        carried = exposed(loop.body) & written(loop.body)
        if carried:
            names = ", ".join(f"r{number}" for number in sorted(carried))
            raise FaultError(
                "parallel loop", f"iterations carry {names}", f"{self.routine.name}: parallel {loop.counter}"
            )

    def memory(self, loop: Loop, counters: Mapping[str, Any]) -> None:
        """Faults where two iterations touch an element that one of them writes."""
        first = {name: value if isinstance(value, int) else int(value[0]) for name, value in counters.items()}
        inner = {name: 0 for name, _ in _counts(loop)}
        if id(loop) not in self._accesses:
            self._accesses[id(loop)] = list(_accesses(loop.body))
        accesses = self._accesses[id(loop)]
        pairs = [(access.ref.name, access.ref.offset.value(first | inner)) for access in accesses]
        bases = dict(reversed(pairs))
        distances = tuple(start - bases[name] for name, start in pairs)
        if (id(loop), distances) in self._shown:
            return
        for name in sorted({access.ref.name for access in accesses if access.writes}):
            self._area(loop, [access for access in accesses if access.ref.name == name], first)
        self._shown.add((id(loop), distances))

    def _area(self, loop: Loop, accesses: Sequence[Access], outer: Mapping[str, int]) -> None:
        where = f"{self.routine.name}: parallel {loop.counter}"
        if any(access.offsets is None for access in accesses):
            if not all(isinstance(access.instruction, Scatter) for access in accesses):
                raise FaultError("parallel loop", f"{accesses[0].ref.name} is indexed by data and also written", where)
            return  # scatters alone: compared when they run
        if _far_apart(loop, accesses, outer):
            return
        owner = np.full(self.routine.areas[accesses[0].ref.number].elements, -1, np.int32)
        for writes in (True, False):
            for access in accesses:
                if access.writes is writes:
                    self._mark(loop, owner, access, outer)

    def _mark(self, loop: Loop, owner: Array, access: Access, outer: Mapping[str, int]) -> None:
        """Give each element to the iteration that writes it; another one's access is a fault."""
        used = {term.counter for term in access.ref.offset.terms}
        inner = [(name, count) for name, count in _counts(loop) if name in used and name != loop.counter]
        start_of = evaluator(access.ref.offset)
        assert access.offsets is not None
        for iteration in range(loop.count):
            counters: dict[str, Any] = {**outer, loop.counter: iteration}
            for position, (name, count) in enumerate(inner):
                shape = [1] * (len(inner) + 1)
                shape[position] = count
                counters[name] = np.arange(count, dtype=np.int64).reshape(shape)
            start = np.asarray(start_of(counters), np.int64)
            elements = (start[..., None] + access.offsets).reshape(-1)
            elements = elements[(elements >= 0) & (elements < owner.size)]
            held = owner[elements]
            if ((held != -1) & (held != iteration)).any():
                where = f"{self.routine.name}: {instruction_text(access.instruction)}"
                what = f"iterations of {loop.counter} touch what others write in {access.ref.name}"
                raise FaultError("parallel loop", what, where)
            if access.writes:
                owner[elements] = iteration


def _far_apart(loop: Loop, accesses: Sequence[Access], outer: Mapping[str, int]) -> bool:
    """Whether all move along together with the counter, by more than all that one iteration touches."""
    steps, lows, highs = set[int](), list[int](), list[int]()
    extents = dict(_counts(loop))
    for access in accesses:
        if access.offsets is None:
            return False
        low, high = int(access.offsets[0]), int(access.offsets[-1])
        step, base = 0, access.ref.offset.constant
        for term in access.ref.offset.terms:
            if term.counter == loop.counter:
                if term.divisor != 1 or term.modulus:
                    return False
                step += term.coefficient
            elif term.counter in extents:
                most = (extents[term.counter] - 1) // term.divisor
                most = min(most, term.modulus - 1) if term.modulus else most
                low, high = low + min(0, most * term.coefficient), high + max(0, most * term.coefficient)
            else:
                base += term.value(outer)
        steps.add(step)
        lows.append(base + low)
        highs.append(base + high)
    return len(steps) == 1 and abs(steps.pop()) > max(highs) - min(lows)


def _counts(statement: Statement) -> Iterator[tuple[str, int]]:
    """Counters of the loop and of those inside it."""
    match statement:
        case Loop():
            yield statement.counter, statement.count
            for each in statement.body:
                yield from _counts(each)
        case WhenAny():
            for each in statement.body:
                yield from _counts(each)
        case Bundle():
            return


def _accesses(body: Sequence[Statement]) -> Iterator[Access]:
    for statement in body:
        match statement:
            case Bundle():
                for each in statement.instructions:
                    yield from _touched(each)
            case Loop() | WhenAny():
                yield from _accesses(statement.body)


def _touched(instruction: Instruction) -> Iterator[Access]:
    for writes, spans in ((False, instruction.memory_reads), (True, instruction.memory_writes)):
        for span in spans:
            yield Access(instruction, span.ref, None if span.box is None else _of(span.box), writes)


def _of(digits: Sequence[tuple[int, int]]) -> Array:
    """The elements of a pattern, ascending."""
    total = np.zeros(1, np.int64)
    for count, stride in digits:
        total = (total[:, None] + np.arange(count, dtype=np.int64) * stride).reshape(-1)
    return np.unique(total)

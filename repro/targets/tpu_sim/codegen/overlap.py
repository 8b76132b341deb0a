"""A loop over chunks whose first part runs one chunk ahead of its last.

    front(0); loop i { front(i + 1); back(i) }; back(last)

The matrix unit is given the next chunk's work before the vector unit finishes this one's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from repro.targets.tpu_sim.codegen.rewriting import NoFormError, Shift, at_iteration
from repro.targets.tpu_sim.codegen.writer import Writer
from repro.targets.tpu_sim.operands import Index, Term, counter
from repro.targets.tpu_sim.program import Loop, Statement
from repro.targets.tpu_sim.registers import result_types


@dataclass
class Part:
    """Statements for the chunk that a counter of their own numbers."""

    counter: str
    body: list[Statement] = field(default_factory=list[Statement])

    @property
    def index(self) -> Index:
        return counter(self.counter)


def chunks(writer: Writer, front: Part, back: Part, count: int) -> list[Statement]:
    """Both parts for every chunk, the front ahead where indices allow."""
    try:
        return _ahead(writer, front, back, count) if front.body and count > 1 else _in_turn(writer, front, back, count)
    except NoFormError:
        return _in_turn(writer, front, back, count)


def _in_turn(writer: Writer, front: Part, back: Part, count: int) -> list[Statement]:
    number = writer.counter()
    body = [
        *_copy(writer, front, lambda index: shifted(index, front.counter, number, 0)),
        *_copy(writer, back, lambda index: shifted(index, back.counter, number, 0)),
    ]
    return [Loop(number, count, False, tuple(body))]


def _ahead(writer: Writer, front: Part, back: Part, count: int) -> list[Statement]:
    number = writer.counter()
    inside = [
        *_copy(writer, front, lambda index: shifted(index, front.counter, number, 1)),
        *_copy(writer, back, lambda index: shifted(index, back.counter, number, 0)),
    ]
    first = _copy(writer, front, lambda index: shifted(index, front.counter, None, 0))
    last = _copy(writer, back, lambda index: shifted(index, back.counter, None, count - 1))
    return [*first, Loop(number, count - 1, False, tuple(inside)), *last]


def _copy(writer: Writer, part: Part, shift: Shift) -> Sequence[Statement]:
    names = {old: writer.register(dtype).reg.number for old, dtype in sorted(result_types(part.body).items())}
    return at_iteration(part.body, shift, names, writer.counter)


def shifted(index: Index, old: str, new: str | None, further: int) -> Index | None:
    """The index where the old counter is the new one (or nothing) and so many more; None where it has no such form."""
    total = Index(index.constant)
    for term in index.terms:
        if term.counter != old:
            total = total + Index(0, (term,))
        elif new is None:
            total = total + term.value({old: further})
        else:
            part = _further(replace(term, counter=new), further)
            if part is None:
                return None
            total = total + part
    return total


def _further(term: Term, further: int) -> Index | None:
    same = Index(0, (term,))
    if further == 0:
        return same
    if term.divisor == 1 and term.modulus == 0:
        return same + further * term.coefficient
    if term.divisor == 1 and term.modulus == 2:
        return same if further % 2 == 0 else same * -1 + term.coefficient
    return None

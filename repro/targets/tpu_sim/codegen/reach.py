"""Which elements of VMEM a routine may touch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from repro.targets.tpu_sim.isa import Dma, Instruction, Matmul, Push
from repro.targets.tpu_sim.operands import Index, Span, Term
from repro.targets.tpu_sim.program import Bundle, Loop, Routine, Statement, instructions

EVERYWHERE = (0, 1 << 62)


def watched(routine: Routine) -> dict[str, list[tuple[int, int]]]:
    """For each area the stretches (first, last) that some instruction may read or a transfer write, whatever the
    counters: too much perhaps, never too little."""
    found = dict[str, list[tuple[int, int]]]()
    scalars = {f"s{number}": extent for number, extent in enumerate(routine.counters)}
    pushes = [each for each in instructions(routine.body) if isinstance(each, Push)]
    depth, width = max((each.depth for each in pushes), default=0), max((each.width for each in pushes), default=0)
    for instruction, counts in _instructions(routine.body, scalars):
        arriving = instruction.memory_writes if isinstance(instruction, Dma) else ()
        known = instruction.reading(depth, width) if isinstance(instruction, Matmul) else instruction.memory_reads
        for span in (*known, *arriving):
            found.setdefault(span.ref.name, []).append(_stretch(span, counts))
    return found


def _stretch(span: Span, counts: Mapping[str, int]) -> tuple[int, int]:
    if span.box is None:
        return EVERYWHERE
    low, high = _bounds(span.ref.offset, counts)
    reach = [sorted((0, (count - 1) * stride)) for count, stride in span.box]
    return low + sum(ends[0] for ends in reach), high + sum(ends[1] for ends in reach)


def _instructions(body: Sequence[Statement], counts: Mapping[str, int]) -> Iterator[tuple[Instruction, dict[str, int]]]:
    for statement in body:
        if isinstance(statement, Bundle):
            yield from ((each, dict(counts)) for each in statement.instructions)
            continue
        own = {statement.counter: statement.count} if isinstance(statement, Loop) else {}
        yield from _instructions(statement.body, {**counts, **own})


def _bounds(index: Index, counts: Mapping[str, int]) -> tuple[int, int]:
    """The least and the greatest value of an index whose counters are below their counts."""
    ends = [sorted((0, term.coefficient * _most(term, counts[term.counter]))) for term in index.terms]
    return index.constant + sum(low for low, _ in ends), index.constant + sum(high for _, high in ends)


def _most(term: Term, count: int) -> int:
    last = max(count - 1, 0) // term.divisor
    return min(last, term.modulus - 1) if term.modulus else last

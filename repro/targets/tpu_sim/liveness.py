"""Which instructions of a routine can have no effect: what they write is overwritten, or the routine ends, unread."""

from __future__ import annotations

from collections.abc import Sequence

from repro.targets.tpu_sim.isa import Dma, Instruction, Send
from repro.targets.tpu_sim.program import Bundle, Loop, Routine, Statement, WhenAny, instructions


def dead(routine: Routine) -> frozenset[int]:
    """Positions (in the text's order) of instructions without effect."""
    useful = _useful_areas(routine)
    marked = list[bool]([False] * sum(1 for _ in instructions(routine.body)))
    _Backward(useful, marked).body(routine.body, frozenset(), len(marked))
    return frozenset(position for position, alive in enumerate(marked) if not alive)


def _useful_areas(routine: Routine) -> frozenset[str]:
    """Areas that something reads, and arguments."""
    found = {f"b{number}" for number in range(len(routine.arguments))}
    for each in instructions(routine.body):
        found |= {span.ref.name for span in each.memory_reads}
    return frozenset(found)


class _Backward:
    """Live registers, from the end to the beginning; around loops twice, so that what one iteration reads of the one
    before is seen. An instruction is alive if it is found to be on any pass."""

    def __init__(self, useful: frozenset[str], marked: list[bool]) -> None:
        self.useful, self.marked = useful, marked

    def body(self, body: Sequence[Statement], live: frozenset[int], end: int) -> tuple[frozenset[int], int]:
        """(live before, position of the first instruction)."""
        for statement in reversed(body):
            match statement:
                case Bundle():
                    end -= len(statement.instructions)
                    live = self._bundle(statement, live, end)
                case Loop():
                    around, start = self.body(statement.body, live, end)
                    for _ in range(2):
                        around, start = self.body(statement.body, live | around, end)
                    live, end = live | around, start
                case WhenAny():
                    inside, end = self.body(statement.body, live, end)
                    live = live | inside | {statement.mask.number}
        return live, end

    def _bundle(self, bundle: Bundle, live: frozenset[int], start: int) -> frozenset[int]:
        """All read before any writes."""
        before = set(live)
        for each in bundle.instructions:
            if each.writes is not None and each.predicate is None:
                before.discard(each.writes.number)
        for offset, each in enumerate(bundle.instructions):
            if self._matters(each, live):
                self.marked[start + offset] = True
                before |= {reg.number for reg in each.reads}
        return frozenset(before)

    def _matters(self, instruction: Instruction, live: frozenset[int]) -> bool:
        if instruction.writes is not None:
            return instruction.writes.number in live
        written = instruction.memory_writes
        if isinstance(instruction, Dma | Send):  # some wait counts on it
            return True
        return not written or any(span.ref.name in self.useful for span in written)

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
        now = set(live)
        for statement in reversed(body):
            match statement:
                case Bundle():
                    end -= len(statement.instructions)
                    self._bundle(statement, now, end)
                case Loop():
                    around, start = self.body(statement.body, frozenset(now), end)
                    for _ in range(2):
                        around, start = self.body(statement.body, around | now, end)
                    now |= around
                    end = start
                case WhenAny():
                    inside, end = self.body(statement.body, frozenset(now), end)
                    now |= inside
                    now.add(statement.mask.number)
        return frozenset(now), end

    def _bundle(self, bundle: Bundle, live: set[int], start: int) -> None:
        """From live behind the bundle to live before it: all read before any writes."""
        alive = list[Instruction]()
        for number, each in enumerate(bundle.instructions, start):
            if self._matters(each, live):
                self.marked[number] = True
                alive.append(each)
        for each in bundle.instructions:
            if each.writes is not None and each.predicate is None:
                live.discard(each.writes.number)
        live.update(reg.number for each in alive for reg in each.reads)

    def _matters(self, instruction: Instruction, live: set[int]) -> bool:
        if instruction.writes is not None:
            return instruction.writes.number in live
        written = instruction.memory_writes
        if isinstance(instruction, Dma | Send):  # some wait counts on it
            return True
        return not written or any(span.ref.name in self.useful for span in written)

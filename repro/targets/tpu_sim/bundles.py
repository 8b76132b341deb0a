"""Joining independent instructions to bundles: list scheduling of straight runs, by longest path first.

An instruction may stand in a bundle once what it depends on was issued before. Registers order reads after writes and
writes after reads and writes; memory orders accesses of one array of which one writes; transfers and waits are
passed by no access of memory. Latencies are the machine's, so that what must wait anyway stands behind what need not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence, Set
from dataclasses import replace

from repro.targets.tpu_sim.chips import Chip
from repro.targets.tpu_sim.isa import Dma, Instruction, Matmul, Push, Send, Wait
from repro.targets.tpu_sim.program import Bundle, Loop, Routine, Statement, WhenAny

RUN = 256
"""Instructions looked at together: longer runs are cut."""


def pack(routine: Routine, chip: Chip) -> Routine:
    """The routine with its bundles joined; the same bits."""
    return replace(routine, body=_body(routine.body, chip))


def _body(body: Sequence[Statement], chip: Chip) -> tuple[Statement, ...]:
    made, run = list[Statement](), list[Instruction]()
    for statement in body:
        match statement:
            case Bundle():
                run += statement.instructions
            case Loop() | WhenAny():
                made += _scheduled(run, chip)
                run = []
                made.append(replace(statement, body=_body(statement.body, chip)))
    return (*made, *_scheduled(run, chip))


def slots(chip: Chip) -> dict[str, int]:
    """How many instructions of each unit a bundle holds."""
    return {
        "alu": chip.alu_slots,
        "load": chip.load_slots,
        "store": chip.store_slots,
        "cross": chip.cross_slots,
        "weights": 1,
        "matrix": 1,
        "dma": 1,
        "scalar": 1,
    }


def latency(instruction: Instruction, chip: Chip) -> int:
    """Cycles from issue until a register result can be read, with every unit idle."""
    cost = instruction.cost()
    own = {"alu": chip.alu_latency, "load": chip.load_latency}.get(cost.unit, 1)
    return cost.busy + (own if cost.latency is None else cost.latency) - 1


def _scheduled(run: Sequence[Instruction], chip: Chip) -> list[Statement]:
    made = list[Statement]()
    for start in range(0, len(run), RUN):
        made += _scheduled_run(run[start : start + RUN], chip)
    return made


def _scheduled_run(run: Sequence[Instruction], chip: Chip) -> Iterator[Bundle]:
    before, after = _dependences(run)
    heights = [0] * len(run)
    for number in reversed(range(len(run))):
        below = max((heights[user] for user in after[number]), default=0)
        heights[number] = below + latency(run[number], chip)
    waiting = [len(each) for each in before]
    earliest = [0] * len(run)
    ready = [number for number, count in enumerate(waiting) if count == 0]
    cycle = 0
    while ready:
        chosen = _choose(run, ready, earliest, heights, cycle, slots(chip))
        if not chosen:
            cycle = min(earliest[number] for number in ready)
            continue
        yield Bundle(tuple(run[number] for number in sorted(chosen)))
        for number in chosen:
            ready.remove(number)
            for user in after[number]:
                earliest[user] = max(earliest[user], cycle + latency(run[number], chip))
                waiting[user] -= 1
                if waiting[user] == 0:
                    ready.append(user)
        cycle += 1


def _choose(
    run: Sequence[Instruction],
    ready: Sequence[int],
    earliest: Sequence[int],
    heights: Sequence[int],
    cycle: int,
    room: dict[str, int],
) -> list[int]:
    chosen = list[int]()
    for number in sorted(ready, key=lambda each: (-heights[each], each)):
        unit = run[number].cost().unit
        if earliest[number] <= cycle and room[unit] > 0:
            room[unit] -= 1
            chosen.append(number)
    return chosen


def _dependences(run: Sequence[Instruction]) -> tuple[list[set[int]], list[set[int]]]:
    """For each instruction those that it must follow, and those that must follow it."""
    before: list[set[int]] = [set() for _ in run]
    state = _Seen()
    for number, instruction in enumerate(run):
        before[number] = set(state.follow(number, instruction)) - {number}
    after: list[set[int]] = [set() for _ in run]
    for number, those in enumerate(before):
        for each in those:
            after[each].add(number)
    return before, after


class _Seen:
    """The last instructions to write and read each thing."""

    def __init__(self) -> None:
        self.writer: dict[str, int] = {}
        self.readers: defaultdict[str, list[int]] = defaultdict(list)
        self.narrow: set[int] = set()
        """Registers that were seen to hold no 64-bit elements: the next one is no part of them."""

    def follow(self, number: int, instruction: Instruction) -> Iterator[int]:
        reads, writes = touched(instruction, self.narrow)
        for name in reads:
            if name in self.writer:
                yield self.writer[name]
        for name in writes:
            yield from self.readers.pop(name, [])
            if name in self.writer:
                yield self.writer[name]
        for name in reads:
            if name not in writes:
                self.readers[name].append(number)
        for name in writes:
            self.writer[name] = number
        self._note(instruction)

    def _note(self, instruction: Instruction) -> None:
        target, dtype = instruction.writes, instruction.result_type
        if target is not None and dtype is not None:
            self.narrow.discard(target.number)
            self.narrow |= {target.number} if dtype.bits < 64 else set()


def touched(instruction: Instruction, narrow: Set[int] = frozenset()) -> tuple[list[str], list[str]]:
    """Names of what it reads and of what it writes: registers, arrays, weights, and the order of transfers."""
    reads = [name for reg in instruction.reads for name in _parts(reg.number, reg.number not in narrow)]
    writes = list[str]()
    if instruction.writes is not None:
        wide = instruction.result_type is not None and instruction.result_type.bits == 64
        writes += _parts(instruction.writes.number, wide)
        reads += writes if instruction.predicate is not None else []
    if isinstance(instruction, Dma | Send | Wait):
        return reads, [*writes, "transfers"]
    reads += [span.ref.name for span in instruction.memory_reads]
    writes += [span.ref.name for span in instruction.memory_writes]
    if isinstance(instruction, Push | Matmul):
        writes.append("weights")
    if instruction.memory_reads or instruction.memory_writes:
        reads.append("transfers")
    return reads, writes


def _parts(number: int, wide: bool) -> list[str]:
    """A register and, where it may be one of 64 bits, its upper half."""
    return [f"r{number}", f"r{number + 1}"] if wide else [f"r{number}"]

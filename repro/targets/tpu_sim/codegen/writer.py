"""A routine under construction: registers, areas of VMEM, tables, semaphores, and the statements of open blocks."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from repro.ir.loops import Kernel
from repro.ir.types import BOOL, DType
from repro.targets.tpu_sim import isa
from repro.targets.tpu_sim.instruction import field_names
from repro.targets.tpu_sim.operands import LANES, Index, Ref, Reg, counter
from repro.targets.tpu_sim.program import (
    Area,
    Argument,
    Bundle,
    Loop,
    Routine,
    Statement,
    Table,
    WhenAny,
    instructions,
)


@dataclass(frozen=True)
class Val:
    """A register and the type of its lanes."""

    reg: Reg
    dtype: DType


def whole(elements: int) -> int:
    """Elements rounded up to whole registers."""
    return max(1, -(-elements // LANES)) * LANES


class Writer:
    """Collects what a routine is made of. Statements go to `sink`, the innermost block that is open."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.sink: list[Statement] = []
        self.body = self.sink
        self.semaphores = 0
        self._areas: list[tuple[DType, int]] = []
        self._leads: dict[int, int] = {}
        self._tables: dict[Table, int] = {}
        self._registers = 0
        self._counters = 0

    # what is named ──────────────────────────────────────────────────────────────────────────────────

    def register(self, dtype: DType) -> Val:
        self._registers += 1
        return Val(Reg(self._registers - 1), dtype)

    def counter(self) -> str:
        self._counters += 1
        return f"i{self._counters - 1}"

    def semaphore(self, count: int = 1) -> int:
        """The first of so many new ones."""
        self.semaphores += count
        return self.semaphores - count

    def area(self, dtype: DType, elements: int) -> int:
        self._areas.append((dtype, whole(elements)))
        return len(self._areas) - 1

    def size(self, area: int) -> int:
        return self._areas[area][1]

    def widen(self, area: int, elements: int) -> None:
        """An area takes at least so many elements."""
        dtype, size = self._areas[area]
        self._areas[area] = (dtype, max(size, whole(elements)))

    def lead(self, area: int, elements: int) -> None:
        """An area has room for so many elements before its first one: places in it move by that when all is written."""
        if elements > 0:
            self._leads[area] = max(self._leads.get(area, 0), whole(elements))

    def table(self, dtype: DType, entries: Sequence[int]) -> int:
        return self._tables.setdefault(Table(dtype, tuple(entries)), len(self._tables))

    # statements ─────────────────────────────────────────────────────────────────────────────────────

    def put(self, instruction: isa.Instruction) -> None:
        self.sink.append(Bundle((instruction,)))

    def alu(self, operation: str, result: DType, *sources: Val, into: Val | None = None) -> Val:
        """A scalar operation on every lane, to a new register or to a given one."""
        target = self.register(result) if into is None else into
        dtype = sources[-1].dtype
        self.put(isa.Alu(operation, dtype, result, target.reg, tuple(source.reg for source in sources)))
        return target

    def select(self, condition: Val, yes: Val, no: Val, into: Val | None = None) -> Val:
        return self.alu("select", yes.dtype, condition, yes, no, into=into)

    def both(self, a: Val | None, b: Val | None) -> Val | None:
        if a is None or b is None:
            return a or b
        return self.alu("and", BOOL, a, b)

    def constant(self, dtype: DType, bits: int, into: Val | None = None) -> Val:
        target = self.register(dtype) if into is None else into
        self.put(isa.Constant(target.reg, dtype, bits))
        return target

    @contextmanager
    def loop(self, count: int, parallel: bool = False) -> Generator[Index]:
        """A block that is run for counter = 0 .. count-1; gives the counter. `parallel` where that can be seen from the
        block: not if data say where it writes what it also reads."""
        outer, name = self.sink, self.counter()
        self.sink = []
        yield counter(name)
        body, self.sink = tuple(self.sink), outer
        if body:
            self.sink.append(Loop(name, count, parallel and not _mixed(body), body))

    @contextmanager
    def when_any(self, mask: Val) -> Generator[None]:
        outer = self.sink
        self.sink = []
        yield
        body, self.sink = tuple(self.sink), outer
        if body:
            self.sink.append(WhenAny(mask.reg, body))

    def routine(self, name: str) -> Routine:
        arguments = tuple(Argument(b.dtype, b.elements, b.writable) for b in self.kernel.buffers)
        areas, address = list[Area](), 0
        for number, (dtype, elements) in enumerate(self._areas):
            areas.append(Area(dtype, elements + self._leads.get(number, 0), address))
            address = areas[-1].end
        parts = (arguments, self.kernel.scalars, tuple(areas), tuple(self._tables))
        return Routine(name, *parts, self.semaphores, _moved(self.body, self._leads))


def _moved(body: Sequence[Statement], leads: dict[int, int]) -> tuple[Statement, ...]:
    """The body with places in each area so much further on."""
    made = list[Statement]()
    for statement in body:
        if isinstance(statement, Bundle):
            made.append(Bundle(tuple(_placed(each, leads) for each in statement.instructions)))
        else:
            made.append(replace(statement, body=_moved(statement.body, leads)))
    return tuple(made)


def _placed(instruction: isa.Instruction, leads: dict[int, int]) -> isa.Instruction:
    changed: dict[str, Any] = {}
    for name in field_names(type(instruction)):
        place = getattr(instruction, name)
        if isinstance(place, Ref) and place.space == "v" and place.number in leads:
            changed[name] = replace(place, offset=place.offset + leads[place.number])
    return replace(instruction, **changed) if changed else instruction


def _mixed(body: tuple[Statement, ...]) -> bool:
    """Whether data say which elements of an area are read or written, and others of its accesses write it."""
    gathered, scattered, loaded, stored = (set[int]() for _ in range(4))
    for each in instructions(body):
        match each:
            case isa.Gather():
                gathered.add(each.source.number)
            case isa.Scatter():
                scattered.add(each.target.number)
            case isa.Load():
                loaded.add(each.source.number)
            case isa.Store():
                stored.add(each.target.number)
            case _:
                pass
    return bool(gathered & (scattered | stored) or scattered & (loaded | stored))

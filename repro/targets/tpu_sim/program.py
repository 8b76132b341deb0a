"""A routine: what a kernel becomes on this machine. Bundles of instructions under counted loops, with a text form.

    routine = arguments in HBM, areas in VMEM, semaphores, tables, a body
    body    = sequence of  bundle | loop | when_any

Its meaning is sequential: bundles run one after another, the instructions of a bundle at once (none reads or writes a
register that another one of them writes). Text prints and parses back to an equal value.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from repro.ir.types import BY_NAME, DType
from repro.targets.tpu_sim.isa import Instruction, instruction_text, parse_instruction
from repro.targets.tpu_sim.operands import REGISTERS, Reg, parse_reg

TILE_BYTES = 4096
"""VMEM is given out in tiles of 8 x 128 words."""


@dataclass(frozen=True)
class Argument:
    """A kernel's buffer parameter: a flat array in HBM."""

    dtype: DType
    elements: int
    writable: bool


@dataclass(frozen=True)
class Area:
    """A flat array in VMEM from a byte address on (a multiple of 4096), of whole registers (1024 elements each).

    What it holds before it is written is not defined.
    """

    dtype: DType
    elements: int
    address: int

    @property
    def end(self) -> int:
        return self.address + -(-self.elements * self.dtype.bytes // TILE_BYTES) * TILE_BYTES


@dataclass(frozen=True)
class Bundle:
    """Instructions that issue together."""

    instructions: tuple[Instruction, ...]


@dataclass(frozen=True)
class Loop:
    """`body` for the counter = 0 .. count-1. `parallel` states that no iteration depends on another: a register that an
    iteration reads it has written before or no iteration writes; nothing in VMEM that one iteration writes is read or
    written by another; no transfers, no matrix unit. The simulator may then run iterations side by side, and refuses a
    loop of which it is not true. After it the registers that it wrote are undefined."""

    counter: str
    count: int
    parallel: bool
    body: tuple[Statement, ...]


@dataclass(frozen=True)
class WhenAny:
    """`body` if a lane of the mask (bool) holds. Registers first written in the body are undefined where it is skipped,
    and lanes for which the mask does not hold are undefined after it; no stores and no transfers in it."""

    mask: Reg
    body: tuple[Statement, ...]


Statement = Bundle | Loop | WhenAny


@dataclass(frozen=True)
class Table:
    """Constants that the program carries; `lookup` reads them. Raw bits."""

    dtype: DType
    entries: tuple[int, ...]


@dataclass(frozen=True, eq=True)
class Routine:
    """The program of one kernel. `counters` are the extents of its run-time arguments `s0`, `s1`…"""

    name: str
    arguments: tuple[Argument, ...]
    counters: tuple[int, ...]
    areas: tuple[Area, ...]
    tables: tuple[Table, ...]
    semaphores: int
    body: tuple[Statement, ...]

    @cached_property
    def text(self) -> str:
        return "\n".join(_print(self)) + "\n"

    @cached_property
    def digest(self) -> str:
        """sha256 (hex) of the text form."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @cached_property
    def spill_slots(self) -> int:
        """Spill slots in use: registers beyond the file."""
        numbers = (reg.number for each in instructions(self.body) if (reg := each.writes) is not None)
        return max(0, max(numbers, default=-1) + 1 - REGISTERS)

    @property
    def vmem_bytes(self) -> int:
        """The end of the last area, and the spill slots after it (two tiles each, for 64-bit elements)."""
        return max((area.end for area in self.areas), default=0) + 2 * TILE_BYTES * self.spill_slots


def single(*instructions: Instruction) -> tuple[Statement, ...]:
    """Each instruction in a bundle of its own."""
    return tuple(Bundle((instruction,)) for instruction in instructions)


def instructions(body: tuple[Statement, ...]) -> Iterator[Instruction]:
    """Every instruction, in the order of the text."""
    for statement in body:
        match statement:
            case Bundle():
                yield from statement.instructions
            case Loop() | WhenAny():
                yield from instructions(statement.body)


# ── text form ───────────────────────────────────────────────────────────────────────────────────────


def _print(routine: Routine) -> Iterator[str]:
    yield f"routine {routine.name} {{"
    for number, argument in enumerate(routine.arguments):
        mode = "out" if argument.writable else "in"
        yield f"  hbm b{number}: {argument.dtype.name}[{argument.elements}] {mode}"
    for number, extent in enumerate(routine.counters):
        yield f"  counter s{number}: {extent}"
    for number, area in enumerate(routine.areas):
        yield f"  vmem v{number}: {area.dtype.name}[{area.elements}] at {area.address}"
    for number, table in enumerate(routine.tables):
        digits = table.dtype.bits // 4
        words = " ".join(f"0x{entry:0{digits}x}" for entry in table.entries)
        yield f"  table t{number}: {table.dtype.name} {words}"
    yield f"  semaphores {routine.semaphores}"
    yield from _print_body(routine.body, "  ")
    yield "}"


def _print_body(body: tuple[Statement, ...], indent: str) -> Iterator[str]:
    for statement in body:
        match statement:
            case Bundle():
                for position, instruction in enumerate(statement.instructions):
                    yield f"{indent}{'| ' if position else ''}{instruction_text(instruction)}"
            case Loop():
                kind = "parallel" if statement.parallel else "loop"
                yield f"{indent}{kind} {statement.counter} {statement.count} {{"
                yield from _print_body(statement.body, indent + "  ")
                yield indent + "}"
            case WhenAny():
                yield f"{indent}when_any {statement.mask} {{"
                yield from _print_body(statement.body, indent + "  ")
                yield indent + "}"


def parse_routine(text: str) -> Routine:
    """The inverse of `Routine.text`. Raises ValueError naming the line that does not parse."""
    parser = _Parser()
    number, line = 0, ""
    try:
        for number, line in enumerate(text.splitlines(), 1):  # noqa: B007 (read where it fails)
            parser.line(line.strip())
        return parser.routine()
    except (KeyError, IndexError, ValueError, TypeError) as error:
        raise ValueError(f"a routine's text does not parse near line {number}: {line.strip()!r}: {error}") from error


class _Parser:
    def __init__(self) -> None:
        self.name = ""
        self.arguments: list[Argument] = []
        self.counters: list[int] = []
        self.areas: list[Area] = []
        self.tables: list[Table] = []
        self.semaphores = 0
        self.open: list[tuple[list[str], list[Statement]]] = []
        self.body: tuple[Statement, ...] | None = None

    def routine(self) -> Routine:
        if self.body is None:
            raise ValueError("the text ends inside a block")
        parts = (tuple(self.arguments), tuple(self.counters), tuple(self.areas), tuple(self.tables))
        return Routine(self.name, *parts, self.semaphores, self.body)

    def line(self, line: str) -> None:
        match line.split():
            case ["routine", name, "{"] if not self.open and self.body is None:
                self.name = name
                self.open.append(([], []))
            case _ if not self.open:
                raise ValueError("outside a routine")
            case ["hbm", _, kind, mode]:
                self.arguments.append(Argument(*_array(kind), {"in": False, "out": True}[mode]))
            case ["counter", _, extent]:
                self.counters.append(int(extent))
            case ["vmem", _, kind, "at", address]:
                self.areas.append(Area(*_array(kind), int(address)))
            case ["table", _, dtype, *entries]:
                self.tables.append(Table(BY_NAME[dtype], tuple(int(entry, 16) for entry in entries)))
            case ["semaphores", count]:
                self.semaphores = int(count)
            case [("loop" | "parallel" | "when_any"), *_, "{"] as head:
                self.open.append((head, []))
            case ["}"]:
                self.close()
            case _:
                self.instruction(line)

    def instruction(self, line: str) -> None:
        statements = self.open[-1][1]
        if not line.startswith("| "):
            statements.append(Bundle((parse_instruction(line),)))
            return
        last = statements.pop()
        if not isinstance(last, Bundle):
            raise ValueError("no bundle to go on with")
        statements.append(Bundle((*last.instructions, parse_instruction(line[2:]))))

    def close(self) -> None:
        head, statements = self.open.pop()
        body = tuple(statements)
        match head:
            case []:
                self.body = body
            case ["when_any", mask, _]:
                self.open[-1][1].append(WhenAny(parse_reg(mask), body))
            case [kind, counter, count, _]:
                self.open[-1][1].append(Loop(counter, int(count), kind == "parallel", body))
            case _:
                raise ValueError(f"unknown block {head}")


def _array(text: str) -> tuple[DType, int]:
    name, _, elements = text.partition("[")
    return BY_NAME[name], int(elements.removesuffix("]"))

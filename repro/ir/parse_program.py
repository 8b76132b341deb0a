"""The inverse of `Program.text`: a program from its text, its kernels and its constants."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from repro.ir.loops import Kernel
from repro.ir.program import Branch, Buffer, Call, Commit, CountedLoop, Program, RowBlocks, Step, While
from repro.ir.schedule import COLUMNS, LANES, ContractionTile, Schedule
from repro.ir.types import BY_NAME


def parse_program(text: str, kernel: Callable[[str], Kernel], constant: Callable[[str], bytes]) -> Program:
    """`kernel` and `constant` give the part with a digest (`sha256:<hex>`).

    Raises ValueError naming the line that does not parse.
    """
    lines = iter(enumerate(text.splitlines(), 1))
    parser = _Parser(kernel, constant)
    number, line = 0, ""
    try:
        number, line = next(lines)
        word, *sizes, brace = line.split()
        named = dict(size.split("=", 1) for size in sizes)
        if word != "program" or brace != "{" or not {"arena"} <= set(named) <= {"arena", "local", "most"}:
            raise ValueError("not a program")
        parser.arena, parser.local = int(named["arena"]), int(named.get("local", 0))
        parser.most = int(named["most"]) if "most" in named else None
        steps = parser.steps(lines)
    except (KeyError, IndexError, ValueError, StopIteration) as error:
        raise ValueError(f"a program's text does not parse near line {number}: {line!r}: {error}") from error
    kernels, buffers, constants = tuple(parser.kernels), tuple(parser.buffers), tuple(parser.constants)
    return Program(kernels, buffers, constants, steps, parser.arena, parser.local, parser.once, parser.most)


class _Parser:
    def __init__(self, kernel: Callable[[str], Kernel], constant: Callable[[str], bytes]) -> None:
        self.kernel, self.constant = kernel, constant
        self.arena = self.local = 0
        self.most: int | None = None
        self.kernels: list[Kernel] = []
        self.constants: list[bytes] = []
        self.buffers: list[Buffer] = []
        self.once: tuple[Call, ...] = ()
        self.ended_by_else = False

    def steps(self, lines: Iterator[tuple[int, str]]) -> tuple[Step, ...]:
        """Steps up to the closing brace of the block that the lines stand in."""
        found: list[Step] = []
        for _, line in lines:
            match line.split():
                case ["}"]:
                    self.ended_by_else = False
                    return tuple(found)
                case ["}", "else", "{"]:
                    self.ended_by_else = True
                    return tuple(found)
                case ["kernel", _, digest]:
                    self.kernels.append(self.kernel(digest))
                case ["constant", _, digest]:
                    self.constants.append(self.constant(digest))
                case ["buffer", _, kind, role, position]:
                    name, _, elements = kind.partition("[")
                    self.buffers.append(Buffer(BY_NAME[name], int(elements.rstrip("]")), role, int(position)))
                case ["call", kernel, *arguments]:
                    buffers = tuple(int(word[1:]) for word in arguments if word.startswith("b"))
                    scalars = tuple(int(word.removeprefix("loop")) for word in arguments if word.startswith("loop"))
                    found.append(Call(int(kernel[1:]), buffers, scalars))
                case ["once", "{"]:
                    self.once = self.calls(lines)
                case ["loop", count, "{"]:
                    found.append(CountedLoop(int(count), self.steps(lines)))
                case ["while", condition, "limit", limit, "{"]:
                    found.append(While(int(condition[1:]), int(limit), self.steps(lines)))
                case ["if", condition, "{"]:
                    then = self.steps(lines)
                    if not self.ended_by_else:
                        raise ValueError("a branch without its other side")
                    found.append(Branch(int(condition[1:]), then, self.steps(lines)))
                case ["blocks", *extents, "{"]:
                    found.append(RowBlocks(tuple(map(int, extents)), self.calls(lines)))
                case ["commit", "{"]:
                    found.append(Commit(None, self.steps(lines)))
                case ["commit", "unless", refused, "{"]:
                    found.append(Commit(int(refused[1:]), self.steps(lines)))
                case _:
                    raise ValueError(f"unknown step {line!r}")
        raise ValueError("the text ends inside a block")

    def calls(self, lines: Iterator[tuple[int, str]]) -> tuple[Call, ...]:
        """The steps of a block in which nothing but calls may stand."""
        found = self.steps(lines)
        calls = tuple(step for step in found if isinstance(step, Call))
        if len(calls) != len(found):
            raise ValueError("a step that is no call")
        return calls


def parse_schedule(text: str) -> Schedule:
    """The inverse of `Schedule.text`. Raises ValueError."""
    parts = [word.partition("=")[::2] for word in text.split()]
    names = [name for name, _ in parts]
    values = [value for _, value in parts]
    if names[:3] != ["axis", "width", "block"]:
        raise ValueError(f"not a schedule: {text!r}")
    axis = None if values[0] == "-" else int(values[0])
    options = dict[str, str]()
    for name in ("inner", "sweep", "order"):
        if names[3:4] == [name]:
            options[name] = values[3]
            del names[3], values[3]
    inner, order = (
        tuple(int(word) for word in options[name].split(",")) if name in options else () for name in ("inner", "order")
    )
    tile = None
    if len(names) > 3:
        flags = dict(zip(names[6:], values[6:], strict=True))
        lanes = flags.pop("lanes", COLUMNS)
        known = {"window": "1", "pack": "b", "rows": "place", "items": "rows", "columns": "made", "before": "rows"}
        if (
            names[3:6] != ["tile", "block", "turn"]
            or lanes not in LANES
            or not flags.items() <= known.items()
            or len(names) != 6 + len(flags) + (lanes != COLUMNS)
        ):
            raise ValueError(f"not a schedule: {text!r}")
        (rows, vectors), (block_m, block_n) = (value.split("x") for value in values[3:5])
        sizes = (int(rows), int(vectors), int(block_m), int(block_n), int(values[5]))
        tile = ContractionTile(*sizes, *(name in flags for name in known), lanes=lanes)
    return Schedule(axis, int(values[1]), int(values[2]), tile, inner, int(options.get("sweep", 0)), order)

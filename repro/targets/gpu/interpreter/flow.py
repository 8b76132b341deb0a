"""Control flow of an entry: basic blocks, the order in which they are run, and the registers that live between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from repro.errors import InternalError
from repro.targets.gpu.interpreter.parse import (
    Address,
    Instruction,
    Label,
    Operand,
    Register,
    Statement,
    Symbol,
    Vector,
)

CONVERGENT = (("bar",), ("barrier",), ("shfl",), ("vote",))
"""First words of the instructions that threads run together; `bar.warp` is among them."""
NO_TARGET = ("st", "bar", "barrier", "cp", "bra", "ret", "exit", "membar", "fence", "red")
"""First words of the instructions whose first operand is read, not written."""
_TARGET_AFTER_ALL = (("st", "param"), ("bar", "red"), ("barrier", "red"))
"""Exceptions: a parameter of a call is a register here."""


@dataclass
class Block:
    """Instructions without a jump among them. `taken` and `after` are blocks to go on with (None: the thread ends);
    without a condition it is `after`."""

    instructions: list[Instruction] = field(default_factory=list[Instruction])
    condition: tuple[Register, bool] | None = None
    taken: int | None = None
    after: int | None = None

    @property
    def successors(self) -> tuple[int, ...]:
        both = (self.taken, self.after) if self.condition is not None else (self.after,)
        return tuple(dict.fromkeys(each for each in both if each is not None))

    @property
    def convergent(self) -> bool:
        return bool(self.instructions) and is_convergent(self.instructions[0])


@dataclass(frozen=True)
class Flow:
    """Blocks; block 0 is the entry. `rank` orders them so that all threads leave a loop before any goes on; `live` are
    the registers that a block or those after it may read, `doubtful` those that some path reads before it writes."""

    blocks: tuple[Block, ...]
    rank: tuple[int, ...]
    live: tuple[frozenset[Register], ...]
    doubtful: frozenset[Register]


def is_convergent(instruction: Instruction) -> bool:
    return instruction.words[:1] in CONVERGENT


def analyse(body: Sequence[Statement]) -> Flow:
    blocks = _blocks(body)
    live = _live(blocks)
    return Flow(tuple(blocks), _rank(blocks), live, live[0])


# ── blocks ──────────────────────────────────────────────────────────────────────────────────────────


def _blocks(body: Sequence[Statement]) -> list[Block]:
    """A convergent instruction has a block of its own, so that threads can be gathered before it; an instruction under
    a guard has one too, with a jump around it."""
    cut: list[list[Statement]] = [[]]
    for statement in body:
        if isinstance(statement, Label):
            cut.append([statement])
        elif _jumps(statement):
            cut[-1].append(statement)
            cut.append([])
        elif is_convergent(statement) or statement.guard is not None:
            cut.append([statement])
            cut.append([])
        else:
            cut[-1].append(statement)
    parts = [part for part in cut if part]
    labels = {part[0].name: number for number, part in enumerate(parts) if isinstance(part[0], Label)}
    made = [_block(part, number, len(parts), labels) for number, part in enumerate(parts)]
    return _with_guards(made)


def _jumps(instruction: Instruction) -> bool:
    return instruction.words[0] in ("bra", "ret", "exit")


def _block(part: list[Statement], number: int, count: int, labels: dict[str, int]) -> Block:
    instructions = [each for each in part if isinstance(each, Instruction)]
    block = Block(instructions, after=number + 1 if number + 1 < count else None)
    if not instructions or not _jumps(instructions[-1]):
        return block
    last = block.instructions.pop()
    target = None
    if last.words[0] == "bra":
        name = last.operands[0]
        if not isinstance(name, Symbol) or name.name not in labels:
            raise InternalError(f"PTX: a jump to nowhere: {last.text}")
        target = labels[name.name]
    if last.guard is None:
        block.after = target
    else:
        block.condition, block.taken = last.guard, target
    return block


def _with_guards(blocks: list[Block]) -> list[Block]:
    """A guarded instruction is jumped around by the block before it, where that falls through to it alone."""
    for number, block in enumerate(tuple(blocks)):
        if len(block.instructions) == 1 and block.instructions[0].guard is not None and block.condition is None:
            register, wanted = block.instructions[0].guard
            blocks.append(Block(block.instructions, after=block.after))
            blocks[number] = Block([], (register, wanted), len(blocks) - 1, block.after)
    return blocks


# ── registers ───────────────────────────────────────────────────────────────────────────────────────


def registers(operand: Operand) -> Iterator[Register]:
    match operand:
        case Register():
            yield operand
        case Vector():
            for item in operand.items:
                yield from registers(item)
        case Address() if isinstance(operand.base, Register):
            yield operand.base
        case _:
            return


def reads(instruction: Instruction) -> set[Register]:
    operands = instruction.operands if instruction.words[0] in NO_TARGET else instruction.operands[1:]
    if instruction.words[:2] in _TARGET_AFTER_ALL:
        operands = instruction.operands[1:]
    return {register for operand in operands for register in registers(operand)}


def writes(instruction: Instruction) -> set[Register]:
    if instruction.words[:2] in _TARGET_AFTER_ALL or instruction.words[0] not in NO_TARGET:
        return set(registers(instruction.operands[0])) if instruction.operands else set()
    return set()


def _live(blocks: Sequence[Block]) -> tuple[frozenset[Register], ...]:
    """By block, what may be read before it is written from there on."""
    used: list[set[Register]] = []
    made: list[set[Register]] = []
    for block in blocks:
        use: set[Register] = set()
        new: set[Register] = set()
        for instruction in block.instructions:
            use |= reads(instruction) - new
            new |= writes(instruction)
        if block.condition is not None and block.condition[0] not in new:
            use.add(block.condition[0])
        used.append(use)
        made.append(new)
    live = [set(use) for use in used]
    changed = True
    while changed:
        changed = False
        for number in range(len(blocks) - 1, -1, -1):
            after = {register for each in blocks[number].successors for register in live[each]}
            now = used[number] | (after - made[number])
            if now != live[number]:
                live[number], changed = now, True
    return tuple(frozenset(each) for each in live)


# ── order ───────────────────────────────────────────────────────────────────────────────────────────


def _rank(blocks: Sequence[Block]) -> tuple[int, ...]:
    """Reverse postorder in which what leaves a loop comes after the whole loop: of two ways on, the walk takes the one
    with fewer loops around it first."""
    depth = _loop_depth(blocks)
    order: list[int] = []
    seen = {0}
    stack = [(0, iter(sorted(blocks[0].successors, key=lambda each: depth[each])))]
    while stack:
        number, rest = stack[-1]
        found = next((each for each in rest if each not in seen), None)
        if found is None:
            order.append(number)
            stack.pop()
        else:
            seen.add(found)
            stack.append((found, iter(sorted(blocks[found].successors, key=lambda each: depth[each]))))
    rank = [len(blocks)] * len(blocks)
    for position, number in enumerate(reversed(order)):
        rank[number] = position
    return tuple(rank)


def _loop_depth(blocks: Sequence[Block]) -> list[int]:
    """How many loops a block is in: of natural loops, found by edges back to a block that is still being walked."""
    before: list[list[int]] = [[] for _ in blocks]
    for number, block in enumerate(blocks):
        for each in block.successors:
            before[each].append(number)
    bodies: dict[int, set[int]] = {}
    for tail, head in _back_edges(blocks):
        body = bodies.setdefault(head, {head})
        pending = [tail]
        while pending:
            number = pending.pop()
            if number not in body:
                body.add(number)
                pending.extend(before[number])
    return [sum(number in body for body in bodies.values()) for number in range(len(blocks))]


def _back_edges(blocks: Sequence[Block]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    state = [0] * len(blocks)
    stack = [(0, iter(blocks[0].successors))]
    state[0] = 1
    while stack:
        number, rest = stack[-1]
        each = next(rest, None)
        if each is None:
            state[number] = 2
            stack.pop()
        elif state[each] == 1:
            found.append((number, each))
        elif state[each] == 0:
            state[each] = 1
            stack.append((each, iter(blocks[each].successors)))
    return found

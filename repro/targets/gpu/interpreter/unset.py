"""Registers that nothing writes: LLVM has them for lanes that nobody reads, such as those of i8s that share a register.

They may be moved and put together with others by bytes. Where one of their bytes comes to anything else, it is read.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from repro.targets.gpu.interpreter import flow
from repro.targets.gpu.interpreter.parse import Immediate, Instruction, Operand, Register, Vector

Bytes = list[bool]
"""Of a value, lowest first: which may hold what nothing wrote."""


def never_written(blocks: Sequence[flow.Block], registers: Set[Register]) -> frozenset[Register]:
    """Those of the registers that no instruction writes."""
    written = {register for block in blocks for each in block.instructions for register in flow.writes(each)}
    return frozenset(registers - written)


def read(blocks: Sequence[flow.Block], unset: Set[Register]) -> frozenset[Register]:
    """The registers with bytes of unset ones that are read for more than to be put together."""
    at: list[dict[Register, Bytes]] = [{} for _ in blocks]
    found: set[Register] = set()
    pending = list(range(len(blocks))) if unset else []
    while pending:
        block = blocks[number := pending.pop()]
        state = at[number] | {register: [True] * _size(register) for register in unset}
        for instruction in block.instructions:
            found |= _run(instruction, state)
        if block.condition is not None and any(state.get(block.condition[0], ())):
            found.add(block.condition[0])
        for after in block.successors:
            joined = {each: _either(state.get(each), at[after].get(each)) for each in {*state, *at[after]}}
            if joined != at[after]:
                at[after] = joined
                pending.append(after)
    return frozenset(found)


def _size(register: Register) -> int:
    return max(1, register.bits // 8)


def _either(one: Bytes | None, other: Bytes | None) -> Bytes:
    if one is None or other is None:
        return one or other or []
    return [a or b for a, b in zip(one, other, strict=True)]


def _run(instruction: Instruction, state: dict[Register, Bytes]) -> set[Register]:
    """Follow an instruction; the registers with unset bytes that it reads."""
    moved = _moved(instruction, state)
    if moved is None:
        found = {register for register in flow.reads(instruction) if any(state.get(register, ()))}
        state |= {target: [False] * _size(target) for target in flow.writes(instruction)}
        return found
    first = instruction.operands[0]
    items = first.items if isinstance(first, Vector) else (first,)
    size = len(moved) // len(items)
    for place, target in enumerate(items):
        if isinstance(target, Register):
            state[target] = moved[size * place : size * (place + 1)]
    return set()


def _moved(instruction: Instruction, state: dict[Register, Bytes]) -> Bytes | None:
    """The result's bytes, where it is put together of those of the operands; None of other instructions."""
    words, (target, *operands) = instruction.words, instruction.operands or (None,)
    match words, operands:
        case ("mov", *_), [Register() | Vector() as value]:
            whole = target if isinstance(target, Register) else value
            return _bytes(value, _size(whole) if isinstance(whole, Register) else 0, state)
        case ("shr", "u16" | "u32" | "u64"), [value, Immediate(bits)] if not bits % 8:
            size = int(words[1][1:]) // 8
            return [*_bytes(value, size, state)[bits // 8 :], *[False] * min(bits // 8, size)]
        case ("shl", "b16" | "b32" | "b64"), [value, Immediate(bits)] if not bits % 8:
            size = int(words[1][1:]) // 8
            return [*[False] * min(bits // 8, size), *_bytes(value, size, state)][:size]
        case ("prmt", "b32"), [low, high, Immediate(chosen)]:
            every = _bytes(low, 4, state) + _bytes(high, 4, state)
            return [every[chosen >> 4 * place & 7] for place in range(4)]
        case ("bfi", "b32" | "b64"), [field, base, Immediate(start), Immediate(width)] if not (start | width) % 8:
            size, first, count = int(words[1][1:]) // 8, start // 8, width // 8
            around, inside = _bytes(base, size, state), _bytes(field, size, state)
            return [*around[:first], *inside[:count], *around[first + count :]]
        case _:
            return None


def _bytes(operand: Operand, size: int, state: dict[Register, Bytes]) -> Bytes:
    """Of an operand of so many bytes."""
    match operand:
        case Register():
            return list(state.get(operand, [False] * size))
        case Vector():
            return [each for item in operand.items for each in _bytes(item, size // len(operand.items), state)]
        case _:
            return [False] * size

"""How dense a loop's machine code is: the share of fma among the instructions of an entry's innermost loop, and the
cycles in which a warp issues it.

Read from the assembler's cubin, an ELF file with a section of code for each entry. From Volta to Hopper an instruction
is 16 bytes, its low 12 bits say which it is, and a branch holds the distance to its target, counted from the
instruction after it; Hopper has moved the distance's low byte. Few instructions need to be known for this: FFMA and
DFMA on registers, BRA, and those of f64.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

_FMA, _BRANCH = (0x223, 0x22B), 0x947
_DOUBLE, _PADDING = (0x028, 0x029, 0x02A, 0x02B, 0x110), 0x118
"""DMUL, DADD, DSETP, DFMA, F2F, and NOP, without the three bits that say where operands come from."""
_OPERANDS, _REUSE, _ZERO = (24, 32, 64), 58, 255
"""Where an fma's operands stand, the flags of those that are kept (in the high word), and the register that is none."""
_WINDOW = 3
"""Cycles in which an instruction reads its operands."""
_WIDTH = 16
_HOPPER = 90


@dataclass(frozen=True)
class Loop:
    """Instructions of a loop, how many of them are fma, and the cycles in which one warp issues them, if nothing but
    reading registers holds it up."""

    instructions: int
    fma: int
    cycles: int

    @property
    def share(self) -> float:
        return self.fma / self.instructions

    @property
    def cycles_of_fma(self) -> float:
        """Cycles of the loop for each fma."""
        return self.cycles / self.fma


@dataclass(frozen=True)
class Counts:
    """Instructions of an entry: those of the f64 units (arithmetic, comparisons, conversions), and all others."""

    f64: int
    others: int


def counts(cubin: bytes, entry: str) -> Counts:
    """Of all of an entry's code, padding left out."""
    operations = [low & 0x1FF for low, _ in _words(cubin, entry)]
    f64 = sum(operation in _DOUBLE for operation in operations)
    return Counts(f64, sum(operation != _PADDING for operation in operations) - f64)


def hottest_loop(cubin: bytes, entry: str) -> Loop | None:
    """The loop with the most fma among those that hold no other; None where no loop holds any."""
    return max(inner_loops(cubin, entry), key=lambda loop: loop.fma, default=None)


def inner_loops(cubin: bytes, entry: str) -> list[Loop]:
    """The loops with an fma that hold no other, as they stand in the code."""
    words, moved = _words(cubin, entry), _chip(cubin) >= _HOPPER
    loops = [loop for number, word in enumerate(words) if (loop := _loop(number, *word, moved)) is not None]
    inner = [a for a in loops if not any(b != a and a[0] <= b[0] and b[1] <= a[1] for b in loops)]
    found = [_counted(words[first : last + 1]) for first, last in sorted(inner)]
    return [loop for loop in found if loop.fma]


def _words(cubin: bytes, entry: str) -> list[tuple[int, int]]:
    code = dict(_sections(cubin)).get(f".text.{entry}", b"")
    return [struct.unpack_from("<QQ", code, at) for at in range(0, len(code) - _WIDTH + 1, _WIDTH)]


def _counted(words: list[tuple[int, int]]) -> Loop:
    return Loop(len(words), sum(low & 0xFFF in _FMA for low, _ in words), _issued(words))


def _issued(words: list[tuple[int, int]]) -> int:
    """Cycles in which one warp issues instructions, where reading the operands of fma alone takes time.

    Registers lie in two banks, even and odd ones, and each gives a scheduler one register (of 32 threads) in a cycle.
    An instruction issues when its reads fit into the next three cycles. An operand that the instruction before has
    flagged for reuse is not read again (Huerta et al. 2025, "Analyzing Modern NVIDIA GPU cores", arXiv 2503.20481). A
    kernel with one warp for a scheduler waited .139 cycles an instruction for this on an H200; by this count, .147.
    """
    cycle, taken, kept = 0, (set[int](), set[int]()), dict[int, int]()
    for low, high in words:
        operands = {place: (low, high)[place // 64] >> place % 64 & 0xFF for place in _OPERANDS}
        read = {register for place, register in operands.items() if kept.get(place) != register != _ZERO}
        if low & 0xFFF in _FMA:
            banks = [[register for register in read if register % 2 == bank] for bank in (0, 1)]
            while True:
                free = [[at for at in range(cycle, cycle + _WINDOW) if at not in held] for held in taken]
                if all(len(wanted) <= len(there) for wanted, there in zip(banks, free, strict=True)):
                    break
                cycle += 1
            for held, wanted, there in zip(taken, banks, free, strict=True):
                held.difference_update(range(cycle))
                held.update(there[: len(wanted)])
        kept = {place: operands[place] for number, place in enumerate(_OPERANDS) if high >> _REUSE + number & 1}
        cycle += 1
    return cycle


def _chip(cubin: bytes) -> int:
    """The compute capability that it is for, 90 for 9.0: a byte of the ELF header's flags."""
    (flags,) = struct.unpack_from("<I", cubin, 0x30)
    return flags >> 8 & 0xFF


def _loop(number: int, low: int, high: int, moved: bool) -> tuple[int, int] | None:
    """The run of instructions that a branch closes; None where it is no branch back."""
    if low & 0xFFF != _BRANCH:
        return None
    distance = low >> 32 | (high & 0x3FFFF) << 32
    distance -= (distance >> 49) << 50
    if moved:
        distance = (distance >> 2 << 8 | low >> 16 & 0xFF) << 2
    target = number + 1 + distance // _WIDTH
    return (target, number) if 0 <= target < number else None


def _sections(data: bytes) -> Iterator[tuple[str, bytes]]:
    (start,) = struct.unpack_from("<Q", data, 0x28)
    count, names = struct.unpack_from("<HH", data, 0x3C)
    heads = [struct.unpack_from("<IIQQQQIIQQ", data, start + 64 * number) for number in range(count)]
    for head in heads:
        at = heads[names][4] + head[0]
        yield data[at : data.index(b"\0", at)].decode(), data[head[4] : head[4] + head[5]]

"""Sums over chips by the contract's tree, as routines of sends and vector additions.

Chip c (a power of two of them) brings a partial sum; the total is added (0, 1), (2, 3) …, then pairs of pairs (rule
17). Recursive halving is that tree: in step l chips c and c xor 2^l exchange halves of what they still hold, and each
adds the half it keeps; then each chip owns one piece of the total, and recursive doubling gathers the pieces. So no
chip adds in another order, whatever their number. Every level has a place and a semaphore of its own for what arrives:
a chip that is a step ahead overwrites nothing.

All chips run one routine; `s0` is the chip's number. Arguments: partial sums, then totals, one after another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from repro.ir.types import DType
from repro.targets.tpu_sim.chips import Chip
from repro.targets.tpu_sim.finishing import finish
from repro.targets.tpu_sim.isa import Alu, Dma, Instruction, Load, Send, Store, Wait
from repro.targets.tpu_sim.operands import LANES, Dim, Index, Ref, Reg, Term, counter, hbm, vmem
from repro.targets.tpu_sim.program import TILE_BYTES, Area, Argument, Loop, Routine, Statement, single

OWN, ARRIVED = 0, 1
"""Areas: what the chip holds, and what others sent."""


@dataclass(frozen=True)
class Held:
    """The run of elements that a chip holds: `start` depends on its number."""

    start: Index
    length: int


def _bit(level: int, scale: int) -> Index:
    """scale * (bit `level` of the chip's number)."""
    return counter("s0", scale, 1 << level, 2)


def _partner(level: int) -> Index:
    """The chip's number with bit `level` turned over."""
    step = 1 << level
    return Index(step, (Term("s0", 1), Term("s0", -2 * step, step, 2)))


def padded(elements: int, chips: int) -> int:
    """Elements such that every chip's piece is whole registers."""
    return -(-elements // (LANES * chips)) * LANES * chips


def all_reduce(dtype: DType, sizes: Sequence[int], chips: int, chip: Chip) -> Routine:
    """Every chip gets the totals of all arrays (`sizes` elements each). Raises ValueError where VMEM is too small."""
    return _routine("all_reduce", dtype, sizes, chips, chip, scatter=True, gather=True)


def reduce_scatter(dtype: DType, sizes: Sequence[int], chips: int, chip: Chip) -> Routine:
    """Every chip gets its piece of the totals of the arrays side by side; the rest of its outputs is undefined.

    The pieces lie in the order of the chips' numbers with their bits reversed: that is where halving leaves them.
    """
    return _routine("reduce_scatter", dtype, sizes, chips, chip, scatter=True, gather=False)


def all_gather(dtype: DType, sizes: Sequence[int], chips: int, chip: Chip) -> Routine:
    """Every chip brings the piece that `reduce_scatter` leaves with it, and gets all."""
    return _routine("all_gather", dtype, sizes, chips, chip, scatter=False, gather=True)


def _routine(
    kind: str, dtype: DType, sizes: Sequence[int], chips: int, chip: Chip, scatter: bool, gather: bool
) -> Routine:
    total = padded(sum(sizes), chips)
    size = -(-total * dtype.bytes // TILE_BYTES) * TILE_BYTES
    if 2 * size > chip.vmem_bytes:
        raise ValueError(f"{2 * size} bytes do not fit VMEM")
    held = Held(Index(), total)
    levels = chips.bit_length() - 1
    body = list(single(*_transfers(dtype, sizes, OWN if scatter else ARRIVED, into=True)))
    place = 0
    for level in range(levels):
        half = held.length // 2
        kept = Held(held.start + _bit(level, half), half)
        if scatter:
            given = held.start + _bit(level, -half) + half
            body += _exchange(level, dtype, level, vmem(ARRIVED, place), vmem(OWN, given), half)
            body.append(_addition(dtype, level, kept, place))
        place, held = place + half, kept
    if not scatter:  # others may send to the rest of the area before this chip has read its arguments
        dims = (Dim(held.length, 1, 1),)
        body += single(Dma(Index(0), dtype, vmem(OWN, held.start), vmem(ARRIVED, held.start), dims), Wait(Index(0)))
    for level in reversed(range(levels)) if gather else ():
        piece = vmem(OWN, held.start)
        body += _exchange(levels + level, dtype, level, piece, piece, held.length)
        held = Held(held.start + _bit(level, -held.length), 2 * held.length)
    body += single(*_transfers(dtype, sizes, OWN, into=False))
    arguments = [Argument(dtype, count, writable) for writable in (False, True) for count in sizes]
    areas = (Area(dtype, total, 0), Area(dtype, total, size))
    name = f"{kind}_{dtype.name}_{sum(sizes)}_by_{chips}"
    return finish(Routine(name, tuple(arguments), (chips,), areas, (), 1 + 2 * levels, tuple(body)), chip)


def _exchange(step: int, dtype: DType, level: int, target: Ref, source: Ref, count: int) -> Sequence[Statement]:
    """Each step has its own semaphore: what a chip that is ahead sends must not stand for what this step awaits."""
    semaphore = Index(1 + step)
    return single(Send(semaphore, dtype, _partner(level), target, source, count), Wait(semaphore, 2))


def _transfers(dtype: DType, sizes: Sequence[int], area: int, into: bool) -> list[Instruction]:
    """Arrays side by side in VMEM."""
    made, place = list[Instruction](), 0
    for number, count in enumerate(sizes):
        ends = (vmem(area, place), hbm(number)) if into else (hbm(len(sizes) + number), vmem(area, place))
        made.append(Dma(Index(0), dtype, *ends, (Dim(count, 1, 1),)))
        place += count
    return [*made, Wait(Index(0), len(sizes))]


def _addition(dtype: DType, level: int, kept: Held, place: int) -> Statement:
    """What arrived and what is kept; which of them stands on the left is nothing to an IEEE sum."""
    at = counter(f"i{level}", LANES)
    own, other, total = Reg(0), Reg(1), Reg(2)
    body = (
        Load(own, dtype, vmem(OWN, kept.start + at)),
        Load(other, dtype, vmem(ARRIVED, at + place)),
        Alu("add", dtype, dtype, total, (own, other)),
        Store(vmem(OWN, kept.start + at), dtype, total),
    )
    return Loop(f"i{level}", kept.length // LANES, True, single(*body))

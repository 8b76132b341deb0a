"""What each instruction does to a frame: its meaning, executed by a compiled helper or by NumPy moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from repro.ir.expressions import Expr
from repro.ir.types import BOOL, Array, DType
from repro.targets.tpu_sim import helpers
from repro.targets.tpu_sim.chips import Chip
from repro.targets.tpu_sim.faults import FaultError
from repro.targets.tpu_sim.frame import Frame, Number, evaluator
from repro.targets.tpu_sim.isa import (
    Alu,
    Constant,
    Dma,
    Gather,
    Instruction,
    Iota,
    Load,
    Lookup,
    Matmul,
    Move,
    Push,
    Rotate,
    Scatter,
    Send,
    Store,
    Transpose,
    Wait,
    instruction_text,
)
from repro.targets.tpu_sim.matrix import matmul, push
from repro.targets.tpu_sim.memory import Box
from repro.targets.tpu_sim.operands import COLUMNS, LANES, LINEAR, SUBLANES, Pattern, Ref, Reg
from repro.targets.tpu_sim.program import Routine

Action = Callable[[Frame], None]


def decode(instruction: Instruction, routine: Routine, chip: Chip, where: str) -> Action:
    """The instruction as a function of the frame."""
    match instruction:
        case Constant():
            return _constant(instruction)
        case Iota():
            return _iota(instruction)
        case Alu():
            value = instruction.meaning().stores[0].value
            operands = list(zip(instruction.sources, instruction.source_types, strict=True))
            return _lanewise(value, instruction.target, operands, where)
        case Lookup():
            if instruction.table >= len(routine.tables):
                raise FaultError("out of range", f"there is no table t{instruction.table}", where)
            value = instruction.meaning(routine.tables[instruction.table].entries).stores[0].value
            return _lanewise(value, instruction.target, [(instruction.source, instruction.index)], where)
        case Move():
            return _move(instruction, where)
        case Rotate():
            return _rotate(instruction, where)
        case Load():
            return _load(instruction, where)
        case Store():
            return _store(instruction, where)
        case Gather():
            return _gather(instruction, where)
        case Scatter():
            return _scatter(instruction, where)
        case Transpose():
            return _transpose(instruction, where)
        case Push():
            return push(instruction, chip, where)
        case Matmul():
            return matmul(instruction, chip, where)
        case Dma() | Send() | Wait():
            return _transfer(instruction, where)
        case _:
            raise FaultError("out of range", "unknown instruction", where)


def _transfer(instruction: Dma | Send | Wait, where: str) -> Action:
    semaphore, text = evaluator(instruction.semaphore), instruction_text(instruction)

    def run(frame: Frame) -> None:
        if frame.width != 1:
            raise FaultError("parallel loop", "a transfer or a wait inside a parallel loop", where)
        if isinstance(instruction, Dma):
            frame.memory.start(instruction, frame.counters, text, where)
        elif isinstance(instruction, Send):
            frame.memory.send(instruction, frame.counters, text, where)
        else:
            frame.memory.wait(semaphore(frame.counters), instruction.count, where)

    return run


# ── registers ───────────────────────────────────────────────────────────────────────────────────────


def _constant(instruction: Constant) -> Action:
    raw = np.full((1, LANES), instruction.bits, f"u{instruction.dtype.bytes}").view(instruction.dtype.storage)
    number = instruction.target.number

    def run(frame: Frame) -> None:
        frame.write(number, raw)

    return run


def _iota(instruction: Iota) -> Action:
    offsets, start = instruction.pattern.lanes, evaluator(instruction.start)
    number, storage = instruction.target.number, instruction.dtype.storage

    def run(frame: Frame) -> None:
        first = np.asarray(start(frame.counters), np.int64).reshape(-1, 1)
        frame.write(number, (first + offsets).astype(storage, copy=False))

    return run


def _lanewise(value: Expr, target: Reg, operands: list[tuple[Reg, DType]], where: str) -> Action:
    """Helpers are made when they are first needed: one for each pattern of operands that iterations share."""
    made = dict[tuple[bool, ...], helpers.Helper]()
    storage = value.dtype.storage

    def run(frame: Frame) -> None:
        arrays = [frame.read(reg, dtype, where) for reg, dtype in operands]
        rows = max([1, *map(len, arrays)])
        shared = tuple(len(array) == 1 for array in arrays) if rows > 1 else (False,) * len(arrays)
        helper = made.get(shared)
        if helper is None:
            helper = made[shared] = helpers.lanewise(value, shared)
        result = np.empty((rows, LANES), storage)
        helper(*[array.ctypes.data for array in arrays], result.ctypes.data, rows)
        frame.write(target.number, result)

    return run


def _move(instruction: Move, where: str) -> Action:
    def run(frame: Frame) -> None:
        frame.write(instruction.target.number, frame.read(instruction.source, instruction.dtype, where))

    return run


def _rotate(instruction: Rotate, where: str) -> Action:
    def run(frame: Frame) -> None:
        value = frame.read(instruction.source, instruction.dtype, where)
        frame.write(instruction.target.number, np.roll(value, -instruction.amount, axis=1))

    return run


# ── VMEM ────────────────────────────────────────────────────────────────────────────────────────────


class _Place:
    """Where an access with a pattern lies: checked against its area, its alignment and the copies in flight."""

    def __init__(self, ref: Ref, dtype: DType, pattern: Pattern, writes: bool, where: str) -> None:
        self.ref, self.dtype, self.writes, self.where = ref, dtype, writes, where
        if ref.space != "v":
            raise FaultError("out of range", f"{ref.name} is not in VMEM", where)
        self.linear = pattern == LINEAR
        self.offsets = pattern.lanes
        self.low, self.high = int(self.offsets.min()), int(self.offsets.max())
        counts = tuple(count for count, _ in pattern.digits)
        self.counts, self.strides = counts, tuple(stride for _, stride in pattern.digits)
        self.start = evaluator(ref.offset)

    def resolve(self, frame: Frame) -> tuple[Array, Number]:
        """The area and the start: an int, or one for each iteration."""
        memory, start = frame.memory, self.start(frame.counters)
        memory.typed(self.ref, self.dtype.storage, self.where)
        least, most = (start, start) if isinstance(start, int) else (int(start.min()), int(start.max()))
        if self.linear and (start % COLUMNS if isinstance(start, int) else (start % COLUMNS).any()):
            raise FaultError("misaligned tile", "not at a multiple of 128 elements", self.where, str(start))
        memory.check(self.ref.name, least + self.low, most + self.high, self.where)
        if self.ref.name in memory.flying:
            for each in {start} if isinstance(start, int) else set(start.tolist()):
                memory.touch(self.ref.name, Box(each, self.counts, self.strides), self.writes, self.where)
        return memory.arrays[self.ref.name], start

    def elements(self, start: Number) -> Array:
        """[1 or iterations, 1024]."""
        return np.asarray(start, np.int64).reshape(-1, 1) + self.offsets


def _in_order(start: Array) -> bool:
    """Whether the registers of the iterations lie one after another."""
    return bool((np.diff(start) == LANES).all())


_ROWS = np.arange(SUBLANES, dtype=np.int64)


def _load(instruction: Load, where: str) -> Action:
    place = _Place(instruction.source, instruction.dtype, instruction.pattern, False, where)
    number = instruction.target.number

    def run(frame: Frame) -> None:
        area, start = place.resolve(frame)
        if not place.linear:
            frame.write(number, area[place.elements(start)])
        elif isinstance(start, int):
            frame.write(number, area[start : start + LANES].reshape(1, LANES).copy())
        elif _in_order(start):
            frame.write(number, area[start[0] : start[-1] + LANES].reshape(-1, LANES).copy())
        else:
            rows = area.reshape(-1, COLUMNS)[(start // COLUMNS)[:, None] + _ROWS]
            frame.write(number, rows.reshape(-1, LANES))

    return run


def _store(instruction: Store, where: str) -> Action:
    place = _Place(instruction.target, instruction.dtype, instruction.pattern, True, where)

    def run(frame: Frame) -> None:
        area, start = place.resolve(frame)
        value = frame.full(instruction.source, instruction.dtype, where)
        if instruction.mask is not None:
            mask = frame.full(instruction.mask, BOOL, where)
            elements = np.broadcast_to(place.elements(start), value.shape)
            area[elements[mask]] = value[mask]
        elif not place.linear or (frame.width > 1 and isinstance(start, int)):
            area[np.broadcast_to(place.elements(start), value.shape)] = value
        elif isinstance(start, int):
            area[start : start + LANES] = value[0]
        elif _in_order(start):
            area[start[0] : start[-1] + LANES] = value.reshape(-1)
        else:
            area.reshape(-1, COLUMNS)[(start // COLUMNS)[:, None] + _ROWS] = value.reshape(-1, SUBLANES, COLUMNS)

    return run


def _indexed(
    instruction: Gather | Scatter, ref: Ref, writes: bool, where: str
) -> Callable[[Frame], tuple[Array, Array, Array]]:
    """The area, the elements [width, 1024] and the lanes that take part."""
    start = evaluator(ref.offset)

    def resolve(frame: Frame) -> tuple[Array, Array, Array]:
        memory = frame.memory
        memory.typed(ref, instruction.dtype.storage, where)
        index = frame.full(instruction.index, instruction.index_type, where).astype(np.int64, copy=False)
        elements = index + np.asarray(start(frame.counters), np.int64).reshape(-1, 1)
        mask = np.ones(elements.shape, np.bool_)
        if instruction.mask is not None:
            mask = frame.full(instruction.mask, BOOL, where)
        chosen = elements[mask]
        if chosen.size:
            memory.check(ref.name, int(chosen.min()), int(chosen.max()), where)
            if ref.name in memory.flying:
                for each in np.unique(chosen).tolist():
                    memory.touch(ref.name, Box(each, (), ()), writes, where)
        return memory.arrays[ref.name], elements, mask

    return resolve


def _gather(instruction: Gather, where: str) -> Action:
    resolve = _indexed(instruction, instruction.source, False, where)

    def run(frame: Frame) -> None:
        area, elements, mask = resolve(frame)
        if instruction.mask is None:
            frame.write(instruction.target.number, area[elements])
            return
        value = np.zeros(elements.shape, area.dtype)
        value[mask] = area[elements[mask]]
        frame.write(instruction.target.number, value)

    return run


def _scatter(instruction: Scatter, where: str) -> Action:
    resolve = _indexed(instruction, instruction.target, True, where)

    def run(frame: Frame) -> None:
        area, elements, mask = resolve(frame)
        value = frame.full(instruction.source, instruction.dtype, where)
        if frame.width > 1:
            _scattered_apart(elements, mask, where)
        area[elements[mask]] = value[mask]

    return run


def _scattered_apart(elements: Array, mask: Array, where: str) -> None:
    """Faults where two iterations that run side by side write one element."""
    owner = np.broadcast_to(np.arange(len(elements))[:, None], elements.shape)[mask]
    chosen = elements[mask]
    order = np.lexsort((owner, chosen))
    place, by = chosen[order], owner[order]
    if ((np.diff(place) == 0) & (np.diff(by) != 0)).any():
        raise FaultError("parallel loop", "two iterations scatter to one element", where)


def _transpose(instruction: Transpose, where: str) -> Action:
    source, target = evaluator(instruction.source.offset), evaluator(instruction.target.offset)
    rows, columns = instruction.rows, instruction.columns
    if max(rows, columns) > COLUMNS:
        raise FaultError("out of range", "a tile of at most 128 x 128 is transposed", where, f"{rows} x {columns}")

    def each(memory: Any, read: int, written: int) -> None:
        boxes = (
            Box(read, (rows, columns), (instruction.source_pitch, 1)),
            Box(written, (rows, columns), (1, instruction.target_pitch)),
        )
        for ref, box, writes in ((instruction.source, boxes[0], False), (instruction.target, boxes[1], True)):
            memory.typed(ref, instruction.dtype.storage, where)
            memory.touch(ref.name, box, writes, where)
        tile = memory.view(instruction.source.name, boxes[0], where).copy()
        memory.view(instruction.target.name, boxes[1], where)[...] = tile

    def run(frame: Frame) -> None:
        starts = [np.broadcast_to(index(frame.counters), (frame.width,)).tolist() for index in (source, target)]
        for read, written in zip(*starts, strict=True):
            each(frame.memory, read, written)

    return run

"""The matrix unit: weights held in an N x N array, rows streamed through it in ascending fma chains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from repro.ir.types import BOOL, F32, Array
from repro.targets.tpu_sim import helpers
from repro.targets.tpu_sim.chips import Chip
from repro.targets.tpu_sim.faults import FaultError
from repro.targets.tpu_sim.frame import Frame, evaluator
from repro.targets.tpu_sim.isa import Matmul, Push
from repro.targets.tpu_sim.memory import Box
from repro.targets.tpu_sim.operands import Ref

Action = Callable[[Frame], None]


def _slot(instruction: Push | Matmul, chip: Chip, where: str) -> Callable[[Frame], tuple[int, int]]:
    matrix, slot = evaluator(instruction.matrix), evaluator(instruction.slot)
    if instruction.dtype is not F32:
        raise FaultError("matrix unit", "takes f32", where, instruction.dtype.name)

    def at(frame: Frame) -> tuple[int, int]:
        if frame.width != 1:
            raise FaultError("parallel loop", "a matrix unit inside a parallel loop", where)
        found = (matrix(frame.counters), slot(frame.counters) % 2)
        if not 0 <= found[0] < chip.matrix_units:
            raise FaultError("matrix unit", f"there is no unit {found[0]}", where)
        return found

    return at


def push(instruction: Push, chip: Chip, where: str) -> Action:
    """Weights into a slot."""
    depth, width = instruction.depth, instruction.width
    if not (0 < depth <= chip.array and 0 < width <= chip.array):
        raise FaultError("matrix unit", "more weights than cells", where, f"{depth} x {width}", f"at most {chip.array}")
    slot, start = _slot(instruction, chip, where), evaluator(instruction.source.offset)
    strides = (1, instruction.pitch) if instruction.turned else (instruction.pitch, 1)

    def run(frame: Frame) -> None:
        box = Box(start(frame.counters), (depth, width), strides)
        frame.weights[slot(frame)] = _dense(frame, instruction.source, box, where)

    return run


def _dense(frame: Frame, ref: Ref, box: Box, where: str, dtype: np.dtype[Any] = F32.storage) -> Array:
    frame.memory.typed(ref, dtype, where)
    frame.memory.touch(ref.name, box, False, where)
    return frame.memory.view(ref.name, box, where).copy()


def matmul(instruction: Matmul, chip: Chip, where: str) -> Action:
    """Rows through the weights of a slot, onto sums in VMEM."""
    slot, rows = _slot(instruction, chip, where), instruction.rows
    data, sums = evaluator(instruction.data.offset), evaluator(instruction.sums.offset)
    valid = None if instruction.valid is None else evaluator(instruction.valid.offset)
    target, onto = instruction.written, evaluator(instruction.written.offset)

    def run(frame: Frame) -> None:
        weights = frame.weights.get(slot(frame))
        if weights is None:
            raise FaultError("matrix unit", "no weights were pushed into the slot", where)
        depth, width = weights.shape
        taken = Box(data(frame.counters), (rows, depth), (instruction.data_pitch, 1))
        operands = [_dense(frame, instruction.data, taken, where), weights]
        if instruction.valid is not None and valid is not None:
            box = Box(valid(frame.counters), (rows, depth), (instruction.data_pitch, 1))
            operands.append(_dense(frame, instruction.valid, box, where, BOOL.storage))
        place = Box(sums(frame.counters), (rows, width), (instruction.sums_pitch, 1))
        fresh = np.zeros((rows, width), F32.storage)
        total = fresh if instruction.fresh else _dense(frame, instruction.sums, place, where)
        helper = helpers.rows_through(F32, depth, width, instruction.valid is not None)
        helper(*(operand.ctypes.data for operand in operands), total.ctypes.data, rows)
        if instruction.onto is not None:
            place = Box(onto(frame.counters), place.counts, place.strides)
            total = _dense(frame, instruction.onto, place, where) + total
        frame.memory.typed(target, F32.storage, where)
        frame.memory.touch(target.name, place, True, where)
        frame.memory.view(target.name, place, where)[...] = total

    return run

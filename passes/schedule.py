"""The cost model: from a kernel and a machine to a schedule. Integers only, the same on every build host."""

from __future__ import annotations

import math

from repro.ir import index as ix
from repro.ir.contraction import find
from repro.ir.loops import Axis, Kernel, Load
from repro.ir.schedule import ContractionTile, Schedule
from repro.machines import Machine

ITEM_ELEMENTS = 8192
"""Outputs that one work item computes along the vector axis, at most."""
BLOCK_ROWS, BLOCK_COLUMNS = 448, 256
"""Outputs of one work item of a contraction, at most: packed operands stay in the second-level cache."""


def schedule(kernel: Kernel, machine: Machine) -> Schedule:
    """How the machine runs the kernel."""
    tiled = _tiled(kernel, machine)
    if tiled is not None:
        return tiled
    axis = _vector_axis(kernel)
    width = machine.lanes(32)
    if axis is None:
        return Schedule(None, 1, 1)
    extent = kernel.axes[axis].extent
    while width > extent and width > 1:
        width //= 2
    outer = math.prod(a.extent for i, a in enumerate(kernel.axes) if i >= kernel.serial and i != axis)
    block = ITEM_ELEMENTS if outer < 64 else max(ITEM_ELEMENTS, extent)
    return Schedule(axis, max(1, width), min(block, extent))


def _score(kernel: Kernel, axis: Axis) -> int:
    """Contiguous accesses along an axis; stores count more than loads."""
    total = 0
    for expr in kernel.expressions:
        if isinstance(expr, Load) and axis in expr.free:
            total += 2 if ix.coefficient(expr.offset, axis) == 1 else -2
    for store in kernel.stores:
        total += 3 if ix.coefficient(store.offset, axis) == 1 else -3
    return total


def _vector_axis(kernel: Kernel) -> int | None:
    best: tuple[int, int] | None = None
    for position in range(kernel.serial, len(kernel.axes)):
        score = _score(kernel, kernel.axes[position])
        if kernel.axes[position].extent < 4:
            score -= 4
        if best is None or score >= best[0]:
            best = (score, position)
    return None if best is None else best[1]


def _tiled(kernel: Kernel, machine: Machine) -> Schedule | None:
    contraction = find(kernel)
    if contraction is None or not contraction.columns:
        return None
    _, rows, columns, terms = contraction.extents
    if contraction.chain.panel > 4096 or columns < 4 or terms < 4:
        return None
    width = machine.lanes(contraction.reduce.dtype.bits)
    while width > columns and width > 4:
        width //= 2
    vectors = min(machine.tile_vectors, -(-columns // width))
    tile_rows = min(machine.tile_rows, rows)
    block_m = min(-(-BLOCK_ROWS // tile_rows) * tile_rows, rows)
    block_n = min(BLOCK_COLUMNS, columns)
    return Schedule(None, width, 1, ContractionTile(tile_rows, vectors, block_m, block_n))

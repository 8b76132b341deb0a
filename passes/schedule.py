"""The cost model: from a kernel and a machine to a schedule. Integers only, the same on every build host."""

from __future__ import annotations

from passes.vectors import choose
from repro.ir.contraction import find
from repro.ir.loops import Kernel
from repro.ir.schedule import ContractionTile, Schedule
from repro.machines import Machine

BLOCK_ROWS, BLOCK_COLUMNS = 448, 256
"""Outputs of one work item of a contraction, at most: packed operands stay in the second-level cache."""


def schedule(kernel: Kernel, machine: Machine) -> Schedule:
    """How the machine runs the kernel."""
    return _tiled(kernel, machine) or choose(kernel, machine)


def _tiled(kernel: Kernel, machine: Machine) -> Schedule | None:
    contraction = find(kernel)
    if contraction is None or not contraction.columns or 0 in contraction.extents:
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

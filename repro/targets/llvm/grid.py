"""How a schedule cuts a kernel without register tiles into work items."""

from __future__ import annotations

from passes.squares import crossed
from repro.ir.dependence import independent_axes
from repro.ir.loops import Kernel
from repro.ir.schedule import Schedule
from repro.targets.llvm.turning import NEAR


class Grid:
    """How a schedule cuts a kernel's axes: `outer` over items, `inner` loops within, the vector axis innermost.

    Where squares are turned (`turning`), an item is a block of the vector axis and one of `rows` of those of `across`.
    """

    def __init__(self, kernel: Kernel, schedule: Schedule) -> None:
        apart = independent_axes(kernel)
        self.vector = None if schedule.vector_axis is None else kernel.axes[schedule.vector_axis]
        within = frozenset(kernel.axes[position] for position in schedule.inner)
        parallel = [kernel.axes[place] for place in schedule.order] or kernel.axes[kernel.serial :]
        others = [axis for axis in parallel if axis is not self.vector]
        self.outer = [axis for axis in others if axis in apart and axis not in within]
        self.inner = [axis for axis in others if axis not in self.outer]
        extent = 1 if self.vector is None else self.vector.extent
        self.block = schedule.block if self.vector in apart else extent
        self.across, self.rows = crossed(kernel, schedule), 1
        if self.across is not None:
            self.outer, self.inner = [axis for axis in others if axis is not self.across.axis], []
            self.rows, self.block = -(-self.across.axis.extent // NEAR), NEAR
        self.blocks = -(-extent // self.block)
        self.together = kernel.serial > 0 and not self.outer and self.across is None and self.blocks > 1
        """Whether items are blocks of the vector axis alone, each of which goes through the serial axes: those that a
        thread has go through them once."""

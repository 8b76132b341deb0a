"""Elementwise kernels that read along another axis than they write, whose elements are turned in squares
(`repro.targets.llvm.turning`)."""

from __future__ import annotations

from dataclasses import dataclass

from repro.ir import index as ix
from repro.ir.dependence import reads_its_output
from repro.ir.expressions import Apply, Axis, Load, Lookup, Rarely, Reduce
from repro.ir.loops import Kernel
from repro.ir.schedule import Schedule
from repro.ir.types import BOOL
from repro.machines import Machine

RUN_BYTES = 64
"""Written at a time: a line of the caches."""
LIGHT = 32
"""Scalar operations up to which the code of a square, which has them `side` times, stays small."""
NARROW_BYTES, WIDE = 16, 8
"""What is read of a line: bytes of elements of less than 32 bits, a vector whose halves any machine interleaves;
elements of others."""


@dataclass(frozen=True)
class Crossing:
    """An axis along which a kernel reads what it writes along another."""

    axis: Axis
    written: Axis
    loads: tuple[Load, ...]
    """What lies side by side along it."""

    @property
    def _bytes(self) -> int:
        return min(load.dtype.bytes for load in self.loads)

    @property
    def side(self) -> int:
        """Elements of a square along it."""
        return WIDE if self._bytes >= 4 else NARROW_BYTES // self._bytes

    def side_on(self, machine: Machine) -> int:
        """The same where registers are as wide as a line: then squares are."""
        whole = self._bytes >= 4 and min(machine.lanes(8 * self._bytes), self.axis.extent) >= self.run
        return max(self.side, self.run) if whole else self.side

    def part_on(self, machine: Machine) -> tuple[int, bool]:
        """Elements along it that are turned at a time, and whether they leave half of the registers free.

        A load puts narrow vectors together to a wider register. Machines without these have the square in such parts
        in any case; elements of less than 32 bits have no narrower vectors."""
        part, line = self.side_on(machine), 8 * self._bytes * self.run
        room = machine.registers * machine.vector_bits // 2
        parted = self._bytes >= 4 and machine.vector_bits > 8 * NARROW_BYTES
        while parted and part > 2 and part * line > room:
            part //= 2
        return part, part * line <= room

    @property
    def run(self) -> int:
        """Elements of a square along the axis that is written: a line, or as many as it has of whole sides."""
        run = RUN_BYTES // self._bytes
        while run > max(self.side, self.written.extent):
            run //= 2
        return run


def crossed(kernel: Kernel, schedule: Schedule) -> Crossing | None:
    """What a kernel reads across the axis of the schedule's vectors; None: nothing, or no whole square of it."""
    if schedule.vector_axis is None or schedule.vector_width == 1 or schedule.tile is not None or schedule.sweep:
        return None
    return across(kernel, kernel.axes[schedule.vector_axis])


def across(kernel: Kernel, written: Axis) -> Crossing | None:
    """The same, of vectors along an axis."""
    if kernel.serial or reads_its_output(kernel) or not _is_plain(kernel):
        return None
    if any(ix.coefficient(store.offset, written) != 1 for store in kernel.stores):
        return None
    others = (axis for axis in reversed(kernel.axes) if axis is not written)
    found = (Crossing(axis, written, loads) for axis in others if (loads := _side_by_side(kernel, axis, written)))
    return next((each for each in found if each.axis.extent >= each.side and written.extent >= each.run), None)


def _is_plain(kernel: Kernel) -> bool:
    heavy = any(isinstance(expr, Reduce | Lookup | Rarely) for expr in kernel.expressions)
    return not heavy and sum(isinstance(expr, Apply) for expr in kernel.expressions) <= LIGHT


def _side_by_side(kernel: Kernel, read: Axis, written: Axis) -> tuple[Load, ...]:
    """The loads whose neighbours along the one axis lie side by side, and along the other apart."""
    return tuple(
        expr
        for expr in kernel.expressions
        if isinstance(expr, Load)
        and expr.when is None
        and expr.dtype is not BOOL
        and ix.coefficient(expr.offset, read) == 1
        and ix.coefficient(expr.offset, written) not in (None, 0, 1)
    )

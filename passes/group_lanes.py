"""Windows whose vectors run along groups: weight gradients of depthwise and grouped convolutions.

Such a gradient is a chain over images and pixels for each tap of each pair of channels of a group: long, and of few
outputs a group, so that lanes hold groups. Both operands are turned in registers into private memory, strips of lines
of an image at a time, the groups of an item side by side; the window each place once, blanks for padding. A register
tile is some taps for some columns (out channels), and runs along lines until the strip or a panel ends.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from passes.pixels import bounded
from passes.window_tiles import IN_FLIGHT, shares
from passes.windows import Place, Window, whole_window
from repro.ir.dependence import reads_its_output
from repro.ir.expressions import Axis
from repro.ir.loops import Kernel
from repro.machines import Machine

LEAST_GROUPS = 4
MOST_TAPS = 256
STRIP_BYTES = 24 << 10
"""Private memory of both operands of a strip, about: it stays in the nearest cache, beside what it is made of."""
MOST_STRIP_BYTES = 256 << 10
"""More than this for a single line, and the form is not taken."""
MOST_VECTORS, MOST_COLUMNS = 4, 4
SHARED_ITEMS = 8
"""Items that there should be, for threads to share."""


@dataclass(frozen=True)
class GroupLanes:
    """A window as this form reads it: `group` along lanes; of the rows `channels`, then those that share places,
    `taps`; terms are images (any axes), then lines, if there is such an axis, then pixels."""

    window: Window
    group: Axis
    channels: tuple[Axis, ...]
    taps: tuple[Axis, ...]
    line: Axis | None
    pixel: Axis
    across: Place | None
    along: Place

    @property
    def lines(self) -> int:
        """Of an image."""
        return 1 if self.line is None else self.line.extent

    @property
    def steps(self) -> int:
        """Places across lines from one line to the next."""
        return 1 if self.across is None else self.across.term_step

    def places(self, lines: int) -> int:
        """Lines of places under so many lines."""
        if self.across is None or self.across.row is None:
            return lines
        return self.across.term_step * (lines - 1) + self.across.row_step * (self.across.row.extent - 1) + 1

    @property
    def tap_count(self) -> int:
        return math.prod(axis.extent for axis in self.taps)


def group_lanes(kernel: Kernel) -> GroupLanes | None:
    """The kernel in this form, or None where it has no such."""
    found = whole_window(kernel)
    if found is None or reads_its_output(kernel):
        return None
    contraction, pixel = found.contraction, found.terms[-1]
    panel = min(contraction.chain.panel, contraction.extents[3])
    both = [axis for axis in contraction.batch if all(axis in term.free for term in contraction.terms)]
    along = next((place for place in found.places if place.term is pixel), None)
    if not both or along is None or panel % pixel.extent or not bounded(found, along):
        return None
    line = found.terms[-2] if len(found.terms) == 2 else None
    across = next((place for place in found.places if line is not None and place.term is line), None)
    paired = [place for place in (across, along) if place is not None]
    if any(min(place.term_step, place.row_step if place.row is not None else 1) < 1 for place in paired):
        return None
    taps = tuple(place.row for place in paired if place.row is not None)
    channels = contraction.rows[: len(contraction.rows) - len(taps)]
    if not taps or contraction.rows[len(channels) :] != taps:
        return None
    group = max(both, key=lambda axis: axis.extent)
    rest = tuple(axis for axis in contraction.batch if axis is not group)
    found = replace(found, contraction=replace(contraction, batch=rest))
    made = GroupLanes(found, group, channels, taps, line, pixel, across, along)
    return made if group.extent >= LEAST_GROUPS and made.tap_count <= MOST_TAPS else None


def line_elements(found: GroupLanes, lines: int, channels: int, lanes: int) -> int:
    """Elements of private memory for so many lines of both operands, with room for a last square that hangs over."""
    columns = found.window.contraction.extents[2]
    of_window = channels * found.places(lines) * found.along.axis.extent
    return (of_window + columns * lines * found.pixel.extent) * lanes


def strip(found: GroupLanes, channels: int, lanes: int, size: int) -> int:
    """Lines of a strip, in equal parts of an image."""
    held = [n for n in range(1, found.lines + 1) if line_elements(found, n, channels, lanes) * size <= STRIP_BYTES]
    least = min(found.lines, 2 * found.places(1))  # below this most of a strip is read again for the next
    most = max([least, *held])
    return -(-found.lines // -(-found.lines // most))


def register_tile(found: GroupLanes, width: int, machine: Machine) -> tuple[int, int, int]:
    """Taps, vectors and columns of the cheapest tile."""
    return min(_candidates(found, width, machine), key=lambda tile: (cost(found, tile) * 12 // tile[1], tile))


def _candidates(found: GroupLanes, width: int, machine: Machine) -> Iterator[tuple[int, int, int]]:
    columns, most = found.window.contraction.extents[2], max(1, found.group.extent // width)
    for vectors, count in product(range(1, min(MOST_VECTORS, most) + 1), range(1, min(MOST_COLUMNS, columns) + 1)):
        held = (machine.registers - 1 - count * vectors - (count > 1)) // (count * vectors)
        yield from ((taps, vectors, count) for taps in range(1, min(held, found.tap_count) + 1))


def cost(found: GroupLanes, tile: tuple[int, int, int]) -> int:
    """Of all tiles over a pixel for all columns, in halves of a cycle of a unit that multiplies or loads."""
    taps, vectors, columns = tile
    several = _sizes(found.tap_count, taps), _sizes(found.window.contraction.extents[2], columns)
    return sum(_cost(count, vectors, of) for count, of in product(*several))


def _sizes(count: int, most: int) -> Sequence[int]:
    return [size for _, size in shares(count, most)]


def _cost(taps: int, vectors: int, columns: int) -> int:
    return max(2 * taps * vectors * columns, 2 * (taps + columns) * vectors, 2 * IN_FLIGHT)

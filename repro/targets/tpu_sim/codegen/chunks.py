"""Kernels run a chunk of one axis at a time, so that copies of the next chunk run beside the work on this one.

Where a chunk reads a stretch of a buffer that moves along with the chunk's number, only such stretches (windows) are in
VMEM, two at a time; other buffers are there whole.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from passes.rename import rebuilt, settled
from repro.ir import index as ix
from repro.ir.expressions import Axis, Chain, Expr, Load, Reduce, load, topological
from repro.ir.loops import Kernel, Store
from repro.targets.tpu_sim.chips import Chip
from repro.targets.tpu_sim.codegen.orders import fresh_number
from repro.targets.tpu_sim.codegen.writer import whole
from repro.targets.tpu_sim.operands import COLUMNS, LANES, Dim

WORTH = 512 << 10
"""Bytes of a kernel's buffers from which chunks pay."""
LEAST, MOST = 128 << 10, 8 << 20
"""Bytes of a chunk."""
COUNTS = 4096
SHORTEST = 16
"""Elements of a line's stretch: shorter ones waste what a copy moves."""
MOST_PARTS = 64
"""Chunks of what the matrix unit computes."""


def room(size: int) -> int:
    """Elements of one half of an area, with some to spare for idle lanes."""
    return whole(size + min(size, 64 * LANES))


@dataclass(frozen=True)
class Window:
    """Chunk c reads `size` elements of a buffer from `first + step * c` on, or that much of each of its `lines`, which
    lie `pitch` elements apart."""

    first: int
    step: int
    size: int
    lines: int = 1
    pitch: int = 0

    @property
    def room(self) -> int:
        """Elements from the window of an even chunk to that of an odd one."""
        return room(self.lines * self.size)

    @property
    def dims(self) -> tuple[Dim, ...]:
        """Of the copy that brings it in."""
        run = Dim(self.size, 1, 1)
        return (run,) if self.lines == 1 else (Dim(self.lines, self.pitch, self.size), run)

    def inside(self, offset: Expr, number: Axis) -> Expr:
        """Where the element of the buffer lies in the window."""
        if self.lines == 1:
            return ix.add(ix.scale(number, -self.step), ix.number(-self.first), offset)
        line = ix.scale(ix.floordiv(offset, self.pitch), self.size)
        return ix.add(line, ix.mod(offset, self.pitch), ix.scale(number, -self.step))


@dataclass(frozen=True)
class Chunked:
    """A kernel over one chunk; `number` stands for the chunk's number. Without chunks the kernel is as it was."""

    kernel: Kernel
    number: Axis | None
    count: int
    number_of: tuple[Axis, int] | None = None
    """The axis that was cut, and in how many."""


def candidates(kernel: Kernel, chip: Chip, worth: int = WORTH) -> list[Chunked]:
    """Ways to run a kernel, the first best. More chunks take less of VMEM."""
    nbytes = sum(buffer.elements * buffer.dtype.bytes for buffer in kernel.buffers)
    whole_kernel = Chunked(kernel, None, 1)
    if kernel.serial or nbytes < worth or not _stores_apart(kernel):
        return [whole_kernel]
    products = max((_products(e, kernel) for e in kernel.expressions), default=0)
    if products:
        cuts = [(axis, n) for axis in kernel.axes for n in _divisors(axis.extent) if 1 < n <= MOST_PARTS]
        cuts.sort(key=lambda cut: _time(kernel, chip, products, *cut))
    else:
        wanted = -(-nbytes // min(max(nbytes // 16, min(LEAST, worth)), MOST))
        tried = [wanted << more for more in range((COUNTS // wanted).bit_length())]
        cuts = [
            (axis, count)
            for n in tried
            for axis in kernel.axes
            if (count := _count(axis.extent, min(n, _most(kernel, axis)))) > 1
        ]
        cuts.sort(key=lambda cut: _drawbacks(kernel, nbytes, *cut))
    return [*(_cut(kernel, axis, count) for axis, count in dict.fromkeys(cuts)), whole_kernel]


def _most(kernel: Kernel, axis: Axis) -> int:
    """Chunks in which lanes are still filled: sums of neighbours need some of them side by side."""
    sums = any(isinstance(each, Reduce) for each in kernel.expressions)
    return max(1, axis.extent // COLUMNS) if sums and axis is kernel.axes[-1] else axis.extent


def _drawbacks(kernel: Kernel, nbytes: int, axis: Axis, count: int) -> tuple[bool, bool]:
    """Whether much would be in VMEM whole, since no chunk moves along with the axis; and whether a chunk's lines would
    be shorter than a register's."""
    whole_ones, steps = dict[int, int](), list[int]()
    for each in kernel.expressions:
        if isinstance(each, Load):
            stride = ix.coefficient(each.offset, axis) or 0
            steps += [abs(stride) * axis.extent // count] if stride else []
            if stride == 0:
                buffer = kernel.buffers[each.buffer]
                whole_ones[each.buffer] = buffer.elements * buffer.dtype.bytes
    return 8 * sum(whole_ones.values()) > nbytes, min(steps, default=COLUMNS) < COLUMNS


def _products(expr: Expr, kernel: Kernel) -> int:
    """Products of a chain that the kernel's elements need, 0 for other expressions."""
    if not (isinstance(expr, Reduce) and isinstance(expr.order, Chain)):
        return 0
    return math.prod(axis.extent for axis in (*expr.axes, *kernel.axes) if axis in expr.axes or axis in expr.free)


def _time(kernel: Kernel, chip: Chip, products: int, axis: Axis, count: int) -> int:
    """Cycles of a contraction in chunks, about: a queue of copies beside the work on each chunk. What every chunk needs
    comes after the first one's operands, in tiles, beside its work."""
    rate, steady, coming = int(chip.hbm_bytes_per_cycle), 0, 0
    read = {each.buffer: axis in each.offset.free for each in kernel.expressions if isinstance(each, Load)}
    for number, moving in read.items():
        size = kernel.buffers[number].elements * kernel.buffers[number].dtype.bytes // rate
        coming, steady = coming + size * moving // count, steady + size * (not moving)
    results = [kernel.buffers[store.buffer] for store in kernel.stores]
    leaving = sum(buffer.elements * buffer.dtype.bytes for buffer in results) // rate // count
    lanes = 2 * sum(buffer.elements for buffer in results) // LANES // count
    rows, terms = axis.extent // count, products // math.prod(each.extent for each in kernel.axes)
    folds = -(-terms // chip.array) * math.prod(each.extent for each in kernel.axes) // chip.array
    filled = -(-folds * max(rows, chip.array) // (rows * chip.matrix_units * count))
    work = max(filled, 2 * terms)  # a chain's next tile of terms waits for the sums of the one before
    queue = coming + steady
    done, arrived = max(coming + work, queue) + chip.dma_latency, queue + coming + chip.dma_latency
    queue += coming
    for chunk in range(count):
        ended, done = done, max(done, arrived) + work
        if chunk + 2 < count:
            queue = max(queue, ended) + coming
            arrived = queue + chip.dma_latency
        queue = max(queue, ended + lanes) + leaving
    return queue


def _divisors(extent: int) -> list[int]:
    return [n for n in range(1, min(extent, COUNTS) + 1) if extent % n == 0]


def _stores_apart(kernel: Kernel) -> bool:
    """Whether each iteration writes elements of its own, found by strides, and reads no other that is written."""
    places = {store.buffer: store.offset for store in kernel.stores}
    if len(places) < len(kernel.stores) or any(store.when is not None for store in kernel.stores):
        return False
    loads = [each for each in kernel.expressions if isinstance(each, Load)]
    if any(places.get(each.buffer, each.offset) is not each.offset for each in loads):
        return False
    return all(_strided(offset, kernel.axes) for offset in places.values())


def _strided(offset: Expr, axes: tuple[Axis, ...]) -> bool:
    rest = ix.add(offset, *(ix.scale(axis, -(ix.coefficient(offset, axis) or 0)) for axis in axes))
    return not rest.free & frozenset(axes) and all(axis.extent for axis in axes)


def _count(extent: int, wanted: int) -> int:
    """The least divisor of the extent that is enough, else the greatest."""
    divisors = _divisors(extent)
    return next((n for n in divisors if n >= wanted), divisors[-1])


def _cut(kernel: Kernel, axis: Axis, count: int) -> Chunked:
    fresh = fresh_number([*(expr for store in kernel.stores for expr in store.expressions), *kernel.axes])
    number, inner = ix.axis(fresh, count), ix.axis(axis.number, axis.extent // count)
    value = ix.add(ix.scale(number, axis.extent // count), inner)
    made = tuple(Store(store.buffer, *settled([store.offset, store.value], {axis: value})) for store in kernel.stores)
    axes = tuple(inner if each is axis else each for each in kernel.axes)
    return Chunked(replace(kernel, axes=axes, stores=made), number, count, (axis, count))


def windows(buffers: dict[int, list[Expr]], sizes: dict[int, int], number: Axis) -> dict[int, Window]:
    """Of the buffers (their loads' offsets) those of which a chunk needs but a stretch."""
    found: dict[int, Window] = {}
    for buffer, offsets in buffers.items():
        steps = {ix.coefficient(offset, number) for offset in offsets}
        step = steps.pop()
        if steps or not step:
            continue
        rests = [ix.bounds(ix.add(offset, ix.scale(number, -step))) for offset in offsets]
        low, high = min(r[0] for r in rests), max(r[1] for r in rests)
        last = step * (number.extent - 1)
        inside = 0 <= low + min(last, 0) and high + max(last, 0) < sizes[buffer]
        if inside and 2 * (high - low + 1) <= sizes[buffer]:
            found[buffer] = Window(low, step, high - low + 1)
        elif (lined := _lined(offsets, sizes[buffer], step, number)) is not None:
            found[buffer] = lined
    return found


def _lined(offsets: list[Expr], size: int, step: int, number: Axis) -> Window | None:
    """A stretch of each line, where all chunks' stretches together are the line."""
    pitch = step * number.extent
    if step < SHORTEST or size % pitch or size == pitch:
        return None
    window = Window(0, step, step, size // pitch, pitch)
    for offset in offsets:
        low, high = ix.bounds(ix.add(ix.mod(offset, pitch), ix.scale(number, -step)))
        if low < 0 or high >= step:
            return None
    return window


def inside_windows(roots: list[Expr], found: dict[int, Window], number: Axis) -> list[Expr]:
    """The expressions with loads from windows in place of loads from whole buffers."""
    memo: dict[Expr, Expr] = {}
    for expr in topological(roots):
        made = rebuilt(expr, tuple(memo[child] for child in expr.children))
        if isinstance(made, Load) and made.buffer in found:
            window = found[made.buffer]
            half = ix.scale(ix.mod(number, 2), window.room)
            made = load(made.dtype, made.buffer, ix.add(window.inside(made.offset, number), half), made.when)
        memo[expr] = made
    return [memo[root] for root in roots]

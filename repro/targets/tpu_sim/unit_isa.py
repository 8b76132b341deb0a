"""Instructions of units that run beside the vector unit: transposes, matrix units, transfers, links."""

from __future__ import annotations

from dataclasses import dataclass

from repro.ir import expressions
from repro.ir import index as ix
from repro.ir.loops import Kernel, Store
from repro.ir.types import BOOL, DType
from repro.targets.tpu_sim.costs import Cost
from repro.targets.tpu_sim.instruction import FAR, Instruction, array_of
from repro.targets.tpu_sim.operands import COLUMNS, Dim, Index, Ref, Span


@dataclass(frozen=True)
class Transpose(Instruction):
    """`target[c * target_pitch + r] = source[r * source_pitch + c]` for r < rows, c < columns, both at most 128,
    VMEM to VMEM."""

    target: Ref
    target_pitch: int
    dtype: DType
    source: Ref
    source_pitch: int
    rows: int
    columns: int
    when: Index | None = None
    mnemonic = "transpose"
    unit = "cross"

    @property
    def memory_reads(self) -> tuple[Span, ...]:
        return (Span(self.source, ((self.rows, self.source_pitch), (self.columns, 1))),)

    @property
    def memory_writes(self) -> tuple[Span, ...]:
        return (Span(self.target, ((self.columns, self.target_pitch), (self.rows, 1))),)

    def cost(self) -> Cost:
        words = max(1, self.dtype.bits // 32)
        return Cost(self.unit, busy=max(self.rows, self.columns) * words, latency=COLUMNS)

    def meaning(self) -> Kernel:
        r, c = ix.axis(0, self.rows), ix.axis(1, self.columns)
        value = expressions.load(self.dtype, 0, ix.add(ix.scale(r, self.source_pitch), c))
        place = ix.add(ix.scale(c, self.target_pitch), r)
        buffers = (array_of(self.dtype, FAR), array_of(self.dtype, FAR, writable=True))
        return Kernel(buffers, (), (r, c), 0, (Store(1, place, value),))


# ── matrix unit ─────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Push(Instruction):
    """Loads weights into one of the two slots of a matrix unit (`slot` mod 2): cell (k, n) for k < depth, n < width
    holds `source[k * pitch + n]`, or with `turned` `source[n * pitch + k]`. Depth and width are at most the array's
    size."""

    matrix: Index
    slot: Index
    dtype: DType
    source: Ref
    pitch: int
    depth: int
    width: int
    turned: bool = False
    when: Index | None = None
    mnemonic = "push"
    unit = "weights"

    @property
    def memory_reads(self) -> tuple[Span, ...]:
        slow, fast = (self.width, self.depth) if self.turned else (self.depth, self.width)
        return (Span(self.source, ((slow, self.pitch), (fast, 1))),)

    def meaning(self) -> Kernel:
        k, n = ix.axis(0, self.depth), ix.axis(1, self.width)
        slow, fast = (n, k) if self.turned else (k, n)
        value = expressions.load(self.dtype, 0, ix.add(ix.scale(slow, self.pitch), fast))
        place = ix.add(ix.scale(k, self.width), n)
        buffers = (array_of(self.dtype, FAR), array_of(self.dtype, self.depth * self.width, writable=True))
        return Kernel(buffers, (), (k, n), 0, (Store(1, place, value),))


@dataclass(frozen=True)
class Matmul(Instruction):
    """Streams rows through a matrix unit. For m < rows, n < width of the slot's weights, k < their depth, ascending:

        sum[m, n] = fma(data[m * data_pitch + k], weights[k, n], sum[m, n])

    `sum` lies in VMEM at `sums[m * sums_pitch + n]`: partial sums enter at the top and leave at the bottom; `fresh`
    starts them at +0.0. A cell takes no part in a term whose valid bit (bool, `valid[m * data_pitch + k]`) is off.
    With `onto` what leaves is not put back: adders at the bottom add it to `onto[m * sums_pitch + n]`.
    """

    matrix: Index
    slot: Index
    dtype: DType
    sums: Ref
    sums_pitch: int
    fresh: bool
    data: Ref
    data_pitch: int
    rows: int
    valid: Ref | None = None
    onto: Ref | None = None
    when: Index | None = None
    mnemonic = "matmul"
    unit = "matrix"

    @property
    def memory_reads(self) -> tuple[Span, ...]:
        return tuple(Span(span.ref) for span in self.reading(1, 1))

    def reading(self, depth: int, width: int) -> tuple[Span, ...]:
        """What it reads of memory if the slot's weights are so many terms of so many columns."""
        data, sums = ((self.rows, self.data_pitch), (depth, 1)), ((self.rows, self.sums_pitch), (width, 1))
        carried = None if self.fresh else self.sums
        boxes = ((self.data, data), (self.valid, data), (carried, sums), (self.onto, sums))
        return tuple(Span(ref, box) for ref, box in boxes if ref is not None)

    @property
    def memory_writes(self) -> tuple[Span, ...]:
        return (Span(self.written),)

    @property
    def written(self) -> Ref:
        """Where what leaves goes."""
        return self.sums if self.onto is None else self.onto

    def meaning(self, depth: int, width: int) -> Kernel:
        """Dense: data (and valid bits) rows x depth, weights depth x width, sums rows x width; sums are read."""
        return chain(self.dtype, self.rows, depth, width, self.valid is not None)

    def adding(self, width: int) -> Kernel:
        """What the adders do with the sums of `meaning`: dense sums, then what they are added to, rows x width."""
        place = ix.linear([ix.axis(0, self.rows), ix.axis(1, width)], [self.rows, width])
        value = expressions.apply("add", expressions.load(self.dtype, 1, place), expressions.load(self.dtype, 0, place))
        size = self.rows * width
        buffers = (array_of(self.dtype, size), array_of(self.dtype, size, writable=True))
        return Kernel(buffers, (), (ix.axis(0, self.rows), ix.axis(1, width)), 0, (Store(1, place, value),))


def chain(dtype: DType, rows: int, depth: int, width: int, checked: bool) -> Kernel:
    """Ascending fma onto what the sums hold, as a kernel: k is serial, so each step sees the last one's sums."""
    k, m, n = ix.axis(0, depth), ix.axis(1, rows), ix.axis(2, width)
    term, place = ix.add(ix.scale(m, depth), k), ix.add(ix.scale(m, width), n)
    target = 3 if checked else 2
    data = expressions.load(dtype, 0, term)
    value = expressions.apply(
        "fma", data, expressions.load(dtype, 1, ix.add(ix.scale(k, width), n)), expressions.load(dtype, target, place)
    )
    if checked:
        value = expressions.apply(
            "select", expressions.load(BOOL, 2, term), value, expressions.load(dtype, target, place)
        )
    buffers = [array_of(dtype, rows * depth), array_of(dtype, depth * width)]
    buffers += [array_of(BOOL, rows * depth)] if checked else []
    buffers.append(array_of(dtype, rows * width, writable=True))
    return Kernel(tuple(buffers), (), (k, m, n), 1, (Store(target, place, value),))


# ── transfers ───────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Dma(Instruction):
    """Starts a copy between HBM and VMEM (or within one): over all steps of the dims, outermost first,

        target[sum of step * dim.target] = source[sum of step * dim.source]

    It runs beside everything else and adds 1 to its semaphore when done. Until a `wait` has taken that, nothing may
    read or write its target, nor write its source.
    """

    semaphore: Index
    dtype: DType
    target: Ref
    source: Ref
    dims: tuple[Dim, ...]
    when: Index | None = None
    mnemonic = "dma"
    unit = "dma"

    @property
    def memory_reads(self) -> tuple[Span, ...]:
        return (Span(self.source, tuple((dim.count, dim.source) for dim in self.dims)),)

    @property
    def memory_writes(self) -> tuple[Span, ...]:
        return (Span(self.target, tuple((dim.count, dim.target) for dim in self.dims)),)

    def meaning(self, steps: tuple[int, ...]) -> Kernel:
        axes = tuple(ix.axis(number, count) for number, count in enumerate(steps))
        source = ix.add(ix.number(0), *(ix.scale(a, d.source) for a, d in zip(axes, self.dims, strict=True)))
        target = ix.add(ix.number(0), *(ix.scale(a, d.target) for a, d in zip(axes, self.dims, strict=True)))
        buffers = (array_of(self.dtype, FAR), array_of(self.dtype, FAR, writable=True))
        return Kernel(buffers, (), axes, 0, (Store(1, target, expressions.load(self.dtype, 0, source)),))


@dataclass(frozen=True)
class Send(Instruction):
    """Starts a copy of so many elements from VMEM here to VMEM of another chip, which runs the same routine.

    It adds 1 to the semaphore of that number here when the elements have left, and there when they have arrived; until
    waits have taken those, the place there may not be touched, nor the place here be written.
    """

    semaphore: Index
    dtype: DType
    chip: Index
    target: Ref
    source: Ref
    count: int
    when: Index | None = None
    mnemonic = "send"
    unit = "dma"

    @property
    def memory_reads(self) -> tuple[Span, ...]:
        return (Span(self.source, ((self.count, 1),)),)

    @property
    def memory_writes(self) -> tuple[Span, ...]:
        return (Span(self.target, ((self.count, 1),)),)

    def meaning(self) -> Kernel:
        axis = ix.axis(0, self.count)
        buffers = (array_of(self.dtype, FAR), array_of(self.dtype, FAR, writable=True))
        return Kernel(buffers, (), (axis,), 0, (Store(1, axis, expressions.load(self.dtype, 0, axis)),))


@dataclass(frozen=True)
class Wait(Instruction):
    """Stops until the semaphore holds `count`, then takes them; the oldest copies on it are then done."""

    semaphore: Index
    count: int = 1
    when: Index | None = None
    mnemonic = "wait"
    unit = "scalar"

"""Instructions of the vector unit and of what moves its registers. Each is one declaration: fields, cost, meaning."""

from __future__ import annotations

from dataclasses import dataclass

from repro.ir import expressions
from repro.ir import index as ix
from repro.ir.expressions import Expr
from repro.ir.loops import Kernel
from repro.ir.types import BOOL, DType
from repro.targets.tpu_sim.costs import Cost, alu_passes
from repro.targets.tpu_sim.instruction import FAR, LANE, Instruction, array_of, lane_offset, lanewise_kernel
from repro.targets.tpu_sim.operands import COLUMNS, LANES, LINEAR, REGISTERS, Index, Pattern, Ref, Reg, Span

# ── vector unit ─────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Constant(Instruction):
    """`target[l] = bits`."""

    target: Reg
    dtype: DType
    bits: int
    when: Index | None = None
    mnemonic = "constant"
    unit = "alu"

    @property
    def writes(self) -> Reg:
        return self.target

    def meaning(self) -> Kernel:
        return lanewise_kernel([array_of(self.dtype, writable=True)], LANE, expressions.const(self.dtype, self.bits))


@dataclass(frozen=True)
class Iota(Instruction):
    """`target[l] = start + pattern(l)`, i32 (wrapping) or i64: lane numbers, or with `1024:0` a scalar value."""

    target: Reg
    dtype: DType
    start: Index
    pattern: Pattern = LINEAR
    when: Index | None = None
    mnemonic = "iota"
    unit = "alu"

    @property
    def writes(self) -> Reg:
        return self.target

    def cost(self) -> Cost:
        return Cost(self.unit, busy=2 * (self.dtype.bits // 32))

    def meaning(self) -> Kernel:
        value = expressions.convert(lane_offset(self.pattern), self.dtype)
        return lanewise_kernel([array_of(self.dtype, writable=True)], LANE, value)


@dataclass(frozen=True)
class Alu(Instruction):
    """`target[l] = operation(sources[l]...)`: a scalar operation of repro.ir.scalars, lane by lane.

    `dtype` is the operands' type (of select: the values', its condition being bool), `result` the target's.
    """

    operation: str
    dtype: DType
    result: DType
    target: Reg
    sources: tuple[Reg, ...]
    when: Index | None = None
    mnemonic = "alu"
    unit = "alu"

    @property
    def reads(self) -> tuple[Reg, ...]:
        return self.sources

    @property
    def writes(self) -> Reg:
        return self.target

    @property
    def source_types(self) -> tuple[DType, ...]:
        first = BOOL if self.operation == "select" else self.dtype
        return (first, *(self.dtype for _ in self.sources[1:]))

    def cost(self) -> Cost:
        return Cost(self.unit, busy=alu_passes(self.operation, self.dtype, self.result))

    def meaning(self) -> Kernel:
        types = self.source_types
        operands = [expressions.load(dtype, number, LANE) for number, dtype in enumerate(types)]
        if self.operation in ("convert", "bitcast"):
            value: Expr = expressions.Apply(self.result, (self.operation,), tuple(operands))
        else:
            value = expressions.apply(self.operation, *operands)
        return lanewise_kernel([*map(array_of, types), array_of(self.result, writable=True)], LANE, value)


@dataclass(frozen=True)
class Lookup(Instruction):
    """`target[l] = table[source[l] mod n]`; the entries and the index have one width."""

    target: Reg
    dtype: DType
    table: int
    index: DType
    source: Reg
    when: Index | None = None
    mnemonic = "lookup"
    unit = "alu"

    @property
    def reads(self) -> tuple[Reg, ...]:
        return (self.source,)

    @property
    def writes(self) -> Reg:
        return self.target

    def cost(self) -> Cost:
        return Cost(self.unit, busy=4 * (self.dtype.bits // 32))

    def meaning(self, entries: tuple[int, ...]) -> Kernel:
        value = expressions.lookup(self.dtype, entries, expressions.load(self.index, 0, LANE))
        return lanewise_kernel([array_of(self.index), array_of(self.dtype, writable=True)], LANE, value)


# ── VMEM and registers ──────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Load(Instruction):
    """`target[l] = source[pattern(l)]`. Aligned (`1024:1` at a multiple of 128 elements) it is one access; any other
    pattern costs by its runs."""

    target: Reg
    dtype: DType
    source: Ref
    pattern: Pattern = LINEAR
    when: Index | None = None
    mnemonic = "load"
    unit = "load"

    @property
    def memory_reads(self) -> tuple[Span, ...]:
        return (Span(self.source, self.pattern.digits),)

    @property
    def writes(self) -> Reg:
        return self.target

    def cost(self) -> Cost:
        return Cost(self.unit, busy=_access(self.source, self.pattern, self.dtype))

    def meaning(self) -> Kernel:
        value = expressions.load(self.dtype, 0, lane_offset(self.pattern))
        return lanewise_kernel([array_of(self.dtype, FAR), array_of(self.dtype, writable=True)], LANE, value)


@dataclass(frozen=True)
class Store(Instruction):
    """`target[pattern(l)] = source[l]` where the mask holds; of lanes that share an element the last one stays."""

    target: Ref
    dtype: DType
    source: Reg
    pattern: Pattern = LINEAR
    mask: Reg | None = None
    when: Index | None = None
    mnemonic = "store"
    unit = "store"

    @property
    def memory_writes(self) -> tuple[Span, ...]:
        return (Span(self.target, self.pattern.digits),)

    @property
    def reads(self) -> tuple[Reg, ...]:
        return (self.source,) if self.mask is None else (self.source, self.mask)

    def cost(self) -> Cost:
        return Cost(self.unit, busy=_access(self.target, self.pattern, self.dtype))

    def meaning(self) -> Kernel:
        when = None if self.mask is None else expressions.load(BOOL, 1, LANE)
        masks = [] if self.mask is None else [array_of(BOOL)]
        buffers = [array_of(self.dtype), *masks, array_of(self.dtype, FAR, writable=True)]
        return lanewise_kernel(buffers, lane_offset(self.pattern), expressions.load(self.dtype, 0, LANE), when)


def _access(place: Ref, pattern: Pattern, dtype: DType) -> int:
    """Cycles: eight runs at a time, one for each sublane; a run that may begin anywhere lies in two rows; 64-bit
    elements are two words."""
    count, stride = pattern.digits[-1]
    steps = [step for _, step in pattern.digits[:-1]] + [term.coefficient for term in place.offset.terms]
    within = count <= COLUMNS and not any(step % count for step in (place.offset.constant, *steps))
    rows = 2 if pattern != LINEAR and stride == 1 and not within else 1
    return -(-pattern.runs * rows // 8) * max(1, dtype.bits // 32)


@dataclass(frozen=True)
class Gather(Instruction):
    """`target[l] = source[index[l]]`; zero bits and no access where the mask does not hold. Slow."""

    target: Reg
    dtype: DType
    source: Ref
    index: Reg
    index_type: DType
    mask: Reg | None = None
    when: Index | None = None
    mnemonic = "gather"
    unit = "load"

    @property
    def memory_reads(self) -> tuple[Span, ...]:
        return (Span(self.source),)

    @property
    def reads(self) -> tuple[Reg, ...]:
        return (self.index,) if self.mask is None else (self.index, self.mask)

    @property
    def writes(self) -> Reg:
        return self.target

    def cost(self) -> Cost:
        return Cost(self.unit, busy=128 * max(1, self.dtype.bits // 32))

    def meaning(self) -> Kernel:
        when = None if self.mask is None else expressions.load(BOOL, 1, LANE)
        masks = [] if self.mask is None else [array_of(BOOL)]
        place = expressions.convert(expressions.load(self.index_type, 0, LANE), ix.number(0).dtype)
        value = expressions.load(self.dtype, len(masks) + 1, place, when)
        buffers = [array_of(self.index_type), *masks, array_of(self.dtype, FAR), array_of(self.dtype, writable=True)]
        return lanewise_kernel(buffers, LANE, value)


@dataclass(frozen=True)
class Scatter(Instruction):
    """`target[index[l]] = source[l]` where the mask holds; of lanes that share an element the last one stays. Slow."""

    target: Ref
    dtype: DType
    index: Reg
    index_type: DType
    source: Reg
    mask: Reg | None = None
    when: Index | None = None
    mnemonic = "scatter"
    unit = "store"

    @property
    def memory_writes(self) -> tuple[Span, ...]:
        return (Span(self.target),)

    @property
    def reads(self) -> tuple[Reg, ...]:
        return (self.index, self.source) if self.mask is None else (self.index, self.source, self.mask)

    def cost(self) -> Cost:
        return Cost(self.unit, busy=128 * max(1, self.dtype.bits // 32))

    def meaning(self) -> Kernel:
        when = None if self.mask is None else expressions.load(BOOL, 2, LANE)
        masks = [] if self.mask is None else [array_of(BOOL)]
        place = expressions.convert(expressions.load(self.index_type, 0, LANE), ix.number(0).dtype)
        buffers = [array_of(self.index_type), array_of(self.dtype), *masks, array_of(self.dtype, FAR, writable=True)]
        return lanewise_kernel(buffers, place, expressions.load(self.dtype, 1, LANE), when)


# ── cross-lane unit ─────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Rotate(Instruction):
    """`target[l] = source[(l + amount) mod 1024]`: sublanes and lanes turned together."""

    target: Reg
    dtype: DType
    source: Reg
    amount: int
    when: Index | None = None
    mnemonic = "rotate"
    unit = "cross"

    @property
    def reads(self) -> tuple[Reg, ...]:
        return (self.source,)

    @property
    def writes(self) -> Reg:
        return self.target

    def cost(self) -> Cost:
        return Cost(self.unit, busy=max(1, self.dtype.bits // 32), latency=12)

    def meaning(self) -> Kernel:
        place = ix.mod(ix.add(LANE, ix.number(self.amount % LANES)), LANES)
        return lanewise_kernel(
            [array_of(self.dtype), array_of(self.dtype, writable=True)], LANE, expressions.load(self.dtype, 0, place)
        )


@dataclass(frozen=True)
class Move(Instruction):
    """`target = source`, one of them a spill slot: registers from 64 on are tiles of VMEM that only this touches."""

    target: Reg
    dtype: DType
    source: Reg
    when: Index | None = None
    mnemonic = "move"
    unit = "load"

    @property
    def reads(self) -> tuple[Reg, ...]:
        return (self.source,)

    @property
    def writes(self) -> Reg:
        return self.target

    def cost(self) -> Cost:
        spills = self.target.number >= REGISTERS
        return Cost("store" if spills else "load", busy=max(1, self.dtype.bits // 32))

    def meaning(self) -> Kernel:
        return lanewise_kernel(
            [array_of(self.dtype), array_of(self.dtype, writable=True)], LANE, expressions.load(self.dtype, 0, LANE)
        )

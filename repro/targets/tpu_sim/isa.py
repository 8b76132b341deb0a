"""The instruction set. Each instruction is one declaration: its fields, what it costs, its meaning as loop IR.

A meaning is a kernel over the instruction's operands as flat arrays (registers of 1024 elements, memory from
the place that the instruction names, so the address is added before), sources first, what it writes last.
The simulator executes an instruction by code compiled from that kernel or by NumPy, which tests hold to it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar

from repro.ir import index as ix
from repro.ir import loops
from repro.ir.loops import BufferParameter, Expr, Kernel
from repro.ir.types import BOOL, DType
from repro.targets.tpu_sim import operands as op
from repro.targets.tpu_sim.costs import Cost, alu_passes
from repro.targets.tpu_sim.operands import LANES, LINEAR, Dim, Index, Pattern, Ref, Reg

FAR = 1 << 40
"""The extent of memory in a meaning: the simulator checks addresses before."""


@dataclass(frozen=True)
class Instruction:
    """`when`, where given, is a predicate of the scalar core: the instruction runs if its value is at least 0."""

    mnemonic: ClassVar[str]
    unit: ClassVar[str]

    @property
    def predicate(self) -> Index | None:
        """Its `when`."""
        return getattr(self, "when", None)

    @property
    def reads(self) -> tuple[Reg, ...]:
        """Registers it reads."""
        return ()

    @property
    def writes(self) -> Reg | None:
        """The register it writes."""
        return None

    @property
    def result_type(self) -> DType | None:
        """The type of what it writes to a register."""
        return None if self.writes is None else getattr(self, "result", None) or getattr(self, "dtype", None)

    def cost(self) -> Cost:
        """Cycles that do not depend on the chip; transfers and the matrix unit are timed by the chip's data."""
        return Cost(self.unit)


_LANE = ix.axis(0, LANES)


def _array(dtype: DType, elements: int = LANES, writable: bool = False) -> BufferParameter:
    return BufferParameter(dtype, elements, writable)


def _kernel(buffers: list[BufferParameter], offset: Expr, value: Expr, when: Expr | None = None) -> Kernel:
    return Kernel(tuple(buffers), (), (_LANE,), 0, (loops.Store(len(buffers) - 1, offset, value, when),))


def lane_offset(pattern: Pattern) -> Expr:
    """The element that each lane stands for, from the place named."""
    parts, step = list[Expr](), LANES
    for count, stride in pattern.digits:
        step //= count
        parts.append(ix.scale(ix.mod(ix.floordiv(_LANE, step), count), stride))
    return ix.add(*parts)


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
        return _kernel([_array(self.dtype, writable=True)], _LANE, loops.const(self.dtype, self.bits))


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
        value = loops.convert(lane_offset(self.pattern), self.dtype)
        return _kernel([_array(self.dtype, writable=True)], _LANE, value)


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
        operands = [loops.load(dtype, number, _LANE) for number, dtype in enumerate(types)]
        if self.operation in ("convert", "bitcast"):
            value: Expr = loops.Apply(self.result, (self.operation,), tuple(operands))
        else:
            value = loops.apply(self.operation, *operands)
        return _kernel([*map(_array, types), _array(self.result, writable=True)], _LANE, value)


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
        value = loops.lookup(self.dtype, entries, loops.load(self.index, 0, _LANE))
        return _kernel([_array(self.index), _array(self.dtype, writable=True)], _LANE, value)


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
    def writes(self) -> Reg:
        return self.target

    def cost(self) -> Cost:
        return Cost(self.unit, busy=_access(self.pattern, self.dtype))

    def meaning(self) -> Kernel:
        value = loops.load(self.dtype, 0, lane_offset(self.pattern))
        return _kernel([_array(self.dtype, FAR), _array(self.dtype, writable=True)], _LANE, value)


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
    def reads(self) -> tuple[Reg, ...]:
        return (self.source,) if self.mask is None else (self.source, self.mask)

    def cost(self) -> Cost:
        return Cost(self.unit, busy=_access(self.pattern, self.dtype))

    def meaning(self) -> Kernel:
        when = None if self.mask is None else loops.load(BOOL, 1, _LANE)
        masks = [] if self.mask is None else [_array(BOOL)]
        buffers = [_array(self.dtype), *masks, _array(self.dtype, FAR, writable=True)]
        return _kernel(buffers, lane_offset(self.pattern), loops.load(self.dtype, 0, _LANE), when)


def _access(pattern: Pattern, dtype: DType) -> int:
    """Cycles: eight runs at a time, one for each sublane; 64-bit elements are two words."""
    return -(-pattern.runs // 8) * max(1, dtype.bits // 32)


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
    def reads(self) -> tuple[Reg, ...]:
        return (self.index,) if self.mask is None else (self.index, self.mask)

    @property
    def writes(self) -> Reg:
        return self.target

    def cost(self) -> Cost:
        return Cost(self.unit, busy=128 * max(1, self.dtype.bits // 32))

    def meaning(self) -> Kernel:
        when = None if self.mask is None else loops.load(BOOL, 1, _LANE)
        masks = [] if self.mask is None else [_array(BOOL)]
        place = loops.convert(loops.load(self.index_type, 0, _LANE), ix.number(0).dtype)
        value = loops.load(self.dtype, len(masks) + 1, place, when)
        buffers = [_array(self.index_type), *masks, _array(self.dtype, FAR), _array(self.dtype, writable=True)]
        return _kernel(buffers, _LANE, value)


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
    def reads(self) -> tuple[Reg, ...]:
        return (self.index, self.source) if self.mask is None else (self.index, self.source, self.mask)

    def cost(self) -> Cost:
        return Cost(self.unit, busy=128 * max(1, self.dtype.bits // 32))

    def meaning(self) -> Kernel:
        when = None if self.mask is None else loops.load(BOOL, 2, _LANE)
        masks = [] if self.mask is None else [_array(BOOL)]
        place = loops.convert(loops.load(self.index_type, 0, _LANE), ix.number(0).dtype)
        buffers = [_array(self.index_type), _array(self.dtype), *masks, _array(self.dtype, FAR, writable=True)]
        return _kernel(buffers, place, loops.load(self.dtype, 1, _LANE), when)


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
        place = ix.mod(ix.add(_LANE, ix.number(self.amount % LANES)), LANES)
        return _kernel([_array(self.dtype), _array(self.dtype, writable=True)], _LANE, loops.load(self.dtype, 0, place))


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

    def cost(self) -> Cost:
        words = max(1, self.dtype.bits // 32)
        return Cost(self.unit, busy=max(self.rows, self.columns) * words, latency=op.COLUMNS)

    def meaning(self) -> Kernel:
        r, c = ix.axis(0, self.rows), ix.axis(1, self.columns)
        value = loops.load(self.dtype, 0, ix.add(ix.scale(r, self.source_pitch), c))
        place = ix.add(ix.scale(c, self.target_pitch), r)
        buffers = (_array(self.dtype, FAR), _array(self.dtype, FAR, writable=True))
        return Kernel(buffers, (), (r, c), 0, (loops.Store(1, place, value),))


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
        spills = self.target.number >= op.REGISTERS
        return Cost("store" if spills else "load", busy=max(1, self.dtype.bits // 32))

    def meaning(self) -> Kernel:
        return _kernel([_array(self.dtype), _array(self.dtype, writable=True)], _LANE, loops.load(self.dtype, 0, _LANE))


# ── matrix unit ─────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Push(Instruction):
    """Loads weights into one of the two slots of a matrix unit: cell (k, n) for k < depth, n < width holds
    `source[k * pitch + n]`, or with `turned` `source[n * pitch + k]`. Depth and width are at most the array's size."""

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

    def meaning(self) -> Kernel:
        k, n = ix.axis(0, self.depth), ix.axis(1, self.width)
        slow, fast = (n, k) if self.turned else (k, n)
        value = loops.load(self.dtype, 0, ix.add(ix.scale(slow, self.pitch), fast))
        place = ix.add(ix.scale(k, self.width), n)
        buffers = (_array(self.dtype, FAR), _array(self.dtype, self.depth * self.width, writable=True))
        return Kernel(buffers, (), (k, n), 0, (loops.Store(1, place, value),))


@dataclass(frozen=True)
class Matmul(Instruction):
    """Streams rows through a matrix unit. For m < rows, n < width of the slot's weights, k < their depth, ascending:

        sum[m, n] = fma(data[m * data_pitch + k], weights[k, n], sum[m, n])

    `sum` lies in VMEM at `sums[m * sums_pitch + n]`: partial sums enter at the top and leave at the bottom; `fresh`
    starts them at +0.0. A cell takes no part in a term whose valid bit (bool, `valid[m * data_pitch + k]`) is off.
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
    when: Index | None = None
    mnemonic = "matmul"
    unit = "matrix"

    def meaning(self, depth: int, width: int) -> Kernel:
        """Dense: data (and valid bits) rows x depth, weights depth x width, sums rows x width; sums are read."""
        return chain(self.dtype, self.rows, depth, width, self.valid is not None)


def chain(dtype: DType, rows: int, depth: int, width: int, checked: bool) -> Kernel:
    """Ascending fma onto what the sums hold, as a kernel: k is serial, so each step sees the last one's sums."""
    k, m, n = ix.axis(0, depth), ix.axis(1, rows), ix.axis(2, width)
    term, place = ix.add(ix.scale(m, depth), k), ix.add(ix.scale(m, width), n)
    target = 3 if checked else 2
    data = loops.load(dtype, 0, term)
    value = loops.apply(
        "fma", data, loops.load(dtype, 1, ix.add(ix.scale(k, width), n)), loops.load(dtype, target, place)
    )
    if checked:
        value = loops.apply("select", loops.load(BOOL, 2, term), value, loops.load(dtype, target, place))
    buffers = [_array(dtype, rows * depth), _array(dtype, depth * width)]
    buffers += [_array(BOOL, rows * depth)] if checked else []
    buffers.append(_array(dtype, rows * width, writable=True))
    return Kernel(tuple(buffers), (), (k, m, n), 1, (loops.Store(target, place, value),))


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

    def meaning(self, steps: tuple[int, ...]) -> Kernel:
        axes = tuple(ix.axis(number, count) for number, count in enumerate(steps))
        source = ix.add(ix.number(0), *(ix.scale(a, d.source) for a, d in zip(axes, self.dims, strict=True)))
        target = ix.add(ix.number(0), *(ix.scale(a, d.target) for a, d in zip(axes, self.dims, strict=True)))
        buffers = (_array(self.dtype, FAR), _array(self.dtype, FAR, writable=True))
        return Kernel(buffers, (), axes, 0, (loops.Store(1, target, loops.load(self.dtype, 0, source)),))


@dataclass(frozen=True)
class Wait(Instruction):
    """Stops until the semaphore holds `count`, then takes them; the oldest copies on it are then done."""

    semaphore: Index
    count: int = 1
    when: Index | None = None
    mnemonic = "wait"
    unit = "scalar"


CODES: dict[str, type[Any]] = {
    code.mnemonic: code
    for code in (
        Constant, Iota, Alu, Lookup, Load, Store, Gather, Scatter, Rotate, Transpose, Move, Push, Matmul, Dma, Wait,
    )
}  # fmt: skip


# ── text form ───────────────────────────────────────────────────────────────────────────────────────


def _parse_flag(text: str) -> bool:
    return {"yes": True, "no": False}[text]


_PARSE: dict[str, Any] = {
    "Reg": op.parse_reg,
    "DType": op.parse_dtype,
    "Index": op.parse_index,
    "Ref": op.parse_ref,
    "Pattern": op.parse_pattern,
    "int": int,
    "str": str,
    "bool": _parse_flag,
    "tuple[Reg, ...]": lambda text: tuple(op.parse_reg(part) for part in text.split(",")),
    "tuple[Dim, ...]": op.parse_dims,
}


def _word(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case DType():
            return value.name
        case tuple():
            parts: tuple[object, ...] = value
            return ",".join(map(str, parts))
        case _:
            return str(value)


def instruction_text(instruction: Instruction) -> str:
    """One line: the mnemonic, the fields in their order (`-` for none), the predicate last."""
    names = [field.name for field in fields(instruction) if field.name != "when"]
    words = [instruction.mnemonic, *(_word(getattr(instruction, name)) for name in names)]
    when = instruction.predicate
    return " ".join(words if when is None else [*words, "when", str(when)])


def parse_instruction(text: str) -> Instruction:
    """The inverse of `instruction_text`. Raises ValueError or KeyError."""
    mnemonic, *words = text.split()
    code = CODES[mnemonic]
    when = None
    if len(words) > 1 and words[-2] == "when":
        when = op.parse_index(words[-1])
        words = words[:-2]
    declared = [field for field in fields(code) if field.name != "when"]
    values = list[object]()
    for field, word in zip(declared, words, strict=True):
        kind = str(field.type)
        optional = kind.endswith(" | None")
        if optional and word == "-":
            values.append(None)
        else:
            values.append(_PARSE[kind.removesuffix(" | None")](word))
    return code(*values, when=when)

"""Lookups in small tables of constants: register permutes where a machine has them, selects elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from repro.ir.expressions import Lookup
from repro.ir.types import F32, F64, I32, DType
from repro.machines import Machine
from repro.targets.llvm import scalars
from repro.targets.llvm.text import Function, Val, element, literal, vector

Permute = Callable[[Function, Val, Val], Val]


def lookup(f: Function, expr: Lookup, index: Val, machine: Machine) -> Val:
    """table[index mod n] in every lane."""
    lanes = machine.permute_bits // expr.dtype.bits
    permute = _PERMUTES.get((expr.dtype, lanes))
    if permute is None or index.width % lanes or len(expr.table) > 2 * lanes:
        return _selected(f, expr, index, expr.table, 1)
    table = expr.table * max(1, lanes // len(expr.table))
    registers = [_entries(expr.dtype, table[start : start + lanes]) for start in range(0, len(table), lanes)]
    starts = range(0, index.width, lanes)
    return joined(f, [_permuted(f, permute, registers, lanes_of(f, index, start, lanes)) for start in starts])


def _selected(f: Function, expr: Lookup, index: Val, table: Sequence[int], step: int) -> Val:
    """A tree of selects over the bits of the index, the highest last."""
    if len(table) == 1:
        return scalars.constant(f, expr.dtype, table[0], index.width)
    halves = [_selected(f, expr, index, table[::2], step * 2), _selected(f, expr, index, table[1::2], step * 2)]
    bit = scalars.binary(f, "and", index, scalars.constant(f, index.dtype, step, index.width))
    odd = scalars.compare(f, "ne", bit, scalars.constant(f, index.dtype, 0, index.width))
    return scalars.select(f, odd, halves[1], halves[0])


def _permuted(f: Function, permute: Permute, registers: Sequence[Val], index: Val) -> Val:
    """Entries of one register, or of two chosen by the index's next bit. Permutes read an index's low bits alone."""
    if len(registers) == 1:
        return permute(f, registers[0], index)
    dtype = registers[0].dtype
    both = _OF_TWO.get((dtype, index.width))
    if both is not None:
        return f.call(f"llvm.x86.{both}", registers[0], [registers[0], index, registers[1]])
    found = [permute(f, register, index) for register in registers]
    up = scalars.constant(f, index.dtype, index.dtype.bits - index.width.bit_length(), index.width)
    sign = scalars.intrinsic(f, "arithmetic.fence", scalars.bitcast(f, scalars.binary(f, "shl", index, up), dtype))
    return f.call(f"llvm.x86.{_BLENDS[dtype, index.width]}", registers[0], [*found, sign])


def _instruction(name: str) -> Permute:
    return lambda f, table, index: f.call(f"llvm.x86.{name}", table, [table, index])


def _permute_f64_256(f: Function, table: Val, index: Val) -> Val:
    """vpermps on pairs of words 2i, 2i + 1; there is none for whole f64s."""
    words = f.let(f"bitcast {index.typed} to <8 x i32>", I32, 8)
    low = ", ".join(f"i32 {lane - lane % 2}" for lane in range(8))
    both = f.let(f"shufflevector {words.typed}, {words.type} poison, <8 x i32> <{low}>", I32, 8)
    doubled = f.add(both, both)
    second = ", ".join(f"i32 {lane % 2}" for lane in range(8))
    pairs = f.let(f"or {doubled.typed}, <{second}>", I32, 8)
    halves = f.let(f"bitcast {table.typed} to <8 x float>", F32, 8)
    found = _PERMUTES[F32, 8](f, halves, pairs)
    return f.let(f"bitcast {found.typed} to <4 x double>", F64, 4)


_PERMUTES: dict[tuple[DType, int], Permute] = {
    (F64, 8): _instruction("avx512.permvar.df.512"),
    (F32, 16): _instruction("avx512.permvar.sf.512"),
    (F64, 4): _permute_f64_256,
    (F32, 8): _instruction("avx2.permps"),
}
"""By the entries' type and a register's lanes: of a table and an index."""
_OF_TWO = {(F64, 8): "avx512.vpermi2var.pd.512", (F32, 16): "avx512.vpermi2var.ps.512"}
"""Permutes of the lanes of two registers, by one bit more of the index."""
_BLENDS = {(F64, 4): "avx.blendv.pd.256", (F32, 8): "avx.blendv.ps.256"}
"""Selects by the sign of a lane. Written as a compare, or where LLVM sees how the sign came about, it makes three
instructions of it; a fence is no instruction, and nothing is seen through it."""


def _entries(dtype: DType, table: Sequence[int]) -> Val:
    return Val(f"<{', '.join(literal(dtype, bits).typed for bits in table)}>", dtype, len(table))


def lanes_of(f: Function, value: Val, start: int, width: int) -> Val:
    """A run of lanes of a wider value; of one lane, a scalar."""
    if value.width == width:
        return value
    if width == 1:
        return f.let(f"extractelement {value.typed}, i64 {start}", value.dtype)
    mask = ", ".join(f"i32 {start + lane}" for lane in range(width))
    text = f"shufflevector {value.typed}, {value.type} poison, <{width} x i32> <{mask}>"
    return f.let(text, value.dtype, width)


def joined(f: Function, parts: Sequence[Val]) -> Val:
    """Equal parts as one value, pair by pair."""
    while len(parts) > 1:
        parts = [_pair(f, a, b) for a, b in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def _pair(f: Function, a: Val, b: Val) -> Val:
    width = 2 * a.width
    mask = ", ".join(f"i32 {lane}" for lane in range(width))
    text = f"shufflevector {a.typed}, {vector(element(b.dtype), b.width)} {b.text}, <{width} x i32> <{mask}>"
    return f.let(text, a.dtype, width)


def interleaved(f: Function, parts: Sequence[Val]) -> Val:
    """The lanes of vectors of one width in turn: the first of each, then the second of each."""
    lanes, whole = parts[0].width, joined(f, list(parts))
    picks = ", ".join(f"i32 {part * lanes + lane}" for lane in range(lanes) for part in range(len(parts)))
    text = f"shufflevector {whole.typed}, {whole.type} poison, <{whole.width} x i32> <{picks}>"
    return f.let(text, whole.dtype, whole.width)

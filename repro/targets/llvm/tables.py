"""Lookups in small tables of constants: register permutes where a machine has them, selects elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

from repro.ir.loops import Lookup
from repro.ir.types import F64
from repro.machines import Machine
from repro.targets.llvm import scalars
from repro.targets.llvm.text import Function, Val, element, literal, vector


def lookup(f: Function, expr: Lookup, index: Val, machine: Machine) -> Val:
    """table[index mod n] in every lane."""
    lanes = machine.permuted_f64
    if expr.dtype is F64 and lanes and index.width % lanes == 0 and len(expr.table) in (lanes, 2 * lanes):
        parts = [_permuted(f, expr, _lanes(f, index, start, lanes)) for start in range(0, index.width, lanes)]
        return _joined(f, parts)
    return _selected(f, expr, index, expr.table, 1)


def _selected(f: Function, expr: Lookup, index: Val, table: Sequence[int], step: int) -> Val:
    """A tree of selects over the bits of the index, the highest last."""
    if len(table) == 1:
        return scalars.constant(f, expr.dtype, table[0], index.width)
    halves = [_selected(f, expr, index, table[::2], step * 2), _selected(f, expr, index, table[1::2], step * 2)]
    bit = scalars.binary(f, "and", index, scalars.constant(f, index.dtype, step, index.width))
    odd = scalars.compare(f, "ne", bit, scalars.constant(f, index.dtype, 0, index.width))
    return scalars.select(f, odd, halves[1], halves[0])


def _permuted(f: Function, expr: Lookup, index: Val) -> Val:
    """vpermpd, or vpermt2pd for two registers' worth of entries; both read the low bits of the index."""
    width = index.width
    tables = [_entries(expr.table[start : start + width]) for start in range(0, len(expr.table), width)]
    if len(tables) == 1:
        return f.call(f"llvm.x86.avx512.permvar.df.{64 * width}", (F64, width), [tables[0], index])
    return f.call(f"llvm.x86.avx512.vpermi2var.pd.{64 * width}", (F64, width), [tables[0], index, tables[1]])


def _entries(table: Sequence[int]) -> Val:
    return Val(f"<{', '.join(literal(F64, bits).typed for bits in table)}>", F64, len(table))


def _lanes(f: Function, value: Val, start: int, width: int) -> Val:
    """A run of lanes of a wider value."""
    if value.width == width:
        return value
    mask = ", ".join(f"i32 {start + lane}" for lane in range(width))
    text = f"shufflevector {value.typed}, {value.type} poison, <{width} x i32> <{mask}>"
    return f.let(text, value.dtype, width)


def _joined(f: Function, parts: Sequence[Val]) -> Val:
    """Equal parts as one value, pair by pair."""
    while len(parts) > 1:
        parts = [_pair(f, a, b) for a, b in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def _pair(f: Function, a: Val, b: Val) -> Val:
    width = 2 * a.width
    mask = ", ".join(f"i32 {lane}" for lane in range(width))
    text = f"shufflevector {a.typed}, {vector(element(b.dtype), b.width)} {b.text}, <{width} x i32> <{mask}>"
    return f.let(text, a.dtype, width)

"""Byte dots (repro.ir.byte_dot) of vectors of quads: by one instruction, or by those that add pairs of products.

x86 multiplies pairs of i16 and adds them (PMADDWD), which never overflows for bytes: every other byte of a quad is one
element of such a pair, and the others are shifted to their places. The instruction for bytes (PMADDUBSW) saturates, so
it would not give the sum. VNNI adds four products of bytes to a total in one instruction (VPDPBUSD), which wraps.
"""

from __future__ import annotations

from repro.ir.byte_dot import BYTES
from repro.ir.types import I8, I16, I32, DType
from repro.machines import Machine
from repro.targets.llvm import scalars
from repro.targets.llvm.text import Function, Val, element, vector

PAIRS = {4: "sse2.pmadd.wd", 8: "avx2.pmadd.wd", 16: "avx512.pmaddw.d.512"}
"""The intrinsic that adds pairs of products, by lanes of i32."""
QUADS = {4: "128", 8: "256", 16: "512"}
"""The ending of the one that adds four products of bytes, by the same."""


def add_dot(f: Function, machine: Machine, unsigned: Val, signed: Val, total: Val) -> Val:
    """total + the byte dot of two vectors of quads, i32 lanes."""
    width = total.width
    if machine.adds_quads and width in QUADS:
        quads = [_as(f, each, I8, BYTES * width) for each in (unsigned, signed)]
        return f.call(f"llvm.x86.avx512.vpdpbusd.{QUADS[width]}", (I32, width), [total, *quads])
    if machine.adds_pairs and width in PAIRS:
        for parts in zip(_halves(f, unsigned, signed=False), _halves(f, signed, signed=True), strict=True):
            total = scalars.binary(f, "add", total, f.call(f"llvm.x86.{PAIRS[width]}", (I32, width), list(parts)))
        return total
    return scalars.binary(f, "add", total, _plain(f, unsigned, signed))


def _halves(f: Function, quads: Val, signed: bool) -> tuple[Val, Val]:
    """The even bytes, and the odd ones, as i16."""
    words = _as(f, quads, I16, 2 * quads.width)
    eight = scalars.constant(f, I16, 8, words.width)
    if signed:
        even = scalars.binary(f, "ashr", scalars.binary(f, "shl", words, eight), eight)
        return even, scalars.binary(f, "ashr", words, eight)
    even = scalars.binary(f, "and", words, scalars.constant(f, I16, 0xFF, words.width))
    return even, scalars.binary(f, "lshr", words, eight)


def _plain(f: Function, unsigned: Val, signed: Val) -> Val:
    """The products one after another."""
    total = scalars.constant(f, I32, 0, unsigned.width)
    for number in range(BYTES):
        shifted = [
            scalars.binary(f, "shl", each, scalars.constant(f, I32, 8 * (BYTES - 1 - number), each.width))
            for each in (unsigned, signed)
        ]
        last = scalars.constant(f, I32, 8 * (BYTES - 1), unsigned.width)
        left, right = scalars.binary(f, "lshr", shifted[0], last), scalars.binary(f, "ashr", shifted[1], last)
        total = scalars.binary(f, "add", total, scalars.binary(f, "mul", left, right))
    return total


def _as(f: Function, value: Val, dtype: DType, width: int) -> Val:
    return f.let(f"bitcast {value.typed} to {vector(element(dtype), width)}", dtype, width)

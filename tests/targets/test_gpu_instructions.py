"""Each instruction of the PTX interpreter against cases worked out by hand, and what it does not know."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from repro.errors import InternalError
from repro.ir.types import Array
from repro.targets.gpu.interpreter.grid import decoded
from tests.targets.ptx import THREAD, at, module, run


def f32(value: float) -> int:
    return struct.unpack("<I", struct.pack("<f", value))[0]


def f64(value: float) -> int:
    return struct.unpack("<Q", struct.pack("<d", value))[0]


def words(*values: int, bits: int = 32) -> Array:
    return np.array([value % (1 << bits) for value in values], f"u{bits // 8}")


# ── one instruction each ────────────────────────────────────────────────────────────────────────────

INF, NAN = float("inf"), float("nan")
INSTRUCTIONS: list[tuple[str, list[int], int]] = [
    # (opcode, operands as bits, result as bits), all operands and the result of the widths that the opcode names
    ("add.s32", [0xFFFFFFFF, 2], 1),
    ("sub.s64", [0, 1], (1 << 64) - 1),
    ("mul.lo.s32", [0x10000, 0x10001], 0x10000),
    ("mul.hi.u32", [0xFFFFFFFF, 0xFFFFFFFF], 0xFFFFFFFE),
    ("mul.hi.s32", [0xFFFFFFFF, 5], 0xFFFFFFFF),
    ("mul.hi.u64", [(1 << 64) - 1, (1 << 64) - 1], (1 << 64) - 2),
    ("mul.hi.s64", [(1 << 64) - 3, 7], (1 << 64) - 1),
    ("mul.hi.u16", [0xFFFF, 0x8000], 0x7FFF),
    ("mad.lo.s64", [3, 5, (1 << 64) - 16], (1 << 64) - 1),
    ("div.s32", [(1 << 32) - 7, 2], (1 << 32) - 3),
    ("rem.s32", [(1 << 32) - 7, 2], (1 << 32) - 1),
    ("div.u64", [(1 << 64) - 1, 10], 1844674407370955161),
    ("rem.u64", [(1 << 64) - 1, 10], 5),
    ("min.s32", [(1 << 32) - 1, 1], (1 << 32) - 1),
    ("max.u32", [(1 << 32) - 1, 1], (1 << 32) - 1),
    ("neg.s64", [1], (1 << 64) - 1),
    ("abs.s32", [(1 << 32) - 9], 9),
    ("and.b32", [0b1100, 0b1010], 0b1000),
    ("or.b64", [0b1100, 0b1010], 0b1110),
    ("xor.b16", [0b1100, 0b1010], 0b0110),
    ("not.b32", [0], 0xFFFFFFFF),
    ("popc.b32", [0xF0F00001], 9),
    ("clz.b32", [0x00010000], 15),
    ("clz.b32", [0], 32),
    ("brev.b32", [0x00000001], 0x80000000),
    ("prmt.b32", [0x33221100, 0x77665544, 0x7531], 0x77553311),
    ("prmt.b32", [0x00000080, 0, 0x8888], 0xFFFFFFFF),
    ("bfe.u64", [0xABCD << 8, 8, 12], 0xBCD),
    ("bfe.s32", [0x00000F00, 8, 4], 0xFFFFFFFF),
    ("bfe.u32", [0xFFFFFFFF, 28, 32], 0xF),
    ("bfi.b32", [0x5, 0xFFFF0000, 4, 4], 0xFFFF0050),
    ("shf.l.wrap.b32", [0x80000001, 0x12345678, 4], 0x23456788),
    ("shf.r.wrap.b32", [0x80000001, 0x12345678, 4], 0x88000000),
    ("shf.l.clamp.b32", [0x80000001, 0x12345678, 40], 0x80000001),
    ("add.rn.f32", [f32(1.0), f32(2.0**-24)], f32(1.0)),
    ("sub.rn.f64", [f64(1.0), f64(3.0)], f64(-2.0)),
    ("mul.rn.f32", [1, f32(0.5)], 0),  # half of the least subnormal: a tie, to even
    ("mul.rn.f32", [3, f32(0.5)], 2),
    ("div.rn.f32", [f32(1.0), f32(3.0)], 0x3EAAAAAB),
    ("sqrt.rn.f64", [f64(2.0)], 0x3FF6A09E667F3BCD),
    ("rcp.rn.f32", [f32(3.0)], 0x3EAAAAAB),
    ("fma.rn.f32", [f32(411849 * 2.0**-30), f32(20857 * 2.0**-27), f32(1.0)], f32(1 + 2.0**-23)),
    ("fma.rn.f64", [f64(1 + 2.0**-52), f64(1 - 2.0**-52), f64(-1.0)], f64(-(2.0**-104))),
    ("fma.rn.f64", [f64(2.0**1000), f64(2.0**1000), f64(-INF)], f64(-INF)),
    ("neg.f32", [f32(0.0)], f32(-0.0)),
    ("abs.f64", [f64(-2.5)], f64(2.5)),
    ("abs.f32", [f32(-0.0)], f32(0.0)),
    ("min.f32", [f32(0.0), f32(-0.0)], f32(-0.0)),
    ("max.f32", [f32(-0.0), f32(0.0)], f32(0.0)),
    ("min.f32", [f32(NAN), f32(3.0)], f32(3.0)),
    ("max.NaN.f32", [f32(NAN), f32(3.0)], f32(NAN)),
    ("copysign.f64", [f64(-0.0), f64(2.0)], f64(-2.0)),
    ("add.s16", [0x7FFF, 1], 0x8000),
    ("add.s64", [(1 << 63) - 1, 1], 1 << 63),
    ("add.u64", [(1 << 64) - 1, 2], 1),
    ("sub.s16", [0, 1], 0xFFFF),
    ("sub.s32", [0x80000000, 1], 0x7FFFFFFF),
    ("mul.lo.s16", [300, 300], 0x5F90),
    ("mul.lo.s64", [(1 << 32) + 1, (1 << 32) + 1], (1 << 33) + 1),
    ("mad.lo.s16", [256, 256, 7], 7),
    ("mad.lo.s32", [0xFFFFFFFF, 3, 1], 0xFFFFFFFE),
    ("dp4a.u32.s32", [0xFF800201, 0x80FF7F03, 10], 0xFFFF810B),  # 1 x 3 + 2 x 127 - 128 - 255 x 128 + 10
    ("dp4a.u32.s32", [1, 1, 0x7FFFFFFF], 0x80000000),
    ("mul.wide.s32", [0xFFFFFFFF, 5], (1 << 64) - 5),
    ("mul.wide.u32", [0xFFFFFFFF, 0xFFFFFFFF], 0xFFFFFFFE00000001),
    ("mul.wide.u16", [0xFFFF, 0xFFFF], 0xFFFE0001),
    ("and.b16", [0xFF0F, 0x0FF0], 0x0F00),
    ("and.b64", [1 << 63 | 1, 3 << 62], 1 << 63),
    ("or.b16", [0xF000, 0x000F], 0xF00F),
    ("or.b32", [0x80000000, 1], 0x80000001),
    ("max.s64", [(1 << 64) - 1, 1], 1),
    ("min.s64", [(1 << 64) - 1, 1], (1 << 64) - 1),
    ("min.u32", [0xFFFFFFFF, 1], 1),
    ("min.u64", [(1 << 64) - 1, 1], 1),
    ("add.rn.f64", [f64(1.0), f64(2.0**-53)], f64(1.0)),
    ("add.rn.f64", [f64(1.0 + 2.0**-52), f64(2.0**-53)], f64(1.0 + 2.0**-51)),
    ("add.rn.f32", [f32(INF), f32(-INF)], f32(NAN)),
    ("add.rn.f32", [f32(-0.0), f32(0.0)], f32(0.0)),
    ("add.rn.f32", [0x7F7FFFFF, 0x73000000], f32(INF)),  # half an ulp above the largest: to even, which is infinity
    ("sub.rn.f32", [0x00800000, 1], 0x007FFFFF),
    ("mul.rn.f32", [f32(INF), f32(0.0)], f32(NAN)),
    ("mul.rn.f64", [1, f64(0.5)], 0),
    ("mul.rn.f64", [3, f64(0.5)], 2),
    ("div.rn.f32", [f32(-1.0), f32(0.0)], f32(-INF)),
    ("div.rn.f32", [f32(0.0), f32(0.0)], f32(NAN)),
    ("div.rn.f32", [3, f32(2.0)], 2),
    ("div.rn.f64", [f64(1.0), f64(3.0)], 0x3FD5555555555555),
    ("sqrt.rn.f32", [f32(2.0)], 0x3FB504F3),
    ("sqrt.rn.f32", [f32(-0.0)], f32(-0.0)),
    ("sqrt.rn.f32", [f32(-1.0)], f32(NAN)),
    ("rcp.rn.f32", [f32(-0.0)], f32(-INF)),
    ("fma.rn.f32", [f32(2.0**-75), f32(2.0**-75), 0], 0),  # a tie under the least subnormal
    ("fma.rn.f32", [f32(2.0**-75), f32(2.0**-75), 1], 2),
    ("fma.rn.f32", [f32(2.0**-75), f32(-(2.0**-75)), 1], 0),
    ("fma.rn.f32", [f32(2.0**127), f32(2.0), f32(-(2.0**127))], f32(2.0**127)),
    ("fma.rn.f32", [f32(1.0), f32(-1.0), f32(1.0)], f32(0.0)),
    ("fma.rn.f32", [f32(0.0), f32(-1.0), f32(-0.0)], f32(-0.0)),
    ("fma.rn.f32", [f32(INF), f32(0.0), f32(1.0)], f32(NAN)),
    ("fma.rn.f32", [f32(INF), f32(1.0), f32(-INF)], f32(NAN)),
    ("fma.rn.f32", [f32(1.0), f32(1.0), f32(NAN)], f32(NAN)),
    ("fma.rn.f64", [f64(2.0**1023), f64(2.0), f64(-(2.0**1023))], f64(2.0**1023)),
    ("fma.rn.f64", [1, 1, f64(-0.0)], 0),  # not 0, so the sign is the product's
    ("fma.rn.f64", [1, 1 << 63 | 1, 0], f64(-0.0)),
    ("neg.f64", [f64(NAN)], f64(NAN)),
    ("neg.f64", [f64(1.5)], f64(-1.5)),
    ("min.NaN.f32", [f32(NAN), f32(3.0)], f32(NAN)),
    ("min.NaN.f32", [f32(0.0), f32(-0.0)], f32(-0.0)),
    ("max.NaN.f32", [f32(-0.0), f32(0.0)], f32(0.0)),
]
CONVERSIONS: list[tuple[str, int, int]] = [
    ("cvt.u64.u32", 0xFFFFFFFF, 0xFFFFFFFF),
    ("cvt.s64.s32", 0xFFFFFFFF, (1 << 64) - 1),
    ("cvt.u16.u32", 0x12345678, 0x5678),
    ("cvt.u32.u16", 0xFFFF, 0xFFFF),
    ("cvt.s32.s8", 0x000001FF, 0xFFFFFFFF),
    ("cvt.rn.f32.f64", f64(1 + 2.0**-24), f32(1.0)),
    ("cvt.rn.f32.f64", f64(1 + 2.0**-24 + 2.0**-52), f32(1 + 2.0**-23)),
    ("cvt.f64.f32", 1, f64(2.0**-149)),
    ("cvt.rn.f32.u64", (1 << 64) - 1, f32(2.0**64)),
    ("cvt.rn.f32.s32", 16777217, f32(16777216.0)),
    ("cvt.rn.f64.s64", (1 << 64) - 1, f64(-1.0)),
    ("cvt.rzi.s32.f32", f32(-2.9), (1 << 32) - 2),
    ("cvt.rzi.s32.f32", f32(NAN), 0),
    ("cvt.rzi.s32.f32", f32(INF), 0x7FFFFFFF),
    ("cvt.rzi.s32.f32", f32(-INF), 0x80000000),
    ("cvt.rzi.u32.f64", f64(-1.0), 0),
    ("cvt.rzi.s64.f64", f64(2.0**63), (1 << 63) - 1),
    ("cvt.rni.f32.f32", f32(2.5), f32(2.0)),
    ("cvt.rmi.f64.f64", f64(-0.5), f64(-1.0)),
    ("cvt.rpi.f64.f64", f64(-0.5), f64(-0.0)),
    ("cvt.rzi.f32.f32", f32(-0.5), f32(-0.0)),
    ("cvt.u64.u16", 0xFFFF, 0xFFFF),
    ("cvt.u16.u64", (1 << 64) - 2, 0xFFFE),
    ("cvt.u32.u64", 0x123456789ABCDEF0, 0x9ABCDEF0),
    ("cvt.rn.f64.u64", (1 << 64) - 1, f64(2.0**64)),
    ("cvt.rn.f64.u64", (1 << 53) + 1, f64(2.0**53)),
    ("cvt.rn.f32.f64", f64(2.0**-150), 0),
    ("cvt.rn.f32.f64", f64(3 * 2.0**-150), 2),
    ("cvt.rn.f32.f64", f64(2.0**128 - 2.0**103), f32(INF)),
    ("cvt.rzi.s64.f64", f64(NAN), 0),
    ("cvt.rzi.u64.f64", f64(2.0**64), (1 << 64) - 1),
    ("cvt.rzi.s32.f64", f64(-(2.0**31) - 0.5), 0x80000000),
]
SHIFTS: list[tuple[str, int, int, int]] = [
    ("shl.b32", 1, 31, 0x80000000),
    ("shl.b32", 1, 32, 0),
    ("shl.b64", 3, 63, 1 << 63),
    ("shr.u32", 0x80000000, 40, 0),
    ("shr.s32", 0x80000000, 40, 0xFFFFFFFF),
    ("shr.s64", 1 << 63, 63, (1 << 64) - 1),
    ("shr.u16", 0x8000, 15, 1),
    ("shl.b16", 1, 15, 0x8000),
    ("shl.b16", 1, 16, 0),
    ("shl.b64", 1, 64, 0),
    ("shr.u64", 1 << 63, 63, 1),
    ("shr.u64", 1 << 63, 0xFFFFFFFF, 0),
    ("shr.s64", 1 << 63, 64, (1 << 64) - 1),
]
COMPARISONS: list[tuple[str, int, int, bool]] = [
    ("lt.s32", 0xFFFFFFFF, 0, True), ("lt.u32", 0xFFFFFFFF, 0, False), ("hs.u32", 1, 1, True),
    ("ge.s64", 0, (1 << 64) - 1, True), ("ne.b32", 1, 1, False), ("eq.b64", 7, 7, True),
    ("eq.f32", f32(0.0), f32(-0.0), True), ("eq.f32", f32(NAN), f32(NAN), False),
    ("ne.f32", f32(NAN), f32(1.0), False), ("neu.f32", f32(NAN), f32(1.0), True),
    ("ltu.f32", f32(NAN), f32(1.0), True), ("lt.f64", f64(1.0), f64(2.0), True),
    ("geu.f64", f64(1.0), f64(2.0), False), ("equ.f64", f64(NAN), f64(2.0), True),
    ("num.f32", f32(NAN), f32(1.0), False), ("nan.f32", f32(NAN), f32(1.0), True),
    ("nan.f64", f64(1.0), f64(NAN), True), ("nan.f64", f64(1.0), f64(INF), False),
    ("eq.b16", 0xFFFF, 0xFFFF, True), ("ne.b16", 1, 0, True), ("eq.b32", 1, 2, False), ("ne.b64", 1 << 63, 0, True),
    ("gt.u16", 0x8000, 1, True), ("lt.u16", 0x8000, 1, False), ("gt.u32", 0x80000000, 1, True),
    ("gt.u64", 1 << 63, 1, True), ("lt.u64", 1 << 63, 1, False), ("lt.s64", 1 << 63, 1, True),
    ("eq.f64", f64(-0.0), f64(0.0), True), ("ne.f64", f64(NAN), f64(NAN), False), ("ge.f32", f32(NAN), 0, False),
    ("gt.f32", f32(INF), 0x7F7FFFFF, True), ("gt.f64", f64(NAN), f64(1.0), False), ("le.f32", 1, 1, True),
    ("lt.f32", f32(-0.0), f32(0.0), False), ("leu.f64", f64(NAN), f64(1.0), True),
    ("leu.f64", f64(2.0), f64(1.0), False), ("ltu.f64", f64(1.0), f64(1.0), False),
    ("gtu.f32", f32(NAN), f32(1.0), True), ("gtu.f32", f32(2.0), f32(1.0), True),
    ("gtu.f32", f32(1.0), f32(1.0), False), ("gtu.f64", f64(1.0), f64(NAN), True),
    ("gtu.f64", f64(1.0), f64(INF), False), ("geu.f32", f32(1.0), f32(NAN), True),
    ("geu.f32", f32(0.0), f32(-0.0), True), ("geu.f32", f32(-INF), f32(1.0), False),
    ("leu.f32", f32(NAN), f32(NAN), True), ("leu.f32", f32(INF), f32(1.0), False),
    ("equ.f32", f32(1.0), f32(2.0), False), ("equ.f32", f32(NAN), 0, True),
]  # fmt: skip

WORKED_OUT = frozenset(
    [opcode for opcode, *_ in (*INSTRUCTIONS, *CONVERSIONS, *SHIFTS)]
    + [f"setp.{comparison}" for comparison, *_ in COMPARISONS]
    + [f"selp.{kind}" for kind in ("b16", "b32", "b64", "f32", "f64")]
    + [f"{opcode}.pred" for opcode in ("and", "or", "xor", "not")]
)
"""What kernels may compute with: each has a case here (tests/goldens/test_other_targets.py)."""
REGISTER = {8: "%rs", 16: "%rs", 32: "%r", 64: "%rd"}


def width(kind: str) -> int:
    return int(kind[1:])


def loaded(values: list[int], bits: list[int]) -> tuple[str, list[Array]]:
    """Loads of one value each from a buffer of its own into registers 1, 2, …"""
    text = "".join(
        at(n + 1, size // 8) + f"\tld.global.b{size} \t{REGISTER[size]}{n + 1}, [%rd30];\n"
        for n, size in enumerate(bits)
    )
    return text, [np.tile(words(value, bits=size), 32) for value, size in zip(values, bits, strict=True)]


def computed(opcode: str, values: list[int], bits: list[int], result: int) -> int:
    """What 32 threads store after one instruction on loaded operands; all must agree."""
    text, buffers = loaded(values, bits)
    operands = ", ".join(f"{REGISTER[size]}{n + 1}" for n, size in enumerate(bits))
    text += f"\t{opcode} \t{REGISTER[result]}20, {operands};\n".replace("%rs20", "%rs19")
    name = f"{REGISTER[result]}20".replace("%rs20", "%rs19")
    text += at(0, result // 8) + f"\tst.global.b{result} \t[%rd30], {name};\n"
    found = run(text, [np.zeros(32, f"u{result // 8}"), *buffers])[0]
    assert (found == found[0]).all()
    return int(found[0])


def is_nan(bits: int, size: int) -> bool:
    return bool(np.isnan(words(bits, bits=size).view(f"f{size // 8}")[0]))


@pytest.mark.parametrize(("opcode", "values", "expected"), INSTRUCTIONS)
def test_instruction(opcode: str, values: list[int], expected: int) -> None:
    size = width(opcode.rsplit(".", 1)[1])
    bits = [size] * len(values)
    if opcode.startswith(("bfe", "bfi")):
        bits[-2:] = [32, 32]
    result = 32 if opcode.startswith(("popc", "clz")) else 2 * size if ".wide." in opcode else size
    found = computed(opcode, values, bits, result)
    if "f" in opcode.rsplit(".", 1)[1] and is_nan(expected, size):
        assert is_nan(found, size)
    else:
        assert found == expected, hex(found)


@pytest.mark.parametrize(("opcode", "value", "expected"), CONVERSIONS)
def test_conversion(opcode: str, value: int, expected: int) -> None:
    to, origin = (width(kind) for kind in opcode.split(".")[-2:])
    assert computed(opcode, [value], [max(origin, 16) if origin != 8 else 32], to) == expected


@pytest.mark.parametrize(("opcode", "value", "by", "expected"), SHIFTS)
def test_shift(opcode: str, value: int, by: int, expected: int) -> None:
    size = width(opcode.rsplit(".", 1)[1])
    assert computed(opcode, [value, by], [size, 32], size) == expected


@pytest.mark.parametrize(("comparison", "a", "b", "expected"), COMPARISONS)
def test_comparison_and_selection(comparison: str, a: int, b: int, expected: bool) -> None:
    size = width(comparison.rsplit(".", 1)[1])
    text, buffers = loaded([a, b], [size, size])
    name = REGISTER[size]
    text += f"\tsetp.{comparison} \t%p1, {name}1, {name}2;\n\tselp.b32 \t%r10, 1, 0, %p1;\n"
    text += at(0, 4) + "\tst.global.b32 \t[%rd30], %r10;\n"
    assert set(run(text, [np.zeros(32, np.uint32), *buffers])[0].tolist()) == {int(expected)}


@pytest.mark.parametrize("kind", ["b16", "b32", "b64", "f32", "f64"])
def test_selection_keeps_every_bit(kind: str) -> None:
    """Of a signalling NaN too: a selection computes nothing."""
    size = width(kind)
    signalling = {16: 0x7C01, 32: 0x7F800001, 64: 0x7FF0000000000001}[size]
    text, buffers = loaded([signalling, 0], [size, size])
    name, result = REGISTER[size], {16: "%rs9", 32: "%r9", 64: "%rd9"}[size]
    text += f"\tsetp.lt.u32 \t%p1, %r50, 16;\n\tselp.{kind} \t{result}, {name}1, {name}2, %p1;\n"
    text += at(0, size // 8) + f"\tst.global.b{size} \t[%rd30], {result};\n"
    found = run(text, [np.zeros(32, f"u{size // 8}"), *buffers])[0]
    assert found.tolist() == [signalling] * 16 + [0] * 16


def test_predicates_are_computed_with() -> None:
    text = "\tsetp.lt.u32 \t%p1, %r50, 16;\n\tsetp.gt.u32 \t%p2, %r50, 7;\n\tand.pred \t%p3, %p1, %p2;\n"
    text += "\tnot.pred \t%p4, %p3;\n\txor.pred \t%p5, %p1, %p2;\n\tor.pred \t%p6, %p4, %p5;\n\tmov.pred \t%p7, %p6;\n"
    text += "\tselp.b32 \t%r1, 1, 0, %p7;\n" + at(0, 4) + "\tst.global.b32 \t[%rd30], %r1;\n"
    found = run(text, [np.zeros(32, np.uint32)])[0]
    assert found.tolist() == [int(not 8 <= n < 16) for n in range(32)]


def test_moves_pack_and_unpack() -> None:
    text = "\tmov.b64 \t%rd1, {%r50, %r51};\n\tmov.b64 \t{%r1, %r2}, %rd1;\n\tmov.b32 \t%r3, 0f40000000;\n"
    text += "\tadd.s32 \t%r4, %r1, %r3;\n" + at(0, 4) + "\tst.global.b32 \t[%rd30], %r4;\n"
    found = run(text, [np.zeros(64, np.uint32)], grid=2)[0]
    assert found.tolist() == [f32(2.0) + thread % 32 for thread in range(64)]


def test_a_call_of_a_function_of_the_module() -> None:
    function = """
.func (.param .b32 func_retval0) twice(
	.param .b32 twice_param_0
)
{
	.reg .pred 	%p<2>;
	.reg .b32 	%r<4>;

	ld.param.b32 	%r1, [twice_param_0];
	setp.gt.u32 	%p1, %r1, 9;
	@%p1 bra 	$L__BB0_1;
	add.s32 	%r2, %r1, %r1;
	st.param.b32 	[func_retval0], %r2;
	ret;
$L__BB0_1:
	st.param.b32 	[func_retval0], %r1;
	ret;
}
"""
    call = """
	{ // callseq 0, 0
	.param .b32 param0;
	.param .b32 retval0;
	st.param.b32 	[param0], %r50;
	call.uni (retval0), twice, (param0);
	ld.param.b32 	%r1, [retval0];
	} // callseq 0
"""
    from repro.targets.gpu.interpreter.grid import launch
    from repro.targets.gpu.interpreter.memory import Window
    from repro.targets.gpu.launch import Launch

    out = np.zeros(32, np.uint32)
    text = function + module(call + call + at(0, 4) + "\tst.global.b32 \t[%rd30], %r1;\n", 1)
    launch(text, Launch("k", 1, 32), [Window("b0", out.view(np.uint8))])
    assert out.tolist() == [2 * n if n < 10 else n for n in range(32)]


# ── what is not known ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "line",
    [
        "ex2.approx.f32 %r6, %r50;", "add.f32 %r6, %r50, %r50;", "add.rn.ftz.f32 %r6, %r50, %r50;",
        "atom.global.add.f32 %r6, [%rd40], %r50;", "mad.rn.f32 %r6, %r50, %r50, %r50;", "bar.sync 1;",
        "shfl.sync.idx.b32 %r6, %r50, 1, 31, 15;", "cvt.rn.f16.f32 %rs1, %r50;", "add.s32 %r6, %rd50, %r50;",
        "cp.async.cg.shared.global [%rd50], [%rd40], 8;",
    ],
)  # fmt: skip
def test_an_unknown_instruction_is_quoted(line: str) -> None:
    with pytest.raises(InternalError, match="the interpreter knows no such instruction") as caught:
        decoded(module(f"\t{line}\n", 1))
    assert line.rstrip(";") in str(caught.value)


def test_text_that_is_no_ptx_is_refused() -> None:
    for body in ("\tbra.uni \t$nowhere;\n", "\t.maybe 3;\n", "\tcall.uni other;\n"):
        with pytest.raises(InternalError, match="PTX"):
            decoded(module(body, 1))


def test_thread_numbers() -> None:
    assert "%tid.x" in THREAD
    found = run(at(0, 4) + "\tst.global.b32 \t[%rd30], %r53;\n", [np.zeros(300, np.uint32)], grid=3, block=100)[0]
    assert found.tolist() == list(range(300))

"""The PTX interpreter against cases worked out by hand, and the faults it is there to find."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from repro.errors import InternalError
from repro.ir.types import Array
from repro.targets.gpu.interpreter.grid import decoded
from repro.targets.gpu.interpreter.memory import FaultError
from tests.targets.ptx import THREAD, at, module, run

SHARED = "\t.shared .align 16 .b8 tile[512];\n"
LOCAL = "\t.local .align 16 .b8 __local_depot0[64];\n\t.reg .b64 \t%SP;\n\t.reg .b64 \t%SPL;\n"
MINE = "\tmov.b64 \t%rd1, tile;\n\tmad.wide.u32 \t%rd2, %r50, 4, %rd1;\n"
"""%rd2: the thread's own word of shared memory."""


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
    ("min.f32", [f32(0.0), f32(-0.0)], f32(-0.0)),
    ("max.f32", [f32(-0.0), f32(0.0)], f32(0.0)),
    ("min.f32", [f32(NAN), f32(3.0)], f32(3.0)),
    ("max.NaN.f32", [f32(NAN), f32(3.0)], f32(NAN)),
    ("copysign.f64", [f64(-0.0), f64(2.0)], f64(-2.0)),
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
]
SHIFTS: list[tuple[str, int, int, int]] = [
    ("shl.b32", 1, 31, 0x80000000),
    ("shl.b32", 1, 32, 0),
    ("shl.b64", 3, 63, 1 << 63),
    ("shr.u32", 0x80000000, 40, 0),
    ("shr.s32", 0x80000000, 40, 0xFFFFFFFF),
    ("shr.s64", 1 << 63, 63, (1 << 64) - 1),
    ("shr.u16", 0x8000, 15, 1),
]
COMPARISONS: list[tuple[str, int, int, bool]] = [
    ("lt.s32", 0xFFFFFFFF, 0, True), ("lt.u32", 0xFFFFFFFF, 0, False), ("hs.u32", 1, 1, True),
    ("ge.s64", 0, (1 << 64) - 1, True), ("ne.b32", 1, 1, False), ("eq.b64", 7, 7, True),
    ("eq.f32", f32(0.0), f32(-0.0), True), ("eq.f32", f32(NAN), f32(NAN), False),
    ("ne.f32", f32(NAN), f32(1.0), False), ("neu.f32", f32(NAN), f32(1.0), True),
    ("ltu.f32", f32(NAN), f32(1.0), True), ("lt.f64", f64(1.0), f64(2.0), True),
    ("geu.f64", f64(1.0), f64(2.0), False), ("equ.f64", f64(NAN), f64(2.0), True),
    ("num.f32", f32(NAN), f32(1.0), False), ("nan.f32", f32(NAN), f32(1.0), True),
]  # fmt: skip

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
    result = 32 if opcode.startswith(("popc", "clz")) else size
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


# ── control flow ────────────────────────────────────────────────────────────────────────────────────

COLLATZ = """
	mov.b32 	%r1, 0;
	add.s32 	%r2, %r53, 1;
$loop:
	setp.eq.b32 	%p1, %r2, 1;
	@%p1 bra 	$done;
	and.b32 	%r3, %r2, 1;
	setp.eq.b32 	%p2, %r3, 0;
	@%p2 bra 	$even;
	mad.lo.s32 	%r2, %r2, 3, 1;
	bra.uni 	$next;
$even:
	shr.u32 	%r2, %r2, 1;
$next:
	add.s32 	%r1, %r1, 1;
	bra.uni 	$loop;
$done:
"""


def collatz(n: int) -> int:
    steps = 0
    while n != 1:
        n, steps = (n // 2 if n % 2 == 0 else 3 * n + 1), steps + 1
    return steps


@pytest.mark.parametrize("lanes", [32, 64, 1 << 14])
def test_threads_part_and_meet_again(lanes: int) -> None:
    text = COLLATZ + at(0, 4) + "\tst.global.b32 \t[%rd30], %r1;\n"
    found = run(text, [np.zeros(160, np.uint32)], grid=5, lanes=lanes)[0]
    assert found.tolist() == [collatz(n + 1) for n in range(160)]


def test_a_guarded_instruction_runs_where_its_guard_is_true() -> None:
    text = (
        "\tsetp.lt.u32 \t%p1, %r50, 5;\n\tmov.b32 \t%r1, 7;\n\t@%p1 mov.b32 \t%r1, 9;\n\t@!%p1 add.s32 \t%r1, %r1, 1;\n"
    )
    found = run(text + at(0, 4) + "\tst.global.b32 \t[%rd30], %r1;\n", [np.zeros(32, np.uint32)])[0]
    assert found.tolist() == [9] * 5 + [8] * 27


def test_threads_that_parted_meet_before_a_barrier_and_a_shuffle() -> None:
    text = COLLATZ + MINE
    text += "\tst.shared.b32 \t[%rd2], %r1;\n\tbar.sync \t0;\n\tshfl.sync.bfly.b32 \t%r4|%p3, %r1, 16, 31, -1;\n"
    text += "\txor.b32 \t%r5, %r50, 32;\n\tmad.wide.u32 \t%rd3, %r5, 4, %rd1;\n\tld.shared.b32 \t%r6, [%rd3];\n"
    text += "\tadd.s32 \t%r7, %r4, %r6;\n" + at(0, 4) + "\tst.global.b32 \t[%rd30], %r7;\n"
    found = run(text, [np.zeros(128, np.uint32)], grid=2, block=64, before=SHARED)[0]
    steps = [collatz(n + 1) for n in range(128)]
    assert found.tolist() == [steps[n ^ 16] + steps[n ^ 32] for n in range(128)]


@pytest.mark.parametrize(
    ("mode", "by", "bounds", "expected"),
    [
        ("down", 1, 31, [*range(1, 32), 31]),
        ("up", 2, 0, [0, 1, *range(30)]),
        ("bfly", 16, 31, [n ^ 16 for n in range(32)]),
        ("idx", 3, 31, [3] * 32),
        ("down", 4, 0x181F, [min(n + 4, 31) if n % 8 < 4 else n for n in range(32)]),
    ],
)
def test_shuffles(mode: str, by: int, bounds: int, expected: list[int]) -> None:
    text = f"\tshfl.sync.{mode}.b32 \t%r1, %r50, {by}, {bounds}, -1;\n" + at(0, 4) + "\tst.global.b32 \t[%rd30], %r1;\n"
    assert run(text, [np.zeros(32, np.uint32)])[0].tolist() == expected


def test_a_barrier_that_folds_a_predicate() -> None:
    text = "\tsetp.eq.b32 \t%p1, %r53, 70;\n\tbar.red.or.pred \t%p2, 0, %p1;\n\tselp.b32 \t%r1, 1, 0, %p2;\n"
    found = run(text + at(0, 4) + "\tst.global.b32 \t[%rd30], %r1;\n", [np.zeros(192, np.uint32)], grid=3, block=64)[0]
    assert found.tolist() == [0] * 64 + [1] * 64 + [0] * 64


def test_a_shuffle_of_half_a_warp_is_a_fault() -> None:
    text = "\tsetp.gt.u32 \t%p1, %r50, 15;\n\t@%p1 bra \t$end;\n\tshfl.sync.bfly.b32 \t%r1, %r50, 1, 31, -1;\n$end:\n"
    with pytest.raises(FaultError, match="not all come to"):
        run(text, [np.zeros(32, np.uint32)])


# ── barriers and races ──────────────────────────────────────────────────────────────────────────────

NEIGHBOUR = "\txor.b32 \t%r5, %r50, 33;\n\tmad.wide.u32 \t%rd3, %r5, 4, %rd1;\n\tld.shared.b32 \t%r6, [%rd3];\n"
"""Reads a word that a thread of another warp wrote."""
PUT = at(0, 4) + "\tst.global.b32 \t[%rd30], %r6;\n"


def test_a_barrier_orders_shared_memory() -> None:
    text = MINE + "\tst.shared.b32 \t[%rd2], %r50;\n\tbar.sync \t0;\n" + NEIGHBOUR + PUT
    assert run(text, [np.zeros(64, np.uint32)], block=64, before=SHARED)[0].tolist() == [n ^ 33 for n in range(64)]


def test_a_missing_barrier_is_found() -> None:
    text = MINE + "\tst.shared.b32 \t[%rd2], %r50;\n" + NEIGHBOUR + PUT
    with pytest.raises(FaultError, match=r"a race at byte \d+ of shared memory"):
        run(text, [np.zeros(64, np.uint32)], block=64, before=SHARED)


def test_a_missing_barrier_before_the_next_write_is_found() -> None:
    text = MINE + "\tst.shared.b32 \t[%rd2], %r50;\n\tbar.sync \t0;\n" + NEIGHBOUR
    text += "\tst.shared.b32 \t[%rd2], %r6;\n" + PUT
    with pytest.raises(FaultError, match=r"writes what .* touched without a barrier"):
        run(text, [np.zeros(64, np.uint32)], block=64, before=SHARED)


def test_a_missing_barrier_in_one_warp_is_found_and_a_warp_barrier_is_enough() -> None:
    other = "\txor.b32 \t%r5, %r50, 1;\n\tmad.wide.u32 \t%rd3, %r5, 4, %rd1;\n\tld.shared.b32 \t%r6, [%rd3];\n" + PUT
    with pytest.raises(FaultError, match="a race"):
        run(MINE + "\tst.shared.b32 \t[%rd2], %r50;\n" + other, [np.zeros(32, np.uint32)], before=SHARED)
    text = MINE + "\tst.shared.b32 \t[%rd2], %r50;\n\tbar.warp.sync \t-1;\n" + other
    assert run(text, [np.zeros(32, np.uint32)], before=SHARED)[0].tolist() == [n ^ 1 for n in range(32)]


@pytest.mark.parametrize("writer", [0, 5, 40, 63])
def test_a_word_that_many_read_may_not_be_written_by_one_of_them(writer: int) -> None:
    write = f"\tsetp.eq.b32 \t%p1, %r50, {writer};\n\t@%p1 st.shared.b32 \t[%rd1], %r50;\n"
    text = MINE + "\tst.shared.b32 \t[%rd2], %r50;\n\tbar.sync \t0;\n\tld.shared.b32 \t%r6, [%rd1];\n"
    with pytest.raises(FaultError, match="several threads touched without a barrier"):
        run(text + write + PUT, [np.zeros(64, np.uint32)], block=64, before=SHARED)
    ordered = text + "\tbar.sync \t0;\n" + write + PUT
    assert run(ordered, [np.zeros(64, np.uint32)], block=64, before=SHARED)[0].tolist() == [0] * 64


def test_two_threads_that_write_one_word_are_found() -> None:
    text = "\tmov.b64 \t%rd1, tile;\n\tst.shared.b32 \t[%rd1], %r50;\n"
    with pytest.raises(FaultError, match="a race"):
        run(text, [np.zeros(32, np.uint32)], before=SHARED)


def test_two_blocks_that_write_one_element_are_found() -> None:
    text = "\tcvt.u64.u32 \t%rd1, %r50;\n" + at(0, 4, index="%rd1") + "\tst.global.b32 \t[%rd30], %r51;\n"
    with pytest.raises(
        FaultError, match=r"a race at byte 0 of b0: block 0 thread 0 writes what block 1 thread 0 touched"
    ):
        run(text, [np.zeros(32, np.uint32)], grid=2)
    with pytest.raises(FaultError, match="a race at byte 0 of b0"):
        run(text, [np.zeros(32, np.uint32)], grid=2, lanes=32)


def test_what_one_block_reads_of_another_is_found() -> None:
    text = "\txor.b32 \t%r1, %r53, 32;\n\tcvt.u64.u32 \t%rd1, %r1;\n" + at(0, 4, index="%rd1")
    text += "\tld.global.b32 \t%r6, [%rd30];\n" + PUT
    with pytest.raises(FaultError, match="a race"):
        run(text, [np.zeros(64, np.uint32)], grid=2)


def test_a_constant_load_of_what_the_launch_writes_is_found() -> None:
    text = at(0, 4) + "\tld.global.nc.b32 \t%r6, [%rd30];\n" + PUT
    with pytest.raises(FaultError, match="read as a constant"):
        run(text, [np.zeros(32, np.uint32)])


def test_a_barrier_that_some_threads_miss_is_found() -> None:
    text = "\tsetp.gt.u32 \t%p1, %r50, 39;\n\t@%p1 bra \t$end;\n\tbar.sync \t0;\n$end:\n"
    with pytest.raises(FaultError, match=r"40 of 64 threads of block 0 are at bar\.sync 0, which not all come to"):
        run(text, [np.zeros(64, np.uint32)], block=64)


def test_threads_at_two_barriers_are_found() -> None:
    text = "\tsetp.gt.u32 \t%p1, %r50, 39;\n\t@%p1 bra \t$other;\n\tbar.sync \t0;\n\tbra.uni \t$end;\n"
    text += "$other:\n\tbar.sync \t0;\n$end:\n"
    with pytest.raises(FaultError, match=r"others are at bar\.sync 0"):
        run(text, [np.zeros(64, np.uint32)], block=64)


def test_whole_blocks_may_leave_before_a_barrier() -> None:
    text = "\tsetp.gt.u32 \t%p1, %r51, 0;\n\t@%p1 bra \t$end;\n" + MINE
    text += "\tst.shared.b32 \t[%rd2], %r50;\n\tbar.sync \t0;\n" + NEIGHBOUR + PUT + "$end:\n"
    found = run(text, [np.zeros(128, np.uint32)], grid=2, block=64, before=SHARED)[0]
    assert found.tolist() == [n ^ 33 for n in range(64)] + [0] * 64


# ── accesses ────────────────────────────────────────────────────────────────────────────────────────


def test_an_access_behind_a_buffer_is_found() -> None:
    with pytest.raises(FaultError, match="block 0 thread 31 at byte 124 of b0 of 124 bytes"):
        run("\tmov.b32 \t%r6, 1;\n" + PUT, [np.zeros(31, np.uint32)])


def test_an_access_before_a_buffer_is_found() -> None:
    text = at(1, 4) + "\tld.global.b32 \t%r6, [%rd30+-4];\n" + PUT
    with pytest.raises(FaultError, match="an access of 4 bytes by block 0 thread 0"):
        run(text, [np.zeros(32, np.uint32), np.zeros(32, np.uint32)])


def test_a_vector_access_that_is_not_aligned_is_found() -> None:
    text = "\tld.global.v4.b32 \t{%r1, %r2, %r3, %r4}, [%rd40+4];\n"
    with pytest.raises(FaultError, match="16 bytes by block 0 thread 0 is not aligned"):
        run(text, [np.zeros(32, np.uint32)])


def test_vectors_are_loaded_and_stored() -> None:
    text = at(0, 16) + "\tld.global.v4.b32 \t{%r1, %r2, %r3, %r4}, [%rd30];\n"
    text += "\tst.global.v4.b32 \t[%rd30], {%r4, %r3, %r2, %r1};\n"
    found = run(text, [np.arange(128, dtype=np.uint32)])[0]
    assert found.reshape(32, 4).tolist() == np.arange(128).reshape(32, 4)[:, ::-1].tolist()


def test_shared_memory_has_an_end() -> None:
    with pytest.raises(FaultError, match="at byte 512 of shared memory of 512 bytes"):
        run("\tmov.b64 \t%rd1, tile;\n\tst.shared.b32 \t[%rd1+512], %r50;\n", [np.zeros(32, np.uint32)], before=SHARED)


def test_dynamic_shared_memory_lies_behind_the_static() -> None:
    text = "\tmov.b64 \t%rd1, dynamic;\n\tmad.wide.u32 \t%rd2, %r50, 4, %rd1;\n\tst.shared.b32 \t[%rd2], %r50;\n"
    text += "\tld.shared.b32 \t%r6, [%rd2];\n" + PUT
    before = SHARED + "\t.shared .align 16 .b8 dynamic[];\n"
    assert run(text, [np.zeros(32, np.uint32)], before=before, shared=128)[0].tolist() == list(range(32))
    with pytest.raises(FaultError, match="of shared memory of 636 bytes"):
        run(text, [np.zeros(32, np.uint32)], before=before, shared=124)


def test_shared_memory_that_nobody_wrote_is_found() -> None:
    with pytest.raises(FaultError, match="of shared memory, which nothing has written"):
        run(MINE + "\tld.shared.b32 \t%r6, [%rd2];\n" + PUT, [np.zeros(32, np.uint32)], before=SHARED)


def test_local_memory() -> None:
    address = "\tmov.b64 \t%SPL, __local_depot0;\n\tand.b32 \t%r1, %r50, 7;\n\tmad.wide.u32 \t%rd1, %r1, 8, %SPL;\n"
    text = address + "\tcvt.u64.u32 \t%rd2, %r50;\n\tst.local.b64 \t[%rd1], %rd2;\n\tld.local.b32 \t%r6, [%rd1];\n"
    assert run(text + PUT, [np.zeros(32, np.uint32)], before=LOCAL)[0].tolist() == list(range(32))
    with pytest.raises(FaultError, match="of local memory, which it has not written"):
        run(address + "\tld.local.b32 \t%r6, [%rd1];\n" + PUT, [np.zeros(32, np.uint32)], before=LOCAL)
    with pytest.raises(FaultError, match="of local memory of 64 bytes"):
        run(address + "\tst.local.b32 \t[%rd1+32], %r1;\n", [np.zeros(32, np.uint32)], before=LOCAL)


def test_generic_addresses_of_local_memory() -> None:
    text = "\tmov.b64 \t%SPL, __local_depot0;\n\tcvta.local.u64 \t%SP, %SPL;\n\tst.b32 \t[%SP+4], %r50;\n"
    text += "\tld.local.b32 \t%r6, [%SPL+4];\n" + PUT
    assert run(text, [np.zeros(32, np.uint32)], before=LOCAL)[0].tolist() == list(range(32))


def test_global_memory_that_nobody_wrote_is_found() -> None:
    text = at(1, 4) + "\tld.global.nc.b32 \t%r6, [%rd30];\n" + PUT
    with pytest.raises(FaultError, match="of b1, which nothing has written"):
        run(text, [np.zeros(32, np.uint32), np.zeros(32, np.uint32)], unknown=[1])


def test_a_register_that_nobody_wrote_is_found() -> None:
    with pytest.raises(InternalError, match=r"may be read before they are written: %r9"):
        run("\tadd.s32 \t%r6, %r9, 1;\n" + PUT, [np.zeros(32, np.uint32)])


def test_a_register_that_one_way_leaves_unwritten_is_found() -> None:
    text = "\tsetp.gt.u32 \t%p1, %r50, 3;\n\t@%p1 bra \t$end;\n\tmov.b32 \t%r6, 1;\n$end:\n"
    with pytest.raises(InternalError, match=r"may be read before they are written: %r6"):
        run(text + PUT, [np.zeros(32, np.uint32)])


def test_a_division_by_zero_is_found() -> None:
    with pytest.raises(FaultError, match=r"a division by zero; at div\.u32 %r6, 7, %r50"):
        run("\tdiv.u32 \t%r6, 7, %r50;\n" + PUT, [np.zeros(32, np.uint32)])


# ── cp.async ────────────────────────────────────────────────────────────────────────────────────────

PLACES = at(1, 16, target=31) + "\tmov.b64 \t%rd1, tile;\n\tmad.wide.u32 \t%rd2, %r50, 16, %rd1;\n"
COPY = PLACES + "\tcp.async.cg.shared.global \t[%rd2], [%rd31], 16;\n"
READ = "\tmad.wide.u32 \t%rd3, %r50, 4, %rd1;\n\tld.shared.b32 \t%r6, [%rd3];\n" + PUT
OURS = [np.zeros(32, np.uint32), np.arange(128, dtype=np.uint32) + 100]


def test_a_copy_is_there_when_it_has_been_waited_for() -> None:
    text = COPY + "\tcp.async.commit_group;\n\tcp.async.wait_group \t0;\n\tbar.sync \t0;\n" + READ
    assert run(text, OURS, before=SHARED)[0].tolist() == list(range(100, 132))
    text = COPY + "\tcp.async.wait_all;\n\tbar.sync \t0;\n" + READ
    assert run(text, OURS, before=SHARED)[0].tolist() == list(range(100, 132))


@pytest.mark.parametrize(
    "between",
    [
        "",
        "\tcp.async.commit_group;\n\tbar.sync \t0;\n",
        "\tcp.async.commit_group;\n\tcp.async.wait_group \t1;\n\tbar.sync \t0;\n",
        "\tcp.async.wait_group \t0;\n\tbar.sync \t0;\n",
    ],
    ids=["at once", "never waited", "waited for an older one", "in no group"],
)
def test_a_copy_that_is_read_too_early_is_found(between: str) -> None:
    with pytest.raises(FaultError, match=r"to which a cp\.async is under way"):
        run(COPY + between + READ, OURS, before=SHARED)


def test_a_copy_waited_for_without_a_barrier_is_a_race() -> None:
    text = COPY + "\tcp.async.commit_group;\n\tcp.async.wait_group \t0;\n" + READ
    with pytest.raises(FaultError, match="a race"):
        run(text, OURS, before=SHARED)


def test_a_copy_of_fewer_bytes_fills_with_zeros() -> None:
    partly = "\tsetp.lt.u32 \t%p1, %r50, 2;\n\tselp.b32 \t%r9, 16, 8, %p1;\n"
    text = partly + COPY.replace("], 16;", "], 16, %r9;") + "\tcp.async.wait_all;\n\tbar.sync \t0;\n" + READ
    expected = [n + 100 if n < 8 or n % 4 < 2 else 0 for n in range(32)]
    assert run(text, OURS, before=SHARED)[0].tolist() == expected


# ── what is not known ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "line",
    [
        "ex2.approx.f32 %r6, %r50;", "add.f32 %r6, %r50, %r50;", "add.rn.ftz.f32 %r6, %r50, %r50;",
        "atom.global.add.f32 %r6, [%rd40], %r50;", "mad.rn.f32 %r6, %r50, %r50, %r50;", "bar.sync 1;",
        "shfl.sync.idx.b32 %r6, %r50, 1, 31, 15;", "cvt.rn.f16.f32 %rs1, %r50;", "add.s32 %r6, %rd50, %r50;",
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

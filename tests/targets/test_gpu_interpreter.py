"""Threads in the PTX interpreter: control flow, memories, and the faults that it is there to find."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from repro.errors import InternalError
from repro.numerics.numpy_fma import fma_f32
from repro.targets.gpu.interpreter import code
from repro.targets.gpu.interpreter.memory import FaultError
from tests.targets.ptx import at, run

SHARED = "\t.shared .align 16 .b8 tile[512];\n"
LOCAL = "\t.local .align 16 .b8 __local_depot0[64];\n\t.reg .b64 \t%SP;\n\t.reg .b64 \t%SPL;\n"
MINE = "\tmov.b64 \t%rd1, tile;\n\tmad.wide.u32 \t%rd2, %r50, 4, %rd1;\n"
"""%rd2: the thread's own word of shared memory."""


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


REGISTERS = st.tuples(*[st.integers(1, 6)] * 4)


@given(st.lists(REGISTERS, min_size=1, max_size=40), st.sampled_from([1, 32, 33]))
def test_products_are_computed_in_their_order(products: list[tuple[int, int, int, int]], block: int) -> None:
    """Though those that need none of each other are computed as one: %r<target> = a b + c, of six registers, of which
    the last holds one value in all threads."""
    registers = np.random.default_rng(7).standard_normal((7, block)).astype(np.float32)
    registers[6] = 1.5
    buffers = [np.zeros(6 * block, np.float32), registers[1:6].T.flatten()]
    text = at(1, 20) + "".join(f"\tld.global.b32 \t%r{n + 1}, [%rd30+{4 * n}];\n" for n in range(5))
    text += "\tmov.b32 \t%r6, 0f3FC00000;\n"
    for target, a, b, c in products:
        text += f"\tfma.rn.f32 \t%r{target}, %r{a}, %r{b}, %r{c};\n"
        with np.errstate(all="ignore"):
            registers[target] = fma_f32(registers[a], registers[b], registers[c])
    text += at(0, 24) + "".join(f"\tst.global.b32 \t[%rd30+{4 * n}], %r{n + 1};\n" for n in range(6))
    found = run(text, buffers, block=block)[0]
    np.testing.assert_array_equal(found.reshape(block, 6).T, registers[1:])


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


def test_loads_may_touch_what_is_left_of_a_last_word_and_stores_may_not() -> None:
    """What they find there is no number, so that nobody computes with it."""
    load = "\tmov.b32 \t%r1, 0;\n" + at(0, 4) + "\tsetp.lt.u32 \t%p1, %r50, 2;\n\t@%p1 ld.global.b32 \t%r1, [%rd30];\n"
    store = at(1, 4, 31) + "\t@%p1 st.global.b32 \t[%rd31], %r1;\n"
    seven, found = np.arange(1, 8, dtype=np.uint8), np.zeros(2, np.uint32)
    assert run(load + store, [seven, found])[1].tobytes() == bytes([1, 2, 3, 4, 5, 6, 7, 0xFF])
    for buffers in ([seven[:4], found], [found, seven]):
        with pytest.raises(FaultError, match="an access of 4 bytes by block 0 thread 1 at byte 4 of b"):
            run(load + store, buffers)


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


@pytest.mark.parametrize(
    "text",
    [
        "mov.b32 %r8, %r9; prmt.b32 %r6, %r50, %r8, 0x3210U;",
        "prmt.b32 %r7, %r50, %r9, 0x3340U; bfi.b32 %r8, %r50, %r7, 24, 8; prmt.b32 %r6, %r8, 0, 0x4403U;",
        "bfi.b32 %r8, %r50, %r9, 0, 16; mov.b32 {%rs1, %rs2}, %r8; mov.b32 %r6, {%rs1, %rs1};",
        "mov.b32 %r8, {%rs9, 7}; mov.b32 {_, %rs1}, %r8; cvt.u32.u16 %r6, %rs1;",
        "mov.b64 %rd1, {%r9, %r50}; mov.b64 {_, %r6}, %rd1;",
        "bfi.b64 %rd1, %rd50, %rd9, 0, 32; mov.b64 {%r6, _}, %rd1;",
        "mov.b32 %r8, {%rs9, 7}; shr.u32 %r6, %r8, 16;",
        "mov.b32 %r8, {7, %rs9}; shl.b32 %r7, %r8, 16; add.s32 %r6, %r7, %r50;",
        "mov.b64 %rd1, {%r9, %r50}; shr.u64 %rd2, %rd1, 64; cvt.u32.u64 %r6, %rd2;",
    ],
)
def test_bytes_that_nobody_wrote_may_stand_beside_others(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """LLVM has registers without a value for lanes that are never read: whatever these hold, it changes nothing."""
    found: list[bytes] = []
    for held in (0, (1 << 64) - 1):
        monkeypatch.setattr(code, "UNSET", held)
        found.append(run(lines(text) + PUT, [np.zeros(32, np.uint32)])[0].tobytes())
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("%r8", "mov.b32 %r8, %r9; add.s32 %r6, %r8, 1;"),
        ("%r7", "prmt.b32 %r7, %r50, %r9, 0x3240U; add.s32 %r6, %r7, 1;"),
        ("%r7", "mov.b32 %r7, %r9; add.s32 %r7, %r7, 1; mov.b32 %r6, %r7;"),
        ("%r7", "prmt.b32 %r7, %r9, %r9, 0x3210U; prmt.b32 %r7, %r7, %r50, 0x7643U; xor.b32 %r6, %r7, %r50;"),
        ("%r6", "prmt.b32 %r6, %r50, %r9, 0xc210U;"),
        ("%r6", "bfi.b32 %r6, %r50, %r9, 8, 16;"),
        ("%r9", "bfi.b32 %r6, %r50, %r9, 4, 28;"),
        ("%r9", "bfi.b32 %r6, %r50, %r9, 0, %r51;"),
        ("%r6", "mov.b32 %r8, {%rs9, 7}; shr.u32 %r6, %r8, 8;"),
        ("%r8", "mov.b32 %r8, {%rs9, 7}; shr.u32 %r6, %r8, 12;"),
        ("%r8", "mov.b32 %r8, {7, %rs9}; shr.s32 %r6, %r8, 16;"),
        ("%r6", "mov.b32 %r8, {%rs9, 7}; shl.b32 %r6, %r8, 16;"),
        ("%rs1", "mov.b32 {%rs1, _}, %r9; cvt.u32.u16 %r6, %rs1;"),
        ("%rd1", "mov.b64 %rd1, {%r9, %r50}; cvt.u32.u64 %r6, %rd1;"),
        ("%p9", "mov.b32 %r6, 0; @%p9 mov.b32 %r6, 1;"),
        (
            "%r2",
            "mov.b32 %r2, 0; $loop: add.s32 %r6, %r2, 1; mov.b32 %r2, %r9; setp.lt.u32 %p1, %r6, 4; @%p1 bra $loop;",
        ),
    ],
)
def test_bytes_that_nobody_wrote_are_found_where_they_are_read(name: str, text: str) -> None:
    with pytest.raises(InternalError, match=rf"may be read before they are written: {name}$"):
        run(lines(text) + PUT, [np.zeros(32, np.uint32)])


def lines(text: str) -> str:
    """PTX, a line for each statement and label."""
    return re.sub(r"(?<=[;:]) ", "\n\t", f"\t{text}\n")


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


def test_a_copy_whose_source_is_ignored_writes_zeros() -> None:
    """Whatever its address: that of the last threads lies behind the buffer."""
    ignored = "\tsetp.gt.u32 \t%p1, %r50, 1;\n"
    text = ignored + COPY.replace("], 16;", "], 16, %p1;") + "\tcp.async.wait_all;\n\tbar.sync \t0;\n" + READ
    found = run(text, [OURS[0], OURS[1][:8]], before=SHARED)[0]
    assert found.tolist() == [n + 100 if n < 8 else 0 for n in range(32)]


@pytest.mark.parametrize("size", ["", ", %r9"])
def test_a_copy_from_an_address_that_is_not_aligned_is_found(size: str) -> None:
    text = "\tmov.b32 \t%r9, 8;\n" + COPY.replace("[%rd31], 16", f"[%rd31+8], 16{size}")
    with pytest.raises(FaultError, match="is not aligned"):
        run(text, OURS, before=SHARED)


def test_a_copy_over_what_another_thread_may_still_read_is_found() -> None:
    """The barrier after it is too late: a copy may write as soon as it has begun."""
    text = MINE + "\tst.shared.b32 \t[%rd2], %r50;\n\tbar.sync \t0;\n" + READ.replace(PUT, "")
    end = "\tcp.async.commit_group;\n\tbar.sync \t0;\n\tcp.async.wait_group \t0;\n\tbar.sync \t0;\n" + PUT
    other = "\txor.b32 \t%r5, %r50, 1;\n\tmad.wide.u32 \t%rd2, %r5, 16, %rd1;\n"
    copy = at(1, 16, target=31) + other + "\tcp.async.cg.shared.global \t[%rd2], [%rd31], 16;\n"
    with pytest.raises(FaultError, match=r"writes what .* touched without a barrier"):
        run(text + copy + end, OURS, before=SHARED)
    run(text + "\tbar.sync \t0;\n" + copy + end, OURS, before=SHARED)


def test_a_younger_copy_may_be_under_way() -> None:
    """Waiting for all groups but the newest leaves the newest one's words unreadable, and the others' readable."""
    first = PLACES + "\tcp.async.ca.shared.global \t[%rd2], [%rd31], 8;\n\tcp.async.commit_group;\n"
    second = "\tcp.async.ca.shared.global \t[%rd2+8], [%rd31+8], 8;\n\tcp.async.commit_group;\n"
    read = "\tcp.async.wait_group \t1;\n\tld.shared.b32 \t%r6, [%rd2+{}];\n" + PUT
    assert run(first + second + read.format(4), OURS, before=SHARED)[0].tolist() == list(range(101, 229, 4))
    with pytest.raises(FaultError, match=r"to which a cp\.async is under way"):
        run(first + second + read.format(8), OURS, before=SHARED)

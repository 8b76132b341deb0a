"""What no GPU kernel may hold is stopped, and ptxas takes the rest: registers, spills, density, later chips."""

from __future__ import annotations

import functools
import os

import numpy as np
import pytest

from repro.errors import InternalError
from repro.ir import index as ix
from repro.ir.expressions import apply, convert, load
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.types import F32, F64
from repro.machines import SM_80
from repro.targets.gpu import GpuKernel, choice, emit, gate, plain
from repro.targets.gpu.ptxas import assemble, installed
from repro.targets.gpu.sass import counts, hottest_loop
from tests.targets.native import same
from tests.targets.on_gpu import run_gpu
from tests.targets.test_contraction_tiles import convolution, filled, matmul
from tests.targets.test_gpu_code import SMALL, norm, patches_gradient, sums, tiled


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("ex2.approx.ftz.f32 %r1, %r2;", "approximate"),
        ("div.full.f32 %r1, %r2, %r3;", "not correctly rounded"),
        ("add.rn.ftz.f32 %r1, %r2, %r3;", "flushes"),
        ("add.f32 %r1, %r2, %r3;", "without a rounding"),
        ("mul.f64 %r1, %r2, %r3;", "without a rounding"),
        ("fma.rz.f32 %r1, %r2, %r3, %r4;", "directed"),
        ("atom.global.add.f32 %r1, [%rd1], %r2;", "atomic"),
        ("red.global.add.f32 [%rd1], %r2;", "atomic"),
        ("@%p1 atom.global.max.u32 %r1, [%rd1], %r2;", "atomic"),
        ("red.shared.or.b32 [%rd1], %r2;", "atomic"),
        ("add.f32x2 %rd1, %rd2, %rd3;", "without a rounding"),
        ("fma.rn.f32x2 %rd1, %rd2, %rd3, %rd4;", "two numbers"),
        ("mul.bf16x2 %r1, %r2, %r3;", "without a rounding"),
        ("add.rz.f32x2 %rd1, %rd2, %rd3;", "directed"),
        ("fma.rn.f32 %r1, %r2, %r3, %r4;", "and the kernel none"),
        ("call.uni (retval0), __nv_expf, (param0);", "which is not in it"),
    ],
)
def test_the_gate_names_what_it_stops(line: str, message: str) -> None:
    kernel = sums(2, 40, along=True)
    ptx, llvm = emit(kernel, SM_80).ptx, "%v = fadd <64 x float> %a, %b"
    gate.check(kernel, ptx, llvm)
    with pytest.raises(InternalError, match=f"{kernel.digest[:16]}.*{message}"):
        gate.check(kernel, ptx.replace("\tret;", f"\t{line}\n\tret;"), llvm)


def test_the_gate_counts_fma() -> None:
    kernel = matmul(3, 4, 5)
    ptx = emit(kernel, SM_80).ptx
    with pytest.raises(InternalError, match="in PTX, and 0 in LLVM code"):
        gate.check(kernel, ptx, "")


LLVM = """
  %l = load <4 x float>, ptr %p, align 16
  %q = fmul <4 x float> %l, %l
  %f = tail call <4 x float> @llvm.fma.v4f32(<4 x float> %q, <4 x float> splat (float 2.0), <4 x float> %l)
  %s = call float @llvm.sqrt.f32(float %t)
  %w = fdiv double %u, %u
  ret void"""
"""Four fma of f32, nine roundings to f32 in all, and one to f64."""


@pytest.mark.parametrize(
    ("instructions", "message"),
    [
        ({"fma": 4, "mul": 4, "sqrt": 1}, ""),
        ({"fma": 1, "mul": 1, "sqrt": 1}, ""),
        ({"fma": 0, "mul": 4, "sqrt": 1}, "0 fma of f32 in PTX, and 4 in LLVM code"),
        ({"fma": 5, "mul": 3, "sqrt": 1}, "5 fma of f32 in PTX, and 4 in LLVM code"),
        ({"fma": 3, "mul": 5, "add": 1, "sqrt": 1}, "rounds 10 times to f32 in PTX, and 9 in LLVM code"),
        ({"fma": 1, "mul": 5, "add": 1, "sqrt": 1}, "5 mul of f32 in PTX, and fewer in LLVM code"),
        ({"fma": 4, "mul": 4, "sub": 1, "div": 1}, "rounds 10 times to f32 in PTX, and 9 in LLVM code"),
    ],
)
def test_of_what_rounds_there_may_be_less_than_in_llvm_and_no_more(instructions: dict[str, int], message: str) -> None:
    ptx = "".join(f"\t{name}.rn.f32 \t%r1, %r2, %r3;\n" * count for name, count in instructions.items())
    if not message:
        gate.check_code("a kernel", frozenset({F32}), ptx, LLVM)
    else:
        with pytest.raises(InternalError, match=f"a kernel .*{message}"):
            gate.check_code("a kernel", frozenset({F32}), ptx, LLVM)


def test_code_says_how_it_is_launched() -> None:
    code = tiled(matmul(18, 33, 1100), SMALL, 1)
    assert GpuKernel.parse(code.code) == code
    with pytest.raises(InternalError, match="without a head"):
        GpuKernel.parse(code.ptx.encode())


def test_an_empty_kernel_has_no_launches() -> None:
    for kernel in (matmul(0, 5, 6), matmul(5, 0, 6)):
        assert emit(kernel, SM_80).launches == ()


@pytest.fixture
def ptxas() -> str:
    found = installed()
    if found is None:
        assert os.environ.get("CI") != "true", "ptxas is not installed: make ptxas"
        pytest.skip("ptxas is not installed: make ptxas")
    return found


HOT = {
    "dot": matmul(4096, 4096, 4096),
    "long dot": matmul(8192, 8192, 8192),
    "square": matmul(1024, 1024, 1024),
    "mixing": matmul(1024, 64, 1024, batch=96),
    "transposed": matmul(8192, 3072, 768, right=True),
    "weight gradient": matmul(768, 768, 8192, left=True),
    "blocks of panels": matmul(768, 3072, 8192, left=True),
    "convolution": convolution(
        images=32, channels=64, size=56, filters=128, taps=3, stride=1, pad=1, pixels_are_rows=False
    ),
    "few channels": convolution(
        images=32, channels=64, size=56, filters=64, taps=3, stride=1, pad=1, pixels_are_rows=False
    ),
    "few pixels": convolution(
        images=32, channels=128, size=16, filters=128, taps=3, stride=1, pad=1, pixels_are_rows=False
    ),
    "fewest pixels": convolution(
        images=32, channels=256, size=8, filters=256, taps=3, stride=1, pad=1, pixels_are_rows=False
    ),
    "patches' gradient": patches_gradient(64, 128, 56, 56, images=32, panel=512),
    "few filters' gradient": patches_gradient(64, 64, 56, 56, images=32, panel=512),
    "many pixels' gradient": patches_gradient(64, 64, 32, 32, images=32, panel=512),
    "few pixels' gradient": patches_gradient(512, 512, 4, 4, images=32, panel=512),
    "odd rows": matmul(8192, 50257, 768),
    "odd terms": matmul(1000, 777, 1030),
    "all odd": matmul(2047, 2049, 2051),
    "odd rows of odd terms": matmul(1000, 1001, 1001, right=True),
    "rows of 8 bytes": matmul(2048, 2050, 2048),
    "odd rows' gradient": matmul(768, 50257, 8192, left=True),
    "norm": norm(8192, 768, along=True),
    "columns": sums(768, 8192, along=False),
}


WHOLE = (
    "dot",
    "long dot",
    "square",
    "mixing",
    "transposed",
    "weight gradient",
    "blocks of panels",
    "odd rows' gradient",
)
"""Of those, products whose operands are copied without asking what exists."""


SPILLED = {("convolution", "sm_80"): 16}
"""Bytes of a thread. With registers for them, an H200, where none are spilled, is 6 % slower."""


WAITED = {"sm_80": 1.55, "sm_90": 1.35}
"""Cycles for each fma at most. For sm_80 ptxas leaves more waiting, most of it in tiles of 8 x 12 of operands that lie
along their terms: its schedulers take two cycles for an fma, in which registers are read."""
LOOPLESS = ("norm", "columns")
"""Without a loop of fma."""


@pytest.mark.parametrize("name", list(HOT))
def test_a_hot_kernel_spills_nothing_and_issues_little_beside_its_fma(name: str, ptxas: str) -> None:
    """Cycles for each fma of the loop with the most of them: other instructions, and waiting for registers. Products of
    a term that do not share a factor with the one before take 1.3 and more where terms are neighbours in memory."""
    ptx = emit(HOT[name], SM_80).ptx
    for chip, waited in WAITED.items():
        made = assemble(ptx, ptxas, chip)
        entries, spilled = made.entries, SPILLED.get((name, chip), 0)
        assert entries and all(max(used.spill_stores, used.spill_loads) <= spilled for used in entries.values()), chip
        if name not in LOOPLESS:
            loops = [loop for entry in entries if (loop := hottest_loop(made.cubin, entry)) is not None]
            hottest = max(loops, key=lambda loop: loop.fma)
            most = 1.25 if name in WHOLE and chip == "sm_90" else waited
            assert hottest.fma > 512 and hottest.cycles_of_fma <= most, chip


@pytest.mark.parametrize(
    ("kernel", "columns"),
    [
        (matmul(8192, 3072, 768, right=True), 12),
        (matmul(8192, 768, 3072, right=True), 8),
        (matmul(8192, 3072, 768), 8),
        (matmul(4096, 4096, 4096), 8),
        (matmul(768, 3072, 8192, left=True), 12),
    ],
    ids=["along terms", "long", "one along terms", "square", "along lines"],
)
def test_tiles_are_those_that_were_fastest_on_a_device(kernel: Kernel, columns: int) -> None:
    """Of an H200 (docs/gpu.md)."""
    made = choice.plan(kernel, SM_80)
    assert made is not None and made.tile.own == (8, columns)


def test_instructions_of_f64_are_counted(ptxas: str) -> None:
    """One that converts, multiplies, adds and fuses in f64, and one that does not."""
    x = load(F32, 0, ix.axis(0, 64))
    wide = convert(x, F64)
    for value, expected in ((convert(apply("fma", wide, wide, wide), F32), 3), (apply("add", x, x), 0)):
        buffers = (BufferParameter(F32, 64, False), BufferParameter(F32, 64, True))
        code = plain.emit(Kernel(buffers, (), (ix.axis(0, 64),), 0, (Store(1, ix.axis(0, 64), value),)), SM_80)
        found = counts(assemble(code.ptx, ptxas).cubin, code.launches[0].symbol)
        assert found.f64 == expected and found.others > 5


@pytest.mark.parametrize(("count", "version"), [(543, "8.0"), (544, "8.1"), (601, "8.1")])
def test_a_kernel_may_have_many_buffers(count: int, version: str, ptxas: str) -> None:
    """A sum of so many, with the result one more than are counted."""
    i = ix.axis(0, 8)
    value = functools.reduce(functools.partial(apply, "add"), [load(F32, n, i) for n in range(count)])
    buffers = (*[BufferParameter(F32, 8, False)] * count, BufferParameter(F32, 8, True))
    kernel = Kernel(buffers, (), (i,), 0, (Store(count, i, value),))
    code = emit(kernel, SM_80)
    assert f".version {version}" in code.ptx.splitlines()
    for chip in ("sm_80", "sm_90"):
        assert assemble(code.ptx, ptxas, chip).entries
    arrays = filled(kernel)
    wanted = functools.reduce(np.add, arrays[:-1])
    assert same(F32, run_gpu(kernel, code, arrays)[-1], wanted)


@pytest.mark.parametrize("chip", ["sm_86", "sm_89", "sm_90", "sm_100", "sm_120"])
def test_later_chips_take_the_same_ptx(chip: str, ptxas: str) -> None:
    for name in ("dot", "weight gradient", "convolution", "norm", "columns"):
        made = assemble(emit(HOT[name], SM_80).ptx, ptxas, chip)
        assert made.entries and all(used.spill_stores == 0 for used in made.entries.values()), name


def test_shapes_choose_the_tile() -> None:
    assert (made := choice.plan(matmul(4096, 4096, 4096), SM_80)) is not None and made.tile.block == (64, 128)
    assert (made := choice.plan(matmul(768, 768, 8192, left=True), SM_80)) is not None and made.splits > 1
    assert choice.plan(matmul(8, 4096, 512), SM_80) is None

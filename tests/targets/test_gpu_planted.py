"""Faults planted in the text of the emitter's kernels: the gate or the interpreter finds each, or the bits differ."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from repro.errors import InternalError
from repro.ir.loops import Kernel
from repro.machines import SM_80
from repro.targets.gpu import GpuKernel, emit, gate
from tests.targets.native import same
from tests.targets.on_gpu import run_gpu
from tests.targets.test_contraction_tiles import filled
from tests.targets.test_gpu_mutations import KERNELS

GATE, INTERPRETER, BITS = "the gate", "the interpreter", "the bits"


@dataclass(frozen=True)
class Fault:
    """`pattern`'s place number `number` (from behind where it is negative) becomes `text`; who finds it, by which
    words."""

    kernel: str
    pattern: str
    text: str
    found_by: str
    message: str = ""
    number: int = 0


FAULTS = {
    # rounding
    "an addition that may be fused": Fault("rows", r"add\.rn\.f32", "add.f32", GATE, "without a rounding"),
    "an addition that flushes": Fault("rows", r"add\.rn\.f32", "add.rn.ftz.f32", GATE, "flushes"),
    "an fma rounded towards zero": Fault("matmul", r"fma\.rn\.f32", "fma.rz.f32", GATE, "directed rounding"),
    "an fma in two operations": Fault(
        "matmul", r"fma\.rn\.f32 (\t%\w+), (%\w+), (%\w+), (%\w+);",
        r"mul.rn.f32 \1, \2, \3; add.rn.f32 \1, \1, \4;", GATE, "times to f32 in PTX, and",
    ),
    "a fused multiply-add too many": Fault(
        "rows", r"add\.rn\.f32 (\t%\w+), (%\w+), (%\w+);", r"fma.rn.f32 \1, \2, \2, \3;", GATE, "the kernel none"
    ),
    "a sum by an atomic": Fault(
        "rows", r"st\.global\.b32 \t(\[.*\]), (%\w+);", r"red.global.add.f32 \1, \2;", GATE, "an atomic"
    ),
    "a division by an approximation": Fault("rows", r"add\.rn\.f32", "div.full.f32", GATE, "not correctly rounded"),
    "a factor of another term": Fault(
        "matmul", r"fma\.rn\.f32 (\t%\w+), (%\w+), (%\w+), (%\w+);", r"fma.rn.f32 \1, \3, \3, \4;", BITS
    ),
    "a chain from another total": Fault(
        "matmul", r"fma\.rn\.f32 (\t%\w+), (%\w+), (%\w+), (%\w+);", r"fma.rn.f32 \1, \2, \3, \3;", BITS
    ),
    "a sum the other way round": Fault("rows", r"add\.rn\.f32 (\t%\w+),", r"sub.rn.f32 \1,", BITS),
    # order of threads
    "a wait for an older group": Fault("matmul", r"wait_group \t0", "wait_group \t1", INTERPRETER, "under way"),
    "a group that is not closed": Fault("matmul", r"cp\.async\.commit_group;", "", INTERPRETER, "under way"),
    "no barrier": Fault("matmul", r"bar\.sync \t0;", "", INTERPRETER, "a race|under way", number=-1),
    "a barrier of some threads": Fault("matmul", r"bar\.sync \t0;", "bar.sync \t0, 32;", INTERPRETER, "no such"),
    "a barrier that threads may skip": Fault(
        "matmul", r"bar\.sync \t0;", "@%p1 bar.sync \t0;", INTERPRETER, "a race", number=-1
    ),
    "a shuffle among half a warp": Fault(
        "rows", r"(shfl\.sync\.bfly\.b32[^;]*), -1;", r"\1, 65535;", INTERPRETER, "no such instruction"
    ),
    # memory
    "a copy of half as much": Fault(
        "matmul", r"cp\.async\.cg(\.shared\.global[^;]*), 16", r"cp.async.ca\1, 8", INTERPRETER, "nothing has written"
    ),
    "a copy from beside": Fault(
        "matmul", r"(cp\.async\.cg\.shared\.global \[%\w+\], \[%\w+)(\+\d+)?\]", r"\1+4]", INTERPRETER, "not aligned"
    ),
    "a read from beside": Fault(
        "matmul", r"(ld\.shared\.v4\.b32 \t\{[^}]*\}, \[%\w+)(\+\d+)?\]", r"\1+4]", INTERPRETER, "not aligned"
    ),
    "a read far behind": Fault(
        "matmul", r"(ld\.shared\.v4\.b32 \t\{[^}]*\}, \[%\w+)(\+\d+)?\]", r"\1+262144]", INTERPRETER, "shared memory of"
    ),
    "a result that is not stored": Fault("rows", r"st\.global\.b32[^;]*;", "", INTERPRETER, "nothing has written"),
    "a result stored beside": Fault(
        "rows", r"(st\.global\.b32 \t\[%\w+)\]", r"\1+4]", INTERPRETER, "an access of|a race", number=-1
    ),
    "a constant load of what is written": Fault(
        "rows", r"(st\.global\.b32 \t(\[.*\]), (%\w+);)", r"ld.global.nc.b32 \3, \2; \1", INTERPRETER, "constant", -1
    ),
}  # fmt: skip


def planted(ptx: str, fault: Fault) -> str:
    places = list(re.finditer(fault.pattern, ptx))
    assert places, "no place for it"
    place = places[fault.number]
    return ptx[: place.start()] + place.expand(fault.text) + ptx[place.end() :]


def emitted(kernel: Kernel) -> tuple[GpuKernel, str]:
    """A kernel's code, and the LLVM code of which its one PTX text was made."""
    seen: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gate, "check", lambda _, ptx, llvm: seen.append(llvm))
        code = emit(kernel, SM_80)
    (llvm,) = seen
    gate.check(kernel, code.ptx, llvm)
    return code, llvm


def ran(name: str, change: Callable[[str], str]) -> str:
    """What finds a change: the gate's or the interpreter's words, other bits (empty), or "missed"."""
    kernel = KERNELS[name]
    code, llvm = emitted(kernel)
    changed, arrays = change(code.ptx), filled(kernel)
    try:
        gate.check(kernel, changed, llvm)
    except InternalError as error:
        return f"{GATE}: {error}"
    try:
        found = run_gpu(kernel, replace(code, ptx=changed), arrays)
    except InternalError as error:
        return f"{INTERPRETER}: {error}"
    wanted = run_gpu(kernel, code, arrays)
    kept = all(same(b.dtype, x, y) for b, x, y in zip(kernel.buffers, found, wanted, strict=True))
    return "missed" if kept else BITS


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str) -> None:
    fault = FAULTS[name]
    found = ran(fault.kernel, lambda ptx: planted(ptx, fault))
    assert re.match(f"{fault.found_by}.*({fault.message})", found, re.DOTALL), found

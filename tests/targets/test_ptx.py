"""A seam kept honest: the CPU's emitter writes PTX too, that ptxas takes and that keeps the contract's rounding."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from repro.ir import index as ix
from repro.ir.expressions import Chain, Exact, Lanes, apply, convert, load, reduce
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.types import F16, F32, F64, I32, DType
from repro.machines import SM_80
from repro.numerics.elementary import BINARY_FUNCTIONS, FUNCTIONS
from repro.targets.gpu import emit
from repro.targets.gpu.ptxas import installed
from repro.targets.gpu.roads import suited

FORBIDDEN = (r"\.approx", r"\.ftz", r"\b(add|sub|mul)\.f(32|64)\b", r"\b(div|sqrt|fma|mad)\.f(32|64)\b", r"call")
"""Approximate, flushing, or without a rounding of its own: ptxas may fuse a bare add and mul."""


def elementwise() -> Kernel:
    size = 1000
    i = ix.axis(0, size)
    x, y = load(F32, 0, i), load(F32, 1, i)
    product = apply("add", apply("mul", x, y), apply("div", x, apply("sqrt", y)))
    chosen = apply("max", apply("fma", x, y, product), apply("floor", x))
    wide = convert(apply("sub", convert(chosen, F64), convert(y, F64)), F32)
    whole = convert(convert(convert(wide, F16), F32), I32)
    buffers = [BufferParameter(F32, size, False)] * 2
    outputs = [BufferParameter(F32, size, True), BufferParameter(I32, size, True)]
    return Kernel((*buffers, *outputs), (), (i,), 0, (Store(2, i, wide), Store(3, i, whole)))


def rows() -> Kernel:
    """Dot, greatest and sum of each row."""
    count = 700
    r, k = ix.axis(0, 64), ix.axis(1, count)
    x, w = load(F32, 0, ix.add(ix.scale(r, count), k)), load(F32, 1, k)
    values = (
        reduce("fma", Chain(512, 8), [k], [x, w]),
        reduce("max", Exact(), [k], [x]),
        reduce("add", Lanes(32, 4096), [k], [x]),
    )
    buffers = [BufferParameter(F32, 64 * count, False), BufferParameter(F32, count, False)]
    stores = tuple(Store(2 + n, r, value) for n, value in enumerate(values))
    return Kernel((*buffers, *[BufferParameter(F32, 64, True)] * 3), (), (r,), 0, stores)


def functions(dtype: DType) -> Kernel:
    """Every elementary function of a type: sides that are seldom taken, and tables."""
    i = ix.axis(0, 64)
    x, y = load(dtype, 0, i), load(dtype, 1, i)
    values = [
        *(function(x) for function in FUNCTIONS.values()),
        *(function(x, y) for function in BINARY_FUNCTIONS.values()),
    ]
    buffers = [BufferParameter(dtype, 64, n >= 2) for n in range(2 + len(values))]
    return Kernel(tuple(buffers), (), (i,), 0, tuple(Store(2 + n, i, value) for n, value in enumerate(values)))


KERNELS = pytest.mark.parametrize(
    "kernel", [elementwise(), rows(), functions(F32), functions(F64)], ids=["elementwise", "rows", "f32", "f64"]
)


@KERNELS
def test_ptx_rounds_every_operation_once(kernel: Kernel, tmp_path: Path) -> None:
    text = emit(kernel, SM_80).ptx
    assert f".visible .entry k_{suited(kernel, SM_80).digest[:16]}(" in text
    assert ".target sm_80" in text and ".version 8.0" in text
    assert re.search(r"fma\.rn\.f(32|64)", text)
    for pattern in FORBIDDEN:
        assert not re.search(pattern, text), re.search(f".*{pattern}.*", text)
    assert text == emit(kernel, SM_80).ptx


@pytest.mark.skipif(installed() is None and os.environ.get("CI") != "true", reason="ptxas is not installed")
@KERNELS
def test_ptxas_takes_it(kernel: Kernel, tmp_path: Path) -> None:
    source = tmp_path / "kernel.ptx"
    source.write_text(emit(kernel, SM_80).ptx)
    program = installed()
    assert program is not None, "ptxas is not installed: make ptxas"
    command = [program, "-arch=sm_80", "-o", tmp_path / "kernel.cubin", source]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "kernel.cubin").stat().st_size > 0

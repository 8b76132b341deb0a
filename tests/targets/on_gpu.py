"""Kernels as PTX, interpreted, on flat arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from repro.ir.loops import Kernel
from repro.ir.types import Array
from repro.machines import SM_80
from repro.numerics.host_mode import exact_arithmetic
from repro.targets.gpu import GpuKernel, emit
from repro.targets.gpu.interpreter.grid import launch
from repro.targets.gpu.interpreter.memory import Window
from tests.reference import reference
from tests.targets.native import differences, same


def run_gpu(kernel: Kernel, code: GpuKernel, arrays: Sequence[Array], scalars: Sequence[int] = ()) -> list[Array]:
    """The buffers after the kernel's launches ran on copies of those given."""
    after = [array.copy() for array in arrays]
    windows: list[Window | int] = [
        Window(f"b{n}", array.view(np.uint8), writable=buffer.writable)
        for n, (array, buffer) in enumerate(zip(after, kernel.buffers, strict=True))
    ]
    windows += scalars
    if code.workspace_bytes:
        space = np.full(code.workspace_bytes, 0xA5, np.uint8)
        windows.append(Window("workspace", space, np.zeros(space.size, np.uint8)))
    with exact_arithmetic():
        for each in code.launches:
            launch(code.ptx, each, windows)
    return after


def check_gpu(
    kernel: Kernel, arrays: Sequence[Array], code: GpuKernel | None = None, scalars: Sequence[int] = ()
) -> GpuKernel:
    """The interpreted PTX against the interpreter of the loop IR, bit for bit; gives the code that ran."""
    code = emit(kernel, SM_80) if code is None else code
    wanted = reference(kernel, arrays, scalars)
    found = run_gpu(kernel, code, arrays, scalars)
    for number, buffer in enumerate(kernel.buffers):
        ours, theirs = found[number], wanted[number]
        assert same(buffer.dtype, ours, theirs), (code.schedule, number, differences(buffer.dtype, ours, theirs))
    return code

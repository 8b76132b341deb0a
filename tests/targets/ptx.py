"""Small PTX entries for the interpreter's tests: a body, registers and buffers, run over a grid."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from repro.ir.types import Array
from repro.numerics.host_mode import exact_arithmetic
from repro.targets.gpu.interpreter.grid import LANES, launch
from repro.targets.gpu.interpreter.memory import Window
from repro.targets.gpu.launch import Launch

HEAD = """
.version 8.0
.target sm_80
.address_size 64
"""
REGISTERS = """
	.reg .pred 	%p<20>;
	.reg .b16 	%rs<20>;
	.reg .b32 	%r<60>;
	.reg .b64 	%rd<60>;
"""
THREAD = """
	mov.u32 	%r50, %tid.x;
	mov.u32 	%r51, %ctaid.x;
	mov.u32 	%r52, %ntid.x;
	mad.lo.s32 	%r53, %r51, %r52, %r50;
	cvt.u64.u32 	%rd50, %r53;
"""
"""%r50 is the thread's number in its block, %r53 and %rd50 that in the grid."""


def module(body: str, buffers: int, before: str = "") -> str:
    """An entry `k` with pointers %rd40, %rd41, … to its buffers. `before` declares shared memory and the like."""
    parameters = ",\n".join(f"\t.param .u64 .ptr .align 16 k_param_{n}" for n in range(buffers))
    loads = "".join(f"\tld.param.b64 \t%rd{40 + n}, [k_param_{n}];\n" for n in range(buffers))
    return f"{HEAD}\n.visible .entry k(\n{parameters}\n)\n{{\n{before}{REGISTERS}{loads}{THREAD}{body}\n\tret;\n}}\n"


def run(
    body: str,
    buffers: Sequence[Array],
    grid: int = 1,
    block: int = 32,
    before: str = "",
    shared: int = 0,
    unknown: Sequence[int] = (),
    lanes: int = LANES,
) -> list[Array]:
    """Copies of the buffers after a launch; those of `unknown` count as never written before it."""
    copies = [np.array(buffer) for buffer in buffers]
    windows: list[Window | int] = [
        Window(f"b{n}", copy.view(np.uint8), np.zeros(copy.nbytes, np.uint8) if n in unknown else None)
        for n, copy in enumerate(copies)
    ]
    with exact_arithmetic():
        launch(module(body, len(buffers), before), Launch("k", grid, block, shared), windows, lanes)
    return copies


def at(pointer: int, size: int, target: int = 30, index: str = "%rd50") -> str:
    """%rd<target> = address of the thread's own element of a buffer."""
    return f"\tmad.lo.s64 \t%rd{target}, {index}, {size}, %rd{40 + pointer};\n"

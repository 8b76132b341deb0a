"""From a kernel to PTX and its launches: the road is chosen from the kernel's shapes alone."""

from __future__ import annotations

from repro.ir.loops import Kernel
from repro.ir.parse_kernel import parse_kernel
from repro.ir.program import Program
from repro.machines import GpuMachine
from repro.targets.gpu import blocks, choice, contraction, elementwise, plain, rows, scatter
from repro.targets.gpu.launch import GpuKernel
from repro.targets.gpu.roads import suited
from repro.targets.gpu.steps import alone, shapes


def codes(program: Program, machine: GpuMachine) -> tuple[GpuKernel, ...]:
    """The code of a program's kernels, and behind it that of its steps over blocks of rows; a kernel that is called in
    those alone has none."""
    apart = alone(program)
    own = (emit(k, machine) if n in apart else GpuKernel("", ()) for n, k in enumerate(program.kernels))
    return (*own, *(blocks.emit(shape, machine) for shape in shapes(program)))


def emit(kernel: Kernel | str, machine: GpuMachine) -> GpuKernel:
    """The code of a kernel, or of a kernel's text form.

    A pure function of its arguments and the toolchain: the same PTX on every build host.
    """
    parsed = suited(parse_kernel(kernel) if isinstance(kernel, str) else kernel, machine)
    tiled = choice.plan(parsed, machine)
    if tiled is not None:
        return contraction.emit(parsed, tiled, machine)
    by_rows = rows.plan(parsed)
    if by_rows is not None:
        return rows.emit(parsed, by_rows, machine)
    by_place = scatter.plan(parsed)
    if by_place is not None:
        return scatter.emit(parsed, by_place, machine)
    wide = elementwise.plan(parsed)
    if wide is not None:
        return elementwise.emit(parsed, wide, machine)
    return plain.emit(parsed, machine)

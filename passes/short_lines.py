"""Short lines side by side: rows of a few outputs, which leave most lanes of a vector empty, as one longer line.

Where a kernel reads and writes as if an axis and the one before it were one (its offsets treat them so), some rows are
a line of their own; what asks for a place in a row, such as a condition on padding, asks for the remainder.
"""

from __future__ import annotations

from dataclasses import replace

from passes.rename import rewritten
from repro.ir import index as ix
from repro.ir.contraction import find
from repro.ir.dependence import reads_its_output
from repro.ir.expressions import Axis, Exact, IndexOp, Load, Reduce, topological
from repro.ir.loops import Kernel, Store
from repro.ir.program import Program


def short_lines(program: Program, lanes: int) -> Program:
    """The program with such kernels over longer lines; itself where there are none."""
    kernels = tuple(_longer(kernel, lanes) for kernel in program.kernels)
    return program if kernels == program.kernels else replace(program, kernels=kernels)


def _longer(kernel: Kernel, lanes: int) -> Kernel:
    reduces = [expr for expr in kernel.expressions if isinstance(expr, Reduce)]
    plain = not kernel.serial and not reads_its_output(kernel) and all(store.when is None for store in kernel.stores)
    plain = plain and find(kernel) is None  # register tiles have short lines of their own
    if len(kernel.axes) < 2 or not plain or not reduces or not all(isinstance(e.order, Exact) for e in reduces):
        return kernel
    *before, outer, inner = kernel.axes
    rows = next((n for n in (lanes, lanes // 2, lanes // 4) if n > 1 and outer.extent % n == 0), 0)
    if inner.extent >= lanes or not rows:
        return kernel
    return _merged(kernel, before, outer, inner, rows) or kernel


def _merged(kernel: Kernel, before: list[Axis], outer: Axis, inner: Axis, rows: int) -> Kernel | None:
    """So many rows as a line; None where an offset does not take both axes as one."""
    fresh = 1 + max(e.number for e in (*kernel.expressions, *kernel.axes) if isinstance(e, Axis))
    block, line = ix.axis(fresh, outer.extent // rows), ix.axis(fresh + 1, rows * inner.extent)
    row = ix.add(ix.scale(block, rows), ix.floordiv(line, inner.extent))
    flat = [expr for store in kernel.stores for expr in (store.offset, store.value)]
    made = rewritten(flat, {outer: row, inner: ix.mod(line, inner.extent)})
    offsets = [*made[::2], *(expr.offset for expr in topological(made[1::2]) if isinstance(expr, Load))]
    if any(isinstance(expr, IndexOp) and line in expr.free for expr in topological(offsets)):
        return None
    pairs = zip(kernel.stores, made[::2], made[1::2], strict=True)
    stores = tuple(Store(store.buffer, offset, value) for store, offset, value in pairs)
    axes = tuple(axis for axis in (*before, block, line) if axis.extent > 1)
    return replace(kernel, axes=axes, stores=stores)

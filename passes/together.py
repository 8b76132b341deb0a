"""Elements that are computed from the same places, by one iteration: what it loads once serves all of them.

The steps of a sorting network are such: across an axis of two, each element is computed from itself and its partner.
Sixteen of four steps are exchanged in registers, as one iteration of the kernel's other axes.
"""

from __future__ import annotations

from dataclasses import replace

from passes.rename import rewritten, settled
from repro.ir import index as ix
from repro.ir.dependence import reads_its_output
from repro.ir.expressions import Axis, Expr, Load, Reduce
from repro.ir.loops import Kernel, Store
from repro.ir.program import Program

MOST = 16
"""Elements of an iteration: registers hold as many vectors, with their partners, on every machine that has 32."""


def together(program: Program) -> Program:
    """The program, with kernels whose iterations compute all elements of the same places."""
    kernels = tuple(gathered(kernel) for kernel in program.kernels)
    return program if kernels == program.kernels else replace(program, kernels=kernels)


def gathered(kernel: Kernel) -> Kernel:
    """The kernel without axes of two along which elements share the places that they are computed from."""
    if kernel.serial or reads_its_output(kernel) or any(isinstance(expr, Reduce) for expr in kernel.expressions):
        return kernel
    for axis in [axis for axis in kernel.axes if axis.extent == 2 and _shares(kernel, axis)]:
        if 2 * len(kernel.stores) <= MOST:
            stores = tuple(_at(store, axis, bit) for store in kernel.stores for bit in range(2))
            others = tuple(other for other in kernel.axes if other is not axis)
            kernel = replace(kernel, axes=others, stores=stores)
    return kernel


def _shares(kernel: Kernel, axis: Axis) -> bool:
    """Whether the two elements along it are computed from each other's places, and from no others."""
    loads = [expr for expr in kernel.expressions if isinstance(expr, Load)]
    first, second = (set(rewritten(loads, {axis: ix.number(bit)})) for bit in range(2))
    return first == second and any(axis in load.free for load in loads)


def _at(store: Store, axis: Axis, bit: int) -> Store:
    at: dict[Axis, Expr] = {axis: ix.number(bit)}
    return Store(store.buffer, *settled(store.expressions, at))

"""Elementary functions by the road that suits the chip: in f32 where f64 units are few.

A kernel holds a function as the operations of its first road, in f64. Equal expressions are one object, so the function
is found where it stands by building it once more: of every f32 value in the kernel.
"""

from __future__ import annotations

from repro.ir.loops import Expr, Kernel, Store
from repro.ir.types import F32, F64
from repro.machines import GpuMachine
from repro.numerics.elementary import FUNCTIONS, single
from repro.numerics.elementary.value import Value
from repro.targets.gpu.substitution import Substitution

SLOW = 16
"""Times as long as an f32 operation that one in f64 takes, from which the second road is the shorter one."""


def suited(kernel: Kernel, machine: GpuMachine) -> Kernel:
    """The kernel with the roads that suit the machine: the same bits."""
    if machine.f64_cost < SLOW:
        return kernel
    present = list(kernel.expressions)
    if not any(expr.dtype is F64 for expr in present):
        return kernel
    change = Substitution({}, None)
    held = set(present)
    for operand in present:
        if operand.dtype is F32:
            _enter(operand, held, change)
    stores = tuple(
        Store(s.buffer, change.of(s.offset), change.of(s.value), None if s.when is None else change.of(s.when))
        for s in kernel.stores
    )
    return Kernel(kernel.buffers, kernel.scalars, kernel.axes, kernel.serial, stores)


def _enter(operand: Expr, held: set[Expr], change: Substitution) -> None:
    """What stands for each function of an operand, which comes before its users."""
    for name, road in single.SEQUENCES.items():
        first = FUNCTIONS[name](operand)
        if first in held:
            change.known[first] = road(Value(change.of(operand))).expr

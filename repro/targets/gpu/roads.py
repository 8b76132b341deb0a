"""Elementary functions by the road that suits the chip: in f32 where f64 units are few.

A kernel holds a function as the operations of its first road, in f64.
"""

from __future__ import annotations

from repro.ir.loops import Kernel, Store
from repro.machines import GpuMachine
from repro.numerics.elementary import single
from repro.numerics.elementary.occurrences import functions
from repro.numerics.elementary.value import Value
from repro.targets.gpu.substitution import Substitution

SLOW = 16
"""Times as long as an f32 operation that one in f64 takes, from which the second road is the shorter one."""


def suited(kernel: Kernel, machine: GpuMachine) -> Kernel:
    """The kernel with the roads that suit the machine: the same bits."""
    if machine.f64_cost < SLOW:
        return kernel
    change = Substitution({}, None)
    for operand, name, function in functions(kernel.expressions, single.SEQUENCES):
        change.known[function] = single.SEQUENCES[name](Value(change.of(operand))).expr
    if not change.known:
        return kernel
    stores = tuple(
        Store(s.buffer, change.of(s.offset), change.of(s.value), None if s.when is None else change.of(s.when))
        for s in kernel.stores
    )
    return Kernel(kernel.buffers, kernel.scalars, kernel.axes, kernel.serial, stores)

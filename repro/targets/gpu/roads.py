"""Elementary functions by the road that suits the chip: that which takes a multiprocessor the fewest cycles, as counted
here. And quotients of many numbers by one, which share a division.

A kernel holds a function as the operations of its first road, in f64. Others are in f32: in pairs, or near the entries
of a table, of which the more there are, the less is to be computed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

from repro.ir import index as ix
from repro.ir.expressions import Apply, Expr, Lookup, load
from repro.ir.loops import Kernel, Store
from repro.ir.substitution import Substitution
from repro.ir.types import F32, F64
from repro.machines import GpuMachine
from repro.numerics.elementary import FUNCTIONS, divisors, quotients, rows, single, tabled
from repro.numerics.elementary.occurrences import functions
from repro.numerics.elementary.value import Value
from repro.targets.gpu import table_rows
from repro.targets.gpu.body import WARP
from repro.targets.gpu.floor import commonly_of
from repro.targets.llvm import nans

OTHERS: Mapping[str, Mapping[str, Callable[[Value], Value]]] = {
    "exp": {"pairs": single.exp, "32 points": tabled.ROADS[32]["exp"]},
    "tanh": {"pairs": single.tanh, "rows": rows.tanh},
    "erf": {"pairs": single.erf, "rows": rows.erf},
}
"""Roads beside the first one, by what they are called."""
DIVISION = 10
"""Instructions of a division, its slow path left out."""
CONVERSION = 8
"""Times as long as an f32 operation that a conversion from or to 64 bits takes at least: 16 a cycle of a multiprocessor
(CUDA C++ Programming Guide, "Arithmetic Instructions", compute capability 8.0 and 9.0)."""
CONFLICTS = 3
"""Of as many threads as are given 128 bytes at a time, how many want the same bank where rows are many and random; with
rows as often as they come, 2.6 of erf's and 3.0 of tanh's (counted for normal arguments)."""


@functools.lru_cache(maxsize=1024)
def suited(kernel: Kernel, machine: GpuMachine) -> Kernel:
    """The kernel with the roads that suit the machine: the same bits."""
    known, change = _suited(machine), Substitution({}, None)
    for operand, name, function in functions(kernel.expressions, known):
        change.known[function] = quotients.road(known[name], name, change.of(operand))[1]
    return _by_shared_divisions(_with(kernel, change))


def _with(kernel: Kernel, change: Substitution) -> Kernel:
    if not change.known:
        return kernel
    stores = tuple(
        Store(s.buffer, change.of(s.offset), change.of(s.value), None if s.when is None else change.of(s.when))
        for s in kernel.stores
    )
    return Kernel(kernel.buffers, kernel.scalars, kernel.axes, kernel.serial, stores)


def _by_shared_divisions(kernel: Kernel) -> Kernel:
    """Quotients along the last axis by sums that are the same all along it; what is decided is no NaN, and need not be
    made the canonical one."""
    if not kernel.axes:
        return kernel
    change, expressions = Substitution({}, None), tuple(kernel.expressions)
    outputs = {nans.behind(expr): expr for expr in expressions}
    for expr in divisors.by_sums(expressions, kernel.axes[-1]):
        x, d = (Value(change.of(child)) for child in expr.children)
        whole = outputs.get(expr, expr)
        exact = Substitution({expr: (x / d).expr}, None).of(whole)
        change.known[whole] = divisors.quotient(x, d, Value(exact)).expr
    return _with(kernel, change)


def cycles(root: Expr, machine: GpuMachine) -> float:
    """Of a multiprocessor for a warp's values: instructions that its schedulers issue, and what its cache gives.

    Both are added: they overlap only where other warps have something else to do. What is seldom is left out.
    """
    expressions = tuple(commonly_of([root]))
    issued = sum(_instructions(expr, machine) for expr in expressions)
    read = sum(_read(row, machine) for row in set(table_rows.rows(expressions).values()))
    return issued / machine.schedulers + read


WORTH = (2, 3)
"""The part of what the first road takes that another one takes at most: less is hidden behind memory, and tables are
code. On an H200 exp by a table was as fast as in f64, 132 us (2^26 elements), where 22 % fewer cycles are counted; tanh
took 144 us for 169 and GELU 152 for 307, where a third is and three fifths are."""


@functools.lru_cache(maxsize=64)
def _suited(machine: GpuMachine) -> Mapping[str, Callable[[Value], Value]]:
    """By name, where it is not the first one."""
    found, argument = dict[str, Callable[[Value], Value]](), load(F32, 0, ix.number(0))
    for name, others in OTHERS.items():
        costs = {road: cycles(road(Value(argument)).expr, machine) for road in others.values()}
        road = min(costs, key=lambda each: costs[each])
        part, of = WORTH
        if costs[road] * of <= cycles(FUNCTIONS[name](argument), machine) * part:
            found[name] = road
    return found


def _instructions(expr: Expr, machine: GpuMachine) -> int:
    """Times as long as issuing one that an expression takes; a small table is selects."""
    if isinstance(expr, Lookup) and len(expr.table) < table_rows.FEWEST:
        return len(expr.table) - 1
    if not isinstance(expr, Apply):
        return 0
    types = {expr.dtype, *(child.dtype for child in expr.children)}
    if expr.op == "convert" and F64 in types:
        return max(CONVERSION, machine.f64_cost)
    return (machine.f64_cost if F64 in types else 1) * (DIVISION if expr.op == "div" else 1)


def _read(row: table_rows.Row, machine: GpuMachine) -> float:
    """Cycles in which a warp has its rows: those of a few are in different banks."""
    together = row.size * min(table_rows.CHUNK, row.stride * row.dtype.bytes) / machine.near_bytes
    return row.words * 4 * WARP / machine.near_bytes * min(CONFLICTS, max(1, together))

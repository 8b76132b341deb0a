"""The cost model of kernels that are no tiled contraction: which axis goes into vectors, what an item holds.

Costs are integers: instructions in 1/64, over the whole kernel. They only need to rank a few choices.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

from passes.phases import phases
from passes.squares import across
from passes.streams import burst, item_order
from passes.sweeps import sweep
from repro.ir import index as ix
from repro.ir.expressions import Apply, Axis, Exact, Expr, Lanes, Load, Lookup, Reduce
from repro.ir.loops import Kernel
from repro.ir.schedule import Schedule
from repro.ir.types import BOOL, F64
from repro.ir.work import iterations
from repro.machines import Machine
from repro.numerics.elementary import tabled
from repro.numerics.elementary.occurrences import functions

ITEM_ELEMENTS = 8192
"""Outputs that one work item computes along the vector axis, where a row need not stay whole."""
ITEMS, FEWEST_ELEMENTS = 32, 256
"""Items that a kernel is to have at least, unless it has too few outputs for items of so many."""
FEWEST_TOGETHER = 64
"""The same where a thread's items run together (`repro.targets.llvm.grid`)."""

LONG = 8
"""Operations in f64 from which on a chain is long."""
CHAIN_REGISTERS = 8
"""Registers for a vector of f32 whose elements are computed in f64: two halves, each with some values and constants."""

_UNIT = 64
_LATENCY = 4
"""Steps of one accumulator wait for each other."""
_STRIDED = 2
"""An element that is not beside its neighbour, against a whole vector of those that are."""
_TURNED = 4
"""A vector that is read as it lies, and turned among others."""
POSITIONS_BESIDE = 4
"""Vectors whose extremes' positions are sought apart: a step's comparisons wait for those of the step before."""
MOST_APART = 4
"""Elements from one lane to the next, up to which whole vectors are loaded rather than each lane."""
_SLOW = {"div": 8, "rem": 16, "sqrt": 8}


def choose(kernel: Kernel, machine: Machine) -> Schedule:
    """The cheapest vector axis; rows stay whole, and in one item, where a reduction serves all of a row."""
    model = _Model(kernel, machine)
    candidates: list[int | None] = [None, *range(kernel.serial, len(kernel.axes))]
    costs = [(model.cost(position), -number) for number, position in enumerate(candidates)]
    position = candidates[-min(costs)[1]]
    return along(kernel, machine, position)


def axis_cost(kernel: Kernel, machine: Machine, position: int | None) -> int:
    """What the model expects of a vector axis, to be compared with that of another."""
    return _Model(kernel, machine).cost(position)


def along(kernel: Kernel, machine: Machine, position: int | None) -> Schedule:
    """What suits a vector axis: lanes, and rows that stay whole."""
    swept = None if position is None else sweep(kernel, machine, position)
    if swept is not None:
        return swept
    width = 1 if position is None else _Model(kernel, machine).width(kernel.axes[position])
    if position is not None and width > 1:
        axis = kernel.axes[position]
        width = min(width * vectors_at_once(kernel, axis, width, machine), _held(kernel, axis, machine))
        width = max(width, burst(kernel, axis, machine))
        apart = phases(kernel, axis)
        while apart is not None and width < apart.count * machine.lanes(32) and 2 * width <= axis.extent:
            width *= 2
    order = () if position is None else item_order(kernel, machine, position)
    return replace(_cut(kernel, position, width), order=order)


def _long(kernel: Kernel, axis: Axis) -> bool:
    """Whether an element takes long chains of operations that wait for each other: elementary functions, in f64."""
    applied = (e for e in kernel.expressions if isinstance(e, Apply) and e.dtype is F64 and axis in e.free)
    return sum(1 for _ in applied) >= LONG


def vectors_at_once(kernel: Kernel, axis: Axis, width: int, machine: Machine) -> int:
    """Vectors along the axis whose long chains are to fill each other's waits: as many as registers hold and the axis
    has whole ones of; of functions by tables, which go register by register, as many as are tested together."""
    if width < machine.lanes(32) or not _long(kernel, axis):
        return 1
    most = machine.registers // CHAIN_REGISTERS
    if most < tabled.TOGETHER and _by_tables(kernel, machine):
        most = tabled.TOGETHER
    return next((count for count in (8, 4, 2) if count <= most and axis.extent % (count * width) == 0), 1)


def _held(kernel: Kernel, axis: Axis, machine: Machine) -> int:
    """Elements along the axis, a power of two of vectors, up to which registers hold what an iteration exchanges
    between several places, if only a vector of each, and one to do so in. Not of kernels that go beyond the
    second-level cache, which are to write lines as a whole (4096 rows of 64 keys: 1.3 ms so, 1.7 by halves, Zen 3)."""
    loads = {e for e in kernel.expressions if isinstance(e, Load) and axis in e.free}
    values, far = min(len(loads), len(kernel.stores)), machine.is_far(kernel.nbytes)
    if values < 2 or far:
        return axis.extent
    vectors = max(1, (machine.registers - 1) // values)
    return (1 << vectors.bit_length() - 1) * machine.lanes(max(each.dtype.bits for each in loads))


def _by_tables(kernel: Kernel, machine: Machine) -> bool:
    """Whether all that the kernel computes in f64 are functions to which the machine has a road by tables."""
    known = tabled.roads(machine.permute_bits)
    inside = {function: operand for operand, _, function in functions(kernel.expressions, known)}
    stack, seen = [root for store in kernel.stores for root in store.expressions], set[Expr]()
    while stack:
        expr = stack.pop()
        if expr in seen:
            continue
        seen.add(expr)
        if isinstance(expr, Apply) and expr.dtype is F64:
            return False
        stack.extend([inside[expr]] if expr in inside else expr.children)
    return True


def _cut(kernel: Kernel, position: int | None, width: int) -> Schedule:
    shared = _heaviest_reduction(kernel)
    inner: tuple[int, ...] = ()
    block = 1 if position is None else _block(kernel, position, width)
    if shared is not None:
        places = range(kernel.serial, len(kernel.axes))
        inner = tuple(n for n in places if n != position and kernel.axes[n] not in shared.free)
        if position is not None and kernel.axes[position] not in shared.free:
            block = kernel.axes[position].extent
    return Schedule(position, width, max(1, block), None, inner)


def _block(kernel: Kernel, position: int, width: int) -> int:
    """Outputs of an item along the vector axis, whole vectors: so many that there are items for several threads."""
    extent, outputs = kernel.axes[position].extent, math.prod(axis.extent for axis in kernel.axes[kernel.serial :])
    whole = math.lcm(width, FEWEST_TOGETHER if kernel.serial and outputs == extent else FEWEST_ELEMENTS)
    share = -(-outputs // (ITEMS * whole)) * whole
    return min(extent, ITEM_ELEMENTS, share)


def _heaviest_reduction(kernel: Kernel) -> Reduce | None:
    """The outermost reduction with the most terms, among those with fewer axes than the kernel."""
    bound = frozenset(axis for e in kernel.expressions if isinstance(e, Reduce) for axis in e.axes)
    found = [e for e in kernel.expressions if isinstance(e, Reduce) and not e.free & bound]
    parallel = frozenset(kernel.axes[kernel.serial :])
    shared = [e for e in found if not parallel <= e.free]
    return max(shared, key=_terms, default=None)


def _terms(reduce: Reduce) -> int:
    return iterations(reduce) * math.prod(axis.extent for axis in reduce.axes)


def position_along(reduce: Reduce, machine: Machine) -> bool:
    """Whether the position of an extreme is found by vectors along the terms' own axis: there are as many terms as go
    side by side, whose numbers are I32, and none is absent."""
    dtype, terms = reduce.terms[0].dtype, math.prod(axis.extent for axis in reduce.axes)
    enough = POSITIONS_BESIDE * machine.lanes(dtype.bits) <= terms < 1 << 31
    return enough and reduce.present is None and dtype is not BOOL


@dataclass(frozen=True)
class _Model:
    kernel: Kernel
    machine: Machine

    def width(self, axis: Axis) -> int:
        """A power of two, no more than the axis has."""
        width = self.machine.lanes(32)
        while width > max(axis.extent, 1):
            width //= 2
        return width

    def _square(self, axis: Axis) -> frozenset[Load]:
        """Loads that are turned in squares, where vectors go along an axis."""
        found = across(self.kernel, axis)
        return frozenset[Load]() if found is None else frozenset(found.loads)

    @cached_property
    def along(self) -> dict[Axis, Reduce]:
        """Reductions that have lanes of their own, by their last axis (any one where several share it)."""
        reductions = (e for e in self.kernel.expressions if isinstance(e, Reduce))
        return {reduce.axes[-1]: reduce for reduce in reductions if self._has_lanes(reduce)}

    def _has_lanes(self, reduce: Reduce) -> bool:
        ordered = isinstance(reduce.order, Lanes | Exact)
        if reduce.combiner.startswith("arg"):
            ordered = position_along(reduce, self.machine)
        terms = math.prod(axis.extent for axis in reduce.axes)
        return ordered and terms >= self.machine.reduction_lanes and reduce.terms[0].dtype is not BOOL

    def cost(self, position: int | None) -> int:
        axis = None if position is None else self.kernel.axes[position]
        if axis is not None and self.width(axis) < 2:
            return 1 << 62
        turned = frozenset[Load]() if axis is None else self._square(axis)
        total = sum(self._cost(e, axis) for e in self.kernel.expressions if e not in turned)
        total += sum(_UNIT * iterations(e) * _TURNED // self.machine.lanes(32) for e in turned)
        every = math.prod(a.extent for a in self.kernel.axes)
        for store in self.kernel.stores:
            stride = 0 if axis is None else ix.coefficient(store.offset, axis)
            total += _UNIT * every * _STRIDED if stride != 1 else _UNIT * every // self._lanes(axis)
        return total

    def _lanes(self, axis: Axis | None) -> int:
        return 1 if axis is None else self.width(axis)

    def _vector(self, expr: Expr, axis: Axis | None) -> Axis | None:
        """The axis along which an expression is computed in vectors."""
        if axis is not None and axis in expr.free:
            return axis
        own = [a for a in expr.free if a in self.along and (axis is None or axis not in self.along[a].free)]
        return min(own, key=lambda a: a.number, default=None)

    def _cost(self, expr: Expr, axis: Axis | None) -> int:
        vector = self._vector(expr, axis)
        lanes = self._lanes(vector)
        work = _UNIT * iterations(expr)
        match expr:
            case Load():
                stride = 0 if vector is None else ix.coefficient(expr.offset, vector)
                if vector is not None and vector in self.along and not self._runs(self.along[vector], vector, axis):
                    stride = None
                if stride is not None and 1 < stride <= MOST_APART:
                    return work * (2 * stride - 1) // lanes
                return work * _STRIDED if stride not in (0, 1) else work // lanes
            case Apply():
                return work * _SLOW.get(expr.op, 1) // lanes
            case Lookup():
                return work // lanes
            case Reduce():
                return self._reduction(expr, axis, lanes)
            case _:
                return 0

    def _runs(self, reduce: Reduce, vector: Axis, axis: Axis | None) -> bool:
        """Whether lanes along the reduction's own axes stay in one row of its last axis."""
        if axis is not None and axis is vector:
            return True
        return len(reduce.axes) == 1 or vector.extent % self.machine.reduction_lanes == 0

    def _reduction(self, reduce: Reduce, axis: Axis | None, lanes: int) -> int:
        work = _UNIT * _terms(reduce)
        if axis is not None and axis in reduce.free:
            return work * _LATENCY // lanes
        if self._has_lanes(reduce):
            return work // self.machine.lanes(32)
        return work * _LATENCY

"""Long sums of few outputs as calls that threads can share out: one sums leaves, the next sums their sums (rule 10).

A leaf's sum depends on nothing but the leaf, and leaves are summed by the rule that sums values. So a kernel is cut in
its own language: a first one writes the sum of each leaf to a small temporary, one more that of a last leaf that is not
full, and the kernel itself reads these. Where the combiner takes any order, runs of values are cut off in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from passes.calls import Called, call_of, called
from passes.plan import with_steps
from passes.rename import rewritten
from passes.sequences import with_calls
from repro.ir import index as ix
from repro.ir.dependence import reads_its_output
from repro.ir.expressions import Axis, Exact, Expr, Lanes, Load, Reduce, load, reduce, topological
from repro.ir.loops import Store
from repro.ir.program import TEMPORARY, Buffer, Call, Program, Step

FEW_ROWS, FEW_COLUMNS = 8, 256
"""Outputs of a sum up to which they are too few to be shared out; columns, which are swept many at a time."""
WORTH = 1 << 16
"""Terms of all outputs from which on a call and a meeting more are worth it: some microseconds of reading."""
RUN = 4096
"""Values of a run where any order gives the same."""


def leaves(program: Program) -> Program:
    """The program with such sums cut; itself where there are none."""
    made = _Leaves(program)
    steps = with_calls(program.steps, made.call)
    if steps == program.steps:
        return program
    return with_steps(program, steps, made.kernels, made.buffers)


class _Leaves:
    def __init__(self, program: Program) -> None:
        self.kernels, self.buffers = list(program.kernels), list(program.buffers)

    def call(self, step: Call) -> Sequence[Step]:
        kernel = self.kernels[step.kernel]
        if kernel.serial or reads_its_output(kernel) or any(store.when is not None for store in kernel.stores):
            return (step,)
        whole = called(kernel, step)
        found = next(filter(None, (_cut_of(whole, each) for each in _sums(whole))), None)
        if found is None:
            return (step,)
        self.buffers.append(Buffer(found.reduce.dtype, found.leaves * found.rows, TEMPORARY, 0))
        *first, rest = (call_of(part, self.kernels, self.buffers) for part in found.parts(whole, len(self.buffers) - 1))
        return (*first, *self.call(rest))


def _sums(kernel: Called) -> list[Reduce]:
    """The reductions that give each output a value of its own and do not stand in one another."""
    outputs = frozenset(axis for axis in kernel.axes if axis.extent > 1)
    every = [expr for expr in topological(kernel.roots) if isinstance(expr, Reduce)]
    inside = {each: [e for e in topological(each.children) if isinstance(e, Reduce)] for each in every}
    nested = {e for found in inside.values() for e in found}
    plain = [each for each in every if not inside[each] and each not in nested and each.free >= outputs]
    return [e for e in plain if isinstance(e.order, Lanes | Exact) and not e.combiner.startswith("arg")]


@dataclass(frozen=True)
class _Cut:
    """A sum cut at one of its axes: a leaf is so many (`each`) iterations of that, and all of the axes behind it."""

    reduce: Reduce
    position: int
    each: int
    rows: int

    @property
    def axis(self) -> Axis:
        return self.reduce.axes[self.position]

    @property
    def before(self) -> tuple[Axis, ...]:
        return self.reduce.axes[: self.position]

    @property
    def whole(self) -> int:
        """Leaves along the axis that are full."""
        return self.axis.extent // self.each

    @property
    def leaves(self) -> int:
        return math.prod(axis.extent for axis in self.before) * -(-self.axis.extent // self.each)

    def parts(self, kernel: Called, buffer: int) -> list[Called]:
        """The calls that take the place of one; sums of leaves are stored in `buffer`."""
        whole, rows, extents = self.reduce, kernel.axes, [axis.extent for axis in kernel.axes]
        first = 1 + max(e.number for e in topological([*kernel.roots, *rows]) if isinstance(e, Axis))
        leaf, inside = ix.axis(first, self.whole), ix.axis(first + 1, self.each)
        numbers = (*self.before, leaf)
        place = ix.linear((*numbers, *rows), [*(axis.extent for axis in numbers), *extents])
        full = self._leaf(inside, ix.scale(leaf, self.each))
        made = [Called((*numbers, *rows), (Store(buffer, place, full),))]
        if rest := self.axis.extent % self.each:
            last = ix.add(ix.number(self.whole * self.rows), ix.linear(rows, extents))
            short = self._leaf(ix.axis(first, rest), ix.number(self.axis.extent - rest))
            made.append(Called(rows, (Store(buffer, last, short),)))
        every = ix.axis(first, self.leaves)
        sums = load(whole.dtype, buffer, ix.linear((every, *rows), [self.leaves, *extents]))
        total = reduce(whole.combiner, whole.order, [every], [sums])
        flat = rewritten([expr for s in kernel.stores for expr in (s.offset, s.value)], {whole: total})
        pairs = zip(kernel.stores, flat[::2], flat[1::2], strict=True)
        return [*made, Called(rows, tuple(Store(s.buffer, at, value) for s, at, value in pairs))]

    def _leaf(self, inside: Axis, start: Expr) -> Expr:
        """The sum of a leaf that begins at an iteration of the axis."""
        present = [] if self.reduce.present is None else [self.reduce.present]
        term, *there = rewritten([*self.reduce.terms, *present], {self.axis: ix.add(start, inside)})
        axes = (inside, *self.reduce.axes[self.position + 1 :])
        return reduce(self.reduce.combiner, self.reduce.order, axes, [term], *there)


def _cut_of(kernel: Called, sum_: Reduce) -> _Cut | None:
    """How a sum of few outputs is cut; None where it is not worth it, or leaves are no runs of its axes."""
    rows, terms = math.prod(axis.extent for axis in kernel.axes), math.prod(axis.extent for axis in sum_.axes)
    if not 0 < rows <= (FEW_COLUMNS if _by_columns(kernel, sum_) else FEW_ROWS) or rows * terms < WORTH:
        return None
    run = sum_.order.leaf if isinstance(sum_.order, Lanes) else RUN
    behind = 1
    for position in reversed(range(len(sum_.axes))):
        extent = sum_.axes[position].extent
        if behind * extent > run:
            even = run % behind == 0 and (position == 0 or extent % (run // behind) == 0)
            return _Cut(sum_, position, run // behind, rows) if even else None
        behind *= extent
    return None


def _by_columns(kernel: Called, sum_: Reduce) -> bool:
    """Whether outputs are what lies side by side in memory."""
    bound = frozenset(sum_.axes)
    loads = [expr for expr in topological(sum_.terms) if isinstance(expr, Load) and expr.free & bound]
    return bool(kernel.axes) and any(ix.coefficient(each.offset, kernel.axes[-1]) == 1 for each in loads)

"""Reductions of the same rows, one computed from another, as one call: the maxima of a cross-entropy and the sums that
these are taken from.

What a row comes to is stored where more than the next reduction reads it, so each is a call of its own, and walks over
rows that have left the nearest cache since. Where two calls compute one element for each of the same rows, and the
second reads of the first's that of its own row alone, one call computes and stores both: a row is read from memory
once, and a machine may reduce several rows at once, each at a stage of its own.

The bits are those of the two calls: each operation is made on the same values.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

from passes.calls import Called, call_of, called
from passes.near_rows import LONGEST_KEPT, SHORTEST_ROW, with_axes_from
from passes.plan import if_no_larger
from passes.rename import rewritten
from passes.sequences import Touched, bodies, touched_itself, touches, with_bodies
from repro.ir import index as ix
from repro.ir.expressions import Axis, Exact, Expr, Lanes, Load, Reduce, topological
from repro.ir.loops import Kernel, Store
from repro.ir.program import TEMPORARY, Call, Program, Step, walk


def row_reductions(program: Program) -> Program:
    """The program with such calls made one; itself where there are none, or where memory would grow."""
    made = _RowReductions(program)
    return if_no_larger(program, made.sequence(program.steps), made.kernels)


class _RowReductions:
    def __init__(self, program: Program) -> None:
        self.program, self.kernels = program, list(program.kernels)
        self.uses = Counter(buffer for step in walk(program.steps) for buffer, _ in touched_itself(program, step))

    def sequence(self, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        made = [with_bodies(step, [self.sequence(each) for each, _ in bodies(step)]) for step in steps]
        touching = [touches(self.program, step) for step in steps]
        gone = set[int]()
        for position, step in enumerate(made):
            for before in range(position - 1, -1, -1):
                if before in gone or not touching[before].written & touching[position].read:
                    continue
                behind = [each for place, each in enumerate(touching[before:position], before) if place not in gone]
                together = self._together(made[before], step) if _may_come(behind[1:], touching[position]) else None
                if together is not None:
                    made[before] = call_of(together, self.kernels, self.program.buffers)
                    touching[before] = _both(touching[before], touching[position])
                    gone.add(position)
                    break
        return tuple(step for position, step in enumerate(made) if position not in gone)

    def _together(self, first: Step, then: Step) -> Called | None:
        if not isinstance(first, Call) or not isinstance(then, Call):
            return None
        kernels = self.kernels[first.kernel], self.kernels[then.kernel]
        if not all(map(reduces_rows, kernels)):
            return None
        return joined(called(kernels[0], first), called(kernels[1], then), self._is_kept)

    def _is_kept(self, buffer: int) -> bool:
        """Whether anything but the two calls reads a buffer that the first one writes."""
        return self.uses[buffer] > 2 or self.program.buffers[buffer].role != TEMPORARY


def _may_come(between: Sequence[Touched], last: Touched) -> bool:
    """Whether a step may run before some that stand before it."""
    return not any(each.written & (last.read | last.written) or each.read & last.written for each in between)


def _both(first: Touched, then: Touched) -> Touched:
    return Touched(first.read | then.read, first.written | then.written)


def reduces_rows(kernel: Kernel) -> bool:
    """Whether its elements are what reductions of a near row come to, one for each iteration."""
    if kernel.serial or not kernel.axes or any(store.when is not None for store in kernel.stores):
        return False
    return bool(row_elements(kernel)) and all(_in_order(store, kernel.axes) for store in kernel.stores)


def row_elements(kernel: Kernel) -> int:
    """The elements of the row that all reductions of a kernel go over, one of its iterations each; 0 if they do not."""
    found = [expr for expr in kernel.expressions if isinstance(expr, Reduce)]
    rows = frozenset(axis for axis in kernel.axes if axis.extent > 1)
    counts = {math.prod(axis.extent for axis in each.axes) for each in found}
    plain = all(isinstance(each.order, Lanes | Exact) and not each.combiner.startswith("arg") for each in found)
    if not plain or len(counts) != 1 or any(each.free != rows or each.present is not None for each in found):
        return 0
    (count,) = counts
    return count if SHORTEST_ROW <= count <= LONGEST_KEPT else 0


def _in_order(store: Store, axes: Sequence[Axis]) -> bool:
    return store.offset is ix.linear(axes, [axis.extent for axis in axes])


def joined(first: Called, then: Called, is_kept: Callable[[int], bool]) -> Called | None:
    """Both as one, the first's values in place of what the second loads of them; None where it needs those of other
    rows, or they go over different ones. What `is_kept` is stored as before."""
    if [axis.extent for axis in first.axes] != [axis.extent for axis in then.axes]:
        return None
    if not _loads(first) & _loads(then):
        return None
    fresh = 1 + max(expr.number for expr in topological(then.roots) if isinstance(expr, Axis))
    moved: dict[Expr, Expr] = {
        ix.axis(fresh + axis.number, axis.extent): own for axis, own in zip(first.axes, then.axes, strict=True)
    }
    values = rewritten([with_axes_from(fresh, store.value) for store in first.stores], moved)
    known: dict[Expr, Expr] = {}
    places = {store.buffer: value for store, value in zip(first.stores, values, strict=True)}
    for expr in topological(then.roots):
        if isinstance(expr, Load) and expr.buffer in places:
            value, own_row = places[expr.buffer], expr.offset is then.stores[0].offset
            if expr.when is not None or not own_row or expr.dtype is not value.dtype:
                return None
            known[expr] = value
    behind = rewritten([store.value for store in then.stores], known)
    offset = then.stores[0].offset
    stores = [Store(buffer, offset, value) for buffer, value in places.items() if is_kept(buffer)]
    stores += [Store(store.buffer, offset, value) for store, value in zip(then.stores, behind, strict=True)]
    return Called(then.axes, tuple(stores))


def _loads(call: Called) -> set[int]:
    """The buffers of which reductions read rows."""
    every = (expr for root in call.roots for expr in topological([root]) if isinstance(expr, Reduce))
    return {load.buffer for each in every for load in topological(each.terms) if isinstance(load, Load)}

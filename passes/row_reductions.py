"""Reductions of the same rows as one call: the maxima of a cross-entropy and the sums that these are taken from, the
four sums over each channel of a batch norm's gradient.

What a row comes to is stored where more than the next reduction reads it, so each is a call of its own, and walks over
rows that have left the nearest cache since. Where two calls compute one element for each of the same rows, and read
some of the same values of them, one call computes and stores both: a row is read from memory once. The second may read
of the first's that of its own row alone, where rows are near; a machine then reduces several at once, each at a stage
of its own. Sums of which none is computed from another go over their terms side by side, however many there are.

The bits are those of the two calls: each operation is made on the same values.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

from passes.calls import Called, call_of, called
from passes.near_rows import LONGEST_KEPT, SHORTEST_ROW
from passes.plan import if_no_larger
from passes.rename import rewritten, with_axes_from
from passes.sequences import bodies, touched_itself, touches, with_bodies
from repro.ir import index as ix
from repro.ir.expressions import Axis, Exact, Expr, Lanes, Load, Reduce, topological
from repro.ir.loops import Kernel, Store
from repro.ir.program import TEMPORARY, Call, Program, Step, walk

MOST = 8
"""Reductions of a call."""


def row_reductions(program: Program) -> Program:
    """The program with such calls made one; itself where there are none, or where memory would grow."""
    made = _RowReductions(program)
    return if_no_larger(program, made.sequence(program.steps), made.kernels)


class _RowReductions:
    def __init__(self, program: Program) -> None:
        self.program, self.kernels = program, list(program.kernels)
        self.uses = Counter(buffer for step in walk(program.steps) for buffer, _ in touched_itself(program, step))

    def sequence(self, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        made: list[Step | None] = [with_bodies(s, [self.sequence(each) for each, _ in bodies(s)]) for s in steps]
        touching = [touches(self.program, step) for step in steps]
        reading: dict[int, list[int]] = defaultdict(list)
        """The calls that reduce rows of each buffer."""
        for position, step in enumerate(steps):
            then = self._reducing(step)
            if then is None:
                continue
            rows, place = _rows_of(then), position
            for before in sorted({at for buffer in rows for at in reading[buffer]}, reverse=True):
                first = self._reducing(made[before])
                behind = (touching[at] for at in range(before + 1, position) if made[at] is not None)
                if first is None or any(each.before(touching[position]) for each in behind):
                    continue
                together = joined(first, then, self._is_kept)
                if together is not None:
                    made[before], made[position] = call_of(together, self.kernels, self.program.buffers), None
                    touching[before], place = touching[before] | touching[position], before
                    break
            for buffer in rows:
                reading[buffer].append(place)
        return tuple(step for step in made if step is not None)

    def _reducing(self, step: Step | None) -> Called | None:
        """A call whose kernel reduces rows."""
        if not isinstance(step, Call) or not reduces_rows(self.kernels[step.kernel]):
            return None
        return called(self.kernels[step.kernel], step)

    def _is_kept(self, buffer: int) -> bool:
        """Whether anything but the two calls reads a buffer that the first one writes."""
        return self.uses[buffer] > 2 or self.program.buffers[buffer].role != TEMPORARY


def reduces_rows(kernel: Kernel) -> bool:
    """Whether its elements are what reductions of a row come to, one for each iteration."""
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
    return count if count >= SHORTEST_ROW else 0


def _in_order(store: Store, axes: Sequence[Axis]) -> bool:
    return store.offset is ix.linear(axes, [axis.extent for axis in axes])


def joined(first: Called, then: Called, is_kept: Callable[[int], bool]) -> Called | None:
    """Both as one, the first's values in place of what the second loads of them; None where it needs those of other
    rows or of rows that are not near, they go over different ones, or the second writes what the first touches. What
    `is_kept`, or the second does not read, is stored as before."""
    if [axis.extent for axis in first.axes] != [axis.extent for axis in then.axes]:
        return None
    if not _rows_of(first) & _rows_of(then) or len(_reduces(first)) + len(_reduces(then)) > MOST:
        return None
    fresh = 1 + max(expr.number for expr in topological(then.roots) if isinstance(expr, Axis))
    moved: dict[Expr, Expr] = {
        ix.axis(fresh + axis.number, axis.extent): own for axis, own in zip(first.axes, then.axes, strict=True)
    }
    values = rewritten([with_axes_from(fresh, store.value) for store in first.stores], moved)
    known: dict[Expr, Expr] = {}
    places = {store.buffer: value for store, value in zip(first.stores, values, strict=True)}
    read = _loaded(then) & places.keys()
    if not _may_meet(first, then, bool(read)) or any(s.buffer in _loaded(first) | places.keys() for s in then.stores):
        return None
    for expr in topological(then.roots):
        if isinstance(expr, Load) and expr.buffer in places:
            value, own_row = places[expr.buffer], expr.offset is then.stores[0].offset
            if expr.when is not None or not own_row or expr.dtype is not value.dtype:
                return None
            known[expr] = value
    behind = rewritten([store.value for store in then.stores], known)
    offset = then.stores[0].offset
    stores = [Store(buffer, offset, value) for buffer, value in places.items() if buffer not in read or is_kept(buffer)]
    stores += [Store(store.buffer, offset, value) for store, value in zip(then.stores, behind, strict=True)]
    return Called(then.axes, tuple(stores))


def _may_meet(first: Called, then: Called, reads: bool) -> bool:
    """Whether both go over as many elements, and one after the other only where these are near."""
    found = [*_reduces(first), *_reduces(then)]
    counts = {math.prod(axis.extent for axis in each.axes) for each in found}
    sums = all(isinstance(each.order, Lanes) for each in found)
    return len(counts) == 1 and (max(counts) <= LONGEST_KEPT or (sums and not reads))


def _loaded(call: Called) -> set[int]:
    return {expr.buffer for expr in topological(call.roots) if isinstance(expr, Load)}


def _reduces(call: Called) -> list[Reduce]:
    return [expr for expr in topological(call.roots) if isinstance(expr, Reduce)]


def _rows_of(call: Called) -> set[int]:
    """The buffers of which reductions read rows."""
    pairs = [(each, load) for each in _reduces(call) for load in topological(each.terms) if isinstance(load, Load)]
    return {load.buffer for each, load in pairs if load.free & frozenset(each.axes)}

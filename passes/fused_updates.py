"""A weight's update computed where its gradient is: behind the dot's sums, over the weight and the optimizer's state.

A gradient is made by a dot, stored, and read again by the call of the commit that updates its weight. Where that call
alone reads it, the dot goes into the commit and does the update on its totals: the gradient is never stored, and what
the update reads comes while the dot computes.

A run must leave the whole of the next state or none, so a dot that writes over a weight may run in the commit alone:
what it multiplies has to be kept until then, and nobody can stop it. So it goes there if it keeps no more bytes than
the gradient took, and as long as all of them together take a fraction of a second.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from passes.calls import Called, call_of, called
from passes.plan import if_no_larger
from passes.rename import rewritten, with_axes_from
from passes.sequences import touches
from passes.windows import window
from repro.ir import index as ix
from repro.ir.contraction import find
from repro.ir.expressions import Axis, Expr, Load, Reduce, topological
from repro.ir.loops import Kernel, Store
from repro.ir.program import TEMPORARY, Call, Commit, Program, Step
from repro.ir.work import multiply_adds

MOST_MULTIPLY_ADDS = 1 << 33
"""Of all dots in a commit: 60 ms of a core with vectors of 512 bits, half a second of one with 128."""


def fused_updates(program: Program) -> Program:
    """The program with such updates in its dots; itself where there are none, or where memory would grow."""
    last = program.steps[-1] if program.steps else None
    if not isinstance(last, Commit):
        return program
    made = _Updates(program, last)
    return if_no_larger(program, made.steps(), made.kernels)


class _Updates:
    def __init__(self, program: Program, commit: Commit) -> None:
        self.program, self.commit, self.kernels = program, commit, list(program.kernels)
        self.ahead = program.steps[:-1]
        self.touched = [touches(program, step) for step in self.ahead]
        in_commit = [touches(program, step) for step in commit.body]
        self.kept = frozenset[int]().union(*(each.read | each.written for each in in_commit))
        """What lives until the commit, whatever is moved into it."""
        self.changed = Counter(buffer for each in in_commit for buffer in each.written)
        """How many of the commit's steps write each buffer."""
        self.readers = Counter(buffer for each in (*self.touched, *in_commit) for buffer in each.read)
        """How many steps read each buffer."""
        self.writers: dict[int, list[int]] = {}
        """The steps before the commit that write it."""
        for at, each in enumerate(self.touched):
            for buffer in each.written:
                self.writers.setdefault(buffer, []).append(at)
        self.left = MOST_MULTIPLY_ADDS

    def steps(self) -> tuple[Step, ...]:
        body, moved = list(self.commit.body), set[int]()
        for place, step in enumerate(body):
            made = self._fused(step) if isinstance(step, Call) else None
            if made is not None:
                at, body[place] = made
                moved.add(at)
        ahead = [step for at, step in enumerate(self.ahead) if at not in moved]
        return (*ahead, replace(self.commit, body=tuple(body)))

    def _fused(self, update: Call) -> tuple[int, Call] | None:
        """Where a dot stands that may run in the commit, the last one that the update reads, and the update on its
        totals: a kernel has one sum."""
        for at in sorted(self._made_for(update), reverse=True):
            made = self._on_totals(at, update)
            if made is not None:
                return at, made
        return None

    def _made_for(self, update: Call) -> Iterator[int]:
        """The steps before the commit that make something for the update alone."""
        for buffer in update.buffers:
            writers = self.writers.get(buffer, ())
            if len(writers) == self.readers[buffer] == 1 and self.program.buffers[buffer].role == TEMPORARY:
                yield from writers

    def _on_totals(self, at: int, update: Call) -> Call | None:
        dot = self.ahead[at]
        own = touches(self.program, update).written
        if not isinstance(dot, Call) or not self._may_wait(at, own):
            return None
        kernel = self.kernels[dot.kernel]
        work = multiply_adds(kernel)
        if not 0 < work <= self.left or not _stores_once(kernel) or not _is_dense(called(kernel, dot)):
            return None
        made = joined(called(kernel, dot), called(self.kernels[update.kernel], update))
        if made is None:
            return None
        self.left -= work
        self.kept |= self.touched[at].read
        return call_of(made, self.kernels, self.program.buffers)

    def _may_wait(self, at: int, own: frozenset[int]) -> bool:
        """Whether a step may run in the commit, as part of one that writes `own`: nothing else behind it writes what it
        reads, and what must be kept for it takes no more than what it makes."""
        mine = self.touched[at]
        changed = any(self.changed[buffer] > (buffer in own) for buffer in mine.read)
        if changed or any(later > at for buffer in mine.read for later in self.writers.get(buffer, ())):
            return False
        buffers = self.program.buffers
        longer = [b for b in mine.read - self.kept if buffers[b].role == TEMPORARY]
        return sum(buffers[b].nbytes for b in longer) <= sum(buffers[b].nbytes for b in mine.written)


def _stores_once(kernel: Kernel) -> bool:
    """Whether each output is computed once, however the machine runs it: what a window is read through may be computed
    again by the plain order."""
    found = find(kernel, floats=True)
    return found is not None and found.absent_in is None and window(kernel, found.extents[1]) is None


def _is_dense(dot: Called) -> bool:
    """Whether a dot's outputs lie side by side, each written once."""
    (store, *more), stride = dot.stores, 1
    axes = [axis for axis in dot.axes if axis.extent > 1]
    steps = {axis: ix.coefficient(store.offset, axis) for axis in axes}
    for axis in sorted(axes, key=lambda axis: steps[axis] or 0):
        if steps[axis] != stride:
            return False
        stride *= axis.extent
    return not more and ix.bounds(store.offset) == (0, stride - 1)


def _with_other_axes(update: Called, dot: Called) -> Called:
    """The update over axes of its own: what it computes from them is not computed from those of the dot that have the
    same numbers and extents, and whose outputs may lie the other way."""
    first = 1 + max(expr.number for expr in (*topological(dot.roots), *dot.axes) if isinstance(expr, Axis))
    flat = [with_axes_from(first, root) for root in update.roots]
    axes = tuple(ix.axis(first + axis.number, axis.extent) for axis in update.axes)
    pairs = zip(update.stores, flat[::2], flat[1::2], strict=True)
    return Called(axes, tuple(Store(store.buffer, offset, value) for store, offset, value in pairs))


def joined(dot: Called, update: Called) -> Called | None:
    """The update of every element, computed where the dot's outputs are; None where it takes them, or anything else,
    from other places than those that it writes or from its indices, has not as many elements, or the dot multiplies
    what it writes."""
    (gradient,), written = dot.stores, {store.buffer for store in update.stores}
    over = {each for each in topological(dot.roots) if isinstance(each, Load) and each.buffer in written}
    factors = {each for whole in topological(dot.roots) if isinstance(whole, Reduce) for each in topological([whole])}
    if over & factors or any(each.offset is not gradient.offset for each in over):
        return None
    update = _with_other_axes(update, dot)
    roots = list(topological(update.roots))
    loads = [expr for expr in roots if isinstance(expr, Load)]
    places = {store.offset for store in update.stores} | {each.offset for each in loads if each.offset.free}
    if len(places) != 1 or any(each.when is not None for each in loads) or any(isinstance(e, Reduce) for e in roots):
        return None
    (place,) = places
    sizes = {math.prod(axis.extent for axis in each.axes) for each in (dot, update)}
    elsewhere = any(each.buffer == gradient.buffer and each.offset is not place for each in loads)
    if elsewhere or len(sizes) > 1 or ix.bounds(place) != ix.bounds(gradient.offset):
        return None
    known: dict[Expr, Expr] = {place: gradient.offset}
    known |= {each: gradient.value for each in loads if each.buffer == gradient.buffer}
    flat = rewritten([expr for store in update.stores for expr in (store.offset, store.value)], known)
    pairs = zip(update.stores, flat[::2], flat[1::2], strict=True)
    made = Called(dot.axes, tuple(Store(store.buffer, offset, value) for store, offset, value in pairs))
    return made if frozenset[Axis]().union(*(root.free for root in made.roots)) <= frozenset(dot.axes) else None

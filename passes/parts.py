"""Values put together from parts, each part written where it belongs by the call that computes it.

The gradient of a split is such a value: queries, keys and values of attention have gradients of their own, which a
kernel copied side by side. Along one axis of such a kernel each index takes its elements from one buffer alone, and has
zeros for the others. Where the buffers are read by nothing else, the calls that fill them store into the whole value
instead, and the copy is gone with its operands.

The bits are those of the copy: what it computes of an element (the sum with zeros) is computed before the store.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from passes.calls import Called, call_of, called
from passes.plan import if_no_larger
from passes.rename import rewritten, settled
from passes.sequences import touched_itself
from repro.ir import index as ix
from repro.ir.expressions import FALSE, Axis, Expr, IndexOp, Load, Reduce, const, topological
from repro.ir.loops import Kernel, Store
from repro.ir.program import OUTPUT, TEMPORARY, Call, Program, RowBlocks, Step, touched, walk

Place = tuple[int, int]
"""Of a call: the number of its step, and which call of that step it is."""
LONGEST = 4096
"""Indices of an axis along which parts are looked for: at worst each is asked, and each half of a half."""


def parts(program: Program) -> Program:
    """The program without such copies; itself where there are none, or where memory would grow."""
    made = _Parts(program)
    return if_no_larger(program, made.steps(), made.kernels)


class _Parts:
    def __init__(self, program: Program) -> None:
        self.program, self.kernels = program, list(program.kernels)
        self.calls: dict[Place, Call] = {}
        """Those of the program's own sequence, and of blocks of rows in it."""
        for at, step in enumerate(program.steps):
            inside = step.body if isinstance(step, RowBlocks) else [step] if isinstance(step, Call) else []
            self.calls |= {(at, number): call for number, call in enumerate(inside)}
        self.writers: dict[int, list[Place]] = {}
        for place, call in self.calls.items():
            for buffer, writes in touched(program, call):
                if writes:
                    self.writers.setdefault(buffer, []).append(place)
        self.uses = Counter(buffer for step in walk(program.steps) for buffer, _ in touched_itself(program, step))

    def steps(self) -> tuple[Step, ...]:
        gone = set[int]()
        for at, step in enumerate(self.program.steps):
            made = self._made(at, step) if isinstance(step, Call) else None
            if made is not None:
                gone.add(at)
                self.calls |= {place: call_of(each, self.kernels, self.program.buffers) for place, each in made.items()}
        return tuple(self._step(at, step) for at, step in enumerate(self.program.steps) if at not in gone)

    def _step(self, at: int, step: Step) -> Step:
        if isinstance(step, RowBlocks):
            return replace(step, body=tuple(self.calls[at, number] for number in range(len(step.body))))
        return self.calls[at, 0] if isinstance(step, Call) else step

    def _made(self, at: int, step: Call) -> dict[Place, Called] | None:
        """What the calls that fill a copy's operands become if they store its parts; None if it is no such copy."""
        kernel = self.program.kernels[step.kernel]
        if not is_assembled(kernel) or self.writers[step.buffers[kernel.stores[0].buffer]] != [(at, 0)]:
            return None
        copy = called(kernel, step)
        if self.program.buffers[copy.stores[0].buffer].role not in (TEMPORARY, OUTPUT):
            return None
        sources = {expr.buffer for expr in topological(copy.roots) if isinstance(expr, Load)}
        if any(self._filler(source, at) is None for source in sources):
            return None
        made: dict[Place, Called] = {}
        for store, source in _cut(copy):
            place = self._filler(source.buffer, at)
            into = None if place is None or place in made else self._stored(place, store, source)
            if place is None or into is None:
                return None
            made[place] = into
        return made or None

    def _filler(self, buffer: int, at: int) -> Place | None:
        """The one call before a step that fills a temporary for it alone."""
        writers = self.writers.get(buffer, [])
        alone = self.program.buffers[buffer].role == TEMPORARY and self.uses[buffer] == 2 and len(writers) == 1
        return writers[0] if alone and writers[0][0] < at else None

    def _stored(self, place: Place, store: Store, source: Load) -> Called | None:
        """A call that stores its results as a part of the whole, each in one place of it."""
        call = self.calls[place]
        kernel = self.program.kernels[call.kernel]
        axes = _in_memory(source.offset, self.program.buffers[source.buffer].elements)
        if axes is None or not store.offset.free <= frozenset(axes):
            return None
        if kernel.serial or len(kernel.stores) != 1 or kernel.stores[0].when is not None:
            return None
        filled = called(kernel, call)
        (old,) = filled.stores
        index = ix.delinear(old.offset, [axis.extent for axis in axes])
        known: dict[Expr, Expr] = {source: old.value, **dict(zip(axes, index, strict=True))}
        offset, value = rewritten((store.offset, store.value), known)
        made = _divided(Called(filled.axes, (Store(store.buffer, offset, value),)))
        (offset,) = (store.offset for store in made.stores)
        return None if any(ix.coefficient(offset, axis) is None for axis in made.axes) else made


def is_assembled(kernel: Kernel) -> bool:
    """Whether a kernel only puts elements together: it computes them from what it reads on conditions, each operand in
    one place."""
    loads = [expr for expr in kernel.expressions if isinstance(expr, Load)]
    if kernel.serial or len(kernel.stores) != 1 or kernel.stores[0].when is not None or len(loads) < 2:
        return False
    elements = not any(isinstance(expr, Reduce) for expr in kernel.expressions)
    return elements and all(each.when is not None for each in loads) and len({e.buffer for e in loads}) == len(loads)


def _cut(copy: Called) -> list[tuple[Store, Load]]:
    """The parts of a copy, each with the one element that it is computed from; none where it has no such parts."""
    (store,) = copy.stores
    loads = [expr for expr in topological(copy.roots) if isinstance(expr, Load)]
    asked = {axis for each in loads if each.when is not None for axis in each.when.free}
    if len(asked) != 1 or (axis := asked.pop()).extent > LONGEST or axis not in copy.axes:
        return []
    inside = ix.axis(1 + max(each.number for each in topological(copy.roots) if isinstance(each, Axis)), axis.extent)
    roots = _at(copy.roots, axis, inside)
    found: list[tuple[Store, Load]] = []
    groups = [list(group) for _, group in groupby(_runs(roots, inside, 0), lambda run: run.buffers)]
    for offset, value in _apart(roots, inside, groups):
        loads = [expr for expr in topological([value]) if isinstance(expr, Load)]
        if len(loads) != 1 or loads[0].when is not None or _free_beside(value, loads[0]):
            return []
        found.append((Store(store.buffer, offset, value), loads[0]))
    return found


@dataclass(frozen=True)
class _Run:
    """Indices along an axis, and the buffers that are read there."""

    first: int
    count: int
    buffers: frozenset[int]


def _runs(roots: Sequence[Expr], inside: Axis, first: int) -> Iterator[_Run]:
    """Runs of the indices of an axis, which begin at `first`. They are halved until all of a run reads the same buffer
    without a condition."""
    loads = [expr for expr in topological(roots) if isinstance(expr, Load)]
    buffers = frozenset(each.buffer for each in loads)
    if inside.extent == 1 or (len(buffers) <= 1 and all(each.when is None for each in loads)):
        yield _Run(first, inside.extent, buffers)
        return
    half = inside.extent // 2
    for start, count in ((0, half), (half, inside.extent - half)):
        yield from _runs(*_some(roots, inside, start, count), first + start)


def _apart(roots: Sequence[Expr], inside: Axis, groups: Sequence[Sequence[_Run]]) -> Iterator[Sequence[Expr]]:
    """The expressions at the indices of each group of runs, of those at the indices of all groups."""
    if len(groups) == 1:
        yield roots
        return
    half, start = len(groups) // 2, 0
    for part in (groups[:half], groups[half:]):
        count = sum(run.count for group in part for run in group)
        yield from _apart(*_some(roots, inside, start, count), part)
        start += count


def _some(roots: Sequence[Expr], inside: Axis, start: int, count: int) -> tuple[list[Expr], Axis]:
    """The expressions at some of an axis' indices, as fewer than they were, and the axis of these."""
    part = ix.axis(inside.number, count)
    return _at(roots, inside, ix.add(part, ix.number(start))), part


def _at(roots: Sequence[Expr], axis: Axis, index: Expr) -> list[Expr]:
    """The expressions at some indices of an axis; a load that is never there is its 0."""
    made = settled(roots, {axis: index})
    absent = [expr for expr in topological(made) if isinstance(expr, Load) and expr.when is FALSE]
    return rewritten(made, {each: const(each.dtype, 0) for each in absent})


def _free_beside(value: Expr, source: Load) -> bool:
    """Whether a value depends on where it is beyond the element that it is computed from."""
    (rest,) = rewritten([value], {source: const(source.dtype, 0)})
    return bool(rest.free)


def _in_memory(offset: Expr, elements: int) -> list[Axis] | None:
    """The axes in the order in which they lie in a buffer, the last side by side; None where they are not all of it."""
    axes = sorted(offset.free, key=lambda axis: -(ix.coefficient(offset, axis) or 0))
    extents = [axis.extent for axis in axes]
    return axes if offset is ix.linear(axes, extents) and math.prod(extents) == elements else None


def _divided(call: Called) -> Called:
    """The call with an axis of which the stores take quotient and remainder cut in two."""
    offsets = list(topological(store.offset for store in call.stores))
    divisors = {expr.children[0]: expr.divisor for expr in offsets if isinstance(expr, IndexOp)}
    fresh = 1 + max((each.number for each in topological(call.roots) if isinstance(each, Axis)), default=0)
    axes, known = list[Axis](), dict[Expr, Expr]()
    for axis in call.axes:
        inner = divisors.get(axis, axis.extent)
        if axis.extent % inner == 0 and axis.extent != inner:
            pair = (ix.axis(fresh, axis.extent // inner), ix.axis(fresh + 1, inner))
            known[axis] = ix.linear(pair, [each.extent for each in pair])
            fresh += 2
            axes += pair
        else:
            axes.append(axis)
    roots = rewritten(call.roots, known)
    pairs = zip(call.stores, roots[::2], roots[1::2], strict=True)
    return Called(tuple(axes), tuple(Store(store.buffer, offset, value) for store, offset, value in pairs))

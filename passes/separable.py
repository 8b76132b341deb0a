"""The extremes of overlapping windows, along one axis after another.

A window of 5 x 5 has 25 terms; the greatest of 5 in a column of it is that of the column in 5 windows. So a first call
has the extreme of each place's column, and the call itself a few of these for each window: an extreme of extremes is
that of all their terms, whatever is absent (rule 5). Where both run in blocks of rows, what is between them stays near.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from passes.calls import Called, call_of, called
from passes.collapse import collapse
from passes.plan import with_steps
from passes.rename import rewritten, settled
from passes.sequences import with_calls
from repro.ir import index as ix
from repro.ir.dependence import reads_its_output
from repro.ir.expressions import Axis, Exact, Load, Reduce, load, reduce, topological
from repro.ir.loops import Store
from repro.ir.program import TEMPORARY, Buffer, Call, Program, Step
from repro.ops.record import Nest

WORTH = 1 << 16
"""Terms of all outputs from which on a call more is worth it."""
SHORT = 4
"""Vectors of a line that places fill better, of which there are more: it is cut even where no term is saved (windows of
3 at a stride of 2). 56 outputs of 112 places from memory took a Zen 5 as long so in vectors of 16 as before,
1.7 times as long in vectors of 8; 28 outputs 0.4 and 0.5 times as long."""


def separable(program: Program, lanes: int) -> Program:
    """The program with such calls cut, for vectors of so many lanes; itself where there are none."""
    made = _Separable(program, SHORT * lanes)
    steps = with_calls(program.steps, made.call)
    if steps == program.steps:
        return program
    return with_steps(program, steps, made.kernels, made.buffers)


class _Separable:
    def __init__(self, program: Program, short: int) -> None:
        self.kernels, self.buffers, self.short = list(program.kernels), list(program.buffers), short

    def call(self, step: Call) -> Sequence[Step]:
        kernel = self.kernels[step.kernel]
        if kernel.serial or reads_its_output(kernel) or len(kernel.stores) != 1 or kernel.stores[0].when is not None:
            return (step,)
        whole = called(kernel, step)
        reduces = [expr for expr in topological(whole.roots) if isinstance(expr, Reduce)]
        found = None if len(reduces) != 1 else _sliding(whole, reduces[0], self.short)
        if found is None:
            return (step,)
        self.buffers.append(Buffer(found.reduce.dtype, found.places, TEMPORARY, 0))
        first, rest = (call_of(part, self.kernels, self.buffers) for part in found.parts(whole, len(self.buffers) - 1))
        return (*self.call(first), rest)


@dataclass(frozen=True)
class _Sliding:
    """A reduction whose terms depend on an axis of outputs and the last one of its own by a place alone,
    `stride * output + tap - low`."""

    reduce: Reduce
    axes: tuple[Axis, ...]
    """Of outputs."""
    output: Axis
    stride: int
    low: int
    place: Axis
    inner: Reduce
    """The reduction over the other axes, at a place."""

    @property
    def tap(self) -> Axis:
        return self.reduce.axes[-1]

    @property
    def places(self) -> int:
        return math.prod(axis.extent for axis in self._at_places)

    @property
    def _at_places(self) -> tuple[Axis, ...]:
        return tuple(self.place if axis is self.output else axis for axis in self.axes)

    def pays(self, short: int) -> bool:
        """Whether windows overlap, and places and windows together have fewer terms; or as many, in a short line."""
        taps, inside = self.tap.extent, math.prod(axis.extent for axis in self.reduce.axes[:-1])
        outputs = math.prod(axis.extent for axis in self.axes)
        before, after = outputs * taps * inside, self.places * inside + outputs * taps
        fewer = after < before or (after == before and self.output.extent <= short)
        return before >= WORTH and self.stride < taps and fewer

    def parts(self, kernel: Called, buffer: int) -> list[Called]:
        """The calls that take the place of one; the first leaves its values in `buffer`."""
        extents = [axis.extent for axis in self._at_places]
        at = ix.add(ix.scale(self.output, self.stride), self.tap, ix.number(-self.low))
        found = [at if axis is self.output else axis for axis in self.axes]
        there = ix.inside(at, self.place.extent)
        present = None if there is ix.TRUE else there
        read = load(self.inner.dtype, buffer, ix.linear(found, extents), present)
        outer = reduce(self.reduce.combiner, self.reduce.order, [self.tap], [read], present)
        (store,) = kernel.stores
        offset, value = rewritten([store.offset, store.value], {self.reduce: outer})
        first = Nest(self._at_places, 0, ix.linear(self._at_places, extents), self.inner)
        return [_collapsed(first, buffer), _collapsed(Nest(kernel.axes, 0, offset, value), store.buffer)]


def _collapsed(nest: Nest, buffer: int) -> Called:
    made = collapse(nest)
    return Called(made.axes, (Store(buffer, made.offset, made.value),))


def _sliding(kernel: Called, whole: Reduce, short: int) -> _Sliding | None:
    """How a reduction is cut at its last axis; None where it is no extreme of several axes, or that does not pay."""
    if whole.combiner not in ("min", "max") or not isinstance(whole.order, Exact) or len(whole.axes) < 2:
        return None
    axes = tuple(axis for axis in kernel.axes if axis in whole.free)
    fresh = 1 + max(e.number for e in topological([*kernel.roots, *kernel.axes]) if isinstance(e, Axis))
    made = (_at(whole, axes, axis, fresh) for axis in axes)
    return next((each for each in made if each is not None and each.pays(short)), None)


def _at(whole: Reduce, axes: tuple[Axis, ...], output: Axis, fresh: int) -> _Sliding | None:
    """The same, if an axis of outputs and the last one are in its terms by their place alone."""
    tap, stride = whole.axes[-1], _stride(whole, output)
    if stride is None:
        return None
    every = ix.add(ix.scale(output, stride), tap)
    low, high = ix.bounds_where(every, whole.present)
    place = ix.axis(fresh, high - low + 1)
    behind = ix.add(place, ix.number(low), ix.scale(output, -stride))
    term, there = settled([*whole.terms, ix.TRUE if whole.present is None else whole.present], {tap: behind})
    inner = reduce(whole.combiner, whole.order, whole.axes[:-1], [term], None if there is ix.TRUE else there)
    if output in inner.free or place.extent < 1 or not isinstance(inner, Reduce):
        return None
    return _Sliding(whole, axes, output, stride, low, place, inner)


def _stride(whole: Reduce, output: Axis) -> int | None:
    """Taps from one output to the next."""
    for expr in topological(whole.terms):
        if isinstance(expr, Load):
            along, tap = (ix.coefficient(expr.offset, axis) for axis in (output, whole.axes[-1]))
            return along // tap if along and tap and along > 0 and tap > 0 and along % tap == 0 else None
    return None

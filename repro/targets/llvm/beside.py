"""Sums side by side, in one loop over their terms: of several outputs, and several sums of one.

Where terms lie in short runs of memory, one output's run beside the next one's, one output after another reads a run
here and a run there, each on a page of its own; together they read the page. Where terms of an output lie beside each
other, outputs some pages apart are summed together, so that hardware fetches ahead in several places at once. Sums of
the same output read the same terms, or some of them. Each sum has the order that it has alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from repro.ir import index as ix
from repro.ir.expressions import Axis, Expr, Lanes, Load, Order, Reduce, topological
from repro.ir.loops import Kernel
from repro.ir.types import I64
from repro.machines import Machine
from repro.numerics.contract import LANES
from repro.targets.llvm import kept_lanes, scalars, short_runs
from repro.targets.llvm.along import RUN_BYTES
from repro.targets.llvm.body import Body
from repro.targets.llvm.grid import Grid
from repro.targets.llvm.reductions import Reduction
from repro.targets.llvm.rows import stages
from repro.targets.llvm.scope import Scope
from repro.targets.llvm.terms import Running
from repro.targets.llvm.text import Val, integer

MOST = 4
"""Outputs at a time (runs of 1 KiB that lie 128 KiB apart, on a Zen 5: 0.76 of the time of one with two, 0.66 with
four, 0.64 with eight)."""
STREAM_BYTES = 64 << 10
"""Between places that are read in turn (32 MiB in rows of 1 KiB, four of them in turn, on a Zen 3: 1.00 ms with rows 16
KiB apart, 0.90 with 64, 0.88 with 128; 1.27 one after another, 2.1 with rows beside each other)."""


@dataclass(frozen=True)
class Together:
    """How outputs are summed together: `count` of them in one loop, `apart` further from one to the next where they are
    read in several places at once (0: one right after another); or all of `kept`, whose lanes stand in memory."""

    count: int
    apart: int = 0
    kept: Reduce | None = None


def plan(kernel: Kernel, grid: Grid, body: Body) -> Together | None:
    """How the kernel's outputs are summed together; None: one after another."""
    sums, machine = [expr for expr in kernel.expressions if isinstance(expr, Reduce)], body.machine
    if grid.vector is not None or grid.inner or not grid.outer or kernel.serial or body.roads or body.lanes == 1:
        return None
    if not sums or not all(_in_whole_runs(each, grid) for each in sums):
        return None
    only = sums[0] if len(sums) == 1 and machine.streams > 1 and _from_afar(kernel, machine) else None
    apart = 0 if only is None else _apart(only, kernel, grid, machine)
    if apart:
        return Together(machine.streams, apart)
    short = all(_in_short_runs(each, kernel, grid, machine) for each in sums)
    count = MOST if short else 1
    while count > 1 and count * len(sums) > _most(sums, machine):
        count //= 2
    if count * len(sums) == 1:
        return None
    return Together(count, kept=only if only is not None and short and kept_lanes.pays(only) else None)


def _from_afar(kernel: Kernel, machine: Machine) -> bool:
    """Whether something is read from beyond the near caches."""
    return any(machine.is_far(buffer.nbytes) for buffer in kernel.buffers)


def _apart(reduce: Reduce, kernel: Kernel, grid: Grid, machine: Machine) -> int:
    """How many outputs further those lie that are read in turn, where terms of an output lie beside each other and
    registers hold the sums of so many; 0: they do not."""
    load, along = reduce.terms[0], grid.outer[-1]
    vectors = LANES * reduce.dtype.bits // machine.vector_bits
    if not isinstance(load, Load) or load.when is not None or vectors * machine.streams > machine.registers:
        return 0
    in_order = all(ix.coefficient(load.offset, axis) == each for axis, each in _strides(reduce.axes))
    stride, extent = ix.coefficient(load.offset, along) or 0, math.prod(axis.extent for axis in reduce.axes)
    far = machine.is_far(kernel.buffers[load.buffer].nbytes) and along.extent >= machine.streams
    return max(1, STREAM_BYTES // (stride * load.dtype.bytes)) if far and in_order and stride >= extent else 0


def _strides(axes: Sequence[Axis]) -> Iterator[tuple[Axis, int]]:
    """Each axis with its stride where elements lie in the order of all."""
    step = 1
    for axis in reversed(axes):
        yield axis, step
        step *= axis.extent


def _most(sums: Sequence[Reduce], machine: Machine) -> int:
    """How many of such sums are in half the registers, at least one."""
    vectors = max(LANES * each.dtype.bits // machine.vector_bits for each in sums)
    return max(1, machine.registers // 2 // max(1, vectors))


def _in_whole_runs(reduce: Reduce, grid: Grid) -> bool:
    """Whether it is a sum for each output, in whole runs of the order's lanes."""
    order, count = reduce.order, math.prod(axis.extent for axis in reduce.axes)
    if not isinstance(order, Lanes) or order.lanes != LANES or order.leaf % LANES or reduce.present is not None:
        return False
    whole = count > 0 and count % LANES == 0 and not short_runs.pays(reduce, order)
    return whole and reduce.free == frozenset(grid.outer)


def _in_short_runs(reduce: Reduce, kernel: Kernel, grid: Grid, machine: Machine) -> bool:
    """Whether it reads memory as described above."""
    along, run = reduce.axes[-1], reduce.axes[-1].extent
    loads = [e for e in topological(reduce.terms) if isinstance(e, Load) and e.free & frozenset(reduce.axes)]
    beside = all(
        e.when is None
        and ix.coefficient(e.offset, along) == 1
        and ix.coefficient(e.offset, grid.outer[-1]) == run
        and kernel.buffers[e.buffer].nbytes > machine.l1_bytes
        for e in loads
    )
    return bool(loads) and beside and len(reduce.axes) > 1 and run * reduce.dtype.bytes < RUN_BYTES


def emit(
    body: Body,
    roots: Sequence[Expr],
    outer: Sequence[Axis],
    together: Together,
    items: tuple[Val, Val],
    at: Callable[[Val], Scope],
    stores: Callable[[Scope], None],
) -> Val:
    """Items from the first to before the last as planned, `at` being the scope of one and `stores` what is left once
    its sums are known; where the rest begins, fewer than go together. Of those that lie apart, a last few do less."""
    (first, last), count, f = items, together.count, body.f
    if together.kept is not None:
        kept_lanes.KeptLanes(body, together.kept, at, stores).emit(first, last)
        return last

    def group(number: Val, step: Val) -> Sequence[Val]:
        scopes = [at(f.add(number, f.scaled(step, place))) for place in range(count)]
        for stage in stages(roots, frozenset(outer), scopes[0]):
            for sums in _groups(stage, max(1, _most(stage, body.machine) // count)):
                Beside([Reduction(body, each, scope) for each in sums for scope in scopes], together.apart > 0).sum()
        for scope in scopes:
            stores(scope)
        return ()

    def block(begin: Val, _: list[Val]) -> Sequence[Val]:
        left = f.let(f"sub i64 {whole.text}, {begin.text}", I64)
        step = scalars.least(f, f.let(f"udiv i64 {left.text}, {count}", I64), integer(together.apart))
        f.loop(begin, f.add(begin, step), 1, (), lambda number, _: group(number, step))
        return ()

    span = f.let(f"sub i64 {last.text}, {first.text}", I64)
    whole = f.add(first, f.let(f"and i64 {span.text}, {-count}", I64))
    if together.apart:
        f.loop(first, whole, count * together.apart, (), block)
    else:
        f.loop(first, whole, count, (), lambda number, _: group(number, integer(1)))
    return whole


def _groups(stage: Sequence[Reduce], most: int) -> list[list[Reduce]]:
    """The sums of a stage of which each goes over as many terms in the same order, so many at most in each."""
    alike: dict[tuple[Order, int], list[Reduce]] = {}
    for each in stage:
        alike.setdefault((each.order, math.prod(axis.extent for axis in each.axes)), []).append(each)
    return [sums[first : first + most] for sums in alike.values() for first in range(0, len(sums), most)]


class Beside:
    """Sums over as many terms in the same order, each in a scope of its own output; those of outputs far apart leave
    it to hardware to fetch what they read."""

    def __init__(self, each: Sequence[Reduction], far_apart: bool) -> None:
        order = each[0].reduce.order
        assert isinstance(order, Lanes)
        self.far_apart = far_apart
        self.body, self.f, self.order, self.each = each[0].body, each[0].f, order, each

    def sum(self) -> None:
        """Their values are then known in their scopes."""
        for reduction, value in zip(self.each, self._values(), strict=True):
            reduction.scope.known[reduction.reduce] = value

    def _values(self) -> list[Val]:
        for reduction in self.each:
            self.body.hoist(reduction.roots, reduction.scope)
        before, ahead = self.body.ahead, None if self.far_apart else self.each[0].runs_ahead()
        self.body.ahead = before if ahead is None else (ahead[0], max(1, ahead[1] // len(self.each)))
        found = self.levels(self.each[0].count, self.leaf)
        self.body.ahead = before
        return found

    def levels(self, count: int, leaf: Callable[[Val, Val], list[Val]]) -> list[Val]:
        """As `Reduction.levels`."""
        order, f = self.order, self.f
        if count <= order.leaf:
            return leaf(integer(0), integer(count))

        def sums(begin: Val, end: Val) -> list[Val]:
            running = [Running(reduction, order) for reduction in self.each]

            def of_leaf(number: Val, _: list[Val]) -> Sequence[Val]:
                start = f.scaled(number, order.leaf)
                stop = self.each[0].least(f.add(start, integer(order.leaf)), count)
                for each, value in zip(running, leaf(start, stop), strict=True):
                    each.add(number, value)
                return ()

            f.loop(begin, end, 1, (), of_leaf)
            return [each.folded(order, sums.parts()) for each, sums in zip(self.each, running, strict=True)]

        return self.levels(-(-count // order.leaf), sums)

    def leaf(self, begin: Val, end: Val) -> list[Val]:
        """Of a whole number of runs of the order's lanes."""
        width = self.order.lanes

        def step(flat: Val, state: list[Val]) -> Sequence[Val]:
            terms = [each.vector(flat, width) for each in self.each]
            return [each.combine(*pair) for each, *pair in zip(self.each, state, terms, strict=True)]

        start = [each.identity(width) for each in self.each]
        summed = self.f.loop(begin, end, width, start, step)
        return [each.fold(value) for each, value in zip(self.each, summed, strict=True)]

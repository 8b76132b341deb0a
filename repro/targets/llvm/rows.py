"""Rows of which each is reduced before its elements are computed: several of them at once, each at a stage of its own.

A stage is what a row's reductions can be computed from at once: the greatest element, then the sum of what that is
taken from. While the elements of a row are computed, the row behind it is at its last stage, the next one at the stage
before, all in one loop: so the steps with which a reduction ends, divisions and memory are waited for while there is
other work. Or the row behind it has gone through all stages but the last, which is in the loop, so that terms come from
memory in one place at a time. Each row's operations are those it would have alone, in their order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from passes.near_rows import kept
from repro.ir.expressions import Axis, Expr, Lanes, Reduce, topological
from repro.ir.loops import Kernel
from repro.ir.types import I64
from repro.targets.llvm import scalars
from repro.targets.llvm.along import Along, Run
from repro.targets.llvm.body import Body
from repro.targets.llvm.scope import Scope
from repro.targets.llvm.text import Val, integer, literal

PAGE_BYTES = 4096
"""A load may wait for a store before it whose address differs by a multiple of it; slots lie half of it off."""


@dataclass(frozen=True)
class Elements:
    """What computes the elements of a row."""

    extent: int
    lanes: int
    """That may be computed beside so many terms, or a multiple; 0: they are computed on their own."""
    vectors: Callable[[Val, Scope, int], None]
    """So many from a place on, as one value."""
    rest: Callable[[Val, Scope], None]
    """All from a place on, a multiple of what is computed beside terms."""
    reads: Callable[[Val], None]
    """Is told where the row's kept terms lie."""


@dataclass(frozen=True)
class _Stage:
    """One row's reductions at a stage: where it is, whether there is such a row, and those that run in the loop."""

    active: Val
    scope: Scope
    reductions: list[Reduce]
    runs: list[Run]


class Rows:
    """Rows one after another: `kept` is a sum whose terms are kept until the row's elements are computed."""

    def __init__(
        self, body: Body, roots: Sequence[Expr], top: Scope, outer: Sequence[Axis], kept: Reduce | None, beside: bool
    ) -> None:
        """`beside`: whether all stages go in one loop with the elements; else the last does, and a row goes through
        those before it beforehand."""
        self.body, self.f, self.roots = body, body.f, roots
        *before, last = stages(roots, frozenset(outer), top)
        self.stages = [*before, last] if beside else [[each for stage in (*before, last) for each in stage]]
        self.in_loop = frozenset(each for stage in self.stages for each in stage) if beside else frozenset(last)
        self.kept = kept if kept in self.stages[-1] else None

    def emit(self, first: Val, last: Val, at: Callable[[Val], Scope], elements: Elements) -> None:
        """Rows `first` to `last`, `at` being the scope of one."""
        f, depth = self.f, len(self.stages)

        def step(ahead: Val, state: list[Val]) -> Sequence[Val]:
            known, pending = self._rows_known(state), list[_Stage]()

            def row(age: int) -> tuple[Val, Scope, Val]:
                number, active = self._row(ahead, age, first, last)
                scope = at(number)
                scope.known.update(known[age])
                return active, scope, self._slot(f.add(ahead, integer(-age)))

            for age, reduces in enumerate(self.stages):
                pending.append(self._stage(*row(age), reduces, elements.extent))
            active, scope, slot = row(depth)
            if any(run.reduce is self.kept for run in pending[-1].runs):
                elements.reads(slot)
            self.body.hoist(self.roots, scope)
            return self._carried(known, self._together(pending, active, scope, elements))

        empty = scalars.compare(f, "ge", first, last)
        beyond = scalars.select(f, empty, first, f.add(last, integer(depth)))
        blank = [literal(each.dtype, 0) for age in range(1, depth + 1) for each in self._before(age)]
        f.loop(first, beyond, 1, blank, step)

    def _row(self, ahead: Val, age: int, first: Val, last: Val) -> tuple[Val, Val]:
        """The number of the row so many stages behind, one that there is, and whether it is that."""
        f = self.f
        number = f.add(ahead, integer(-age))
        begun, more = scalars.compare(f, "ge", number, first), scalars.compare(f, "lt", number, last)
        inside = scalars.least(f, scalars.greatest(f, number, first), f.add(last, integer(-1)))
        return inside, scalars.binary(f, "and", begun, more)

    def _slot(self, number: Val) -> Val:
        """Where the kept terms of a row lie: those of the row before are still wanted when they are written."""
        bytes_each = 0 if self.kept is None else slot_bytes(self.kept)
        odd = self.f.let(f"and i64 {number.text}, 1", I64)
        return self.f.let(f"getelementptr i8, ptr %scratch, i64 {self.f.scaled(odd, bytes_each).text}", I64)

    # values of rows, by how many stages are behind them ─────────────────────────────────────────────

    def _before(self, age: int) -> list[Reduce]:
        return [each for stage in self.stages[:age] for each in stage]

    def _rows_known(self, state: Sequence[Val]) -> list[dict[Expr, Val]]:
        values = iter(state)
        return [{each: next(values) for each in self._before(age)} for age in range(len(self.stages) + 1)]

    def _carried(self, known: list[dict[Expr, Val]], found: dict[Expr, Val]) -> list[Val]:
        """A row's values are those of a row one stage on in the next step."""
        ages = range(len(self.stages))
        every = [{**known[age], **{each: found[each] for each in self.stages[age]}} for age in ages]
        return [every[age - 1][each] for age in range(1, len(self.stages) + 1) for each in self._before(age)]

    # one step ───────────────────────────────────────────────────────────────────────────────────────

    def _stage(self, active: Val, scope: Scope, slot: Val, reduces: list[Reduce], extent: int) -> _Stage:
        runs = list[Run]()
        for each in reduces:
            reduction = Along(self.body, each, scope)
            reduction.kept_at = slot if each is self.kept else None
            made = reduction.run() if each in self.in_loop and _count(each) == extent else None
            if made is None:
                scope.known[each] = self._alone(each, active, scope)
            else:
                runs.append(made)
        return _Stage(active, scope, reduces, runs)

    def _alone(self, reduce: Reduce, active: Val, scope: Scope) -> Val:
        inside, blank = Scope(scope, {}), literal(reduce.dtype, 0)
        return self.f.either(active, lambda: [self.body.value(reduce, inside)], lambda: [blank])[0]

    def _together(self, pending: list[_Stage], active: Val, scope: Scope, elements: Elements) -> dict[Expr, Val]:
        """All stages and the elements in one loop, then what is left of each: the reductions' values."""
        f, runs = self.f, [run for stage in pending for run in stage.runs]
        lanes = max([elements.lanes, *(run.lanes for run in runs)])
        whole = elements.extent - elements.extent % lanes if runs else 0

        def step(flat: Val, state: list[Val]) -> Sequence[Val]:
            values, after = iter(state), list[Val]()
            for stage in pending:
                self.body.terms_ask = stage is pending[0]
                before = [[next(values) for _ in run.start] for run in stage.runs]
                after += self._terms(stage, flat, lanes, before)

            self.body.terms_ask = True
            if elements.lanes:
                f.when(active, lambda: elements.vectors(flat, scope, lanes))
            self.body.terms_ask = False
            return after

        state = [value for run in runs for value in run.start]
        if whole:
            state = f.loop(integer(0), integer(whole), lanes, state, step)
        f.when(active, lambda: elements.rest(integer(whole if elements.lanes else 0), scope))
        values, found, end = iter(state), dict[Expr, Val](), integer(elements.extent)
        for stage in pending:
            for run in stage.runs:
                stage.scope.known[run.reduce] = run.finish(integer(whole), end, [next(values) for _ in run.start])
            found |= {each: stage.scope.known[each] for each in stage.reductions}
        return found

    def _terms(self, stage: _Stage, flat: Val, lanes: int, before: list[list[Val]]) -> list[Val]:
        def some() -> Sequence[Val]:
            pairs = zip(stage.runs, before, strict=True)
            return [value for run, state in pairs for value in run.step(flat, state, lanes)]

        if not stage.runs:
            return []
        return self.f.either(stage.active, some, lambda: [value for state in before for value in state])


def stages(roots: Sequence[Expr], rows: frozenset[Axis], top: Scope) -> list[list[Reduce]]:
    """The reductions of a row, each list computed from those before."""
    level, found = dict[Expr, int](), list[list[Reduce]]()
    for expr in topological(roots):
        level[expr] = max((level[child] for child in expr.children), default=0)
        if isinstance(expr, Reduce) and expr.free <= rows and top.find(expr) is None:
            found += [[]] * (level[expr] == len(found))
            found[level[expr]] = [*found[level[expr]], expr]
            level[expr] += 1
    return found


def kept_bytes(kernel: Kernel) -> int:
    """Bytes of private memory in which a kernel keeps terms."""
    found = kept(kernel)
    return 0 if found is None else 2 * slot_bytes(found[0])


def slot_bytes(reduce: Reduce) -> int:
    """Of the terms of a row, in whole runs of the order's lanes."""
    assert isinstance(reduce.order, Lanes)
    whole = -(-_count(reduce) // reduce.order.lanes) * reduce.order.lanes * reduce.dtype.bytes
    return whole + (PAGE_BYTES // 2 - whole) % PAGE_BYTES


def _count(reduce: Reduce) -> int:
    return math.prod(axis.extent for axis in reduce.axes)

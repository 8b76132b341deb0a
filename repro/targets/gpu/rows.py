"""Kernels around reductions with lanes of their own (sums, softmax, norms, statistics): a team of threads a row.

A row is one value of every axis that the heaviest reduction depends on. Its team runs the reductions together, and
shares out the other axes: thread i of the team takes every n-th of their values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from passes.rename import rewritten
from repro.ir import index as ix
from repro.ir.dependence import reads_its_output
from repro.ir.expressions import Axis, Exact, Expr, Load, Rarely, Reduce, topological
from repro.ir.loops import Kernel
from repro.machines import Machine
from repro.targets.gpu import plain
from repro.targets.gpu.body import WARP, Entry, GpuBody, assemble, special, workspace_as_buffer
from repro.targets.gpu.launch import GpuKernel, Launch
from repro.targets.gpu.leaves import cut
from repro.targets.gpu.team import COLUMNS, Kept, Team, cooperative, terms_of
from repro.targets.llvm import scalars
from repro.targets.llvm.kernel import symbol
from repro.targets.llvm.scope import Scope
from repro.targets.llvm.text import Function, Val, integer

ROWS_PER_BLOCK = 4
"""Warps of a block, each with a row of its own."""
MOST_WARPS = 16
KEPT = 32
"""Terms of a row that a thread keeps, at most."""
FEW_ROWS = 2048
"""Below so many rows, a long one is given a whole block."""


@dataclass(frozen=True)
class Plan:
    """Which axes are rows, which are shared out within a team, and what a team is."""

    rows: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    warps: int
    column: Axis | None
    """The row axis along which teams stand side by side, if they do; the last of `rows`."""

    @property
    def count(self) -> int:
        return math.prod(axis.extent for axis in self.rows)

    @property
    def block(self) -> int:
        if self.column is not None:
            return WARP * COLUMNS
        return WARP * (self.warps if self.warps > 1 else min(ROWS_PER_BLOCK, max(1, self.count)))

    @property
    def resident(self) -> int:
        """Blocks of columns that a multiprocessor is to hold: one reads while another folds its lanes."""
        return 1 if self.column is None else 2

    @property
    def grid(self) -> int:
        if self.column is None:
            return self.count if self.warps > 1 else -(-self.count * WARP // self.block)
        return self.count // self.column.extent * -(-self.column.extent // COLUMNS)

    @property
    def text(self) -> str:
        team = "columns" if self.column is not None else "warp" if self.warps == 1 else f"block of {self.warps} warps"
        return f"rows={self.count} team={team}"


def plan(kernel: Kernel) -> Plan | None:
    """How teams would run the kernel; None where that is no gain."""
    if kernel.serial or any(axis.extent == 0 for axis in kernel.axes) or reads_its_output(kernel):
        return None
    expressions = list(kernel.expressions)
    bound = frozenset(axis for e in expressions if isinstance(e, Reduce) for axis in e.axes)
    outermost = [e for e in expressions if isinstance(e, Reduce) and not e.free & bound]
    wanted = [e for e in outermost if cooperative(e)]
    if not wanted or _hidden(expressions):
        return None
    heaviest = max(wanted, key=lambda e: terms_of(e) * math.prod(axis.extent for axis in e.free))
    if any(not cooperative(e) and e.free <= heaviest.free and terms_of(e) > WARP for e in outermost):
        return None
    rows = tuple(axis for axis in kernel.axes if axis in heaviest.free)
    inner = tuple(axis for axis in kernel.axes if axis not in heaviest.free)
    column = _column(heaviest, rows)
    if column is not None:
        rows = (*(axis for axis in rows if axis is not column), column)
        return Plan(rows, inner, WARP, column)
    count = math.prod(axis.extent for axis in rows)
    leaves = max(-(-terms_of(e) // 4096) for e in wanted)
    warps = min(MOST_WARPS, leaves) if count < FEW_ROWS else 1
    return Plan(rows, inner, warps, None)


def _hidden(expressions: Sequence[Expr]) -> bool:
    """Whether a reduction stands where only some threads may go, and is not computed before they part."""
    for expr in expressions:
        if isinstance(expr, Rarely):
            before = frozenset(topological([expr.condition, expr.common]))
            if any(isinstance(e, Reduce) and e not in before for e in topological([expr.seldom])):
                return True
    return False


def _column(reduce: Reduce, rows: Sequence[Axis]) -> Axis | None:
    """The row axis along which the reduction's loads are neighbours, where they are none along its own last axis."""
    loads = [e for e in topological(reduce.terms) if isinstance(e, Load) and e.free & frozenset(reduce.axes)]
    along = frozenset(reduce.axes)
    if any(ix.coefficient(load.offset, axis) == 1 for load in loads for axis in along if axis.extent > 4):
        return None
    beside = [axis for axis in rows if axis.extent > 4]
    found = [axis for axis in beside if any(ix.coefficient(load.offset, axis) == 1 for load in loads)]
    return found[0] if found else None


def emit(kernel: Kernel, chosen: Plan, machine: Machine) -> GpuKernel:
    """The code of a kernel by teams; a long sum of few rows takes two entries (repro.targets.gpu.leaves)."""
    name, parts = symbol(kernel), cut(kernel, chosen.rows)
    if parts is None:
        part, launch = entry(kernel, chosen, machine, name)
        return GpuKernel(assemble(kernel, [part], machine), (launch,), schedule=chosen.text)
    first = _part(parts.sums, machine, f"{name}_leaves")
    last = _part(parts.rest, machine, name)
    ptx = assemble(kernel, [first[0], last[0]], machine, workspace=True)
    return GpuKernel(ptx, (first[1], last[1]), parts.workspace_bytes, f"{chosen.text} leaves apart")


def _part(kernel: Kernel, machine: Machine, name: str) -> tuple[Entry, Launch]:
    """An entry whose last buffer is the workspace."""
    chosen = plan(kernel)
    if chosen is None:
        return plain.entry(kernel, machine, name, workspace=True)
    return entry(kernel, chosen, machine, name, workspace=True)


def entry(kernel: Kernel, chosen: Plan, machine: Machine, name: str, workspace: bool = False) -> tuple[Entry, Launch]:
    """One entry that runs the kernel, and its launch. `workspace`: that is the kernel's last buffer."""
    f = Function()
    if workspace:
        workspace_as_buffer(f, kernel)
    _Rows(f, kernel, chosen, machine).emit()
    f.line("ret void")
    return Entry(name, f, chosen.block, chosen.resident), Launch(name, chosen.grid, chosen.block)


def seated(f: Function, kernel: Kernel, chosen: Plan, machine: Machine, threads: int) -> None:
    """The kernel by the warps of one block of so many threads, which take a row after another."""
    made = _Rows(f, kernel, chosen, machine)
    made.over = True
    warp = scalars.binary(f, "udiv", special(f, "tid"), integer(WARP))

    def row(number: Val, _: list[Val]) -> Sequence[Val]:
        made.row(number)
        return ()

    f.loop(warp, integer(chosen.count), threads // WARP, (), row)


class _Rows:
    def __init__(self, f: Function, kernel: Kernel, chosen: Plan, machine: Machine) -> None:
        self.f, self.kernel, self.plan = f, kernel, chosen
        self.team = Team(f, special(f, "tid"), chosen.warps, chosen.column is not None)
        self.body = GpuBody(f, kernel, machine, self.team.emit)
        self.roots = [expr for store in kernel.stores for expr in store.expressions]
        self.team.kept = self._kept()
        self.over = False
        """Whether rows may be written over those that are read."""

    def emit(self) -> None:
        f, block = self.f, special(self.f, "ctaid")
        if self.plan.column is not None:
            self._columns(block)
        elif self.plan.warps > 1:
            self.row(block)
        else:
            warp = scalars.binary(f, "udiv", special(f, "tid"), integer(WARP))
            row = f.add(f.scaled(block, self.plan.block // WARP), warp)
            f.when(scalars.compare(f, "lt", row, integer(self.plan.count)), lambda: self.row(row))

    def row(self, number: Val) -> None:
        places = self.body.split(number, self.plan.rows) if self.plan.rows else ()
        self._team(dict(zip(self.plan.rows, places, strict=True)), None)

    def _columns(self, block: Val) -> None:
        """Rows that are neighbours along one axis; a team beyond the last keeps the others company."""
        f, column = self.f, self.plan.column
        assert column is not None
        groups = -(-column.extent // COLUMNS)
        group, rest = (scalars.binary(f, how, block, integer(groups)) for how in ("urem", "udiv"))
        others = self.plan.rows[:-1]
        bound = dict(zip(others, self.body.split(rest, others) if others else (), strict=True))
        place = f.add(f.scaled(group, COLUMNS), self.team.neighbour)
        inside = None
        if column.extent % COLUMNS:
            inside = scalars.compare(f, "lt", place, integer(column.extent))
            place = scalars.select(f, inside, place, integer(column.extent - 1))
        self._team({**bound, column: place}, inside)

    def _team(self, bound: dict[Axis, Val], inside: Val | None) -> None:
        f, scope = self.f, Scope(None, bound)
        self.body.hoist(self.roots, scope)
        if self.over:  # shuffles exchange values, and order no memory
            f.effect("llvm.nvvm.bar.warp.sync", ["i32"], ["i32 -1"])
        with self.team.apart():
            if inside is None:
                self._outputs(scope)
            else:
                f.when(inside, lambda: self._outputs(scope))

    def _outputs(self, scope: Scope) -> None:
        """The inner axes, shared out; a row without any is stored by the first thread."""
        f, inner, team = self.f, self.plan.inner, self.team
        count = math.prod(axis.extent for axis in inner)
        if count == 1:
            f.when(scalars.compare(f, "eq", team.rank, integer(0)), lambda: self._stores(self._at(scope, integer(0))))
            return
        width = self._width(inner)
        if team.kept is not None and team.kept.values:  # not where a sum of few terms needed it before
            for first, value in zip(team.runs(count, width), team.kept.values, strict=True):
                lanes = self.body.lane_scope(scope, inner, first, width, None, aligned=True)
                lanes.known[team.kept.term] = value
                self._stores(lanes)
            return
        first = f.scaled(team.rank, width)

        def output(at: Val, _: list[Val]) -> Sequence[Val]:
            if width > 1:
                self._stores(self.body.lane_scope(scope, inner, at, width, None, aligned=True))
            else:
                self._stores(self._at(scope, at))
            return ()

        f.loop(first, integer(count), team.size * width, (), output)

    def _kept(self) -> Kept | None:
        """Terms that outputs are made of, where each thread has few and any order of them is right."""
        inner, count = self.plan.inner, math.prod(axis.extent for axis in self.plan.inner)
        if self.plan.column is not None or not inner:
            return None
        width = self._width(inner)
        if width == 1 or count % (self.team.size * width) or count // self.team.size > KEPT:
            return None
        expressions = tuple(self.kernel.expressions)
        present = frozenset(expressions)
        for reduce in expressions:
            if not isinstance(reduce, Reduce) or not isinstance(reduce.order, Exact) or reduce.has_present:
                continue
            of_row = reduce.free <= frozenset(self.plan.rows) and cooperative(reduce)
            if of_row and [axis.extent for axis in reduce.axes] == [axis.extent for axis in inner]:
                (term,) = rewritten(reduce.terms, dict(zip(reduce.axes, inner, strict=True)))
                if term in present and term.dtype.bits == 32:
                    return Kept(reduce, term, width)
        return None

    def _at(self, scope: Scope, flat: Val) -> Scope:
        inner = self.plan.inner
        return Scope(scope, dict(zip(inner, self.body.split(flat, inner) if inner else (), strict=True)))

    def _width(self, inner: Sequence[Axis]) -> int:
        """How many neighbouring outputs a thread stores at a time."""
        if self.plan.column is not None or self.body.lane_width(inner[-1]) == 1:
            return 1
        return self.body.lane_width(inner[-1])

    def _stores(self, scope: Scope) -> None:
        values = [self.body.value(store.value, scope) for store in self.kernel.stores]
        for store, value in zip(self.kernel.stores, values, strict=True):
            self.body.store(store.buffer, store.offset, value, store.when, scope)

"""A contraction by blocks of threads: shared memory, register tiles, panels of K (rules 7 and 8).

For a kernel whose value holds one Chain reduction of a(batch, m, k) and b(batch, n, k). A block computes a tile of m
by n; each thread runs its own outputs' fma chains through a panel in registers, and adds the panel's totals to its
running ones, which lie in its local memory. At the end it evaluates the rest of the store's expression.

Where K is shared out (`Plan.splits`), a block leaves each panel's totals in the workspace instead, and a second
entry, one thread for each output, adds them in their order (repro.targets.gpu.joining).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from repro.ir.loops import Kernel
from repro.ir.types import BOOL, I32, U32
from repro.machines import Machine
from repro.targets.gpu.body import WARP, Entry, GpuBody, assemble, barrier, special
from repro.targets.gpu.finish import Finish, is_long
from repro.targets.gpu.joining import flag_place, joining_entry
from repro.targets.gpu.launch import GpuKernel, Launch
from repro.targets.gpu.operand import Operand
from repro.targets.gpu.team import Team
from repro.targets.gpu.tiles import THREADS, Plan
from repro.targets.gpu.totals import PanelTotals, Totals
from repro.targets.llvm import scalars
from repro.targets.llvm.body import Scope
from repro.targets.llvm.kernel import symbol
from repro.targets.llvm.text import Function, Val, integer


def emit(kernel: Kernel, plan: Plan, machine: Machine) -> GpuKernel:
    """The code of a kernel in tiles."""
    f = Function()
    made = _Block(GpuBody(f, kernel, machine), kernel, plan)
    made.emit()
    f.line("ret void")
    entries = [Entry(symbol(kernel), f, THREADS, made.resident)]
    launches = [Launch(symbol(kernel), plan.grid, THREADS)]
    if plan.splits > 1:
        entry, launch = joining_entry(kernel, plan, machine)
        entries.append(entry)
        launches.append(launch)
    ptx = assemble(kernel, entries, machine, plan.workspace_bytes > 0)
    return GpuKernel(ptx, tuple(launches), plan.workspace_bytes, plan.text)


def small(value: int) -> Val:
    """Places along K are i32: registers are what a tile is short of."""
    return integer(value, I32)


class _Block:
    """The code of one block of threads."""

    def __init__(self, body: GpuBody, kernel: Kernel, plan: Plan) -> None:
        self.body, self.f, self.kernel, self.plan = body, body.f, kernel, plan
        self.reduce, self.dtype = plan.contraction.reduce, plan.contraction.reduce.dtype
        self.thread = special(self.f, "tid")
        self.batch, self.split, row_block, column_block = self._number()
        axes = plan.contraction.batch
        bound = dict(zip(axes, body.split(self.batch, axes), strict=True)) if axes else {}
        self.scope = Scope(None, bound)
        body.hoist([*self.reduce.children, kernel.stores[0].value, kernel.stores[0].offset], self.scope)
        block_m, block_n = plan.tile.block
        self.block = (row_block, column_block)
        self.first = (self.f.scaled(row_block, block_m), self.f.scaled(column_block, block_n))
        self.sides = [Operand(body, plan, side, self.first[side], self.scope, self.thread) for side in (0, 1)]
        self.buffers = [self._shared(side) for side in (0, 1)]
        self.outputs = plan.tile.rows * plan.tile.columns
        self.totals = (
            PanelTotals(self.f, plan, self.sides, self.first, self.batch) if plan.splits > 1 else Totals(self.f, plan)
        )

    @property
    def resident(self) -> int:
        """Where both operands come by chunks of terms, one is computed or looked for on its way, or much is done with
        a total, fragments, values and places take the registers of a second block."""
        crowded = all(side.by_term for side in self.sides) or not all(side.direct for side in self.sides)
        return 1 if crowded or is_long(self.kernel, self.reduce) else self.plan.tile.resident

    def _number(self) -> tuple[Val, Val, Val, Val]:
        """Batch, split, block of rows, block of columns. Eight blocks of rows go together down the columns, so that
        blocks that run at one time share what they read."""
        f, (_, splits, rows, columns) = self.f, self.plan.blocks
        together = next(size for size in (8, 4, 2, 1) if rows % size == 0)
        rest, number = self._divide(special(f, "ctaid"), together)
        rest, column = self._divide(rest, columns)
        rest, row = self._divide(rest, rows // together)
        batch, split = self._divide(rest, splits)
        return batch, split, f.add(f.scaled(row, together), number), column

    def _divide(self, value: Val, by: int) -> tuple[Val, Val]:
        if by == 1:
            return value, integer(0)
        quotient, rest = (scalars.binary(self.f, how, value, integer(by)) for how in ("udiv", "urem"))
        return quotient, rest

    def _shared(self, side: int) -> str:
        name, size = f"@shared{side}", 2 * self.sides[side].elements * self.dtype.bytes
        self.f.declared[f"{name} = internal addrspace(3) global [{size} x i8] undef, align 16"] = None
        return name

    # the run through K ──────────────────────────────────────────────────────────────────────────────

    def emit(self) -> None:
        f, plan = self.f, self.plan
        terms = plan.contraction.extents[3]
        split = scalars.convert(f, self.split, I32) if plan.splits > 1 else small(0)
        first = f.scaled(split, plan.panels_per_block * plan.panel) if plan.splits > 1 else split
        end = self._least(f.add(first, small(plan.panels_per_block * plan.panel)), small(terms))
        limit = self._least(f.add(first, small(plan.panel)), end)
        values, finite = self._fetch(first, limit, small(0), Val("true", BOOL))
        self._put(values, small(0))

        def panel(start: Val, state: list[Val]) -> Sequence[Val]:
            limit = self._least(f.add(start, small(plan.panel)), end)
            return self._panel(start, limit, end, state)

        state = [small(0), finite]
        state = panel(first, state) if plan.panels_per_block == 1 else f.loop(first, end, plan.panel, state, panel)
        self._finish(state[1])

    def _panel(self, start: Val, limit: Val, end: Val, state: list[Val]) -> Sequence[Val]:
        zero = scalars.constant(self.f, self.dtype, 0, 1)
        whole = self.f.loop(
            start,
            limit,
            self.plan.tile.depth,
            [*state, *[zero] * self.outputs],
            lambda at, inner: self._step(at, limit, end, inner),
        )
        self.totals.add(start, whole[2:])
        return whole[:2]

    def _step(self, at: Val, limit: Val, end: Val, state: list[Val]) -> Sequence[Val]:
        """Wait for this step's terms, begin to bring the next one's, and compute."""
        f, (buffer, finite), chains = self.f, state[:2], state[2:]
        if any(side.copied for side in self.sides):
            f.effect("llvm.nvvm.cp.async.wait.group", ["i32"], ["i32 0"])
        barrier(f)
        other = scalars.binary(f, "xor", buffer, small(1))
        following, its_limit = self._following(at, limit, end)
        values, finite = self._fetch(following, its_limit, other, finite)
        for side in self.sides:
            finite = side.check(self._area(side.side, buffer), finite)
        chains = self._compute(buffer, chains)
        self._put(values, other)
        return [other, finite, *chains]

    def _following(self, at: Val, limit: Val, end: Val) -> tuple[Val, Val]:
        """Where the next step begins and its panel ends; the last step is followed by itself."""
        f, plan = self.f, self.plan
        after = f.add(at, small(plan.tile.depth))
        if plan.panels > 1:
            inside = scalars.compare(f, "lt", after, limit)
            beyond = self._least(f.add(limit, small(plan.panel)), end)
            after, limit_after = scalars.select(f, inside, after, limit), scalars.select(f, inside, limit, beyond)
        else:
            limit_after = limit
        more = scalars.compare(f, "lt", after, end)
        return scalars.select(f, more, after, at), scalars.select(f, more, limit_after, limit)

    def _least(self, a: Val, b: Val) -> Val:
        return scalars.select(self.f, scalars.compare(self.f, "lt", a, b), a, b)

    def _area(self, side: int, buffer: Val) -> str:
        offset = self.f.scaled(buffer, self.sides[side].elements)
        return self.sides[side].address(self.buffers[side], offset)

    def _fetch(self, start: Val, limit: Val, buffer: Val, finite: Val) -> tuple[list[list[Val]], Val]:
        values: list[list[Val]] = []
        for number, side in enumerate(self.sides):
            found, finite = side.fetch(start, limit, self._area(number, buffer), finite)
            values.append(found)
        if any(side.copied for side in self.sides):
            self.f.effect("llvm.nvvm.cp.async.commit.group", [], [])
        return values, finite

    def _put(self, values: Sequence[Sequence[Val]], buffer: Val) -> None:
        for number, side in enumerate(self.sides):
            if values[number]:
                side.put(values[number], self._area(number, buffer))

    def _compute(self, buffer: Val, chains: list[Val]) -> list[Val]:
        f, columns = self.f, self.plan.tile.columns
        areas = [self._area(number, buffer) for number in (0, 1)]
        for term in range(0, self.plan.tile.depth, self.plan.chunk):
            a, b = (side.fragments(area, term) for side, area in zip(self.sides, areas, strict=True))
            for t in range(self.plan.chunk):
                chains = [
                    scalars.fma(f, a[t][n // columns], b[t][n % columns], chain) for n, chain in enumerate(chains)
                ]
        return chains

    # the end ────────────────────────────────────────────────────────────────────────────────────────

    def _finish(self, finite: Val) -> None:
        odd = self._odd(finite) if self.plan.contraction.absent_in is not None else None
        if isinstance(self.totals, PanelTotals):
            if odd is not None:
                self._flag(odd)
            return
        totals = self.totals
        finish = Finish(self.body, self.kernel, self.plan, self.sides, self.scope, self.first)

        def exact() -> Sequence[Val]:
            finish.exact()
            return ()

        def fast() -> Sequence[Val]:
            finish.store(totals)
            return ()

        if odd is None:
            fast()
        else:
            self.f.either(odd, exact, fast)

    def _odd(self, finite: Val) -> Val:
        """Whether some thread of the block read a value that is not finite."""
        f = self.f
        odd = scalars.convert(f, scalars.binary(f, "xor", finite, Val("true", BOOL)), U32)
        team = Team(f, self.thread, THREADS // WARP, columns=False)
        return scalars.convert(f, team.meet(odd, functools.partial(scalars.binary, f, "or")), BOOL)

    def _flag(self, odd: Val) -> None:
        f, value = self.f, scalars.convert(self.f, odd, U32)
        place = flag_place(f, self.plan, self.batch, self.split, *self.block)

        def write() -> None:
            f.line(f"store {value.typed}, ptr {place}, align 4")

        f.when(f.let(f"icmp eq {self.thread.typed}, 0", BOOL), write)

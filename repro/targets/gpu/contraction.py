"""A contraction by blocks of threads: shared memory, register tiles, panels of K (rules 7 and 8).

For a kernel whose value holds one Chain reduction of a(batch, m, k) and b(batch, n, k). A block computes a tile of m
by n; each thread runs its own outputs' fma chains through a panel in registers, and adds the panel's totals to its
running ones, which lie in its local memory. At the end it evaluates the rest of the store's expression.

Where K is shared out (`Plan.splits`), a block leaves totals of panels, or of blocks of panels, in the workspace
instead, and a second entry, one thread for each output, adds them in their order (repro.targets.gpu.joining).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from repro.ir.loops import Kernel
from repro.ir.types import I32, I64
from repro.machines import GpuMachine
from repro.targets.gpu import choice
from repro.targets.gpu.access import Access, access
from repro.targets.gpu.body import Entry, GpuBody, assemble, barrier
from repro.targets.gpu.finish import Finish, is_long
from repro.targets.gpu.joining import joining_entry
from repro.targets.gpu.launch import PLAIN_SHARED, GpuKernel, Launch
from repro.targets.gpu.operand import Operand
from repro.targets.gpu.outputs import Outputs
from repro.targets.gpu.share import Step
from repro.targets.gpu.strip_operand import StripOperand
from repro.targets.gpu.tiles import MOST_REGISTERS, Plan
from repro.targets.gpu.totals import SharedTotals, Totals
from repro.targets.llvm import scalars
from repro.targets.llvm.kernel import symbol
from repro.targets.llvm.text import Function, Val, integer


def emit(kernel: Kernel, plan: Plan, machine: GpuMachine) -> GpuKernel:
    """The code of a kernel in tiles."""
    f = Function()
    made = Block(GpuBody(f, kernel, machine), kernel, plan, machine)
    made.emit()
    f.line("ret void")
    threads = plan.tile.threads
    resident = machine.register_file // ((made.registers + 1) // 8 * 8 * threads)
    entries = [Entry(symbol(kernel), f, threads, resident)]
    launches = [Launch(symbol(kernel), plan.grid, threads, made.dynamic_bytes)]
    if plan.splits > 1:
        entry, launch = joining_entry(kernel, plan, machine)
        entries.append(entry)
        launches.append(launch)
    ptx = assemble(kernel, entries, machine, plan.workspace_bytes > 0)
    return GpuKernel(ptx, tuple(launches), plan.workspace_bytes, plan.text)


BESIDE = 24
"""Registers of a thread beside its totals, what it multiplies, and places of lines."""
MANY = 128
"""Outputs of a thread that leave it few registers."""


def _one_by_one(way: Access) -> bool:
    """Whether lines that lie side by side are copied one by one."""
    return way.separation is not None and not (way.separation.tabled or way.by_term) and way.wide == 1


def _begin(copies: Iterator[None], most: int | None = None) -> None:
    """Begin so many copies, or all that are left."""
    for _ in itertools.islice(copies, most):
        pass


def small(value: int) -> Val:
    """Places along K are i32: registers are what a tile is short of."""
    return integer(value, I32)


class Block:
    """The code of one block of threads."""

    def __init__(self, body: GpuBody, kernel: Kernel, plan: Plan, machine: GpuMachine) -> None:
        self.body, self.f, self.kernel, self.plan, self.machine = body, body.f, kernel, plan, machine
        self.reduce, self.dtype = plan.contraction.reduce, plan.contraction.reduce.dtype
        self.outputs = plan.tile.rows * plan.tile.columns
        ways = [access(plan, side) for side in (0, 1)]
        self.groups = (ways[0].group(plan), ways[1].group(plan))
        outputs = Outputs(body, plan, self.groups)
        self.split = outputs.split
        body.hoist(self.reduce.children, outputs.scope)
        self.registers = self._registers(ways)
        self.spare = self._spare()
        self.sides = [self._operand(side, ways[side], outputs) for side in (0, 1)]
        self.tables = [side.table for side in self.sides if side.table is not None]
        self.brought = sum(len(side.share.runs) for side in self.sides if side.copies is not None)
        """Copies that a thread begins in a step."""
        self.bytes = sum(side.share.bytes for side in self.sides)
        """Of shared memory, for one step of both operands."""
        large = choice.shared_bytes(plan, ways) > PLAIN_SHARED
        self.dynamic_bytes = 2 * self.bytes if large and body.seat is None else 0
        """Of shared memory that is given at the launch: all steps, where there is more than may be declared."""
        self.steps = "@steps" if body.seat is None else body.seat.steps
        if self.dynamic_bytes:
            self.f.declared["@steps = external addrspace(3) global [0 x i8], align 16"] = None
        elif body.seat is None:
            self.f.declared[f"@steps = internal addrspace(3) global [{2 * self.bytes} x i8] undef, align 16"] = None
        self.starts: list[str] = []
        """Where a thread's first line of each operand begins in the first half of the shared memory, so that a step
        adds its half alone; none where registers for it are short."""
        self.totals = SharedTotals(body, plan, self.groups) if plan.splits > 1 else Totals(self.f, plan)

    def _operand(self, side: int, way: Access, outputs: Outputs) -> Operand:
        if way.taps > 1:
            made: Operand = StripOperand(self.body, self.plan, side, way, self.groups, spare=self.spare)
        else:
            made = Operand(self.body, self.plan, side, way, outputs, spare=self.spare)
        if made.copies is not None and len(made.copies.lines) > 1:
            self.spare -= len(made.copies.lines)
        return made

    def _spare(self) -> int:
        """Registers that a thread has for lines' places of their own."""
        tile = self.plan.tile
        if self.registers == MOST_REGISTERS:
            return MOST_REGISTERS
        return max(0, self.registers - self.outputs - self.plan.chunk * (tile.rows + tile.columns) - BESIDE)

    def _registers(self, ways: Sequence[Access]) -> int:
        """That a thread may have. Where both operands come by chunks of terms, the lines of one each have a place of
        their own or are copied one by one, one operand is computed on its way, or much is done with a total, there is
        more to keep than usual. A grid of few blocks leaves each of them as many as there are."""
        tile, machine = self.plan.tile, self.machine
        apart = any(way.by_term and way.separation is not None and way.separation.line_stride is None for way in ways)
        computed = any(way.separation is None for way in ways) or is_long(self.kernel, self.reduce)
        crowded = apart or computed or all(way.terms_beside for way in ways) or any(map(_one_by_one, ways))
        most = tile.crowded if crowded else tile.registers
        together = -(-self.plan.grid // machine.multiprocessors) * tile.threads
        return max(most, min(MOST_REGISTERS, machine.register_file // together // 8 * 8))

    # the run through K ──────────────────────────────────────────────────────────────────────────────

    def emit(self) -> None:
        f, plan = self.f, self.plan
        terms = plan.contraction.extents[3]
        split = scalars.convert(f, self.split, I32) if plan.splits > 1 else small(0)
        first = f.scaled(split, plan.panels_per_block * plan.panel) if plan.splits > 1 else split
        end = self._least(f.add(first, small(plan.panels_per_block * plan.panel)), small(terms))
        limit = self._least(f.add(first, small(plan.panel)), end)
        if self.outputs < MANY:
            self.starts = [side.first(self._area(number, small(0))) for number, side in enumerate(self.sides)]
        self._enter(first, limit, small(0))
        if self.tables:
            barrier(f)
        values, copies = self._fetch(Step(first, limit, small(0)), small(0))
        _begin(copies)
        self._commit()
        self._put(values, small(0))

        def panel(start: Val, state: list[Val]) -> Sequence[Val]:
            limit = self._least(f.add(start, small(plan.panel)), end)
            other = scalars.binary(f, "sub", small(plan.ring // 2), state[2])
            self._enter(limit, self._least(f.add(limit, small(plan.panel)), end), other)
            return [*self._panel(start, limit, end, state[:2]), other]

        state = [small(0)] * 3
        if plan.panels_per_block == 1:
            self._panel(first, limit, end, state[:2])
        else:
            f.loop(first, end, plan.panel, state, panel)
        if plan.splits == 1:
            self._meet()
            self._finish()

    def _meet(self) -> None:
        """No thread needs a step any more, where what is stored may lie in its place."""
        if self.body.seat is not None and self.body.seat.over:
            self.f.effect("llvm.nvvm.cp.async.wait.group", ["i32"], ["i32 0"])
            barrier(self.f)

    def _enter(self, start: Val, limit: Val, slot: Val) -> None:
        for table in self.tables:
            table.enter(start, limit, slot)

    def _panel(self, start: Val, limit: Val, end: Val, state: list[Val]) -> Sequence[Val]:
        zero = scalars.constant(self.f, self.dtype, 0, 1)
        whole = self.f.loop(
            start,
            limit,
            self.plan.tile.depth,
            [*state, *[zero] * self.outputs],
            lambda at, inner: self._step(at, limit, end, inner),
        )
        if self.plan.splits > 1:
            self._meet()
        self.totals.add(start, whole[2:])
        return whole[:2]

    def _step(self, at: Val, limit: Val, end: Val, state: list[Val]) -> Sequence[Val]:
        """Wait for this step's terms, and compute while the next one's are brought."""
        f, (half, slot), chains = self.f, state[:2], state[2:]
        if self.brought:
            f.effect("llvm.nvvm.cp.async.wait.group", ["i32"], ["i32 0"])
        barrier(f)
        other = scalars.binary(f, "sub", small(self.bytes), half)
        following = self._following(Step(at, limit, slot), end)
        values, copies = self._fetch(following, other)
        chains = self._compute(half, chains, copies)
        self._put(values, other)
        return [other, following.slot, *chains]

    def _following(self, step: Step, end: Val) -> Step:
        """The next step; the last one is followed by itself."""
        f, plan = self.f, self.plan
        after, limit = f.add(step.start, small(plan.tile.depth)), step.limit
        if not plan.in_steps:
            inside = scalars.compare(f, "lt", after, limit)
            beyond = self._least(f.add(limit, small(plan.panel)), end)
            after, limit = scalars.select(f, inside, after, limit), scalars.select(f, inside, limit, beyond)
        more = scalars.compare(f, "lt", after, end)
        start, limit = scalars.select(f, more, after, step.start), scalars.select(f, more, limit, step.limit)
        if not self.tables:
            return Step(start, limit, step.slot)
        slot = f.add(step.slot, small(plan.tile.depth))
        if plan.panels_per_block > 2:
            round_ = scalars.compare(f, "eq", slot, small(plan.ring))
            slot = scalars.select(f, round_, small(0), slot)
        return Step(start, limit, scalars.select(f, more, slot, step.slot))

    def _least(self, a: Val, b: Val) -> Val:
        return scalars.select(self.f, scalars.compare(self.f, "lt", a, b), a, b)

    def _area(self, side: int, half: Val) -> str:
        """The address of an operand's step in a half of the shared memory."""
        place = self.f.add(half, small(self.sides[0].share.bytes)) if side else half
        return self.f.let(f"getelementptr inbounds i8, ptr addrspace(3) {self.steps}, {place.typed}", I64).text

    def _fetch(self, step: Step, half: Val) -> tuple[list[list[Val]], Iterator[None]]:
        """What brings a step to a half of the shared memory: of each operand values, and copies of both."""
        ready = [side.ready(step) for side in self.sides]
        found = [side.fetch(ready[n], step, self._area(n, half)) for n, side in enumerate(self.sides)]
        return [values for values, _ in found], itertools.chain(*(copies for _, copies in found))

    def _commit(self) -> None:
        """What was begun since the last time is waited for together."""
        if self.brought:
            self.f.effect("llvm.nvvm.cp.async.commit.group", [], [])

    def _put(self, values: Sequence[Sequence[Val]], half: Val) -> None:
        for number, side in enumerate(self.sides):
            if values[number]:
                side.put(values[number], self._area(number, half))

    def _first(self, side: int, half: Val) -> str:
        """Where a thread's first line of an operand begins in a half of the shared memory."""
        if not self.starts:
            return self.sides[side].first(self._area(side, half))
        return self.f.let(f"getelementptr inbounds i8, ptr addrspace(3) {self.starts[side]}, {half.typed}", I64).text

    def _compute(self, half: Val, chains: list[Val], copies: Iterator[None]) -> list[Val]:
        """The products of a step. The next one's copies begin among those of the first half: a warp that begins them
        all at once waits for the unit that takes them, and at the end of the step they must be there."""
        tile = self.plan.tile
        firsts = [self._first(number, half) for number in (0, 1)]
        each, chains = max(1, -(-2 * self.brought // tile.depth)), list(chains)
        for term in range(0, tile.depth, self.plan.chunk):
            a, b = (side.fragments(first, term) for side, first in zip(self.sides, firsts, strict=True))
            for t in range(self.plan.chunk):
                _begin(copies, each)
                if term + t + 1 == -(-self.brought // each):
                    self._commit()
                for row, column in tile.products:
                    at = row * tile.columns + column
                    chains[at] = self._product(a[t][row], b[t][column], chains[at])
        return chains

    def _product(self, a: Val, b: Val, total: Val) -> Val:
        """One term more: of quads of bytes, four products in one instruction (PTX ISA, "dp4a")."""
        unsigned = self.plan.contraction.unsigned
        if unsigned is None:
            return scalars.fma(self.f, a, b, total)
        quads = [a, b] if unsigned == 0 else [b, a]
        return self.f.call("llvm.nvvm.idp4a.u.s", (I32, 1), [*quads, total])

    # the end ────────────────────────────────────────────────────────────────────────────────────────

    def _finish(self) -> None:
        """A blank meets a value that is not finite only where a total is NaN: those are computed by the plain order."""
        totals = self.totals
        assert isinstance(totals, Totals)
        finish = Finish(self.body, self.kernel, self.plan, Outputs(self.body, self.plan, self.groups, anew=True))

        def exact() -> Sequence[Val]:
            with self.f.rolled():
                finish.exact()
            return ()

        def fast() -> Sequence[Val]:
            finish.store(totals)
            return ()

        if not self.plan.contraction.guards:
            fast()
        else:
            self.f.either(totals.some_nan(), exact, fast)

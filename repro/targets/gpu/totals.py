"""Running totals of outputs over panels: panels summed in blocks, blocks summed, each sum from its first (rule 7)."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from repro.ir.types import BOOL, I64, DType
from repro.targets.gpu.body import GpuBody
from repro.targets.gpu.outputs import Outputs
from repro.targets.gpu.tiles import Plan
from repro.targets.llvm import scalars
from repro.targets.llvm.text import Function, Val, element, integer


class Totals:
    """A thread's totals. They are touched once a panel, so they lie in local memory (volatile, or LLVM would make
    registers of them); a block with one panel keeps them in the registers of the chains."""

    def __init__(self, f: Function, plan: Plan) -> None:
        self.f, self.plan = f, plan
        self.dtype, self.chunk = plan.contraction.reduce.dtype, plan.chunk
        self.count = plan.tile.rows * plan.tile.columns
        self.nested = plan.panels > plan.contraction.chain.panels_per_block
        self.chains: list[Val] = []
        several = plan.splits == 1 and plan.panels > 1
        self.sums = self._area() if several else ""
        self.blocks = self._area() if several and self.nested else ""

    def _area(self) -> str:
        return self.f.alloca(f"[{self.count} x {element(self.dtype)}]")

    def add(self, start: Val, chains: Sequence[Val]) -> None:
        """Take in the totals of the panel that begins at a term."""
        f, panel = self.f, self.plan.panel
        self.chains = list(chains)
        if not self.sums:
            return
        per_block = panel * self.plan.contraction.chain.panels_per_block
        first = self._is(start, 0) if not self.nested else self._is(self._rem(start, per_block), 0)
        self._join(self.sums, first, chains)
        if not self.nested:
            return
        after = f.add(start, integer(panel, start.dtype))
        last = scalars.compare(f, "ge", after, integer(self.plan.contraction.extents[3], start.dtype))
        ends = scalars.binary(f, "or", last, self._is(self._rem(after, per_block), 0))

        def block() -> None:
            sums = [self._read(self.sums, at) for at in range(0, self.count, self.chunk)]
            first_block = scalars.compare(f, "lt", start, integer(per_block, start.dtype))
            self._join(self.blocks, first_block, [self._pick(v, lane) for v in sums for lane in range(self.chunk)])

        f.when(ends, block)

    def some(self, first: Val, count: int) -> list[Val]:
        """So many of the totals at the end from one of them on, in registers."""
        if not self.sums:
            return self.chains[int(first.text) : int(first.text) + count]
        area = self.blocks or self.sums
        start = self.f.let(f"getelementptr inbounds {element(self.dtype)}, ptr {area}, {first.typed}", I64).text
        if self.plan.tile.columns % self.chunk and count % self.chunk:
            return [self._one(start, at) for at in range(count)]
        vectors = [self._read(start, at) for at in range(0, count, self.chunk)]
        return [self._pick(vector, lane) for vector in vectors for lane in range(self.chunk)]

    def some_nan(self) -> Val:
        """Whether one of the totals at the end is NaN."""
        totals = self.some(integer(0), self.count)
        found = [self.f.let(f"fcmp uno {value.typed}, {value.text}", BOOL) for value in totals]
        return functools.reduce(functools.partial(scalars.binary, self.f, "or"), found)

    def in_memory(self) -> str:
        """The totals at the end, in local memory."""
        if self.sums:
            return self.blocks or self.sums
        area = self._area()
        self._write(area, self.chains)
        return area

    def _join(self, area: str, first: Val, values: Sequence[Val]) -> None:
        def begin() -> Sequence[Val]:
            self._write(area, values)
            return ()

        def longer() -> Sequence[Val]:
            for at in range(0, self.count, self.chunk):
                old, new = self._read(area, at), self._vector(values[at : at + self.chunk])
                self._store(area, at, scalars.binary(self.f, "fadd", old, new))
            return ()

        self.f.either(first, begin, longer)

    def _write(self, area: str, values: Sequence[Val]) -> None:
        for at in range(0, self.count, self.chunk):
            self._store(area, at, self._vector(values[at : at + self.chunk]))

    # vectors of a chunk ─────────────────────────────────────────────────────────────────────────────

    def _vector(self, values: Sequence[Val]) -> Val:
        return gathered(self.f, values)

    def _pick(self, vector: Val, lane: int) -> Val:
        return self.f.let(f"extractelement {vector.typed}, i64 {lane}", self.dtype)

    def _place(self, area: str, at: int) -> str:
        return self.f.let(f"getelementptr inbounds {element(self.dtype)}, ptr {area}, i64 {at}", I64).text

    def _read(self, area: str, at: int) -> Val:
        kind = f"<{self.chunk} x {element(self.dtype)}>"
        return self.f.let(f"load volatile {kind}, ptr {self._place(area, at)}, align 16", self.dtype, self.chunk)

    def _one(self, area: str, at: int) -> Val:
        kind, nbytes = element(self.dtype), self.dtype.bytes
        return self.f.let(f"load volatile {kind}, ptr {self._place(area, at)}, align {nbytes}", self.dtype)

    def _store(self, area: str, at: int, value: Val) -> None:
        self.f.line(f"store volatile {value.typed}, ptr {self._place(area, at)}, align 16")

    def _is(self, value: Val, number: int) -> Val:
        return self.f.let(f"icmp eq {value.typed}, {number}", BOOL)

    def _rem(self, value: Val, by: int) -> Val:
        return scalars.binary(self.f, "urem", value, integer(by, value.dtype))


def gathered(f: Function, values: Sequence[Val]) -> Val:
    """Scalars as one vector."""
    dtype, width = values[0].dtype, len(values)
    whole = Val("poison", dtype, width)
    for lane, value in enumerate(values):
        whole = f.let(f"insertelement {whole.typed}, {value.typed}, i64 {lane}", dtype, width)
    return whole


class PanelTotals:
    """Where K is shared out: each panel's totals go to the workspace, [batch][panel][row][column], rows and columns
    rounded up to whole blocks."""

    def __init__(self, body: GpuBody, plan: Plan, groups: tuple[int, int]) -> None:
        self.body, self.f, self.plan, self.groups = body, body.f, plan, groups
        self.dtype, self.group = plan.contraction.reduce.dtype, groups[1] if groups[1] == plan.chunk else 1

    def add(self, start: Val, chains: Sequence[Val]) -> None:
        f, (height, width), tile = self.f, self.plan.padded, self.plan.tile
        outputs = Outputs(self.body, self.plan, self.groups, anew=True)
        rows = [outputs.line(0, integer(n)) for n in range(tile.rows)]
        columns = [outputs.line(1, integer(n)) for n in range(0, tile.columns, self.group)]
        panel = scalars.binary(f, "udiv", scalars.convert(f, start, I64), integer(self.plan.panel))
        number = f.add(f.scaled(outputs.batch, self.plan.panels), panel)
        for r, row in enumerate(rows):
            line = f.scaled(f.add(f.scaled(number, height), row), width)
            for c, column in enumerate(columns):
                at = r * tile.columns + c * self.group
                value = chains[at] if self.group == 1 else gathered(f, chains[at : at + self.group])
                place = workspace_element(f, f.add(line, column), self.dtype)
                f.line(f"store {value.typed}, ptr {place}, align {self.group * self.dtype.bytes}")


def workspace_element(f: Function, at: Val, dtype: DType) -> str:
    return f.let(f"getelementptr inbounds {element(dtype)}, ptr %workspace, {at.typed}", I64).text

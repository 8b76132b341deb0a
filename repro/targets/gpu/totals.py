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


class Area:
    """A sum of each of a thread's outputs, touched once a panel: so it lies in local memory (volatile, or LLVM would
    make registers of it)."""

    def __init__(self, f: Function, plan: Plan) -> None:
        self.f, self.dtype, self.chunk = f, plan.contraction.reduce.dtype, plan.chunk
        self.count = plan.tile.rows * plan.tile.columns
        self.address = f.alloca(f"[{self.count} x {element(self.dtype)}]")

    def join(self, first: Val, values: Sequence[Val]) -> None:
        """Take in a value of each output; the `first` of them is where its sum starts."""

        def begin() -> Sequence[Val]:
            self.write(values)
            return ()

        def longer() -> Sequence[Val]:
            for at in range(0, self.count, self.chunk):
                old, new = self._read(self.address, at), gathered(self.f, values[at : at + self.chunk])
                self._store(at, scalars.binary(self.f, "fadd" if self.dtype.is_float else "add", old, new))
            return ()

        self.f.either(first, begin, longer)

    def write(self, values: Sequence[Val]) -> None:
        for at in range(0, self.count, self.chunk):
            self._store(at, gathered(self.f, values[at : at + self.chunk]))

    def all(self) -> list[Val]:
        return self._of(self.address, self.count)

    def some(self, first: Val, count: int, *, whole: bool) -> list[Val]:
        """So many from one of them on; `whole`: that begins a chunk."""
        start = self.f.let(f"getelementptr inbounds {element(self.dtype)}, ptr {self.address}, {first.typed}", I64).text
        return self._of(start, count) if whole else [self._one(start, at) for at in range(count)]

    def _of(self, start: str, count: int) -> list[Val]:
        vectors = [self._read(start, at) for at in range(0, count, self.chunk)]
        return [self._pick(vector, lane) for vector in vectors for lane in range(self.chunk)]

    def _pick(self, vector: Val, lane: int) -> Val:
        return self.f.let(f"extractelement {vector.typed}, i64 {lane}", self.dtype)

    def _place(self, start: str, at: int) -> str:
        return self.f.let(f"getelementptr inbounds {element(self.dtype)}, ptr {start}, i64 {at}", I64).text

    def _read(self, start: str, at: int) -> Val:
        kind = f"<{self.chunk} x {element(self.dtype)}>"
        return self.f.let(f"load volatile {kind}, ptr {self._place(start, at)}, align 16", self.dtype, self.chunk)

    def _one(self, start: str, at: int) -> Val:
        kind, nbytes = element(self.dtype), self.dtype.bytes
        return self.f.let(f"load volatile {kind}, ptr {self._place(start, at)}, align {nbytes}", self.dtype)

    def _store(self, at: int, value: Val) -> None:
        self.f.line(f"store volatile {value.typed}, ptr {self._place(self.address, at)}, align 16")


class Totals:
    """A thread's totals, if it runs through all of K; those of one panel stay in the registers of the chains."""

    def __init__(self, f: Function, plan: Plan) -> None:
        self.f, self.plan = f, plan
        self.count = plan.tile.rows * plan.tile.columns
        self.chains: list[Val] = []
        self.sums = Area(f, plan) if plan.panels > 1 else None
        nested = plan.panels > plan.contraction.chain.panels_per_block
        self.blocks = Area(f, plan) if nested else None

    def add(self, start: Val, chains: Sequence[Val]) -> None:
        """Take in the totals of the panel that begins at a term."""
        self.chains = list(chains)
        sums, blocks = self.sums, self.blocks
        if sums is None:
            return
        sums.join(_begins(self.f, self.plan, start), chains)
        if blocks is None:
            return
        per_block = self.plan.panel * self.plan.contraction.chain.panels_per_block

        def block() -> None:
            blocks.join(scalars.compare(self.f, "lt", start, integer(per_block, start.dtype)), sums.all())

        self.f.when(_ends(self.f, self.plan, start), block)

    def some(self, first: Val, count: int) -> list[Val]:
        """So many of the totals at the end from one of them on, in registers."""
        area, plan = self.blocks or self.sums, self.plan
        if area is None:
            return self.chains[int(first.text) : int(first.text) + count]
        return area.some(first, count, whole=not (plan.tile.columns % plan.chunk and count % plan.chunk))

    def some_nan(self) -> Val:
        """Whether one of the totals at the end is NaN."""
        totals = self.some(integer(0), self.count)
        found = [self.f.let(f"fcmp uno {value.typed}, {value.text}", BOOL) for value in totals]
        return functools.reduce(functools.partial(scalars.binary, self.f, "or"), found)

    def in_memory(self) -> str:
        """The totals at the end, in local memory."""
        area = self.blocks or self.sums
        if area is None:
            area = Area(self.f, self.plan)
            area.write(self.chains)
        return area.address


def _begins(f: Function, plan: Plan, start: Val) -> Val:
    """Whether the panel from a term on begins a block of panels."""
    if plan.panels <= plan.contraction.chain.panels_per_block:
        return _is_zero(f, start)
    return _is_zero(f, _within_block(f, plan, start))


def _ends(f: Function, plan: Plan, start: Val) -> Val:
    """Whether the panel from a term on is the last of its block."""
    after = f.add(start, integer(plan.panel, start.dtype))
    last = scalars.compare(f, "ge", after, integer(plan.contraction.extents[3], start.dtype))
    return scalars.binary(f, "or", last, _is_zero(f, _within_block(f, plan, after)))


def _within_block(f: Function, plan: Plan, start: Val) -> Val:
    per_block = plan.panel * plan.contraction.chain.panels_per_block
    return scalars.binary(f, "urem", start, integer(per_block, start.dtype))


def _is_zero(f: Function, value: Val) -> Val:
    return f.let(f"icmp eq {value.typed}, 0", BOOL)


def gathered(f: Function, values: Sequence[Val]) -> Val:
    """Scalars as one vector."""
    dtype, width = values[0].dtype, len(values)
    whole = Val("poison", dtype, width)
    for lane, value in enumerate(values):
        whole = f.let(f"insertelement {whole.typed}, {value.typed}, i64 {lane}", dtype, width)
    return whole


class SharedTotals:
    """Where K is shared out: totals go to the workspace, [batch][total][row][column], rows and columns rounded up to
    whole blocks. They are those of panels, or of blocks of panels where shares begin with one."""

    def __init__(self, body: GpuBody, plan: Plan, groups: tuple[int, int]) -> None:
        self.body, self.f, self.plan, self.groups = body, body.f, plan, groups
        self.dtype, self.group = plan.contraction.reduce.dtype, groups[1] if groups[1] == plan.chunk else 1
        self.sums = Area(body.f, plan) if plan.together > 1 else None

    def add(self, start: Val, chains: Sequence[Val]) -> None:
        """Take in the totals of the panel that begins at a term."""
        f, sums = self.f, self.sums
        if sums is None:
            self._leave(start, chains)
            return
        sums.join(_begins(f, self.plan, start), chains)
        f.when(_ends(f, self.plan, start), lambda: self._leave(start, sums.all()))

    def _leave(self, start: Val, values: Sequence[Val]) -> None:
        f, (height, width), tile = self.f, self.plan.padded, self.plan.tile
        outputs = Outputs(self.body, self.plan, self.groups, anew=True)
        rows = [outputs.line(0, integer(n)) for n in range(tile.rows)]
        columns = [outputs.line(1, integer(n)) for n in range(0, tile.columns, self.group)]
        terms = integer(self.plan.together * self.plan.panel)
        number = f.add(
            f.scaled(outputs.batch, self.plan.sums),
            scalars.binary(f, "udiv", scalars.convert(f, start, I64), terms),
        )
        for r, row in enumerate(rows):
            line = f.scaled(f.add(f.scaled(number, height), row), width)
            for c, column in enumerate(columns):
                at = r * tile.columns + c * self.group
                value = values[at] if self.group == 1 else gathered(f, values[at : at + self.group])
                place = workspace_element(f, f.add(line, column), self.dtype)
                f.line(f"store {value.typed}, ptr {place}, align {self.group * self.dtype.bytes}")


def workspace_element(f: Function, at: Val, dtype: DType) -> str:
    return f.let(f"getelementptr inbounds {element(dtype)}, ptr %workspace, {at.typed}", I64).text

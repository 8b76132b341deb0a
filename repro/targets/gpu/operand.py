"""One operand of a contraction on its way through shared memory.

A step of K brings `depth` terms of the block's lines (rows of one operand, columns of the other) into shared memory,
as they lie in global memory: terms side by side or lines. A load whose place parts into line and term is copied by
`cp.async`, 16 bytes at a time where its address allows that, else an element. Anything else (what was fused into the
operand) is evaluated into registers while the step before is computed, and stored after it.
"""

from __future__ import annotations

from collections.abc import Sequence

from repro.ir import index as ix
from repro.ir.loops import Axis, Expr, Load, topological
from repro.ir.types import BOOL, I32, I64
from repro.targets.gpu.body import GpuBody
from repro.targets.gpu.copies import Copies
from repro.targets.gpu.outputs import Outputs, constant_line
from repro.targets.gpu.separation import Separation, run_of, separate
from repro.targets.gpu.share import Share, Step
from repro.targets.gpu.term_table import TermTable
from repro.targets.gpu.tiles import Plan
from repro.targets.llvm import scalars
from repro.targets.llvm.body import Scope
from repro.targets.llvm.text import Val, element, integer


def terms_together(plan: Plan, side: int) -> bool:
    """Whether an operand's terms lie side by side rather than its lines, and so in shared memory too."""
    lines, terms = plan.axes(side), plan.contraction.reduce.axes
    load = plan.contraction.terms[side]
    return _run(load, terms, lines) > _run(load, lines, terms)


def _run(term: Expr, axes: Sequence[Axis], others: Sequence[Axis]) -> int:
    """How many neighbours in memory a load of the operand's matrix meets along the last of the axes."""
    loads = [e for e in topological([term]) if isinstance(e, Load)]
    matrix = [load for load in loads if load.free & frozenset(others)] or loads
    beside = bool(axes) and any(ix.coefficient(load.offset, axes[-1]) == 1 for load in matrix)
    return axes[-1].extent if beside else 0


class Operand:
    """The rows' (side 0) or the columns' (side 1) operand of one block."""

    def __init__(self, body: GpuBody, plan: Plan, side: int, outputs: Outputs) -> None:
        self.body, self.f, self.plan, self.side = body, body.f, plan, side
        outer, thread = outputs.scope, outputs.thread
        contraction = plan.contraction
        self.term, self.reduce = contraction.terms[side], contraction.reduce
        self.dtype, self.chunk = self.reduce.dtype, plan.chunk
        self.present = self.reduce.present if contraction.absent_in == side else None
        self.by_term = terms_together(plan, side)
        separation = self._separated()
        wide = self._wide(separation)
        self.share = share = Share(body, plan, side, outputs.first[side], thread, by_term=self.by_term, wide=wide)
        self.table: TermTable | None = None
        self.copies: Copies | None = None
        self.scopes: list[Scope] = []
        if separation is None:
            self.scopes = [self._scope(line, outer) for line in share.own_lines]
        else:
            self.table = TermTable(body, plan, side, separation, outer, thread) if separation.tabled else None
            self.copies = Copies(body, share, separation, self.table, outer)
        self.base = body.f.scaled(outputs.origins[side], share.stride if self.by_term else 1)

    def _separated(self) -> Separation | None:
        if not isinstance(self.term, Load) or self.term.dtype is BOOL:
            return None
        return separate(self.term, self.present, self.plan.axes(self.side), self.reduce.axes)

    def _wide(self, separation: Separation | None) -> int:
        """Elements that are copied at a time: a chunk, where every run of it along the layout's fast axis is 16 aligned
        bytes of the buffer."""
        if separation is None or separation.meeting is not None:
            return 1
        assert isinstance(self.term, Load)
        panels = self.plan.panels == 1 or self.plan.panel % self.chunk == 0
        extent, rest = run_of(self.term.offset, self.reduce.axes if self.by_term else self.plan.axes(self.side))
        whole = extent > 1 and extent % self.chunk == 0 and ix.divisible(rest, self.chunk)
        tile = self.plan.tile
        fits = tile.block[self.side] * tile.depth >= self.chunk * tile.threads
        return self.chunk if whole and fits and (panels or not self.by_term) else 1

    # bringing a step ────────────────────────────────────────────────────────────────────────────────

    def fetch(self, step: Step, shared: str) -> list[Val]:
        """Begin to bring a step: copies go to `shared`, other values are given."""
        if self.copies is not None:
            self.copies.begin(step, shared)
            return []
        return [self._evaluate(step, number) for number in range(self.share.count)]

    def _scope(self, line: Val, outer: Scope) -> Scope:
        scope = self.share.line_scope(line, outer)
        self.body.hoist([self.term, *([] if self.present is None else [self.present])], scope)
        return scope

    def _evaluate(self, step: Step, number: int) -> Val:
        """The value of an element, zero where it is absent."""
        f, share = self.f, self.share
        at = f.add(step.start, share.ahead if self.by_term else f.add(share.ahead, integer(number, I32)))
        exists = share.exists(at, step)
        if exists is not None:
            at = scalars.select(f, exists, at, step.start)
        places = self.body.split(scalars.convert(f, self._opaque(at), I64), self.reduce.axes)
        line = self.scopes[number if self.by_term else 0]
        scope = Scope(line, dict(zip(self.reduce.axes, places, strict=True)))
        value, zero = self.body.value(self.term, scope), scalars.constant(f, self.dtype, 0, 1)
        for kept in (exists, None if self.present is None else self.body.value(self.present, scope)):
            value = value if kept is None else scalars.select(f, kept, value, zero)
        return value

    def _opaque(self, at: Val) -> Val:
        """A term's number without its range, where it is split: knowing that it is small, LLVM would divide in 16 bits,
        which takes three times the instructions."""
        if len(self.reduce.axes) < 2:
            return at
        return self.f.let(f'call i32 asm "mov.b32 $0, $1;", "=r,r"({at.typed})', I32)

    def put(self, values: Sequence[Val], shared: str) -> None:
        """Store what `fetch` returned."""
        for number, value in enumerate(values):
            address = self.share.slot(shared, number)
            self.f.line(f"store {value.typed}, ptr addrspace(3) {address}, align {self.dtype.bytes}")

    # reading a step ─────────────────────────────────────────────────────────────────────────────────

    def fragments(self, shared: str, term: int) -> list[list[Val]]:
        """A chunk of terms from `term` on, of each of the thread's lines: [term][line]."""
        f, chunk, kind = self.f, self.chunk, f"<{self.chunk} x {element(self.dtype)}>"
        first, own = self.share.element(shared, self.base), self.plan.tile.own[self.side]

        def read(place: int) -> Val:
            address = self.share.element(first, integer(place))
            return f.let(f"load {kind}, ptr addrspace(3) {address}, align 16", self.dtype, chunk)

        def pick(vector: Val, lane: int) -> Val:
            return f.let(f"extractelement {vector.typed}, i64 {lane}", self.dtype)

        if self.by_term:
            lines = [read(constant_line(self.side, 1, number) * self.share.stride + term) for number in range(own)]
            return [[pick(line, t) for line in lines] for t in range(chunk)]
        found: list[list[Val]] = []
        for t in range(chunk):
            row = (term + t) * self.share.stride
            runs = [read(row + constant_line(self.side, chunk, number)) for number in range(0, own, chunk)]
            found.append([pick(run, lane) for run in runs for lane in range(chunk)])
        return found

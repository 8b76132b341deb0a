"""One operand of a contraction on its way through shared memory.

A step of K brings `depth` terms of the block's lines (rows of one operand, columns of the other) into shared memory,
as they lie in global memory: terms side by side or lines. A load whose place parts into line and term is copied by
`cp.async`, 16 bytes at a time where its address allows that, else an element. Anything else (what was fused into the
operand) is evaluated into registers while the step before is computed, and stored after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from repro.ir.types import I32, I64
from repro.targets.gpu.access import Access
from repro.targets.gpu.body import GpuBody
from repro.targets.gpu.copies import Copies, Ready
from repro.targets.gpu.outputs import Outputs, constant_line
from repro.targets.gpu.presence import Presence
from repro.targets.gpu.share import Share, Step
from repro.targets.gpu.term_table import TermTable
from repro.targets.gpu.tiles import Plan
from repro.targets.llvm import scalars
from repro.targets.llvm.scope import Scope
from repro.targets.llvm.text import Val, element, integer


class Operand:
    """The rows' (side 0) or the columns' (side 1) operand of one block."""

    def __init__(
        self, body: GpuBody, plan: Plan, side: int, access: Access, outputs: Outputs, *, spare: int = 0
    ) -> None:
        """`spare`: lines whose places a thread has registers for."""
        self.body, self.f, self.plan, self.side = body, body.f, plan, side
        contraction = plan.contraction
        self.term, self.reduce = contraction.terms[side], contraction.reduce
        self.dtype, self.chunk = self.reduce.dtype, plan.chunk
        self.present = self.reduce.present if contraction.absent_in == side else None
        self.access, separation = access, access.separation
        self.share = share = Share(body, plan, side, access, outputs)
        self.table: TermTable | None = None
        self.copies: Copies | None = None
        self.scopes: list[Scope] = []
        if separation is None:
            self.scopes = [self._scope(line, outputs.scope) for line in share.own_lines]
        else:
            presence = Presence(body, share, separation, outputs)
            self.table = TermTable(body, plan, side, separation, presence, outputs) if separation.tabled else None
            self.copies = Copies(body, share, separation, presence, self.table, outputs.scope, spare=spare)
        self.base = body.f.scaled(outputs.origins[side], share.stride if access.terms_beside else 1)

    # bringing a step ────────────────────────────────────────────────────────────────────────────────

    def ready(self, step: Step) -> list[Ready]:
        """What the copies of a step need to know, all of it before any of them begins."""
        return [] if self.copies is None else self.copies.ready(step)

    def fetch(self, ready: Sequence[Ready], step: Step, shared: str) -> tuple[list[Val], Iterator[None]]:
        """What brings a step: values that are known, and copies to `shared`, each begun by the next turn."""
        if self.copies is not None:
            return [], self.copies.begin(ready, step, shared)
        return [self._evaluate(step, run) for run in self.share.runs], iter(())

    def _scope(self, line: Val, outer: Scope) -> Scope:
        scope = self.share.line_scope(line, outer)
        self.body.hoist([self.term, *([] if self.present is None else [self.present])], scope)
        return scope

    def _evaluate(self, step: Step, run: tuple[int, int]) -> Val:
        """The value of an element, zero where it is absent."""
        f, share = self.f, self.share
        at = f.add(step.start, f.add(share.ahead, integer(run[1], I32)))
        exists = share.exists(at, step)
        if exists is not None:
            at = scalars.select(f, exists, at, step.start)
        places = self.body.split(scalars.convert(f, self._opaque(at), I64), self.reduce.axes)
        scope = Scope(self.scopes[run[0]], dict(zip(self.reduce.axes, places, strict=True)))
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
        for run, value in zip(self.share.runs, values, strict=True):
            address = self.share.slot(shared, run)
            self.f.line(f"store {value.typed}, ptr addrspace(3) {address}, align {self.dtype.bytes}")

    # reading a step ─────────────────────────────────────────────────────────────────────────────────

    def first(self, shared: str) -> str:
        """Where the thread's first line begins in a step that lies at an address."""
        return self.share.element(shared, self.base)

    def fragments(self, first: str, term: int) -> list[list[Val]]:
        """A chunk of terms from `term` on, of each of the thread's lines: [term][line], where the first of them
        begins at an address."""
        f, chunk, kind = self.f, self.chunk, f"<{self.chunk} x {element(self.dtype)}>"
        own = self.plan.tile.own[self.side]
        lanes = self.plan.tile.lanes[self.side]

        def read(place: int) -> Val:
            address = self.share.element(first, integer(place))
            return f.let(f"load {kind}, ptr addrspace(3) {address}, align 16", self.dtype, chunk)

        def pick(vector: Val, lane: int) -> Val:
            return f.let(f"extractelement {vector.typed}, i64 {lane}", self.dtype)

        if self.access.terms_beside:
            lines = [read(constant_line(lanes, 1, number) * self.share.stride + term) for number in range(own)]
            return [[pick(line, t) for line in lines] for t in range(chunk)]
        found: list[list[Val]] = []
        for t in range(chunk):
            row = (term + t) * self.share.stride
            runs = [read(row + constant_line(lanes, chunk, number)) for number in range(0, own, chunk)]
            found.append([pick(run, lane) for run in runs for lane in range(chunk)])
        return found

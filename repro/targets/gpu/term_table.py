"""Where the terms of an operand lie, found once for a block of threads: a table in shared memory.

An entry is a term's offset in elements and, where not all elements exist, its word (repro.targets.gpu.presence). The
table is a ring: it holds the panel that is being computed and the one after it, each rounded up to whole steps, whose
entries beyond the panel meet no line. A panel is entered while the one before it is computed; the barrier that each
step begins with stands between that and the first look, and between the last look and the next entry in its place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from repro.ir.types import I32, I64, U32
from repro.targets.gpu.body import GpuBody
from repro.targets.gpu.outputs import Outputs
from repro.targets.gpu.presence import Presence
from repro.targets.gpu.separation import Separation
from repro.targets.gpu.tiles import Plan
from repro.targets.llvm import scalars
from repro.targets.llvm.scope import Scope
from repro.targets.llvm.text import Val, integer


def table_words(separation: Separation) -> int:
    """Words of an entry; 0 where terms are not looked up."""
    return 0 if not separation.tabled else 1 if separation.meeting is None else 2


class TermTable:
    """The table of one operand."""

    def __init__(
        self, body: GpuBody, plan: Plan, side: int, separation: Separation, presence: Presence, outputs: Outputs
    ) -> None:
        self.body, self.f, self.plan, self.separation, self.presence = body, body.f, plan, separation, presence
        self.outer, self.thread = outputs.scope, outputs.thread
        self.words = table_words(separation)
        """Of an entry: offset, and what it may not meet."""
        self.name = f"@terms{side}"
        size = plan.ring * self.words
        self.f.declared[f"{self.name} = internal addrspace(3) global [{size} x i32] undef, align 16"] = None

    def enter(self, start: Val, limit: Val, slot: Val) -> None:
        """The panel of the terms from `start` up to `limit` (i32), from a slot on; each thread its share."""
        f, threads = self.f, self.plan.tile.threads

        def entry(number: Val, _: list[Val]) -> Sequence[Val]:
            at = f.add(start, number)
            exists = scalars.compare(f, "lt", at, limit)
            inside = scalars.convert(f, scalars.select(f, exists, at, start), I64)
            axes = self.plan.contraction.reduce.axes
            scope = Scope(self.outer, dict(zip(axes, self.body.split(inside, axes), strict=True)))
            self._write(f.add(slot, number), scope, exists)
            return ()

        mine = scalars.convert(f, self.thread, I32)
        f.loop(mine, integer(self.plan.panel_steps * self.plan.tile.depth, I32), threads, (), entry)

    def _write(self, slot: Val, scope: Scope, exists: Val) -> None:
        f = self.f
        offset = scalars.convert(f, self.body.value(self.separation.term, scope), I32)
        words = [offset] if self.words == 1 else [offset, self.presence.term(scope, exists)]
        for number, word in enumerate(words):
            place = self._address(f.add(f.scaled(slot, self.words), integer(number, I32)))
            f.line(f"store {word.typed}, ptr addrspace(3) {place}, align 4")

    def _address(self, place: Val) -> str:
        return self.f.let(f"getelementptr inbounds i32, ptr addrspace(3) {self.name}, {place.typed}", I64).text

    def read(self, slot: Val, ahead: Val, count: int) -> list[tuple[Val, Val | None]]:
        """Offsets (i64) and words of so many terms, from `ahead` places behind a slot on, a multiple of their count."""
        f = self.f
        # what is the same in every step is added to the table's own address: the chip's is then one shifted sum
        own, far = self._address(f.scaled(ahead, self.words)), f.scaled(slot, 4 * self.words)
        first = f.let(f"getelementptr inbounds i8, ptr addrspace(3) {own}, {far.typed}", I64).text
        together = math.gcd(count * self.words, 4)
        kind, values = f"<{together} x i32>", list[Val]()
        for at in range(0, count * self.words, together):
            place = f.let(f"getelementptr inbounds i32, ptr addrspace(3) {first}, i64 {at}", I64).text
            run = f.let(f"load {kind}, ptr addrspace(3) {place}, align {4 * together}", I32, together).text
            values += [f.let(f"extractelement {kind} {run}, i64 {lane}", I32) for lane in range(together)]
        offsets = [scalars.convert(f, value, I64) for value in values[:: self.words]]
        words = [Val(value.text, U32) for value in values[1::2]] if self.words == 2 else [None] * count
        return list(zip(offsets, words, strict=True))

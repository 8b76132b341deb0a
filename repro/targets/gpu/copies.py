"""Copies of an operand's elements to shared memory by `cp.async`, where their places part into line and term.

The elements of a thread have one term and several lines, or one line and several terms. What they have in common is
added once; what is left of each is a constant where it follows a stride. A copy of an element that does not exist
(beyond the last line or term, or on a picture's padding) is one of no bytes: it writes zeros and reads nothing,
whatever its address.
"""

from __future__ import annotations

from repro.ir.types import I32, I64, U32
from repro.targets.gpu.body import GpuBody
from repro.targets.gpu.separation import LINE, Separation
from repro.targets.gpu.share import Share, Step
from repro.targets.gpu.term_table import TermTable
from repro.targets.llvm import scalars
from repro.targets.llvm.body import Scope
from repro.targets.llvm.text import Val, element, integer


class Copies:
    """The copies that one thread makes of each step."""

    def __init__(
        self, body: GpuBody, share: Share, separation: Separation, table: TermTable | None, outer: Scope
    ) -> None:
        self.body, self.f, self.share, self.separation, self.table = body, body.f, share, separation, table
        self.bytes = share.wide * share.dtype.bytes
        f, base = self.f, self.body.pointer(separation.buffer, integer(0))
        self.base = f.let(f"addrspacecast ptr {base.text} to ptr addrspace(1)", I64).text
        self.words: list[Val] = []
        self.there: list[Val] = []
        """Whether each line exists, where some do not and their places are not those of the last."""
        if separation.line_stride is None:
            scopes = [share.line_scope(line, outer) for line in share.own_lines]
            self.lines = [self.body.value(separation.line, scope) for scope in scopes]
            if separation.meeting is not None:
                self.words = [separation.meeting.word(self.body, LINE, scope) for scope in scopes]
        else:
            lines = [f.add(share.first, line) for line in share.own_lines]
            rest = self.body.value(separation.line, outer)
            self.lines = [f.add(rest, f.scaled(lines[0], separation.line_stride))]
            if not share.plan.whole(share.side):
                self.there = [scalars.compare(f, "lt", line, integer(share.extent)) for line in lines]

    def begin(self, step: Step, shared: str) -> None:
        """Begin to copy a step to an address in shared memory."""
        if self.share.by_term:
            self._of_one_term(step, shared)
        else:
            self._of_one_line(step, shared)

    def _of_one_term(self, step: Step, shared: str) -> None:
        separation, share = self.separation, self.share
        ((offset, word, exists),) = self._terms(step, 1)
        if separation.line_stride is None:
            first = self._at(self.base, offset)
            places = [self._beyond(first, line, step) for line in self.lines]
        else:
            first = self._at(self._at(self.base, self.lines[0]), offset)
            places = self._apart(first, share.apart * separation.line_stride)
        for number, place in enumerate(places):
            self._copy(place, share.slot(shared, number), self._kept(number, word, exists))

    def _of_one_line(self, step: Step, shared: str) -> None:
        share, line = self.share, self._at(self.base, self.lines[0])
        terms = self._terms(step, share.count)
        if self.table is not None:
            places = [self._at(line, offset) for offset, _, _ in terms]
        else:
            places = self._apart(self._at(line, terms[0][0]), self.separation.term_stride or 0)
        for number, (place, (_, word, exists)) in enumerate(zip(places, terms, strict=True)):
            self._copy(place, share.slot(shared, number), self._kept(0, word, exists))

    def _terms(self, step: Step, count: int) -> list[tuple[Val, Val | None, Val | None]]:
        """Of each of the thread's terms the offset, its word, and whether it is one of the step's, where its word does
        not say so."""
        f, share = self.f, self.share
        at = [f.add(f.add(step.start, share.ahead), integer(number, I32)) for number in range(count)]
        if self.table is None:
            return [(self._strided(each), None, share.exists(each, step)) for each in at]
        entries = self.table.read(f.add(step.slot, share.ahead), count)
        return [
            (offset, word, share.exists(each, step) if word is None else None)
            for each, (offset, word) in zip(at, entries, strict=True)
        ]

    def _strided(self, at: Val) -> Val:
        """The offset of a term that follows a stride; what is left of its part at 0 is a constant."""
        rest = self.body.value(self.separation.term, Scope(None, {}))
        wide = scalars.convert(self.f, Val(at.text, U32), I64)
        return self.f.add(rest, self.f.scaled(wide, self.separation.term_stride or 0))

    def _at(self, pointer: str, offset: Val) -> str:
        kind = element(self.share.dtype)
        return self.f.let(f"getelementptr {kind}, ptr addrspace(1) {pointer}, {offset.typed}", I64).text

    def _beyond(self, first: str, line: Val, step: Step) -> str:
        """An address so many elements on from another, in one instruction of the chip: a product of 32 bits and a sum
        of 64. It is kept from LLVM that the line's part is the same in every step, and what the other was made of: it
        would widen the one before the loop, for twice the registers, and add both parts before it scales them."""
        f, kind = self.f, "ptr addrspace(1)"
        place = f.let(f'call {kind} asm "mov.b64 $0, $1;", "=l,l"({kind} {first})', I64).text
        narrow = scalars.convert(f, line, I32)
        own = f.let(f'call i32 asm "mov.b32 $0, $1;", "=r,r,r"({narrow.typed}, {step.start.typed})', I32)
        return self._at(place, scalars.convert(f, own, I64))

    def _apart(self, first: str, stride: int) -> list[str]:
        """Places that follow one another."""
        numbers = range(self.share.count)
        return [self._at(first, integer(number * stride)) if number * stride else first for number in numbers]

    def _kept(self, line: int, word: Val | None, exists: Val | None) -> Val | None:
        """Whether an element exists; None where all do."""
        f = self.f
        conditions = [exists] if exists is not None else []
        if self.there:
            conditions.append(self.there[line])
        if word is not None:
            shared = scalars.binary(f, "and", word, self.words[line])
            conditions.append(scalars.compare(f, "eq", shared, integer(0, U32)))
        if not conditions:
            return None
        return conditions[0] if len(conditions) == 1 else scalars.binary(f, "and", *conditions)

    def _copy(self, source: str, target: str, kept: Val | None) -> None:
        how = "cg" if self.bytes == 16 else "ca"
        name = f"llvm.nvvm.cp.async.{how}.shared.global.{self.bytes}"
        types, arguments = ["ptr addrspace(3)", "ptr addrspace(1)"], [target, source]
        if kept is not None:
            given = scalars.select(self.f, kept, integer(self.bytes, U32), integer(0, U32))
            name, types, arguments = f"{name}.s", [*types, "i32"], [*arguments, given.text]
        self.f.effect(name, types, [f"{kind} {value}" for kind, value in zip(types, arguments, strict=True)])

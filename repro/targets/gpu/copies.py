"""Copies of an operand's elements to shared memory by `cp.async`, where their places part into line and term.

What a thread's elements have in common is added once; what is left of each is a constant where it follows a stride. A
copy of an element that does not exist (beyond the last line or term, or on a picture's padding) is one of no bytes: it
writes zeros and reads nothing, whatever its address.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from repro.ir.types import BOOL, I32, I64, U32
from repro.targets.gpu.body import GpuBody
from repro.targets.gpu.presence import Presence
from repro.targets.gpu.separation import Separation
from repro.targets.gpu.share import Share, Step
from repro.targets.gpu.term_table import TermTable
from repro.targets.llvm import scalars
from repro.targets.llvm.scope import Scope
from repro.targets.llvm.text import Val, element, integer

NEAR = 2048
"""Bytes up to which a copy's own instruction adds a constant to an address. Beyond, that takes two; from the start of
all lines, one."""


@dataclass(frozen=True)
class Ready:
    """One of a thread's terms in a step: where it lies, unless that is a constant distance from the first one, and
    which of the thread's lines exist there."""

    number: int
    place: str
    kept: Sequence[Val | None]


class Copies:
    """The copies that one thread makes of each step."""

    def __init__(
        self,
        body: GpuBody,
        share: Share,
        separation: Separation,
        presence: Presence,
        table: TermTable | None,
        outer: Scope,
        *,
        spare: int,
    ) -> None:
        self.body, self.f, self.share, self.separation, self.table = body, body.f, share, separation, table
        self.presence, self.bytes = presence, share.wide * share.dtype.bytes
        self.stride = separation.term_stride if table is None else 1 if share.by_term else None
        """Elements from one of the thread's terms to the next, where that is one number."""
        f, base = self.f, self.body.pointer(separation.buffer, integer(0))
        self.base = f.let(f"addrspacecast ptr {base.text} to ptr addrspace(1)", I64).text
        self.size = f.let(f'call i32 asm "mov.b32 $0, {self.bytes};", "=r"()', U32)
        """Bytes of a copy, kept from LLVM: of a number that it knows it would make the size from a bit by shifts."""
        stride = separation.line_stride
        if stride is None:
            scopes = [share.line_scope(line, outer) for line in share.own_lines]
            self.lines = [self.body.value(separation.line, scope) for scope in scopes]
            self.apart = share.lines > 1
        else:
            rest = self.body.value(separation.line, outer)
            apart = 2 < share.lines <= spare and share.apart * stride * share.dtype.bytes >= NEAR
            own = share.own_lines if apart else share.own_lines[:1]
            self.apart = apart or presence.absent is not None
            self.lines = [f.add(rest, f.scaled(f.add(share.first, line), stride)) for line in own]

    def ready(self, step: Step) -> list[Ready]:
        """All that is to be known of a step's copies: what is read for them from shared memory is read before any copy
        begins, since the chip waits between the two."""
        base = self.base if self.apart else self._at(self.base, self.lines[0])
        return [
            Ready(number, self._at(base, offset) if number == 0 or self.stride is None else "", kept)
            for number, (offset, kept) in enumerate(
                (offset, self.presence.of_term(word, exists)) for offset, word, exists in self._terms(step)
            )
        ]

    def begin(self, ready: Sequence[Ready], step: Step, shared: str) -> Iterator[None]:
        """Begin to copy a step to an address in shared memory, one copy in each turn."""
        firsts: list[str] = []
        for term in ready:
            if term.place:
                places = firsts = self._of_lines(term.place, step)
            else:
                places = [self._at(first, integer(term.number * (self.stride or 0))) for first in firsts]
            for line, place in enumerate(places):
                self._copy(place, self.share.slot(shared, (line, term.number)), term.kept[line])
                yield

    def _of_lines(self, place: str, step: Step) -> list[str]:
        """The places of the thread's lines at a term, where the first line's (if lines are `apart`, the start of all)
        lies at an address."""
        if len(self.lines) > 1:
            return [self._beyond(place, line, step) for line in self.lines]
        first = self._beyond(place, self.lines[0], step) if self.apart else place
        far = self.share.apart * (self.separation.line_stride or 0)
        return [self._at(first, integer(line * far)) if line * far else first for line in range(self.share.lines)]

    def _terms(self, step: Step) -> list[tuple[Val, Val | None, Val | None]]:
        """Of each of the thread's terms the offset, its word, and whether it is one of the step's, where its word does
        not say so."""
        f, share, count = self.f, self.share, self.share.terms
        first = f.add(step.start, share.ahead)
        exist = [share.exists(first, step, number) for number in range(count)]
        if self.table is None:
            at = [f.add(first, integer(number, I32)) for number in range(count)]
            return [(self._strided(each), None, exists) for each, exists in zip(at, exist, strict=True)]
        entries = self.table.read(step.slot, share.ahead, count)
        return [
            (offset, word, exists if word is None else None)
            for exists, (offset, word) in zip(exist, entries, strict=True)
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

    def _copy(self, source: str, target: str, kept: Val | None) -> None:
        """Where it is not kept it writes zeros. A comparison says so by the operand that is a predicate (PTX ISA 7.5,
        `ignore-src`), from which a number of bytes would be made, and compared again; words of lines and terms by that
        number, since they are no predicates yet."""
        how = "cg" if self.bytes == 16 else "ca"
        types, arguments = ["ptr addrspace(3)", "ptr addrspace(1)"], [target, source]
        if kept is not None and self.presence.meeting is None:
            ignored = scalars.binary(self.f, "xor", kept, integer(1, BOOL))
            text = f"cp.async.{how}.shared.global [$0], [$1], {self.bytes}, $2;"
            operands = f"{types[0]} {target}, {types[1]} {source}, {ignored.typed}"
            self.f.line(f'call void asm sideeffect "{text}", "l,l,b"({operands})')
            return
        name = f"llvm.nvvm.cp.async.{how}.shared.global.{self.bytes}"
        if kept is not None:
            given = scalars.select(self.f, kept, self.size, integer(0, U32))
            name, types, arguments = f"{name}.s", [*types, "i32"], [*arguments, given.text]
        self.f.effect(name, types, [f"{kind} {value}" for kind, value in zip(types, arguments, strict=True)])

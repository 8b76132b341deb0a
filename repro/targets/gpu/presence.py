"""Which elements of a step exist, asked of a thread's copies: lines beyond the last, and a picture's padding.

Words of lines and terms say so (repro.targets.gpu.separation): an element exists where they have no bit in common. A
thread that copies one term of many lines asks for all of them at once: for each class of terms it has a mask in shared
memory, with a bit for each of its lines that does not exist there, and a term's word says which mask.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from repro.errors import InternalError
from repro.ir.types import I64, U8, U16, U32, DType
from repro.targets.gpu.body import GpuBody
from repro.targets.gpu.outputs import Outputs
from repro.targets.gpu.separation import LINE, TERM, Separation
from repro.targets.gpu.share import Share
from repro.targets.gpu.tiles import Plan
from repro.targets.llvm import scalars
from repro.targets.llvm.scope import Scope
from repro.targets.llvm.text import Val, element, integer

FEW = 4
"""Lines whose words take no more registers than a thread has to spare."""
MOST = 3 << 10
"""Bytes of masks of a block, at most."""
MOST_LINES = U32.bits
"""Of a thread, where some may not exist: a word has a bit for each."""


def mask_bytes(plan: Plan, separation: Separation | None, lines: int) -> int:
    """Of shared memory, for a block's masks; 0 where threads hold the words of their lines instead."""
    meeting = None if separation is None else separation.meeting
    if lines <= FEW or meeting is None or meeting.classed != TERM:
        return 0
    found = _kind(lines).bytes * (len(meeting.classes) + 1) * plan.tile.threads
    return found if found <= MOST else 0


def _kind(lines: int) -> DType:
    """Of a mask."""
    return U8 if lines <= 8 else U16 if lines <= 16 else U32


class Presence:
    """Of one thread's lines; `words`: of each; `absent`: a bit for each that does not exist."""

    def __init__(self, body: GpuBody, share: Share, separation: Separation, outputs: Outputs) -> None:
        self.body, self.f, self.share, self.meeting = body, body.f, share, separation.meeting
        self.thread, self.threads = outputs.thread, share.plan.tile.threads
        self.kind = _kind(share.lines)
        self.words: list[Val] = []
        self.absent: Val | None = None
        strided, whole = separation.line_stride is not None, share.plan.whole(share.side)
        there = [share.there(line) if strided else None for line in share.own_lines]
        if self.meeting is not None:
            scopes = [share.line_scope(line, outputs.scope) for line in share.own_lines]
            words = zip(scopes, there, strict=True)
            self.words = [self.meeting.word(body, LINE, scope, exists) for scope, exists in words]
        elif strided and not whole:
            self.absent = self._bits([exists for exists in there if exists is not None], "eq")
        self.masked = mask_bytes(share.plan, separation, share.lines) > 0
        if self.masked:
            self._masks()

    def _masks(self) -> None:
        f, meeting, name = self.f, self.meeting, self._name
        assert meeting is not None
        rows = len(meeting.classes) + 1
        area = f"[{rows * self.threads} x {element(self.kind)}]"
        f.declared[f"{name} = internal addrspace(3) global {area} undef, align 16"] = None
        for number, own in enumerate(meeting.classes):
            shared = [scalars.binary(f, "and", word, integer(own, U32)) for word in self.words]
            self._store(number, self._bits(shared, "ne"))
        self._store(len(meeting.classes), integer((1 << self.share.lines) - 1, U32))

    @property
    def _name(self) -> str:
        return f"@masks{self.share.side}"

    def _bits(self, values: list[Val], how: str) -> Val:
        """A word with a bit for each value that is (eq) or is not (ne) zero."""
        f = self.f
        if len(values) > MOST_LINES:
            raise InternalError(f"{len(values)} lines of a thread, of which some may not exist")
        found = [scalars.compare(f, how, value, scalars.constant(f, value.dtype, 0, 1)) for value in values]
        bits = [
            scalars.select(f, each, integer(1 << number, U32), integer(0, U32)) for number, each in enumerate(found)
        ]
        return functools.reduce(functools.partial(scalars.binary, f, "or"), bits)

    def _place(self, row: Val) -> str:
        kind, at = element(self.kind), self.f.add(row, self.thread)
        return self.f.let(f"getelementptr inbounds {kind}, ptr addrspace(3) {self._name}, {at.typed}", I64).text

    def _store(self, number: int, mask: Val) -> None:
        place, narrow = self._place(integer(number * self.threads)), scalars.convert(self.f, mask, self.kind)
        self.f.line(f"store {narrow.typed}, ptr addrspace(3) {place}, align {self.kind.bytes}")

    def term(self, scope: Scope, exists: Val) -> Val:
        """The word of a term bound in a scope."""
        assert self.meeting is not None
        if not self.masked:
            return self.meeting.word(self.body, TERM, scope, exists)
        return self.f.scaled(self.meeting.number(self.body, scope, exists), self.threads)

    def of_term(self, word: Val | None, exists: Val | None) -> Sequence[Val | None]:
        """Of each of the thread's lines whether it exists at a term with a word, which is one of the step's if it
        `exists`; None where that is sure."""
        if self.masked:
            assert word is not None
            row = scalars.convert(self.f, word, I64)
            place = self._place(row)
            read = f"load {element(self.kind)}, ptr addrspace(3) {place}, align {self.kind.bytes}"
            mask = scalars.convert(self.f, self.f.let(read, self.kind), U32)
            return self._tested(self.f.let(f'call i32 asm "mov.b32 $0, $1;", "=r,r"({mask.typed})', U32))
        if word is not None:
            shared = [scalars.binary(self.f, "and", word, own) for own in self.words]
            return [scalars.compare(self.f, "eq", each, integer(0, U32)) for each in shared]
        if self.absent is None:
            return [exists] * self.share.lines
        tested = self._tested(self.absent)
        return [each if exists is None else scalars.binary(self.f, "and", each, exists) for each in tested]

    def _tested(self, mask: Val) -> list[Val]:
        bits = [scalars.binary(self.f, "and", mask, integer(1 << n, U32)) for n in range(self.share.lines)]
        return [scalars.compare(self.f, "eq", bit, integer(0, U32)) for bit in bits]

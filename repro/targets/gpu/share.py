"""How a step of one operand lies in shared memory, and which of its elements each thread brings.

Terms lie side by side ([line][term]) or lines do ([term][line]).
"""

from __future__ import annotations

from dataclasses import dataclass

from repro.errors import InternalError
from repro.ir.types import I32, I64
from repro.targets.gpu.access import Access
from repro.targets.gpu.body import GpuBody
from repro.targets.gpu.outputs import Outputs
from repro.targets.gpu.tiles import Plan
from repro.targets.llvm import scalars
from repro.targets.llvm.body import Scope
from repro.targets.llvm.text import Val, element, integer


@dataclass(frozen=True)
class Step:
    """Which terms are brought: from `start` up to `limit` (i32), whose entries in tables of terms begin at `slot`."""

    start: Val
    limit: Val
    slot: Val


class Share:
    """One thread's share of each step: `count` runs of `wide` elements, of one term and several lines (`by_term`), or
    of one line and several terms, which are `apart` from one another."""

    def __init__(self, body: GpuBody, plan: Plan, side: int, access: Access, outputs: Outputs) -> None:
        self.body, self.f, self.plan, self.side, self.first = body, body.f, plan, side, outputs.first[side]
        self.by_term, self.wide, self.dtype = access.by_term, access.wide, plan.contraction.reduce.dtype
        self.axes, self.extent = plan.axes(side), plan.contraction.extents[1 + side]
        lines, depth = plan.tile.block[side], plan.tile.depth
        self.stride = access.stride(plan, side)
        self.bytes = access.bytes(plan, side)
        """Of shared memory, for one step."""
        self.count, along = lines * depth // self.wide // plan.tile.threads, access.along(plan, side)
        if not access.even(plan, side):
            raise InternalError(f"a step of {lines} x {depth} is not shared out evenly by {self.wide}")
        f = self.f
        fast = f.scaled(scalars.binary(f, "urem", outputs.thread, integer(along)), self.wide)
        slow = scalars.binary(f, "udiv", outputs.thread, integer(along))
        self.apart = plan.tile.threads // along if self.by_term else 1
        if not self.by_term:
            slow = f.scaled(slow, self.count)
        line, term = (slow, fast) if self.by_term else (fast, slow)
        numbers = range(self.count if self.by_term else 1)
        self.own_lines = [f.add(line, integer(number * self.apart)) for number in numbers]
        self.ahead = scalars.convert(f, term, I32)
        """The first of the thread's terms, counted from the step's."""
        outer, inner = (line, term) if access.terms_beside else (term, line)
        self.place = f.add(f.scaled(outer, self.stride), inner)
        self.step = self.apart * (self.stride if access.terms_beside == self.by_term else 1)
        """Elements of shared memory from one of the thread's runs to the next."""

    def exists(self, at: Val, step: Step) -> Val | None:
        """Whether the term at a place is one of the step's; None where all are."""
        return scalars.compare(self.f, "lt", at, step.limit) if self.plan.ragged else None

    def line_scope(self, line: Val, outer: Scope) -> Scope:
        """The scope of a line; those beyond the last stand for it, and what they give is never stored."""
        f = self.f
        place = f.add(self.first, line)
        if not self.plan.whole(self.side):
            last = integer(self.extent - (1 if self.by_term else self.wide))
            place = scalars.select(f, scalars.compare(f, "lt", place, last), place, last)
        return Scope(outer, dict(zip(self.axes, self.body.split(place, self.axes), strict=True)))

    def slot(self, shared: str, number: int) -> str:
        """The address of the thread's run by number, where the step begins at an address."""
        first = self.element(shared, self.place)
        return self.element(first, integer(number * self.step)) if number else first

    def element(self, shared: str, place: Val) -> str:
        """The address of an element in shared memory."""
        kind = element(self.dtype)
        return self.f.let(f"getelementptr inbounds {kind}, ptr addrspace(3) {shared}, {place.typed}", I64).text
